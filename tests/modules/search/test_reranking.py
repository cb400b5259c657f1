"""Re-ranked lists are those of a plain loop over queries, ties against the right answer; only the pairs are scored."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from modules.errors import ModelError
from modules.metrics.retrieval import RetrievalRanks, retrieval_ranks
from modules.search.encodings import Encoding
from modules.search.index import VectorIndex
from modules.search.ranking import exact_ranks, ranks_by_index
from modules.search.reranking import FirstLists, first_lists, reranked
from tests.modules.search.test_ranking import assert_same, best_word_and_region, sets, vectors_with_duplicates, whole


def lists_of(images: Tensor, captions: Tensor, links: Tensor, k: int) -> FirstLists:
    indexes = (VectorIndex(side, gpu=-1) for side in (images, captions))
    return first_lists(*indexes, ranks_by_index(images, captions, links), k)


def plain_rank(listed: list[int], right: set[int], score, before: int) -> int:
    """The definition, one candidate at a time."""
    found = [one for one in listed if one in right]
    if not found or before > len(listed):
        return before
    best = max(score(one) for one in found)
    return 1 + sum(score(one) >= best for one in listed if one not in right)


def plain_ranks(scores: Tensor, first: FirstLists) -> RetrievalRanks:
    """Ranks by the whole matrix (I, C) of the second model."""
    links = first.ranks.caption_image.tolist()
    by_text = [
        plain_rank(first.images[c].tolist(), {image}, lambda i, c=c: scores[i, c], first.ranks.text_to_image[c])
        for c, image in enumerate(links)
    ]
    by_image = []
    for image in range(len(scores)):
        own = {caption for caption, link in enumerate(links) if link == image}
        listed, before = first.captions[image].tolist(), first.ranks.image_to_text[image]
        by_image.append(plain_rank(listed, own, lambda c, i=image: scores[i, c], before))
    return RetrievalRanks(torch.tensor(by_text), torch.tensor(by_image), first.ranks.caption_image)


sizes = {"seed": st.integers(0, 10_000), "images": st.integers(1, 20), "captions": st.integers(1, 40)}


@settings(max_examples=60, deadline=None)
@given(**sizes, k=st.integers(1, 50), block=st.integers(1, 50))
def test_as_a_plain_loop_ranks(seed, images, captions, k, block) -> None:
    """Both models tie often, k may be larger than the gallery, and some images have no caption."""
    image, caption, _ = vectors_with_duplicates(seed, images, captions)
    regions, words, _ = sets(seed, images, captions)
    links = torch.randint(images, (captions,), generator=torch.Generator().manual_seed(seed))
    first = lists_of(image, caption, links, k)
    scores = (2 * best_word_and_region(regions, words)).round()
    ours = reranked(lambda i, c: (2 * best_word_and_region(i, c)).round(), *whole(regions, words), first, block)
    assert_same(ours, plain_ranks(scores, first))


@settings(max_examples=40, deadline=None)
@given(**sizes, more=st.integers(0, 5))
def test_lists_of_the_whole_gallery_rank_as_the_second_model_does(seed, images, captions, more) -> None:
    image, caption, _ = vectors_with_duplicates(seed, images, captions)
    regions, words, links = sets(seed, images, captions)
    first = lists_of(image, caption, links, max(images, captions) + more)
    ours = reranked(best_word_and_region, *whole(regions, words), first)
    assert_same(ours, exact_ranks(best_word_and_region, *whole(regions, words), links))
    assert_same(ours, retrieval_ranks(best_word_and_region(regions, words), links))


def test_beyond_the_first_k_all_stays() -> None:
    """Lists of one: the right answer is first by the first model, or its rank is that model's."""
    image, caption, links = vectors_with_duplicates(1, 30, 60, whole=False)
    regions, words, _ = sets(1, 30, 60)
    first = lists_of(image, caption, links, 1)
    assert_same(reranked(best_word_and_region, *whole(regions, words), first), first.ranks)
    assert len(first.ranks.text_to_image.unique()) > 5


