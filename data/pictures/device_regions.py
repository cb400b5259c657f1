"""All regions of a corpus on the device of the training, so that no batch gathers and copies them."""

from typing import Literal

import numpy as np
import pytorch_lightning as pl
import torch
from torch import Tensor

from data.pictures.regions import RegionStore

Place = Literal["auto", "device", "host"]
"""Where regions are: on the device of the training, on the host, or on the device if it is a GPU with room for them."""

_SHARE = 0.5  # of a GPU's memory that is free for this process
_BLOCK = 1024  # images copied together


class DeviceRegions:
    """Regions of a store, copied to a device once.

    Args:
        store: the region store.
        place: where regions are wanted.
        trainer: whose device it is; None: the CPU.

    Attributes:
        table: (N, R, D) float16 on the device; None where batches hold their regions.
    """

    def __init__(self, store: RegionStore, place: Place, trainer: pl.Trainer | None) -> None:
        device = torch.device("cpu") if trainer is None else trainer.strategy.root_device
        self.table = _copied(store.regions, device) if _fits(store, place, device) else None

    def of_rows(self, rows: Tensor) -> Tensor:
        """Regions (B, R, D) of row numbers (B,), all zero for −1."""
        assert self.table is not None
        taken = self.table[rows.clamp(min=0)]
        return taken.masked_fill((rows < 0)[:, None, None], 0)


def _fits(store: RegionStore, place: Place, device: torch.device) -> bool:
    """Whether regions go to the device; those that are no array, but made from others, stay on the host."""
    if place == "host" or not isinstance(store.regions, np.ndarray):
        return False
    if place == "device":
        return True
    return device.type == "cuda" and store.regions.nbytes <= _SHARE * free_memory(device)


def free_memory(device: torch.device) -> float:
    """Bytes that this process may still take of a GPU: what is free there, or the rest of its own part."""
    free, total = torch.cuda.mem_get_info(device)
    kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    own = torch.cuda.get_per_process_memory_fraction(device) * total - torch.cuda.memory_allocated(device)
    return min(free + kept, own)


def _copied(regions: np.ndarray, device: torch.device) -> Tensor:
    """A copy on the device, made block by block: the host holds one at a time."""
    table = torch.empty(regions.shape, dtype=torch.from_numpy(regions[:1].copy()).dtype, device=device)
    for start in range(0, len(regions), _BLOCK):
        table[start : start + _BLOCK] = torch.from_numpy(np.array(regions[start : start + _BLOCK]))
    return table
