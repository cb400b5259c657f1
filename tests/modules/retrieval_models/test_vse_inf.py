"""VSE∞ and its pooling operator against their formulas item by item in float64."""

import math
from unittest import mock

import pytest
import torch
from torch.nn import functional as F

from modules.layers.pooling import GeneralisedPool, positional_encodings
from modules.retrieval_models import model_class, option_names
from modules.retrieval_models.vse_inf import VSEInfinity
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

MASK = torch.tensor([[1, 1, 1, 1], [0, 1, 0, 1], [1, 0, 0, 0]]).bool()


def places(count: int, dim: int):
    """Position by position, number by number."""
    rows = []
    for position in range(count):
        angles = [position / 10_000 ** (even / dim) for even in range(0, dim, 2)]
        rows.append([function(angle) for angle in angles for function in (math.sin, math.cos)])
    return torch.tensor(rows, dtype=torch.float64)


def plain_pool(pool, vectors):
    """Σ_k θ_k of the k-th largest, for each dimension."""
    n, width = len(vectors), pool.gru.hidden_size
    states = pool.gru(places(n, pool.position_dim)[None])[0][0]
    shares = torch.stack([pool.score.weight[0] @ (state[:width] + state[width:]) / 2 / 0.1 for state in states]).exp()
    pooled = []
    for numbers in zip(*vectors, strict=True):
        ranked = sorted(numbers, key=torch.Tensor.item, reverse=True)
        pooled.append(sum(share / shares.sum() * number for share, number in zip(shares, ranked, strict=True)))
    return torch.stack(pooled)


def image(model, regions):
    first, _, second = model.perceptron
    vectors = []
    for region in regions:
        hidden = (first.weight @ region + first.bias).clamp(min=0)
        vectors.append(model.regions.weight @ region + model.regions.bias + second.weight @ hidden + second.bias)
    return plain_pool(model.pool_regions, vectors)


def caption(model, tokens, language):
    return plain_pool(model.pool_words, plain_states(model.captions.gru, model.captions.words.weight[tokens]))


def score(model, v, t):
    return v @ t / (v.norm() * t.norm())


def test_scores_and_gradients_equal_the_formula() -> None:
    model, batch = make("vse-inf"), make_batch()
    check_same(model, plain_scores(model, image, caption, score, batch), batch)


def test_order_padding_norm_and_autocast() -> None:
    check_order_and_padding(make("vse-inf"))
    check_unit_norm(make("vse-inf"))
    check_autocast(make("vse-inf"))


def test_it_learns() -> None:
    check_learns(make("vse-inf"))


@pytest.fixture
def pool() -> GeneralisedPool:
    torch.manual_seed(1)
    return GeneralisedPool().double()


@pytest.fixture
def vectors() -> torch.Tensor:
    torch.manual_seed(2)
    return torch.randn(3, 4, 5, dtype=torch.float64, requires_grad=True)


def test_equal_coefficients_are_the_mean(pool, vectors) -> None:
    torch.nn.init.zeros_(pool.score.weight)
    expected = torch.stack([vectors[row][MASK[row]].mean(0) for row in range(3)])
    torch.testing.assert_close(pool(vectors, MASK), expected)


@pytest.mark.parametrize("place", [0, 1])
def test_a_single_coefficient_takes_the_largest_or_the_next(pool, vectors, place: int) -> None:
    one = F.one_hot(torch.tensor([place, place, 0]), 4).double()
    with mock.patch.object(pool, "coefficients", return_value=one):
        found = pool(vectors, MASK)
    ranked = [vectors[row][MASK[row]].sort(0, descending=True).values for row in range(3)]
    torch.testing.assert_close(found, torch.stack([ranked[0][place], ranked[1][place], ranked[2][0]]))
    gradient = torch.autograd.grad(found.sum(), vectors)[0]
    assert gradient.sum() == 15  # each number of the result is one of the vectors'
    assert not gradient[~MASK].any()


def test_coefficients_are_shares_that_depend_on_the_length_alone(pool) -> None:
    lengths = torch.tensor([3, 1, 5, 3])
    weights = pool.coefficients(lengths)
    assert weights.shape == (4, 5)
    torch.testing.assert_close(weights.sum(1), torch.ones(4, dtype=torch.float64))
    assert torch.equal(weights > 0, torch.arange(5) < lengths[:, None])
    assert torch.equal(weights[0], weights[3])
    assert weights[2].std() > 1e-3
    for row, length in enumerate(lengths.tolist()):
        torch.testing.assert_close(pool.coefficients(torch.tensor([length]))[0], weights[row, :length])


def test_places_are_the_formula() -> None:
    torch.testing.assert_close(positional_encodings(7, 6).double(), places(7, 6), atol=1e-6, rtol=0)


def test_masked_numbers_do_not_matter_even_if_they_are_largest(pool, vectors) -> None:
    other = vectors.detach().clone()
    other[~MASK] = 1e3
    torch.testing.assert_close(pool(other, MASK), pool(vectors, MASK))


def test_name_options_and_score() -> None:
    assert model_class("vse-inf") is VSEInfinity
    assert option_names(VSEInfinity) == set()
    assert (VSEInfinity.score, VSEInfinity.loss) == ("inner product", "hardest")
