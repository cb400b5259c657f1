"""Weights of features by k-best MIRA, and choices among n-best lists."""

import numpy as np
import pytest

from modules.errors import ModelError
from modules.metrics.translation import bleu_statistics
from modules.translators.mira import MiraSettings, choose, corpus_bleu, oracle, padded, spreads, tune
from tests.modules.translators import slow_mira

FEATURES, COUNTS = (np.array(one, dtype=np.float64) for one in slow_mira.made_up(40, 6, 3))


@pytest.mark.parametrize(("cap", "decay", "passes"), [(0.01, 0.999, 8), (5.0, 0.5, 3)])
def test_several_tunings_at_once_are_those_of_the_slow_form(cap: float, decay: float, passes: int) -> None:
    found = tune(FEATURES, COUNTS, [1, 2, 7], MiraSettings(cap, decay, passes))
    for seed, weights, bleu in zip([1, 2, 7], *found, strict=True):
        slow, highest = slow_mira.tune(FEATURES.tolist(), COUNTS.tolist(), seed, cap, decay, passes)
        assert weights == pytest.approx(slow, rel=1e-9, abs=1e-12)
        assert bleu == pytest.approx(highest)
    assert len({tuple(one) for one in found.weights}) == 3  # the order of the sentences matters


def separable(seed: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Of four candidates one is the reference: the one with the highest a − 2 b; the third feature says nothing."""
    draw, words = np.random.default_rng(seed), [f"w{n}" for n in range(30)]
    features, counts = [], []
    for _ in range(150):
        reference = draw.choice(words, 8).tolist()
        wrong = [" ".join(draw.choice(words, 8)) for _ in range(3)]
        values = draw.normal(size=(4, 3))
        right = int((values @ [1, -2, 0]).argmax())
        values[right] += np.array([1, -2, 0]) * 0.5
        texts = [*wrong[:right], " ".join(reference), *wrong[right:]]
        features.append(values)
        counts.append(bleu_statistics(texts, [" ".join(reference)] * 4).numpy())
    return np.stack(features), np.stack(counts)


def test_the_known_optimum_is_found() -> None:
    (features, counts), (held_out, its_counts) = separable(), separable(4)
    found = tune(features, counts, [1, 2, 3], MiraSettings(passes=20))
    assert found.bleu == pytest.approx([100, 100, 100])
    for weights in found.weights:
        assert weights[1] < -weights[0] < 0
        assert abs(weights[2]) < 0.4 * weights[0]
        right = choose(held_out, weights[None])[0] == oracle(its_counts)
        assert right.mean() > 0.95
    assert (choose(features, found.weights)[0] == oracle(counts)).all()
    assert corpus_bleu(counts, oracle(counts)[None])[0] == pytest.approx(100)
    assert tune(features[..., 2:], counts, [1], MiraSettings(passes=5)).bleu[0] < 60  # it does need the others


def test_the_order_scale_and_origin_of_features_change_nothing_but_their_weights() -> None:
    settings, order = MiraSettings(passes=6), [2, 0, 1]
    plain = tune(FEATURES, COUNTS, [4], settings)
    shuffled = tune(FEATURES[..., order], COUNTS, [4], settings)
    assert shuffled.weights[:, np.argsort(order)] == pytest.approx(plain.weights, rel=1e-9)
    other = tune(FEATURES * [10, 0.1, 1] + [5, 6, 7], COUNTS, [4], settings)
    assert other.weights * [10, 0.1, 1] == pytest.approx(plain.weights, rel=1e-6)
    assert other.bleu == pytest.approx(plain.bleu)


def test_what_is_equal_within_each_list_gets_no_weight() -> None:
    own = np.broadcast_to(np.arange(40.0)[:, None, None], (40, 6, 1))
    features = np.concatenate([FEATURES, own], -1)
    assert spreads(features)[3] == 1
    found = tune(features, COUNTS, [4], MiraSettings(passes=4))
    assert found.weights[0, 3] == 0
    assert found.weights[0, :3] == pytest.approx(tune(FEATURES, COUNTS, [4], MiraSettings(passes=4)).weights[0])


def test_shorter_lists_are_filled_with_their_first_candidate() -> None:
    lists = [[[1.0, 2.0]], [[3.0, 4.0], [5.0, 6.0]]]
    assert padded(lists).tolist() == [[[1, 2], [1, 2]], [[3, 4], [5, 6]]]
    assert choose(padded(lists), np.array([[1.0, 0.0], [-1.0, 0.0]])).tolist() == [[0, 1], [0, 0]]


def test_lists_of_different_lengths_are_tuned_as_by_the_slow_form() -> None:
    sizes = [1 + number % 6 for number in range(40)]
    features, counts = (
        [one[:size] for one, size in zip(whole.tolist(), sizes, strict=True)] for whole in (FEATURES, COUNTS)
    )
    slow, highest = slow_mira.tune(features, counts, 5, passes=4)
    found = tune(padded(features), padded(counts), [5], MiraSettings(passes=4), sizes)
    assert found.weights[0] == pytest.approx(slow, rel=1e-9)
    assert found.bleu[0] == pytest.approx(highest)


def test_the_oracle_is_at_least_every_other_choice() -> None:
    wanted = oracle(COUNTS)
    best = corpus_bleu(COUNTS, wanted[None])[0]
    draw = np.random.default_rng(0)
    others = corpus_bleu(COUNTS, draw.integers(6, size=(50, 40)))
    assert best > others.max()
    for sentence in range(40):  # and no single change is better
        for candidate in range(6):
            chosen = wanted.copy()
            chosen[sentence] = candidate
            assert corpus_bleu(COUNTS, chosen[None])[0] <= best + 1e-9


@pytest.mark.parametrize(
    ("features", "counts", "words"),
    [
        (np.where(FEATURES[3, 2, 1] == FEATURES, np.nan, FEATURES), COUNTS, "feature 2 of candidate 3 of sentence 4"),
        (FEATURES, COUNTS[:5], "expected (N, K, F) and (N, K, 10)"),
        (FEATURES[..., :0], COUNTS, "one sentence, candidate and feature or more"),
    ],
)
def test_what_cannot_be_tuned_is_one_line(features: np.ndarray, counts: np.ndarray, words: str) -> None:
    with pytest.raises(ModelError) as caught:
        tune(features, counts, [1])
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_lists_that_do_not_fit_and_impossible_settings_are_refused() -> None:
    with pytest.raises(ModelError, match="n-best list 2 has no candidate"):
        padded([[[1.0]], []])
    with pytest.raises(ModelError, match="n-best list 2 has a candidate with 2 values, the first candidate of all has"):
        padded([[[1.0]], [[1.0], [1.0, 2.0]]])
    for wrong in ((0.0, 0.9, 1), (1.0, 1.1, 1), (1.0, 0.9, 0)):
        with pytest.raises(ModelError, match="expected above 0, 0 to 1, and 1 or more"):
            MiraSettings(*wrong)
