"""Diverse attention against its formulas item by item in float64: scores of both kinds, and what it logs."""

from copy import copy
from itertools import permutations
from pathlib import Path

import pytest
import torch
from torch import Tensor

from data.batches.slots import parse_group
from data.text.text_inputs import PretrainedTokens
from modules.errors import ModelError
from modules.layers.encoders import HeadsPool
from modules.pretrained.pretrained_text import PretrainedWords
from modules.retrieval_models import build_model, model_class, option_names
from modules.retrieval_models.diverse_attention import DiverseAttention
from modules.search.scores import best_assignment
from tests.modules.cases import (
    LENGTHS,
    C,
    D,
    E,
    H,
    N,
    V,
    check_autocast,
    check_learns,
    check_order_and_padding,
    check_same,
    check_unit_norm,
    make,
    make_batch,
    plain_scores,
    plain_states,
)
from tests.modules.small import Corpus, Diary, make_trainer
from tests.modules.text_models import save

NAME = "diverse-attention"
KINDS = [{}, {"heads": 1}, {"match": "set"}, {"match": "set", "heads": 4}, {"heads": 12}]  # of 2 to 5 regions
TOGETHER = [parse_group("en/human + de/human")]


def plain_pool(pool: HeadsPool, vectors: list[Tensor]) -> list[Tensor]:
    """Eq. 1-2, head by head and vector by vector."""
    heads = []
    for number, matrix in enumerate(pool.of_vectors.weight.split(H)):
        context = torch.tanh(pool.of_contexts[number] @ pool.contexts[number])
        shares = torch.stack([context @ torch.tanh(matrix @ vector) for vector in vectors])
        shares = shares.exp() / shares.exp().sum()
        heads.append(sum(share * vector for share, vector in zip(shares, vectors, strict=True)))
    return heads


def image(model: DiverseAttention, regions: Tensor) -> list[Tensor]:
    weight, bias = model.regions.weight, model.regions.bias
    return plain_pool(model.pool_regions, [torch.tanh(weight @ region + bias) for region in regions])


def caption(model: DiverseAttention, tokens: Tensor, language: int) -> list[Tensor]:
    encoder = model.captions.of[("de", "en")[language]]
    return plain_pool(encoder.pool, plain_states(encoder.states.lstm.lstm, model.words.weight[tokens]))


def score(model: DiverseAttention, v: list[Tensor], t: list[Tensor]) -> Tensor:
    if model.match == "concatenated":
        one, other = torch.cat(v), torch.cat(t)
        return one @ other / (one.norm() * other.norm())
    cosines = [[a @ b / (a.norm() * b.norm()) for b in t] for a in v]
    return max(
        sum(cosines[k][order[k]] for k in range(len(v))) / len(v) for order in permutations(range(len(v)))
    )  # fmt: skip


@pytest.mark.parametrize("options", KINDS, ids=str)
def test_scores_and_gradients_equal_the_formula(options: dict) -> None:
    model, batch = make(NAME, **options), make_batch()
    check_same(model, plain_scores(model, image, caption, score, batch), batch)


@pytest.mark.parametrize("options", KINDS, ids=str)
def test_order_padding_norm_and_autocast(options: dict) -> None:
    check_order_and_padding(make(NAME, **options))
    check_unit_norm(make(NAME, **options))
    check_autocast(make(NAME, **options))


@pytest.mark.parametrize("options", [{}, {"match": "set"}], ids=str)
def test_it_learns(options: dict) -> None:
    check_learns(make(NAME, **options))


def test_heads_differ_and_are_shares_of_what_is_there() -> None:
    pool, vectors = make(NAME).pool_regions, torch.randn(2, 5, H, dtype=torch.float64)
    mask = torch.tensor([[True] * 5, [True, False, True, False, False]])
    weights = pool.weights(vectors, mask)
    assert weights.shape == (2, 3, 5)
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 3, dtype=torch.float64))
    assert torch.equal(weights > 0, mask[:, None].expand(2, 3, 5))
    assert (weights[0, 0] - weights[0, 1]).abs().max() > 1e-3


def test_on_one_region_all_heads_are_equal() -> None:
    model = make(NAME)
    vectors, _ = model.encode_images(torch.randn(2, 1, D, dtype=torch.float64), torch.ones(2, 1).bool())
    heads = vectors.view(2, 3, H)
    torch.testing.assert_close(heads[:, 1:], heads[:, :1].expand(2, 2, H))


@pytest.mark.parametrize("count", range(1, 6))
def test_the_best_assignment_is_that_of_brute_force(count: int) -> None:
    torch.manual_seed(count)
    sides = [torch.nn.functional.normalize(torch.randn(n, count, H, dtype=torch.float64), dim=-1) for n in (4, 3)]
    found = best_assignment(*sides)
    for i in range(4):
        for c in range(3):
            best = max(
                sum(float(sides[0][i, k] @ sides[1][c, r]) for k, r in enumerate(order))
                for order in permutations(range(count))
            )
            assert float(found[i, c]) == pytest.approx(best / count, abs=1e-12)
    torch.testing.assert_close(best_assignment(sides[0][:, torch.randperm(count)], sides[1]), found)


