"""Confidence intervals of retrieval scores, and of their differences, by bootstrap over images and over seeds."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from scipy.special import stdtrit
from torch import Tensor

from modules.errors import ModelError
from modules.metrics.retrieval import CUTS, NO_QUERY, RECALLS, RetrievalRanks, score_range

FEW = 50
"""Images of a test below which an interval of R@1 may be 28 points wide."""


class Interval(NamedTuple):
    """A score and its confidence interval."""

    value: float
    low: float
    high: float


class Difference(NamedTuple):
    """Score difference of two systems, its confidence interval, and the two-sided p-value of no difference."""

    value: float
    low: float
    high: float
    p_value: float


def bootstrap_interval(
    ranks: RetrievalRanks | Sequence[RetrievalRanks], resamples: int = 1000, level: float = 0.95, seed: int = 0
) -> dict[str, Interval]:
    """Return the percentile interval of every score by bootstrap over *images*, and over seeds if there are several.

    Captions of one image are not independent, so they are resampled with their image. Ranks are those in the whole
    gallery. Several rank sets (seeds of one system, with the same images in the same rows) are averaged per resample,
    and each resample is shifted by what the mean over so few seeds is off: a quantile of Student's t with one degree of
    freedom less than seeds, times the standard error of the mean over seeds. (To draw seeds with replacement instead
    gives intervals that are too short: three seeds have ten different means.) An interval ends where no score can be.

    Args:
        ranks: the ranks of one run, or of several.
        resamples: number of resamples.
        level: share of the resamples inside the interval.
        seed: random seed of the resampling.

    Returns:
        An `Interval` for each name in `retrieval_scores`.

    Raises:
        ModelError: the runs have different images, or there is no query.

    Examples:
        >>> ranks = torch.tensor([1, 1, 1, 2, 2]).repeat(20)  # 100 images, a caption each; 60 are found first
        >>> interval = bootstrap_interval(RetrievalRanks(ranks, ranks, torch.arange(100)))["t2i_r1"]
        >>> [round(number, -1) for number in interval]
        [60.0, 50.0, 70.0]
    """
    runs = _runs(ranks)
    resampled = _mean_scores(runs, _image_weights(runs, resamples, seed))
    whole = _scores_of_runs(runs)
    intervals = {}
    for name, by_run in whole.items():
        shifted = resampled[name] + seed_shifts(by_run, resamples, seed)
        intervals[name] = Interval(float(by_run.mean()), *percentiles(shifted.clamp(*score_range(name)), level))
    return intervals


def mean_interval(
    runs: Sequence[Tensor], resamples: int = 1000, level: float = 0.95, seed: int = 0, least: float = -math.inf,
    most: float = math.inf,
) -> Interval:  # fmt: skip
    """Return the mean over images and runs, with its percentile interval by bootstrap over images and over seeds.

    Args:
        runs: of each seed, a value of each image (I,); the same images in each.
        resamples: number of resamples.
        level: share of the resamples inside the interval.
        seed: random seed of the resampling.
        least: of the values; no end of the interval is below it.
        most: of the values; no end of the interval is above it.

    Raises:
        ModelError: the runs have different numbers of images, or none.

    Examples:
        >>> values = torch.arange(100) / 99
        >>> one, three = mean_interval([values]), mean_interval([values - 0.1, values, values + 0.1])
        >>> round(three.value, 2), three.high - three.low > one.high - one.low  # seeds that differ widen it
        (0.5, True)
    """
    sizes = {len(run) for run in runs}
    if len(sizes) != 1 or 0 in sizes:
        raise ModelError(f"values of {sorted(sizes)} images; expected the same images, one or more, in each run")
    values = torch.stack([run.double() for run in runs])
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randint(values.shape[1], (resamples, values.shape[1]), generator=generator)
    shifted = values.mean(dim=0)[drawn].mean(dim=1) + seed_shifts(values.mean(dim=1), resamples, seed)
    return Interval(float(values.mean()), *percentiles(shifted.clamp(least, most), level))


def paired_difference(
    system: RetrievalRanks | Sequence[RetrievalRanks],
    baseline: RetrievalRanks | Sequence[RetrievalRanks],
    resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> dict[str, Difference]:
    """Compare two systems by paired bootstrap: both are resampled with the same images.

    Seeds are treated as `bootstrap_interval` does. Runs of equal number are paired by their place, so that the standard
    error is that of the differences; else both systems have one of their own.

    Args:
        system: the ranks of one run, or of several seeds, with the same images in the same rows as the baseline.
        baseline: the ranks of the other system; if of as many seeds, of the same ones in the same order.
        resamples: number of resamples.
        level: share of the resamples inside the interval.
        seed: random seed of the resampling.

    Returns:
        A `Difference`, system - baseline, for each name in `retrieval_scores` (a lower median rank is better).

    Raises:
        ModelError: the runs have different images, or there is no query.

    Examples:
        >>> ranks = (torch.tensor([1, 1, 1, 2]).repeat(50), torch.tensor([1, 1, 2, 2]).repeat(50))
        >>> system, baseline = (RetrievalRanks(rank, rank, torch.arange(200)) for rank in ranks)
        >>> gain = paired_difference(system, baseline)["t2i_r1"]
        >>> round(gain.value, 1), gain.low > 0, gain.p_value < 0.01
        (25.0, True, True)
    """
    ours, theirs = _runs(system), _runs(baseline)
    weights = _image_weights(ours + theirs, resamples, seed)
    gains = _score_gains(ours, theirs, weights)
    our_score, their_score = _scores_of_runs(ours), _scores_of_runs(theirs)
    differences = {}
    for name, gain in gains.items():
        shifts = gain_shifts(our_score[name], their_score[name], resamples, seed)
        differences[name] = difference(float(our_score[name].mean() - their_score[name].mean()), gain + shifts, level)
    return differences


def difference(whole: float, resampled: Tensor, level: float = 0.95) -> Difference:
    """Return a difference with its interval and p-value from resampled differences.

    The p-value is twice the smaller share of the resamples on one side of zero (zero included), never below
    2 / (resamples + 1).

    Args:
        whole: the difference on all data.
        resampled: (S,) differences on S resamples.
        level: share of the resamples inside the interval.

    Examples:
        >>> difference(1.0, torch.tensor([0.5, 1.0, 1.5, 2.0])).p_value  # 2 / 5: four resamples cannot say more
        0.4
    """
    resampled = resampled.double().round(decimals=9)  # equal sums of equal shares differ by 1e-15
    rarer_side = 1 + min(int((resampled <= 0).sum()), int((resampled >= 0).sum()))
    p_value = min(1.0, 2 * rarer_side / (len(resampled) + 1))
    return Difference(whole, *percentiles(resampled, level), p_value)


def _runs(ranks: RetrievalRanks | Sequence[RetrievalRanks]) -> list[RetrievalRanks]:
    """Return a list of runs, also for a single run."""
    return [ranks] if isinstance(ranks, RetrievalRanks) else list(ranks)


def _image_weights(runs: Sequence[RetrievalRanks], resamples: int, seed: int) -> Tensor:
    """Count how often each image is drawn: (S, I) for S resamples of the images that have captions."""
    has_captions = runs[0].image_to_text.cpu() > 0
    if any(not torch.equal(run.image_to_text.cpu() > 0, has_captions) for run in runs):
        raise ModelError("the runs to compare are not on the same images: their images with captions differ")
    rows = has_captions.nonzero()[:, 0]
    if not len(rows):
        raise ModelError(NO_QUERY)
    generator = torch.Generator().manual_seed(seed)
    drawn = rows[torch.randint(len(rows), (resamples, len(rows)), generator=generator)]
    return torch.zeros(resamples, len(has_captions)).scatter_add_(1, drawn, torch.ones(drawn.shape))


def _scores_of_runs(runs: Sequence[RetrievalRanks]) -> dict[str, Tensor]:
    """Return `retrieval_scores` of each run on all images: a tensor (runs,) for each name."""
    all_images = torch.ones(1, len(runs[0].image_to_text))
    each = [_weighted_scores(run, all_images) for run in runs]
    return {name: torch.cat([scores[name] for scores in each]) for name in each[0]}


def seed_shifts(by_run: Tensor, resamples: int, seed: int) -> Tensor:
    """Return (S,) errors of the mean of the runs' values (N,): its standard error times Student's t; 0 of one run.

    They are evenly spaced quantiles of Student's t in random order. Free draws have heavy and uneven tails: the same
    thousand of them would move every interval to one side.
    """
    degrees = len(by_run) - 1
    if not degrees:
        return by_run.new_zeros(resamples)
    spaced = (torch.arange(resamples, dtype=torch.float64) + 0.5) / resamples
    order = torch.randperm(resamples, generator=torch.Generator().manual_seed(seed + 1_000_003))
    student = torch.from_numpy(stdtrit(degrees, spaced.numpy()))[order]
    return student.to(by_run.dtype) * by_run.std() / len(by_run) ** 0.5


def gain_shifts(ours: Tensor, theirs: Tensor, resamples: int, seed: int) -> Tensor:
    """Return (S,) errors of the difference of the means of two systems' runs.

    Runs of equal number are paired by their place, so that the standard error is that of the differences; else both
    systems have one of their own.

    Args:
        ours: (N,) the scores of a system's runs.
        theirs: (M,) those of the other system.
        resamples: S.
        seed: of their order.

    Examples:
        >>> ours, theirs = torch.tensor([51.0, 49.0, 53.0]), torch.tensor([50.0, 48.0, 52.0])
        >>> gain_shifts(ours, theirs, 4, seed=0).abs().tolist()  # each run gains the same: seeds tell no error
        [0.0, 0.0, 0.0, 0.0]
        >>> bool(gain_shifts(ours, theirs[:2], 4, seed=0).abs().min() > 0)  # not paired
        True
    """
    if len(ours) == len(theirs):
        return seed_shifts(ours - theirs, resamples, seed)
    return seed_shifts(ours, resamples, seed) - seed_shifts(theirs, resamples, seed + 1)


def _mean_scores(runs: Sequence[RetrievalRanks], weights: Tensor) -> dict[str, Tensor]:
    """Average `retrieval_scores` over runs, with images weighted by (S, I): a tensor (S,) for each name."""
    each = [_weighted_scores(run, weights) for run in runs]
    return {name: torch.stack([scores[name] for scores in each]).mean(dim=0) for name in each[0]}


def _weighted_scores(ranks: RetrievalRanks, weights: Tensor) -> dict[str, Tensor]:
    """Return `retrieval_scores` with image i repeated weights[s, i] times: a tensor (S,) for each name."""
    scores: dict[str, Tensor] = {}
    queries = ranks.image_to_text.cpu().nonzero()[:, 0]
    tasks = {
        "t2i": (ranks.text_to_image.cpu(), ranks.caption_image.cpu()),
        "i2t": (ranks.image_to_text.cpu()[queries], queries),
    }
    for task, (values, image) in tasks.items():
        hits = torch.stack([values <= k for k in CUTS] + [values > 0], dim=1).double()
        per_image = hits.new_zeros(weights.shape[1], len(CUTS) + 1).index_add(0, image, hits)
        totals = weights.double() @ per_image  # float64: counts must be exact
        for column, k in enumerate(CUTS):
            scores[f"{task}_r{k}"] = 100 * totals[:, column] / totals[:, -1]
        scores[f"{task}_medr"] = _weighted_median(values, weights[:, image])
    rsum = torch.stack([scores[name] for name in RECALLS]).sum(dim=0)
    return scores | {"rsum": rsum, "mean_recall": rsum / len(RECALLS)}


def _weighted_median(values: Tensor, weights: Tensor) -> Tensor:
    """Return the median (S,) of values (N,) with value n repeated weights[s, n] times."""
    values, order = values.sort()
    upto = weights[:, order].cumsum(dim=1)
    middle = torch.cat([((upto[:, -1:] - 1) / 2).floor(), (upto[:, -1:] / 2).floor()], dim=1)
    return values[torch.searchsorted(upto, middle, right=True)].double().mean(dim=1)


def _score_gains(
    system: Sequence[RetrievalRanks], baseline: Sequence[RetrievalRanks], weights: Tensor
) -> dict[str, Tensor]:
    """Subtract the baseline's `_mean_scores` from the system's: a tensor (S,) for each name."""
    ours, theirs = _mean_scores(system, weights), _mean_scores(baseline, weights)
    return {name: ours[name] - theirs[name] for name in ours}


def percentiles(values: Tensor, level: float) -> tuple[float, float]:
    """Return the percentiles that enclose the middle share `level` of the values (S,)."""
    low, high = values.quantile(torch.tensor([(1 - level) / 2, (1 + level) / 2], dtype=values.dtype)).tolist()
    return low, high
