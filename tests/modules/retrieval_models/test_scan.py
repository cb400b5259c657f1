"""SCAN against its formula item by item, and the fast form against a loop over captions that forms the contexts."""

from unittest import mock

import pytest
import torch
from torch.nn import functional as F

import modules.search.scores
from modules.errors import ModelError
from modules.metrics.retrieval import retrieval_ranks
from modules.retrieval_models import build_model, option_names
from modules.retrieval_models.scan import SCAN
from modules.search.encodings import Encodings
from modules.search.ranking import exact_ranks
from modules.search.scores import cross_attention
from tests.modules.cases import (
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

NAMES = ["scan-t2i-avg", "scan-t2i-lse", "scan-i2t-avg", "scan-i2t-lse"]
PAPER = {"scan-t2i-avg": (9, None), "scan-t2i-lse": (9, 6), "scan-i2t-avg": (4, None), "scan-i2t-lse": (4, 5)}


def image(model, regions):
    projected = [model.regions.weight @ region + model.regions.bias for region in regions]
    return [vector / vector.norm() for vector in projected]


def caption(model, tokens, language):
    words = plain_states(model.captions.gru, model.captions.words.weight[tokens])
    return [vector / vector.norm() for vector in words]


def score(model, regions, words):
    """Number by number, as the paper has it."""
    name = next(name for name in NAMES if type(make(name)) is type(model))
    queries, context = (words, regions) if "t2i" in name else (regions, words)
    lambda_1, lambda_2 = PAPER[name]
    looks = [[q @ x if q @ x > 0 else 0.1 * (q @ x) for x in context] for q in queries]
    norms = [sum(looks[s][t] ** 2 for s in range(len(queries))).sqrt() for t in range(len(context))]
    relevance = []
    for query, row in zip(queries, looks, strict=True):
        shares = [(lambda_1 * look / (norm + 1e-8)).exp() for look, norm in zip(row, norms, strict=True)]
        attended = sum(share / sum(shares) * x for share, x in zip(shares, context, strict=True))
        relevance.append(query @ attended / attended.norm())
    if lambda_2 is None:
        return sum(relevance) / len(relevance)
    return sum((lambda_2 * r).exp() for r in relevance).log() / lambda_2


@pytest.mark.parametrize("name", NAMES)
def test_scores_and_gradients_equal_the_formula(name: str) -> None:
    model, batch = make(name), make_batch()
    check_same(model, plain_scores(model, image, caption, score, batch), batch)


def sets(count: int, longest: int, dim: int, dtype: torch.dtype, least: int = 1):
    """Unit vectors (count, longest, dim) with gradient, and a mask whose holes are anywhere."""
    vectors = F.normalize(torch.randn(count, longest, dim, dtype=dtype, requires_grad=True), dim=-1)
    real = torch.rand(count, longest).argsort(1) < torch.randint(least, longest + 1, (count, 1))
    return vectors, real


def published(images, captions, words_look: bool, lambda_softmax: float, lambda_lse: float | None):
    """The published way: caption by caption, its context vectors formed, nothing padded."""
    columns = []
    for words, said in zip(*captions, strict=True):
        rows = []
        for regions, seen in zip(*images, strict=True):
            v, e = regions[seen][None], words[said][None]
            query, context = (e, v) if words_look else (v, e)
            attention = F.leaky_relu(context @ query.transpose(1, 2), 0.1)  # (1, T, S)
            attention = attention / (attention.square().sum(2, keepdim=True).sqrt() + 1e-8)
            attention = (lambda_softmax * attention.transpose(1, 2)).softmax(-1)  # (1, S, T)
            relevance = F.cosine_similarity(query, attention @ context, dim=-1, eps=1e-8)
            pooled = relevance.mean(1) if lambda_lse is None else (lambda_lse * relevance).logsumexp(1) / lambda_lse
            rows.append(pooled)
        columns.append(torch.cat(rows))
    return torch.stack(columns, 1)


def fast(images, captions, words_look: bool, *lambdas):
    if words_look:
        return cross_attention(captions, images, *lambdas).t()
    return cross_attention(images, captions, *lambdas)


@pytest.mark.parametrize(("dtype", "close"), [(torch.float32, 1e-5), (torch.float64, 1e-7)])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("limits", [{}, {"PART": 500}, {"PART": 500, "STORED": 0}, {"PART": 1}], ids=str)
def test_the_fast_form_is_the_published_form(name: str, dtype: torch.dtype, close: float, limits: dict) -> None:
    torch.manual_seed(0)
    images, captions = sets(9, 7, 16, dtype), sets(11, 6, 16, dtype)
    weight, form = torch.randn(9, 11, dtype=dtype), ("t2i" in name, *PAPER[name])
    inputs = [side[0].detach().requires_grad_() for side in (images, captions)]

    def result(function):
        sides = ((F.normalize(x, dim=-1), side[1]) for x, side in zip(inputs, (images, captions), strict=True))
        value = function(*sides, *form)
        return value.detach(), torch.autograd.grad((value * weight).sum(), inputs)

    with mock.patch.multiple(modules.search.scores, **({"PART": modules.search.scores.PART} | limits)):
        ours, found = result(fast)
    theirs, expected = result(published)
    assert ours.dtype == dtype
    assert theirs.std() > 1e-3
    torch.testing.assert_close(ours, theirs, atol=close, rtol=0)
    for mine, other in zip(found, expected, strict=True):
        assert other.abs().max() > 0.1
        torch.testing.assert_close(mine, other, atol=10 * close, rtol=10 * close)


def test_no_tensor_is_larger_than_a_part() -> None:
    images, captions = sets(40, 6, 4, torch.float32), sets(50, 5, 4, torch.float32)
    sizes = []
    softmax = torch.Tensor.softmax
    with (
        mock.patch.object(modules.search.scores, "PART", 4000),
        mock.patch.object(torch.Tensor, "softmax", lambda x, dim: sizes.append(x.numel()) or softmax(x, dim)),
    ):
        cross_attention(images, captions, 4.0)
    assert len(sizes) > 10
    assert max(sizes) <= 4000


@pytest.mark.parametrize("stored", [0, 2**30])
def test_parts_that_are_computed_again_are_not_kept(stored: int) -> None:
    images, captions = sets(20, 6, 4, torch.float64), sets(20, 5, 4, torch.float64)
    kept = []
    hooks = torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x.numel()) or x, lambda x: x)
    with mock.patch.multiple(modules.search.scores, PART=3000, STORED=stored), hooks:
        cross_attention(images, captions, 4.0)
    assert (max(kept) > 2000) == bool(stored)