def test_languages_do_not_share_an_encoder() -> None:
    model, (_, _, tokens) = make(NAME), make_batch()
    german, english = (model.encode_captions(tokens, LENGTHS, torch.full((C,), place))[0] for place in (0, 1))
    assert (german - english).abs().amax(-1).min() > 1e-4
    with pytest.raises(ModelError, match=r"encoders for de, en$"):
        model.encode_captions(tokens, LENGTHS, torch.full((C,), 2))


def trained(corpus: Corpus, groups: list = TOGETHER, epochs: int = 20, caption_loss: float = 0.0, **options) -> Diary:
    module, diary = corpus.module(NAME, caption_loss=caption_loss), Diary()
    if options:
        arguments = module.hparams["arguments"] | options
        torch.manual_seed(0)
        module.model = build_model(NAME, **arguments)
    make_trainer(epochs, diary, limit_val_batches=0).fit(module, corpus.data(groups=groups))
    return diary


def test_every_term_is_logged_and_heads_move_apart(corpus: Corpus) -> None:
    first, *_, last = trained(corpus, caption_loss=0.6).logged
    terms = [f"train/{name}" for name in ("ranking", "between_captions", "diversity")]
    assert last["train/loss"] == pytest.approx(sum(last[name] for name in terms), rel=1e-4)
    assert last["train/head_cosine"] < first["train/head_cosine"] - 0.1
    assert 0 < last["train/diversity_active"] < 1
    assert last["train/between_captions"] < first["train/between_captions"]


def test_without_diversity_cosines_are_measured_all_the_same(corpus: Corpus) -> None:
    (logged,) = trained(corpus, epochs=1, diversity=0.0).logged
    assert "train/diversity" not in logged
    assert 0 < logged["train/head_cosine"] <= 1
    (logged,) = trained(corpus, epochs=1, heads=1).logged
    assert not {"train/diversity", "train/head_cosine"} & set(logged)


def test_sets_train_with_a_loss_between_captions_too(corpus: Corpus) -> None:
    first, *_, last = trained(corpus, caption_loss=1.0, match="set").logged
    assert last["train/between_captions"] < 0.8 * first["train/between_captions"]


def test_word_vectors_are_taken_over() -> None:
    model, vectors = make(NAME), torch.randn(V, E, dtype=torch.float64)
    model.set_word_vectors(vectors)
    assert torch.equal(model.words.weight, vectors)


@pytest.mark.parametrize("rate", [0.0, 0.3])
def test_it_learns_on_a_text_model_that_is_frozen_or_tuned(corpus: Corpus, tmp_path: Path, rate: float) -> None:
    torch.manual_seed(0)
    words = sorted({word for text in corpus.captions["text"][:] for word in text.split()})
    tokens = PretrainedTokens(str(save("bert", tmp_path, words)))
    corpus = copy(corpus)
    corpus.words = tokens
    module, diary = corpus.module(NAME, pretrained=str(tmp_path), pretrained_rate=rate, caption_loss=0.6), Diary()
    (text,) = (part for part in module.modules() if isinstance(part, PretrainedWords))
    start = [parameter.clone() for parameter in text.parameters()]
    make_trainer(12, diary, limit_val_batches=0).fit(module, corpus.data(groups=TOGETHER))
    first, *_, last = diary.logged
    assert last["train/ranking"] < 0.85 * first["train/ranking"]
    assert {"train/diversity", "train/between_captions", "train/head_cosine"} <= set(last)
    moved = [not torch.equal(now, before) for now, before in zip(text.parameters(), start, strict=True)]
    assert any(moved) == bool(rate)
    one, two = ([tokens.encode(sentence, "en")] for sentence in ("a red dog", "a red"))
    alone = module.eval().model.encode_captions(torch.tensor(two), torch.tensor([len(two[0])]), torch.tensor([1]))[0]
    both = torch.tensor([one[0], two[0] + [0]]), torch.tensor([len(one[0]), len(two[0])]), torch.tensor([1, 1])
    torch.testing.assert_close(module.model.encode_captions(*both)[0][1:], alone)  # padding changes nothing


def test_name_options_and_scores() -> None:
    kind = model_class(NAME)
    assert option_names(kind) == {"heads", "match", "diversity", "diversity_margin", "diversity_reading"}
    assert (kind.score, kind.loss, kind.languages_apart) == ("inner product", "hardest", True)
    assert [kind.score_with(match=match) for match in ("concatenated", "set")] == ["inner product", "sets"]
    assert [make(NAME, match=match).score for match in ("concatenated", "set")] == ["inner product", "sets"]
    vectors, mask = make(NAME, match="set").encode_images(*make_batch()[:2])
    assert vectors.shape == (N, 3, H)
    assert mask.all()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"heads": 0}, "heads is 0; expected 1 or more"),
        ({"match": "sets"}, "match 'sets': expected one of concatenated, set"),
        ({"match": "set", "heads": 6}, "heads is 6; with match: set expected at most 5"),
        ({"diversity": -1.0}, r"diversity is -1\.0; expected 0 or more"),
        ({"diversity_reading": "near"}, "diversity_reading 'near': expected one of apart, printed, distance"),
    ],
)
def test_options_of_no_meaning_are_one_line(options: dict, words: str) -> None:
    with pytest.raises(ModelError, match=f"^{words}$"):
        make(NAME, **options)
