"""What the benchmarks share: two things that take turns, and a batch of the usual size."""

import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor

from pipeline.training.trainer import bfloat16_cost

REGIONS, REGION_DIM, BATCH, VOCABULARY = 36, 2048, 128, 8000
BF16 = torch.cuda.is_available() or bfloat16_cost() < 1  # as the recipes have it, but for processors that have none
PRECISION = "bf16" if BF16 else "float32"


def medians(one: Callable[[], object], other: Callable[[], object], times: int) -> tuple[float, float]:
    """Seconds of two things that take turns."""
    spent: tuple[list[float], list[float]] = ([], [])
    for _ in range(times):
        for run, seconds in zip((one, other), spent, strict=True):
            start = time.perf_counter()
            run()
            seconds.append(time.perf_counter() - start)
    return statistics.median(spent[0]), statistics.median(spent[1])


def make_batch() -> tuple[Tensor, Tensor, Tensor]:
    """Regions (128, 36, 2048), and captions of 7 to 25 words: tokens (128, 25) and their lengths."""
    lengths = torch.randint(7, 26, (BATCH,))
    tokens = torch.randint(2, VOCABULARY, (BATCH, 25)) * (torch.arange(25) < lengths[:, None])
    return torch.randn(BATCH, REGIONS, REGION_DIM), tokens, lengths
