"""How often a true gain would be found: `python -m tests.benchmarks.power`.

A difference of two systems over three seeds has two errors: that of the images, and that of the seeds. The second is
taken from the recorded runs, as the standard deviation over seeds of every difference on English in the tables of
`pipeline/results/README.md` and of the `differences` in `tests/recorded/`. A gain is found where the 95 % interval
over images and seeds lies above 0.
"""

import argparse
from collections.abc import Sequence
from statistics import stdev

import numpy as np

from tests.recorded_tables import RECORDED, cells_of, figures_of, seeds_of

IMAGES = 0.4
"""Standard error over 1,000 images of a difference of mean recall: the intervals over images are 1.5 wide."""
GAINS = (1.0, 2.0, 3.0)
SEEDS = 3
_DRAWS = _CASES = 50_000
_METRIC = "en/mean_recall"


def recorded_deviations() -> list[float]:
    """The standard deviation over three seeds of each difference of mean recall on English."""
    pairs = {
        (recipe, one, other)
        for recipe, section in RECORDED.items() for name in section["tables"]
        for _, _, holds, run, base in cells_of(recipe, name) for figure, one, other in figures_of(holds, run, base)
        if "less en/" in figure and other
    } | {
        (recipe, *pair) for recipe, section in RECORDED.items() for pair in section.get("differences", [])
    }  # fmt: skip
    both = [[seeds_of(recipe, run) for run in pair] for recipe, *pair in sorted(pairs)]
    return sorted(
        stdev(one[_METRIC] - other[_METRIC] for one, other in zip(ours, theirs, strict=True))
        for ours, theirs in both if len(ours) == SEEDS
    )  # fmt: skip


def power(gain: float, deviation: float, images: float = IMAGES, seeds: int = SEEDS, seed: int = 0) -> float:
    """The share of cases in which the interval of a difference lies above 0.

    Args:
        gain: the true difference.
        deviation: standard deviation of a difference over seeds.
        images: standard error over images.
        seeds: how many.
        seed: of the draws.
    """
    generator = np.random.default_rng(seed)
    normal, student = generator.standard_normal(_DRAWS), generator.standard_t(seeds - 1, _DRAWS)
    errors = np.linspace(0, 5 * max(deviation, 0.01), 101)  # standard errors over seeds
    low = [np.quantile(images * normal + error * student, 0.025) for error in errors]
    runs = gain + deviation * generator.standard_normal((_CASES, seeds))
    mean = runs.mean(1) + images * generator.standard_normal(_CASES)
    return float((mean + np.interp(runs.std(1, ddof=1) / seeds**0.5, errors, low) > 0).mean())


def main(deviations: Sequence[float], seeds: int = SEEDS) -> None:
    """Print how often gains are found, by these standard deviations over seeds or by the recorded ones."""
    if not deviations:
        recorded = recorded_deviations()
        pooled = (sum(one**2 for one in recorded) / len(recorded)) ** 0.5
        print(f"{len(recorded)} recorded differences over {SEEDS} seeds: standard deviation {pooled:.2f} "
              f"({recorded[0]:.1f} … {recorded[-1]:.1f})")  # fmt: skip
        deviations = [pooled]
    for deviation in deviations:
        shares = ", ".join(
            f"{gain:g} point{'s' * (gain > 1)}: {100 * power(gain, deviation, seeds=seeds):.0f} %" for gain in GAINS
        )
        print(f"standard deviation {deviation:.2f}, {seeds} seeds; a true gain of {shares}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("deviations", nargs="*", type=float, help="standard deviations over seeds; none: the recorded")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    given = parser.parse_args()
    main(given.deviations, given.seeds)
