"""How time and memory grow with the number of captions: of each part from the caption table to a gallery's index.

`BILDWORT_GROWTH=10000,100000` measures these sizes instead of 10,000, 100,000 and a million. Asserted between the last
two: no part takes more than twice the time a caption, nor more memory, but those that are said not to be linear.
"""

import multiprocessing
import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from tests.benchmarks.growing import PARTS, measure

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(7200)]
ROOT = Path(__file__).parents[2]
SIZES = [int(size) for size in os.environ.get("BILDWORT_GROWTH", "10000,100000,1000000").split(",")]
SLOWER, LARGER = 2.0, 1.25  # times a caption
NOISE = 0.2, 30.0  # seconds and megabytes that depend on the moment, not on the number of captions
Taken = tuple[float, float]
"""Seconds and megabytes."""


@pytest.fixture
def processes(monkeypatch) -> Iterator[ProcessPoolExecutor]:
    """One after the other, each for one part; all begin with everything imported and one thread."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, (ROOT, ROOT / "pipeline"))))
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.benchmarks.growing"])
    with ProcessPoolExecutor(1, context, max_tasks_per_child=1) as pool:
        yield pool


def in_words(taken: Taken | None) -> str:
    """Seconds and megabytes, as the table has them."""
    if taken is None:
        return "–"
    return f"{taken[0]:,.{0 if taken[0] >= 10 else 2}f} s, {max(0.0, taken[1]):,.0f} MB"


def table(found: dict[str, list[Taken | None]]) -> list[str]:
    """A line for each part; last how many times as long the largest size takes a caption as the smallest."""
    lines = [f"| | {' | '.join(f'{count:,}' for count in SIZES)} | time a caption |", "|---" * (len(SIZES) + 2) + "|"]
    for name, cells in found.items():
        known = [cell[0] / count for cell, count in zip(cells, SIZES, strict=True) if cell]
        lines.append(f"| {' | '.join([PARTS[name].what, *map(in_words, cells), f'{known[-1] / known[0]:.1f}'])} |")
    return lines


def test_time_and_memory_a_caption_do_not_grow(processes: ProcessPoolExecutor, tmp_path: Path, capsys) -> None:
    found: dict[str, list[Taken | None]] = {name: [] for name in PARTS}
    for count in SIZES:
        (folder := tmp_path / str(count)).mkdir()
        for name, part in PARTS.items():
            fits = part.most is None or count <= part.most
            found[name].append(processes.submit(measure, name, folder, count).result() if fits else None)
    with capsys.disabled():
        print("", *table(found), sep="\n")
    last = {name: cells[-2:] for name, cells in found.items() if PARTS[name].linear and len(cells) > 1}
    more = SIZES[-1] / SIZES[-2] if len(SIZES) > 1 else 1
    for place, (what, factor) in enumerate((("seconds", SLOWER), ("megabytes", LARGER))):
        grown = {
            name: (few[place], many[place]) for name, (few, many) in last.items()
            if few and many and many[place] > factor * more * (few[place] + NOISE[place])
        }  # fmt: skip
        assert not grown, f"{what} a caption grow from {SIZES[-2]:,} to {SIZES[-1]:,}: {grown}"
