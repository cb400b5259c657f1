"""Errors of a mean over few seeds: those of Student's t, and the same to both sides."""

import pytest
import torch
from scipy.stats import t

from modules.metrics.intervals import (
    bootstrap_interval,
    difference,
    gain_shifts,
    mean_interval,
    paired_difference,
    percentiles,
    seed_shifts,
)
from modules.metrics.retrieval import RetrievalRanks, score_range
from tests.modules.metrics.test_metrics import some_ranks


@pytest.mark.parametrize("seeds", [2, 3, 4, 5, 10])
@pytest.mark.parametrize("level", [0.8, 0.9, 0.95])
def test_shifts_are_distributed_as_the_mean_over_few_seeds(seeds: int, level: float) -> None:
    values = torch.linspace(40, 43, seeds, dtype=torch.float64)
    error = values.std().item() / seeds**0.5
    low, high = percentiles(seed_shifts(values, 1000, seed=0), level)
    assert high == pytest.approx(t.ppf((1 + level) / 2, seeds - 1) * error, rel=0.03)
    assert low == pytest.approx(-high)


def test_shifts_do_not_go_with_the_images_that_were_drawn() -> None:
    values, images = torch.tensor([1.0, 2.0, 4.0]), torch.arange(1000.0)
    drawn = [seed_shifts(values, 1000, seed) for seed in range(20)]
    together = [torch.corrcoef(torch.stack([shifts.clamp(-3, 3), images]))[0, 1].item() for shifts in drawn]
    assert max(map(abs, together)) < 0.12
    assert not torch.equal(drawn[0], drawn[1])


@pytest.mark.parametrize("name", ["t2i_r1", "rsum"])
@pytest.mark.parametrize("theirs", [3, 2])
def test_which_system_is_named_first_changes_the_sign_alone(name: str, theirs: int) -> None:
    """Rows of few images and of seeds that differ: both ends of an interval are as far from its value."""
    first = [some_ranks(seed, 400) for seed in range(3)]
    second = [some_ranks(seed, 400, noise=1.2) for seed in range(theirs)]
    there, back = paired_difference(first, second)[name], paired_difference(second, first)[name]
    width = there.high - there.low
    assert (back.low, back.high) == pytest.approx((-there.high, -there.low), abs=0.08 * width)
    assert there.high + there.low == pytest.approx(2 * there.value, abs=0.08 * width)


def test_seeds_that_differ_alone_give_an_interval_of_student() -> None:
    """Every image is as hard: the images add no error, and the interval is that of a textbook."""
    shares = (0.50, 0.52, 0.57)
    runs = []
    for share in shares:
        ranks = torch.full((100,), 2.0)
        ranks[: round(100 * share)] = 1
        runs.append(RetrievalRanks(ranks, ranks, torch.zeros(100, dtype=torch.long)))
    one_image = [RetrievalRanks(run.text_to_image, run.image_to_text[:1], run.caption_image) for run in runs]
    interval = bootstrap_interval(one_image)["t2i_r1"]
    values = 100 * torch.tensor(shares, dtype=torch.float64)
    mean, half = values.mean().item(), t.ppf(0.975, 2) * values.std().item() / 3**0.5
    assert tuple(interval) == pytest.approx((mean, mean - half, mean + half), rel=0.01)


@pytest.mark.parametrize("name", ["t2i_r1", "mean_recall", "rsum", "i2t_medr"])
@pytest.mark.parametrize("shares", [(0.05, 0.52), (0.48, 0.95)])
def test_an_interval_holds_no_score_that_cannot_be(name: str, shares: tuple[float, float]) -> None:
    """Two seeds that differ much: Student's t with one degree of freedom reaches beyond 0 and 100 %."""
    runs = []
    for share in shares:
        ranks = torch.where(torch.arange(100) < round(100 * share), 1, 50)
        runs.append(RetrievalRanks(ranks, ranks, torch.arange(100)))
    low, high = score_range(name)
    interval = bootstrap_interval(runs)[name]
    assert low <= interval.low < interval.value < interval.high <= high
    assert interval.low == low or interval.high == high


@pytest.mark.parametrize(("values", "ends"), [((98.0, 100.0), (86.5, 100)), ((2.0, 0.0), (0, 13.5))])
def test_an_interval_of_a_mean_holds_no_mean_that_cannot_be(values: tuple[float, float], ends) -> None:
    interval = mean_interval([torch.full((50,), value) for value in values], least=0, most=100)
    assert (interval.low, interval.high) == pytest.approx(ends, abs=0.1)


@pytest.mark.parametrize("noise", [7e-15, -7e-15])
def test_a_difference_of_nothing_but_rounding_is_none(noise: float) -> None:
    """Sums of equal shares in another order: they count as zero on both sides."""
    resampled = torch.tensor([noise] * 50 + [1.0] * 950, dtype=torch.float64)
    found = difference(1.0, resampled)
    assert (found.low, found.p_value) == (0, 2 * 51 / 1001)


def test_seeds_of_two_systems_that_are_not_paired_are_errors_of_their_own() -> None:
    """The error of a difference is at least that of the less sure side: the two may not cancel."""
    ours, theirs = torch.tensor([48.0, 50.0, 52.0]), torch.tensor([49.0, 51.0])
    alone = seed_shifts(theirs, 1000, 0).abs().quantile(0.95)
    assert gain_shifts(ours, theirs, 1000, 0).abs().quantile(0.95) >= alone
    assert gain_shifts(theirs, ours, 1000, 0).abs().quantile(0.95) >= alone
