"""Choosing among n-best translations by a weighted sum of features; the weights by k-best MIRA."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from modules.errors import ModelError
from modules.metrics.translation import bleu_of

Numbers = NDArray[np.float64]
_START = np.array([4, 3, 2, 1, 4, 3, 2, 1, 4, 4], dtype=np.float64)  # the background corpus: four words, all right
_LENGTH, _REFERENCE = 8, 9  # columns of BLEU statistics; before them matches and counts of n-grams, n = 1 … 4
_SIGNS = np.repeat([0.25, -0.25], 4)
_PASSES_OF_ORACLE = 20


@dataclass(frozen=True)
class MiraSettings:
    """Settings of k-best MIRA, with the defaults of Moses' kbmira.

    Attributes:
        cap: C, the largest step.
        decay: factor of the background corpus's statistics at each sentence that adds to it.
        passes: over the sentences, in another order each time.
    """

    cap: float = 0.01
    decay: float = 0.999
    passes: int = 60

    def __post_init__(self) -> None:
        if not (self.cap > 0 and 0 <= self.decay <= 1 and self.passes >= 1):
            raise ModelError(
                f"MIRA with cap {self.cap}, decay {self.decay}, passes {self.passes}; expected above 0, 0 to 1, and 1 "
                "or more"
            )


class Tuned(NamedTuple):
    """What T tunings found.

    Attributes:
        weights: (T, F) of the features as they were given, not standardised.
        bleu: (T,) BLEU of the development sentences with these weights, in percent.
    """

    weights: Numbers
    bleu: Numbers


def padded(lists: Sequence[Sequence[Sequence[float]]]) -> Numbers:
    """Return values of candidates (N, K, F) from lists of different lengths; ends are filled with the first candidate,
    which of equal ones is the one that is chosen.

    Raises:
        ModelError: a list is empty, or candidates have different numbers of values.
    """
    for number, candidates in enumerate(lists):
        if not candidates:
            raise ModelError(f"n-best list {number + 1} has no candidate; expected one or more")
        for candidate in candidates:
            if len(candidate) != len(lists[0][0]):
                raise ModelError(
                    f"n-best list {number + 1} has a candidate with {len(candidate)} values, the first candidate of "
                    f"all has {len(lists[0][0])}; expected the same number"
                )
    longest = max(map(len, lists), default=0)
    return np.array([[*n_best, *[n_best[0]] * (longest - len(n_best))] for n_best in lists], dtype=np.float64)


def spreads(features: Numbers, sizes: Sequence[int] | None = None) -> Numbers:
    """Return the standard deviation (F,) of features (N, K, F) within lists; 1 for one that is constant in each.

    What is equal for all candidates of a sentence chooses nothing, so differences between sentences do not count.

    Args:
        features: of the candidates.
        sizes: how many of the K candidates of each sentence are its own (the rest fill its list); None: all.
    """
    count, most = features.shape[:2]
    own = np.arange(most) < (np.full(count, most) if sizes is None else np.array(sizes))[:, None]
    mean = (features * own[..., None]).sum(1, keepdims=True) / own.sum(1)[:, None, None]
    deviations: Numbers = np.sqrt(((features - mean)[own] ** 2).mean(0))
    return np.where(deviations > 1e-12 * np.abs(features).max(initial=0), deviations, 1.0)


def tune(
    features: Numbers, statistics: Numbers, seeds: Sequence[int], settings: MiraSettings | None = None,
    sizes: Sequence[int] | None = None,
) -> Tuned:  # fmt: skip
    """Tune weights on n-best lists by k-best batch MIRA (Cherry and Foster 2012, Algorithm 1), once for each seed.

    As Moses' kbmira: the hope maximises score + BLEU, the fear score − BLEU; BLEU is that of the candidate added to a
    decaying background corpus of hopes, times the reference length of both. Where the fear's margin is too small, the
    weights move from fear to hope by min(C, loss / ‖Δ‖²). Weights start at 0; the mean over all updates is returned,
    of the pass after which it is best on these lists. The background starts as one sentence of four right words, as in
    kbmira until 2014; since then it starts there as ones.

    All tunings take each step together: there are as many steps as for one.

    Args:
        features: (N, K, F) of K candidates of N sentences (`padded`); they are divided by their `spreads`.
        statistics: (N, K, 10) `modules.metrics.translation.bleu_statistics` of the candidates.
        seeds: of the orders of the sentences; T of them.
        settings: None: those of Moses.
        sizes: candidates of each sentence that are its own; None: all (`spreads`).

    Raises:
        ModelError: a feature is not finite, or shapes do not fit.
    """
    settings = settings or MiraSettings()
    _require(features, statistics)
    scale = spreads(features, sizes)
    scaled, runs = features / scale, np.arange(len(seeds))
    weights = np.zeros((len(seeds), features.shape[-1]))
    totals, updates = weights.copy(), np.zeros((len(seeds), 1))
    best = Tuned(weights.copy(), np.full(len(seeds), -1.0))
    background = np.tile(_START, (len(seeds), 1))
    generators = [np.random.default_rng(seed) for seed in seeds]
    for _ in range(settings.passes):
        for some in np.stack([generator.permutation(len(features)) for generator in generators], 1):
            candidates, counts = scaled[some], statistics[some]
            score = (candidates * weights[:, None]).sum(-1)
            bleu = _bleu_with(counts, background)
            hope, fear = (score + bleu).argmax(1), (score - bleu).argmax(1)
            apart = hope != fear
            step = candidates[runs, hope] - candidates[runs, fear]
            loss = bleu[runs, hope] - bleu[runs, fear] - (step * weights).sum(-1)
            moves = apart & (loss > 0)
            size = (step**2).sum(-1)
            rate = np.minimum(settings.cap, np.divide(loss, size, out=np.full_like(loss, np.inf), where=size > 0))
            weights += np.where(moves, rate, 0)[:, None] * step
            totals += np.where(moves[:, None], weights, 0)
            updates += moves[:, None]
            background = np.where(apart[:, None], settings.decay * background + counts[runs, hope], background)
        mean = totals / np.maximum(updates, 1)
        mean_bleu = corpus_bleu(statistics, choose(scaled, mean))
        better = mean_bleu > best.bleu
        best = Tuned(np.where(better[:, None], mean, best.weights), np.where(better, mean_bleu, best.bleu))
    return Tuned(best.weights / scale, best.bleu)


def choose(features: Numbers, weights: Numbers) -> NDArray[np.intp]:
    """Return the candidate (T, N) of each sentence with the highest score, the first of equal ones.

    Args:
        features: (N, K, F).
        weights: (T, F).
    """
    chosen: NDArray[np.intp] = np.stack([(features * row).sum(-1).argmax(1) for row in weights])
    return chosen


def corpus_bleu(statistics: Numbers, chosen: NDArray[np.intp]) -> Numbers:
    """Return BLEU (T,) in percent of the candidates chosen (T, N), by their statistics (N, K, 10)."""
    sums = np.stack([statistics[np.arange(len(choice)), choice].sum(0) for choice in chosen])
    scores: Numbers = bleu_of(torch.from_numpy(sums)).numpy()
    return scores


def oracle(statistics: Numbers) -> NDArray[np.intp]:
    """Return the candidates (N,) whose corpus BLEU is highest, each in turn for the present choice of all others.

    Args:
        statistics: (N, K, 10) of the candidates.
    """
    chosen = _bleu_with(statistics, np.tile(_START, (len(statistics), 1))).argmax(1)
    total = statistics[np.arange(len(chosen)), chosen].sum(0)
    for _ in range(_PASSES_OF_ORACLE):
        before = chosen.copy()
        for sentence, candidates in enumerate(statistics):
            rest = total - candidates[chosen[sentence]]
            score = bleu_of(torch.from_numpy(rest + candidates)).numpy()
            if score.max() > score[chosen[sentence]]:
                chosen[sentence] = score.argmax()
            total = rest + candidates[chosen[sentence]]
        if (chosen == before).all():
            break
    return chosen


def _bleu_with(counts: Numbers, background: Numbers) -> Numbers:
    """Return BLEU (T, K), from 0 to 1, of candidates (T, K, 10) added to a background (T, 10), times its length."""
    sums = np.maximum(counts + background[:, None], 1e-300)
    brevity = np.minimum(1 - sums[..., _REFERENCE] / sums[..., _LENGTH], 0)
    scores: Numbers = np.exp((np.log(sums[..., :8]) * _SIGNS).sum(-1) + brevity) * sums[..., _REFERENCE]
    return scores


def _require(features: Numbers, statistics: Numbers) -> None:
    if features.ndim != 3 or not features.size or statistics.shape != (*features.shape[:2], 10):
        raise ModelError(
            f"features {features.shape} and BLEU statistics {statistics.shape}; expected (N, K, F) and (N, K, 10), "
            "with one sentence, candidate and feature or more"
        )
    if not np.isfinite(features).all():
        sentence, candidate, feature = np.argwhere(~np.isfinite(features))[0] + 1
        raise ModelError(
            f"feature {feature} of candidate {candidate} of sentence {sentence} is "
            f"{features[sentence - 1, candidate - 1, feature - 1]}; expected a finite number"
        )
