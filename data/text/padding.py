"""Sentences as one tensor."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from data.text.tokenisation import PADDING

if TYPE_CHECKING:
    import pytorch_lightning as pl

WIDTH = 8
"""GPUs get batches whose widths are multiples of this: of few shapes, so that each can have a CUDA graph."""


def wants_few_shapes(trainer: "pl.Trainer | None") -> bool:
    """Whether training batches should be of few shapes: where steps are CUDA graphs."""
    return trainer is not None and getattr(trainer.lightning_module, "graphs", None) is not None


def rounded(count: int, to: int = WIDTH) -> int:
    """The next multiple of a number, or the count itself where it is one.

    Examples:
        >>> rounded(9), rounded(16), rounded(65, to=64)
        (16, 16, 128)
    """
    return -(-count // to) * to


def pad(sentences: Sequence[Sequence[int]], to: int = 1) -> Tensor:
    """Token numbers of sentences as one (B, N) tensor, padding behind; N is a multiple of `to`."""
    width = rounded(max(len(sentence) for sentence in sentences), to)
    batch = np.full((len(sentences), width), PADDING, dtype=np.int64)
    for row, sentence in enumerate(sentences):
        batch[row, : len(sentence)] = sentence
    return torch.from_numpy(batch)
