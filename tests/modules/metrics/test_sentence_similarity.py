"""Similarity of sentences and its correlation with gold scores, each beside a slow form."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import pearsonr

from modules.errors import ModelError
from modules.metrics.sentence_similarity import (
    BLOCK,
    _weighted_pearson,
    mean_vector_similarity,
    pair_similarity,
    pearson,
    pearson_interval,
    tf_idf_similarity,
)
from modules.retrieval_models import RetrievalModel, build_model, model_class
from tests.modules.cases import ON_REGIONS

model_class("san")  # all files of the folder are read
NAMES = ON_REGIONS
RNG = np.random.default_rng(0)


def make(name: str) -> RetrievalModel:
    torch.manual_seed(1)
    return build_model(name, region_dim=3, vocabulary_size=9, languages=["de", "en"], dim=6, word_dim=5).eval()


def sentences(count: int) -> list[list[int]]:
    return [RNG.integers(1, 9, size=RNG.integers(1, 7)).tolist() for _ in range(count)]


def slow_similarity(model: RetrievalModel, one: list[int], other: list[int]) -> float:
    """One pair, nothing padded."""
    with torch.no_grad():
        (a, b) = (
            model.encode_captions(torch.tensor([side]), torch.tensor([len(side)]), torch.tensor([1]))
            for side in (one, other)
        )
        if model.score == "sets":
            return float(model.similarity(a, b) + model.similarity(b, a)) / 2
        a, b = a[0][0, 0].double(), b[0][0, 0].double()
        return float(a @ b / (a.norm() * b.norm()))


def slow_pearson(x: np.ndarray, y: np.ndarray) -> float:
    """As the textbook has it."""
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    above = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True))
    below = math.sqrt(sum((a - mean_x) ** 2 for a in x) * sum((b - mean_y) ** 2 for b in y))
    return 100 * above / below


@pytest.mark.parametrize("name", NAMES)
def test_every_model_agrees_with_one_pair_at_a_time(name: str) -> None:
    model, first, second = make(name), sentences(BLOCK + 5), sentences(BLOCK + 5)
    found = pair_similarity(model, first, second, "en")
    slow = [slow_similarity(model, *pair) for pair in zip(first, second, strict=True)]
    np.testing.assert_allclose(found, slow, atol=1e-5)
    assert np.ptp(found) > 1e-3
    np.testing.assert_allclose(pair_similarity(model, second, first, "en"), found, atol=1e-5)


@pytest.mark.parametrize("name", ["san", "scan-t2i-lse"])
def test_the_order_of_pairs_changes_nothing(name: str) -> None:
    model, first, second = make(name), sentences(BLOCK + 5), sentences(BLOCK + 5)
    order = RNG.permutation(len(first))
    found = pair_similarity(model, [first[n] for n in order], [second[n] for n in order], "en")
    np.testing.assert_allclose(found, pair_similarity(model, first, second, "en")[order], atol=1e-5)


def test_a_similarity_that_is_not_finite_is_an_error() -> None:
    model = make("san")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(torch.nan)
    with pytest.raises(ModelError, match="sentence pair 0 is nan, expected a finite number"):
        pair_similarity(model, [[1]], [[2]], "en")


def test_pearson_is_the_textbook_s() -> None:
    x, y = RNG.normal(size=40), RNG.uniform(0, 5, size=40)
    assert pearson(x, y) == pytest.approx(slow_pearson(x, y))
    order = RNG.permutation(40)
    assert pearson(x[order], y[order]) == pytest.approx(slow_pearson(x, y))
    assert pearson(2 * y - 7, y) == pytest.approx(100)
    assert pearson(-y, y) == pytest.approx(-100)
    assert pearson(np.array([0.1, 0.2]), np.array([4.0, 1.0])) == pytest.approx(-100)


@pytest.mark.parametrize(
    ("x", "y"),
    [
        ([0.3, 0.3, 0.3], [1, 2, 3]),
        ([0.1, 0.2], [4, 4]),
        ([0.1], [2]),
        ([], []),
        ([0.9999999, 1, 1.0000001], [1, 2, 3]),
    ],
)
def test_r_is_undefined_of_one_pair_and_of_equal_numbers(x: list[float], y: list[float]) -> None:
    predictions, gold = np.array(x, dtype=float), np.array(y, dtype=float)
    assert pearson(predictions, gold) is None
    assert pearson_interval([predictions], gold) is None


def test_resamples_are_those_of_repeated_pairs() -> None:
    x, y = RNG.normal(size=12), RNG.uniform(0, 5, size=12)
    weights = RNG.multinomial(12, np.full(12, 1 / 12), 20)
    slow = [100 * pearsonr(np.repeat(x, row), np.repeat(y, row)).statistic for row in weights]
    np.testing.assert_allclose(_weighted_pearson(x, y, weights), slow, atol=1e-9)
    assert np.isnan(_weighted_pearson(x, y, np.eye(12, dtype=int)[:1] * 12)).all()


def test_an_interval_is_near_fisher_s_and_holds_for_several_seeds() -> None:
    gold = RNG.normal(size=400)
    runs = [gold + RNG.normal(size=400) for _ in range(3)]
    found = pearson_interval(runs[:1], gold)
    assert found is not None
    assert found.value == pytest.approx(slow_pearson(runs[0], gold))
    z, error = math.atanh(found.value / 100), 1.96 / math.sqrt(397)
    assert found.low == pytest.approx(100 * math.tanh(z - error), abs=1.5)
    assert found.high == pytest.approx(100 * math.tanh(z + error), abs=1.5)
    mean = pearson_interval(runs, gold)
    assert mean is not None
    assert mean.value == pytest.approx(np.mean([slow_pearson(run, gold) for run in runs]))
    assert mean.low < mean.value < mean.high


def test_tf_idf_weighs_rare_words_and_gives_0_to_unknown_ones() -> None:
    training = ["a dog", "a cat", "a dog runs", "a bird"]
    found = tf_idf_similarity(training, ["a dog", "a cat", "a bird", "xx yy"], ["a dog", "a dog", "bird", "a"])
    rare, common = math.log(5 / 2) + 1, math.log(5 / 5) + 1  # scikit-learn's smoothed idf
    frequent = math.log(5 / 3) + 1
    cosine = common**2 / math.hypot(rare, common) / math.hypot(frequent, common)
    assert found == pytest.approx([1, cosine, rare / math.hypot(rare, common), 0])


def test_means_of_word_vectors() -> None:
    vectors = np.array([[1, 0], [0, 1], [0, 0]], dtype=np.float32)
    found = mean_vector_similarity(vectors, ["x", "y", "none"], ["x y", "x", "none"], ["x", "y", "x"])
    assert found == pytest.approx([math.sqrt(0.5), 0, 0])


def test_of_two_pairs_there_is_no_interval() -> None:
    """Their r is 100 or -100 in each resample that has both."""
    assert pearson_interval([np.array([0.1, 0.2])], np.array([0.0, 5.0])) is None


def test_seeds_that_differ_widen_an_interval_to_all_that_r_can_be() -> None:
    """Two runs with r of 100 and about 50: Student's t of one degree of freedom leaves nothing out."""
    gold = RNG.normal(size=400)
    apart, alike = [gold, gold + 2 * RNG.normal(size=400)], [gold, gold]
    found, sure = pearson_interval(apart, gold), pearson_interval(alike, gold)
    assert found is not None
    assert sure is not None
    assert (found.low, found.high) == (-100, 100)
    assert (sure.low, sure.high) == pytest.approx((100, 100))
