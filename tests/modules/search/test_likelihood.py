"""Ranks by log p(caption | image): probabilities and reordered lists, against plain loops."""

import itertools
import math

import pytest
import torch
from torch import Tensor

from modules.errors import ModelError
from modules.metrics.retrieval import RetrievalRanks
from modules.retrieval_models import RetrievalModel, build_model
from modules.search.encodings import Encodings
from modules.search.likelihood import CaptionLikelihood, likelihood_ranks
from modules.search.ranking import exact_ranks
from modules.search.reranking import FirstLists, exact_lists
from tests.modules.search.test_ranking import assert_same, best_word_and_region, sets, whole

LINKS = torch.tensor([0, 0, 1, 2, 2, 3])
SENTENCES = [[2, 3], [4], [3, 3, 2], [], [2, 3], [1, 4]]  # one of two images, one empty, one with an unknown word


def model(**options) -> RetrievalModel:
    torch.manual_seed(2)
    common = {"region_dim": 6, "vocabulary_size": 5, "languages": ["de", "en"], "dim": 8, "word_dim": 4, "dropout": 0.5}
    made = build_model("gxn", **common, **{"generate": ["i2t"]} | options).eval()
    with torch.no_grad():
        for parameter in made.parameters():  # far from equal shares
            parameter.mul_(4)
    return made


def pictures(images: int = 7) -> Tensor:
    return torch.randn(images, 2, 6, generator=torch.Generator().manual_seed(1))


def likelihood(made: RetrievalModel, sentences: list[list[int]] = SENTENCES, block: int = 512) -> CaptionLikelihood:
    return CaptionLikelihood(made, lambda rows: pictures()[rows], sentences, "en", block)


def plain_log_p(made: RetrievalModel, image: int, sentence: list[int]) -> float:
    """Word after word, with the decoder's own layers."""
    vector = made.scaled(made.grounded_images(pictures()[image, None], torch.ones(1, 2).bool()))
    state, word, total = torch.tanh(made.decoder.state(vector)), made.decoder.begin(torch.tensor([1])), 0.0
    for token in [*sentence, 0]:
        state = made.decoder.gru(word[:, None], state[None])[0][:, 0]
        total += made.decoder.out(state).log_softmax(-1)[0, token].item()
        word = made.words(torch.tensor([token]))
    return total


def table(made: RetrievalModel, images: list[int]) -> Tensor:
    """log p (images, C) of all captions."""
    with torch.no_grad():
        return torch.tensor([[plain_log_p(made, image, one) for one in SENTENCES] for image in images])


@pytest.mark.parametrize("block", [1, 4, 512])
def test_pairs_are_scored_word_by_word(block: int) -> None:
    made = model()
    rows, columns = torch.tensor([0, 0, 3, 3, 5, 6]), torch.tensor([1, 3, 0, 2, 5, 4])
    found = likelihood(made, block=block).of_pairs(rows, columns)
    torch.testing.assert_close(found, table(made, list(range(7)))[rows, columns])


def test_all_captions_up_to_two_words_and_all_longer_ones_have_the_probability_one() -> None:
    made, words = model(), range(1, 5)
    ended = [list(one) for length in range(3) for one in itertools.product(words, repeat=length)]
    found = likelihood(made, ended).of_pairs(torch.zeros(len(ended), dtype=torch.long), torch.arange(len(ended))).exp()
    two = [one for one in ended if len(one) == 2]
    vectors = made.scaled(made.grounded_images(pictures()[:1], torch.ones(1, 2).bool())).expand(len(two), -1)
    begun = -made.decoder.surprise(made.words, vectors, *made.tensors_of(two, "en"), ended=torch.zeros(len(two)).bool())
    longer = begun.exp() - found[-len(two) :]
    assert (found.sum() + longer.sum()).item() == pytest.approx(1, abs=1e-5)
    assert 0.05 < longer.sum().item() < 0.95


def test_a_caption_s_own_probability_is_its_mean_over_images() -> None:
    made, sample = model(), torch.tensor([1, 4, 6])
    mean = table(made, sample.tolist()).exp().mean(0).log()
    torch.testing.assert_close(likelihood(made, block=5).of_captions(sample), mean, check_dtype=False)


def first_of(k: int) -> FirstLists:
    regions, words, _ = sets(4, 4, 6)
    return exact_lists(best_word_and_region, *whole(regions, words), LINKS, k)


