"""Checkpoints of trainings: written whole, the best one kept, their disk asked for, damaged ones refused."""

import io
import os
import shutil
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import ModelCheckpoint
from pytorch_lightning.plugins.io import TorchCheckpointIO
from torch import Tensor, nn

from data.errors import one_line
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


class Best(ModelCheckpoint):
    """Keeps the best checkpoint, of several that are equally good the last, also after its folder was moved."""

    @property
    def state_key(self) -> str:
        """Its name in checkpoints, by which a training that was stopped finds its state."""
        return super().state_key.replace("Best{", "_Best{", 1)

    def check_monitor_top_k(self, trainer: pl.Trainer, current: Tensor | None = None) -> bool:
        """Is this epoch's score the best so far, or equal to it? Where scores are near their limit, many are equal."""
        best = self.best_k_models.get(self.kth_best_model_path)
        return super().check_monitor_top_k(trainer, current) or (
            current is not None and trainer.strategy.reduce_boolean_decision(bool(current == best))
        )

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take the score from the state, and the path from this run."""
        place = str(Path(str(self.dirpath)) / "best.ckpt")
        scores = state_dict["best_k_models"].values()
        here = {"dirpath": self.dirpath, "best_model_path": place, "kth_best_model_path": place}
        super().load_state_dict(state_dict | here | {"best_k_models": dict.fromkeys([place], *scores)})


def disk_for_training(module: nn.Module, folder: Path, averaged: bool = False) -> float:
    """Bytes that training writes at most: two checkpoints with Adam's two moments, one more while it is written.

    Args:
        module: what is trained.
        folder: where checkpoints go.
        averaged: checkpoints hold the weights and their moving average.

    Raises:
        RecipeError: the disk has less.
    """
    frozen, trained = (
        sum(each.numel() for each in module.parameters() if each.requires_grad == wanted) for wanted in (False, True)
    )
    wanted = 4.0 * (trained * (3 * (3 + averaged) + 1) + frozen * (3 * (1 + averaged) + 1))
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