def test_only_what_is_on_a_list_is_scored_and_once() -> None:
    image, caption, links = vectors_with_duplicates(2, 30, 60, whole=False)
    regions, words, _ = sets(2, 30, 60)
    regions[0][:, 0, 0], words[0][:, 0, 0] = torch.arange(30), torch.arange(60)  # their numbers
    first = lists_of(image, caption, links, 4)
    seen = torch.zeros(30, 60, dtype=torch.long)
    largest = 0

    def watched(some_images: Encoding, some_captions: Encoding) -> Tensor:
        nonlocal largest
        scores = best_word_and_region(some_images, some_captions)
        seen[some_images[0][:, 0, 0].long()[:, None], some_captions[0][:, 0, 0].long()] += 1
        largest = max(largest, scores.numel())
        return scores

    reranked(watched, *whole(regions, words), first, block=5)
    wanted = torch.zeros(30, 60, dtype=torch.long)
    wanted.scatter_(1, first.captions, 1)
    wanted.t().scatter_(1, first.images, 1)
    assert torch.equal(seen, wanted)
    assert largest == 5


def test_a_collapsed_model_ranks_last_whether_first_or_second() -> None:
    image, caption, links = vectors_with_duplicates(3, 20, 40, whole=False)
    links = torch.arange(40) % 20
    same, regions, words = torch.ones(60, 4), *sets(3, 20, 40)[:2]
    ranks = reranked(best_word_and_region, *whole(regions, words), lists_of(same[:20], same[:40], links, 5))
    assert ranks.text_to_image.unique().tolist() == [20]
    assert ranks.image_to_text.unique().tolist() == [39]
    first = lists_of(image, caption, links, 5)
    ranks = reranked(lambda i, c: torch.ones(len(i[0]), len(c[0])), *whole(regions, words), first)
    assert (ranks.text_to_image >= 5).all()
    inside = first.ranks.text_to_image <= 5
    assert (ranks.text_to_image[inside] == 5).all()


def test_short_lists_and_lists_that_lack_what_ranked_high() -> None:
    """As an approximate index leaves them: the first caption's image is on no list though its rank was 1."""
    scores = torch.tensor([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]])
    ranks = RetrievalRanks(torch.tensor([1, 1, 2]), torch.tensor([1, 1]), torch.tensor([0, 1, 1]))
    first = FirstLists(torch.tensor([[1, -1], [1, 0], [-1, -1]]), torch.tensor([[1, 0, -1], [0, -1, -1]]), ranks)
    images, captions = torch.arange(2.0)[:, None, None], torch.arange(3.0)[:, None, None]
    masks = torch.ones(2, 1).bool(), torch.ones(3, 1).bool()
    found = reranked(
        lambda i, c: scores[i[0][:, 0, 0].long()][:, c[0][:, 0, 0].long()],
        *whole((images, masks[0]), (captions, masks[1])), first,
    )  # fmt: skip
    assert found.text_to_image.tolist() == [3, 2, 3]
    assert found.image_to_text.tolist() == [2, 4]


def test_what_does_not_fit_is_one_line() -> None:
    image, caption, links = vectors_with_duplicates(0, 10, 13)
    regions, words, _ = sets(0, 10, 13)
    first = lists_of(image, caption, links, 3)
    with pytest.raises(ModelError, match="lists are of 10 images, the encodings of 11"):
        reranked(best_word_and_region, *whole(sets(0, 11, 13)[0], words), first)
    with pytest.raises(ModelError, match=r"caption_image has shape \(13,\), expected \(12,\)"):
        reranked(best_word_and_region, *whole(regions, (words[0][:12], words[1][:12])), first)
    indexes = VectorIndex(image, gpu=-1), VectorIndex(caption[:12], gpu=-1)
    with pytest.raises(ModelError, match="10 images and 12 captions, but the ranks are of 10 and 13"):
        first_lists(*indexes, first.ranks, 3)
    words[0][6] = torch.nan
    with pytest.raises(ModelError, match=r"caption 6 \(column\)"):
        reranked(best_word_and_region, *whole(regions, words), first)
