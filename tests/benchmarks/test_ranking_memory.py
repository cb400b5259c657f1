"""What ranking by SCAN takes in memory beside the encodings: it depends on the block, not on how many are ranked.

COCO's 5,000 images and 25,000 captions would take hours on a CPU. Two sizes are measured, each in a process of its own,
and what COCO takes is computed from the encodings' sizes, which hold no padding, and the larger measurement.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.benchmark
ROOT = Path(__file__).parents[2]
REGIONS, WORDS, LONGEST, DIM, GIB = 36, 12, 50, 1024, 2**30  # COCO's captions have 10.5 words on average, and two marks
RANKING = f"""
import resource, sys, torch
from modules.search.scores import cross_attention
from modules.search.ranking import exact_ranks
from modules.search.encodings import Encodings

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

images, captions = (
    Encodings.behind_each_other(torch.randn((count - 1) * width + {LONGEST}, {DIM}),
                                torch.tensor([{LONGEST}] + [width] * (count - 1)))
    for count, width in ((512, {REGIONS}), (int(sys.argv[1]), {WORDS}))
)
links = torch.randint(512, (len(captions),))
before = peak()
exact_ranks(lambda one, other: cross_attention(other, one, 9.0).t(), images, captions, links)
print(peak() - before)
"""


def added(captions: int) -> int:
    """Bytes that ranking adds, of 512 images (a block) and so many captions."""
    run = subprocess.run(
        [sys.executable, "-c", RANKING, str(captions)], cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return int(run.stdout)


def test_ranking_adds_no_more_for_more_captions(capsys) -> None:
    small, large = 512, 2048
    few, many = added(small), added(large)
    grown = (large - small) * WORDS * DIM * 4  # what the encodings grow by
    encodings = [count * width * DIM * 4 / GIB for count, width in ((5000, REGIONS), (25000, WORDS))]
    with capsys.disabled():
        print(f"\nRanking by SCAN t2i-AVG, {DIM} numbers, blocks of 128, measured: {small} captions add "
              f"{few / GIB:.2f} GiB, {large} add {many / GIB:.2f} GiB (their encodings grow by {grown / GIB:.2f} GiB). "
              f"COCO 5K, computed: encodings {encodings[0]:.2f} GiB (5,000 x {REGIONS}) and {encodings[1]:.2f} GiB "
              f"(25,000 x {WORDS}), in all {sum(encodings) + many / GIB:.1f} GiB")  # fmt: skip
    assert many - few < grown / 4
    assert sum(encodings) * GIB + many < 2 * GIB
