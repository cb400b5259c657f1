"""How fast a processor or a GPU is in bfloat16."""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import torch
from torch import nn

from modules.layers.recurrent import padded_states

_WIDTH, _BATCH, _LENGTH = 256, 32, 12
_REGIONS, _WORDS, _STATE = (128 * 36, 2048), (128, 24, 300), 512  # a batch of SAN's in the main paper


def bfloat16_cost(rounds: int = 5) -> float:
    """How many times as long this processor takes for a training step in bfloat16 as in float32, measured in turns.

    The step is of an LSTM and a matrix product, under autocast as Lightning's `bf16-mixed` does it, on one thread:
    what other processes do would tell on several. Takes about half a second, and draws nothing from torch's generator.

    Args:
        rounds: of which the quickest counts.

    Returns:
        infinity where it cannot compute an LSTM in bfloat16.
    """
    with torch.random.fork_rng(devices=[]):
        lstm, product = nn.LSTM(_WIDTH, _WIDTH, batch_first=True), nn.Linear(_WIDTH, 4 * _WIDTH)
        words = torch.randn(_BATCH, _LENGTH, _WIDTH)

    def seconds(bfloat16: bool) -> float:
        """The time of one step."""
        since = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16, enabled=bfloat16):
            loss = product(lstm(words)[0]).float().square().mean()
        loss.backward()
        return time.perf_counter() - since

    threads, quickest = torch.get_num_threads(), {True: math.inf, False: math.inf}
    torch.set_num_threads(1)
    try:
        for _ in range(rounds + 1):  # the first step is slow
            for bfloat16, before in quickest.items():
                with suppress(RuntimeError):  # oneDNN has no LSTM in bfloat16 for processors without AVX512
                    quickest[bfloat16] = min(before, seconds(bfloat16))
    finally:
        torch.set_num_threads(threads)
    return quickest[True] / quickest[False]


def bfloat16_cost_of_gpu(rounds: int = 10, device: str = "cuda") -> float:
    """How many times as long a GPU takes for a training step in bfloat16 as in TensorFloat-32, measured in turns.

    The step is of a product over regions and an LSTM over words as large as SAN's, under autocast, in which LSTMs stay
    in TensorFloat-32. Takes less than a second, and draws nothing from torch's generators.

    Args:
        rounds: of which the quickest counts.
        device: which it is.
    """
    regions, words = torch.ones(_REGIONS, device=device), torch.ones(_WORDS, device=device)
    with torch.random.fork_rng(devices=[]):
        lstm = nn.LSTM(_WORDS[-1], _STATE, batch_first=True).to(device)
        product = nn.Linear(_REGIONS[-1], _STATE).to(device)

    def seconds(bfloat16: bool) -> float:
        """The time of one step."""
        _finish(device)
        since = time.perf_counter()
        with torch.autocast(device, torch.bfloat16, enabled=bfloat16):
            loss = product(regions).float().square().mean() + padded_states(lstm, words).square().mean()
        loss.backward()
        _finish(device)
        return time.perf_counter() - since

    quickest = {True: math.inf, False: math.inf}
    with tensor_float(device):
        for _ in range(rounds + 1):  # the first step is slow
            for bfloat16, before in quickest.items():
                quickest[bfloat16] = min(before, seconds(bfloat16))
    return quickest[True] / quickest[False]


@contextmanager
def tensor_float(device: str) -> Iterator[None]:
    """Multiply matrices of float32 in TensorFloat-32, with 10 bits behind the point; on NVIDIA GPUs (`cuda`) alone."""
    before = torch.get_float32_matmul_precision()
    if device == "cuda":
        torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@contextmanager
def exact_float() -> Iterator[None]:
    """Compute float32 in float32 on NVIDIA GPUs too, LSTMs and convolutions included."""
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = False
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before[0])
        torch.backends.cudnn.allow_tf32 = before[1]


def _finish(device: str) -> None:
    """Wait for a GPU."""
    if device == "cuda":
        torch.cuda.synchronize()
