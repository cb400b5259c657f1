"""Checkpoints of trainings: written whole, their disk asked for, damaged ones refused."""

import io
import os
import shutil
from pathlib import Path
from typing import Any

import torch
from pytorch_lightning.plugins.io import TorchCheckpointIO
from torch import nn

from data.errors import one_line
from modules.training.callbacks import bytes_of_checkpoints
from pipeline.errors import RecipeError


class WholeCheckpoints(TorchCheckpointIO):
    """Writes a checkpoint under another name, then renames it: a kill at any moment leaves the old one or the new one.

    Lightning writes to /tmp and moves; from another file system that is a copy, which can stop half-way.
    """

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        """Write whole or not at all."""
        content = io.BytesIO()
        torch.save(checkpoint, content)  # into memory: on a full disk torch's own writer hides what happened
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(path.name + ".tmp")  # the next run replaces what a kill leaves
        with temporary.open("wb") as file:
            file.write(content.getbuffer())
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)


def disk_for_training(module: nn.Module, folder: Path, averaged: bool = False) -> float:
    """Bytes that training writes at most.

    Args:
        averaged: checkpoints hold the weights and their moving average.

    Raises:
        RecipeError: the disk has less.
    """
    wanted = bytes_of_checkpoints(module, averaged)
    held = sum(path.stat().st_size for path in (folder / "checkpoints").glob("*"))  # of a run that goes on
    free = shutil.disk_usage(folder).free + held
    if free < wanted:
        raise RecipeError(
            f"{folder}: training needs {wanted / 1e6:,.0f} MB of disk and {free / 1e6:,.0f} MB are free; make room or "
            "set BILDWORT_ARTIFACTS"
        )
    return wanted


def require_checkpoint(path: Path, module: nn.Module) -> None:
    """Refuse to go on from a checkpoint that is damaged, no checkpoint, or of another network."""
    advice = "delete it to begin this training again"
    try:
        weights = torch.load(path, map_location="meta", weights_only=True, mmap=True)["state_dict"]
        shapes = {name: tuple(tensor.shape) for name, tensor in weights.items()}
    except (MemoryError, PermissionError):
        raise  # not the file's fault
    except Exception as error:  # a damaged file can raise anything; a pickle is never run
        raise RecipeError(f"{path}: not a readable checkpoint ({one_line(error)}); {advice}") from None
    if shapes != {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}:
        raise RecipeError(f"{path}: a checkpoint of another network; {advice}")
