"""Encoding a batch in chunks, and the encodings of all devices."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from modules.distributed import gather_rows
from modules.search.encodings import Encoding


def in_chunks(encode: Callable[..., Encoding], chunk: int, *rows: Tensor) -> Encoding:
    """Encode rows a chunk at a time; their activations are computed again when the gradient is.

    Args:
        encode: gives single vectors.
        chunk: rows at a time.
        rows: what it reads, (N, …) each.
    """
    parts = zip(*(tensor.split(chunk) for tensor in rows), strict=True)
    encodings = [checkpoint(encode, *some, use_reentrant=False) for some in parts]
    return torch.cat([vectors for vectors, _ in encodings]), torch.cat([mask for _, mask in encodings])


def gather_encoding(encoding: Encoding, world_size: int) -> Encoding:
    """Concatenate, with gradients, the encodings of all devices, padded to the longest on any device."""
    vectors, mask = encoding
    if world_size == 1:
        return encoding
    longest = torch.tensor([vectors.shape[1]], device=vectors.device)
    width = int(gather_rows(longest, world_size).max())
    vectors = F.pad(vectors, (0, 0, 0, width - vectors.shape[1]))
    mask = F.pad(mask, (0, width - mask.shape[1]))
    return gather_rows(vectors, world_size), gather_rows(mask.to(torch.uint8), world_size).bool()


def first_rows(keys: Tensor) -> tuple[Tensor, Tensor]:
    """Return the distinct keys in ascending order, and the first row of each."""
    distinct, inverse = keys.unique(return_inverse=True)
    rows = torch.arange(len(keys), device=keys.device)
    return distinct, torch.full_like(distinct, len(keys)).scatter_reduce(0, inverse, rows, "amin")
