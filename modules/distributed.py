"""Communication between processes. With one process, each function returns its input."""

from collections.abc import Iterable, Sequence
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.nn.functional import all_gather as all_gather_with_gradient
from torch.nn import functional as F

T = TypeVar("T")


def gather_objects(items: Sequence[T], world_size: int) -> list[T]:
    """Return the items of all ranks, in the order of ranks, on every rank."""
    if world_size == 1:
        return list(items)
    parts: list[list[T]] = [[] for _ in range(world_size)]
    dist.all_gather_object(parts, list(items))
    return [item for part in parts for item in part]


def sum_over_ranks(value: Tensor, world_size: int) -> Tensor:
    """Return the sum of a tensor over all ranks, on every rank; without gradient."""
    if world_size == 1:
        return value
    total = value.detach().clone()
    dist.all_reduce(total)
    return total


def gather_rows(rows: Tensor, world_size: int) -> Tensor:
    """Concatenate rows (N_r, …) of all ranks to one tensor (Σ N_r, …), with gradient; N_r may differ.

    Every rank computes the same loss from the gathered rows. The gradient of a row is summed over the ranks'
    losses, and DDP then averages over ranks; the result is the gradient of one loss on the joint batch.
    """
    if world_size == 1:
        return rows
    counts = [torch.zeros(1, dtype=torch.int64, device=rows.device) for _ in range(world_size)]
    dist.all_gather(counts, torch.tensor([len(rows)], device=rows.device))
    sizes = [int(count) for count in counts]
    padded = F.pad(rows, [0, 0] * (rows.dim() - 1) + [0, max(sizes) - len(rows)]).contiguous()
    if rows.requires_grad:
        parts = list(all_gather_with_gradient(padded))
    else:
        parts = [torch.empty_like(padded) for _ in range(world_size)]
        dist.all_gather(parts, padded)
    return torch.cat([part[:size] for part, size in zip(parts, sizes, strict=True)])


def touch(parameters: Iterable[Tensor]) -> Tensor:
    """Return a zero to add to the loss, which gives every parameter a gradient of zero.

    DDP expects the gradients of all parameters on every rank. It waits or fails if a parameter is not used for a rank's
    batch, such as the encoder of a language that the batch does not contain.
    """
    return 0 * torch.stack([parameter.sum() for parameter in parameters if parameter.requires_grad]).sum()
