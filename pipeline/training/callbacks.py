"""What happens between the steps of a training, whatever is trained."""

from contextlib import ExitStack
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Callback, EMAWeightAveraging

from modules.precision import tensor_float


class SeedEachEpoch(Callback):
    """Draw dropout masks by seed, epoch and rank, so that a resumed run sees what it would have seen."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Seed torch's generators for the epoch."""
        torch.manual_seed((self.seed * 1_000_003 + trainer.current_epoch) * 1_009 + trainer.global_rank)


class TensorFloat(Callback):
    """Lets an NVIDIA GPU multiply matrices in TensorFloat-32 in training steps, and in float32 in validation."""

    def __init__(self) -> None:
        self._within = ExitStack()

    def on_train_batch_start(self, trainer: pl.Trainer, *_: Any) -> None:
        """Begin."""
        self._within.enter_context(tensor_float(trainer.strategy.root_device.type))

    def on_train_batch_end(self, *_: Any) -> None:
        """End."""
        self._within.close()

    def on_exception(self, *_: Any) -> None:
        """End, where the step did not."""
        self._within.close()


class AveragedWeights(EMAWeightAveraging):
    """A moving average of the weights, kept on the device of the training.

    Lightning makes it before it moves the module to a GPU, so that the average would stay on the CPU.
    """

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Make the average."""
        self._device = trainer.strategy.root_device
        super().setup(trainer, pl_module, stage)
