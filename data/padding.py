"""Sentences as one tensor."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from data.text import PADDING


def pad(sentences: Sequence[Sequence[int]]) -> Tensor:
    """Token numbers of sentences as one (B, N) tensor, padding behind."""
    width = max(len(sentence) for sentence in sentences)
    batch = np.full((len(sentences), width), PADDING, dtype=np.int64)
    for row, sentence in enumerate(sentences):
        batch[row, : len(sentence)] = sentence
    return torch.from_numpy(batch)
