"""Base classes of all LightningModules."""

from collections.abc import Hashable
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor
from torch.optim import Optimizer

from modules.training.graphs import Batch, Step, StepGraphs

_STAY = ("lengths", "pictures")  # ends of the names of what is read on the CPU


class BatchModule(pl.LightningModule):
    """A LightningModule whose batches are dicts of tensors; sentence lengths and pictures (PIL) stay on the CPU.

    Masks and packings are computed from the lengths; copying these from a GPU would stop it at each step. (DDP moves
    them to the GPU in any case, so code that reads lengths accepts any device.)
    """

    def transfer_batch_to_device(self, batch: dict[str, Tensor], device: torch.device, dataloader_idx: int) -> Any:
        """Move all tensors except lengths and pictures; those in pinned memory while the host goes on."""
        return {
            name: value if name.endswith(_STAY) else value.to(device, non_blocking=device.type == "cuda")
            for name, value in batch.items()
        }

    @property
    def logs_step(self) -> bool:
        """Whether the figures of this training step are written, or seen at the end of an epoch; others are not logged.

        Lightning takes a millisecond for a few figures, whether it writes them or not.
        """
        every: int = self.trainer.log_every_n_steps  # type: ignore[attr-defined]
        return batches_of(self.trainer) % every == 0 or self.trainer.is_last_batch


class TrainedModule(BatchModule):
    """A LightningModule that clips gradients by norm, also with fused optimisers.

    Lightning does not clip for a fused optimiser under mixed precision, as such an optimiser may unscale gradients
    itself; bfloat16 gradients are not scaled, so clipping is correct here.

    Attributes:
        clip: largest norm of the gradient for a module that takes its own optimiser steps, where Lightning does not
            clip; 0 does not.
        graphs: of the steps, on a GPU; None: steps are computed without.
    """

    clip: float = 0.0
    graphs: StepGraphs | None = None

    @property
    def has_graphs(self) -> bool:
        """Whether its step may be a CUDA graph: one pass forward and one backward, whose shapes the batch decides."""
        return False

    def computed(self, step: Step, batch: Batch, *state: Hashable) -> tuple[Tensor, Batch]:
        """The loss and the figures of a step, by a CUDA graph where there is one; see `StepGraphs`."""
        return step(batch) if self.graphs is None else self.graphs(step, batch, state)

    def configure_gradient_clipping(
        self, optimizer: Optimizer, gradient_clip_val: float | None = None, gradient_clip_algorithm: str | None = None
    ) -> None:
        """Clip to the trainer's `gradient_clip_val`."""
        if gradient_clip_val:
            torch.nn.utils.clip_grad_norm_(self.parameters(), gradient_clip_val)


def batches_of(trainer: pl.Trainer) -> int:
    """The number of training batches so far; Lightning's `global_step` counts the steps of each optimizer."""
    return trainer.fit_loop.total_batch_idx + 1