def plain_rank(listed: list[int], right: set[int], score: dict[int, float], before: int) -> int:
    """The definition, one candidate at a time; scores closer than rounding tie."""
    best = max((score[one] for one in listed if one in right), default=None)
    if best is None or before > len(listed):
        return before
    return 1 + sum(score[one] > best - 5e-5 for one in listed if one not in right)


@pytest.mark.parametrize("k", [1, 2, 4, 6])
def test_ranks_are_those_of_a_plain_loop(k: int) -> None:
    made, first, images, sample = model(), first_of(k), torch.tensor([2, 0, 5, 6]), torch.tensor([1, 3])
    scores, usual = table(made, images.tolist()), table(made, sample.tolist()).exp().mean(0).log()
    by_text = [
        plain_rank(listed, {link}, {i: scores[i, c].item() for i in listed}, before)
        for c, (listed, link, before) in enumerate(
            zip(first.images.tolist(), LINKS.tolist(), first.ranks.text_to_image.tolist(), strict=True)
        )
    ]
    by_image = [
        plain_rank(
            listed, set((i == LINKS).nonzero()[:, 0].tolist()),
            {c: (scores[i, c] - usual[c]).item() for c in listed}, before,
        )
        for i, (listed, before) in enumerate(
            zip(first.captions.tolist(), first.ranks.image_to_text.tolist(), strict=True)
        )
    ]  # fmt: skip
    found = likelihood_ranks(likelihood(made), first, images, sample)
    assert_same(found, RetrievalRanks(torch.tensor(by_text), torch.tensor(by_image), LINKS))
    if k == 6:
        assert not torch.equal(found.text_to_image, first.ranks.text_to_image)


@pytest.mark.parametrize("k", [1, 3, 50])
def test_exact_lists_are_the_best_of_the_whole_matrix(k: int) -> None:
    regions, words, links = sets(0, 9, 23)
    scores = best_word_and_region(regions, words)
    found = exact_lists(best_word_and_region, *whole(regions, words), links, k)
    assert_same(found.ranks, exact_ranks(best_word_and_region, *whole(regions, words), links))
    for listed, matrix in ((found.captions, scores), (found.images, scores.T)):
        best = matrix.sort(dim=1, descending=True).values[:, :k]
        torch.testing.assert_close(matrix.gather(1, listed), best)
        assert all(len(set(row)) == len(row) for row in listed.tolist())


def test_what_cannot_be_scored_is_one_line() -> None:
    made = model()
    with torch.no_grad():
        made.decoder.out.bias[4] = math.nan
    with pytest.raises(ModelError, match=r"score of image 3 \(row\) and caption 1 \(column\) is nan"):
        likelihood(made).of_pairs(torch.tensor([3]), torch.tensor([1]))
    with pytest.raises(ModelError, match="Gxn writes no captions: it has no decoder"):
        likelihood(model(generate=[])).of_pairs(torch.tensor([0]), torch.tensor([0]))


def test_a_caption_of_another_image_is_refused() -> None:
    regions, words, _ = sets(0, 9, 23)
    with pytest.raises(ModelError, match="caption 0 names image 9, but there are 9"):
        exact_lists(best_word_and_region, Encodings.of(regions), Encodings.of(words), torch.full((23,), 9), 2)


class Given:
    """Probabilities that are given, in place of a decoder's."""

    def __init__(self, scores: Tensor) -> None:
        self.scores = scores

    def of_pairs(self, images: Tensor, captions: Tensor) -> Tensor:
        return self.scores[images, captions]

    def of_captions(self, images: Tensor) -> Tensor:
        return torch.zeros(self.scores.shape[1])


@pytest.mark.parametrize(("above", "rank"), [(2e-5, 2), (2e-4, 1)])
def test_scores_that_differ_by_their_batch_alone_are_ties(above: float, rank: int) -> None:
    scores = torch.tensor([[0.5, 0.5 - above], [0.5 - above, 0.5]])
    lists = FirstLists(
        *2 * [torch.tensor([[0, 1], [1, 0]])], RetrievalRanks(*2 * [torch.ones(2).long()], torch.arange(2))
    )
    found = likelihood_ranks(Given(scores), lists, torch.arange(2), torch.arange(1))  # type: ignore[arg-type]
    assert found.text_to_image.tolist() == found.image_to_text.tolist() == [rank, rank]