def test_opposite_words_that_cancel_have_a_finite_score_and_gradient() -> None:
    axes = torch.eye(8)
    words = torch.stack([axes[0], -axes[0]])[None].requires_grad_()
    region = axes[None, 1:2].clone().requires_grad_()  # at a right angle to both: equal weights
    real = torch.ones(1, 2, dtype=torch.bool)
    value = cross_attention((region, real[:, :1]), (words, real), 4.0)
    value.sum().backward()
    assert value.item() == 0
    assert words.grad.isfinite().all()
    assert region.grad.isfinite().all()


def test_a_word_without_any_score_does_no_harm() -> None:
    words, regions = torch.zeros(1, 2, 4), F.normalize(torch.randn(1, 3, 4), dim=-1)
    words[0, 0, 0] = 1
    words.requires_grad_()
    value = cross_attention((words, torch.ones(1, 2).bool()), (regions, torch.ones(1, 3).bool()), 9.0, 6.0)
    value.sum().backward()
    assert value.isfinite().all()
    assert words.grad.isfinite().all()


@pytest.mark.parametrize("name", NAMES)
def test_order_padding_norm_and_autocast(name: str) -> None:
    check_order_and_padding(make(name))
    check_unit_norm(make(name))
    check_autocast(make(name), 0.1)


def test_cross_attention_is_float32_under_autocast() -> None:
    images, captions = sets(5, 7, 16, torch.float32), sets(6, 6, 16, torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        low = cross_attention(images, captions, 4.0)
        half = cross_attention((images[0].bfloat16(), images[1]), (captions[0].bfloat16(), captions[1]), 4.0)
    assert low.dtype == half.dtype == torch.float32
    assert torch.equal(low, cross_attention(images, captions, 4.0))


@pytest.mark.parametrize("name", NAMES)
def test_it_learns(name: str) -> None:
    check_learns(make(name))


@pytest.mark.parametrize("name", NAMES)
def test_ranks_by_blocks_are_those_of_the_loop(name: str) -> None:
    torch.manual_seed(0)
    images, captions = sets(30, 7, 8, torch.float64), sets(60, 6, 8, torch.float64)
    images, captions = ((vectors.detach(), mask) for vectors, mask in (images, captions))
    links, form = torch.randint(30, (60,)), ("t2i" in name, *PAPER[name])
    with mock.patch.object(modules.search.scores, "PART", 5000):
        found = exact_ranks(lambda *both: fast(*both, *form), *map(Encodings.of, (images, captions)), links, block=16)
    expected = retrieval_ranks(published(images, captions, *form), links)
    assert torch.equal(found.text_to_image, expected.text_to_image)
    assert torch.equal(found.image_to_text, expected.image_to_text)


def test_names_options_and_score() -> None:
    for name in NAMES:
        model = make(name)
        assert isinstance(model, SCAN)
        assert (model.lambda_softmax, model.lambda_lse) == PAPER[name]
        assert option_names(type(model)) == {"lambda_softmax"} | ({"lambda_lse"} if PAPER[name][1] else set())
        assert (model.score, model.loss) == ("sets", "hardest")
    common = {"region_dim": 2, "vocabulary_size": 3, "languages": ["en"], "dim": 4}
    assert build_model("scan-i2t-lse", lambda_lse=20.0, **common).lambda_lse == 20
    for name in ("lambda_softmax", "lambda_lse"):
        with pytest.raises(ModelError, match=f"scan: {name} is 0; expected a number above 0"):
            build_model("scan-i2t-lse", **{name: 0.0}, **common)
