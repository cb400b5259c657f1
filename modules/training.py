"""What all our LightningModules share."""

import pytorch_lightning as pl
import torch
from torch.optim import Optimizer


class TrainedModule(pl.LightningModule):
    """A LightningModule whose gradients are clipped by norm, with fused optimisers too.

    Lightning refuses to clip for a fused optimiser under mixed precision, as such an optimiser would unscale
    gradients itself; bfloat16 is never scaled, so here nothing is in the way.
    """

    def configure_gradient_clipping(
        self, optimizer: Optimizer, gradient_clip_val: float | None = None, gradient_clip_algorithm: str | None = None
    ) -> None:
        """Clip to the trainer's `gradient_clip_val`."""
        if gradient_clip_val:
            torch.nn.utils.clip_grad_norm_(self.parameters(), gradient_clip_val)
