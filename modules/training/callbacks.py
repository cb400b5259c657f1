"""Callbacks of any training: seeds of each epoch, TensorFloat-32, averaged weights, the best ones, charts, its pace."""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Callback, ModelCheckpoint, WeightAveraging
from pytorch_lightning.utilities import rank_zero_only
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from modules.precision import tensor_float
from modules.training.base import batches_of

LOG_EVERY = 10  # steps
COUNTED = ("captions", "words")
"""What is counted in batches of captions and of sentences to translate."""


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


class AveragedWeights(WeightAveraging):
    """A moving average of the weights, kept on the device of the training and validated to the end.

    Lightning makes it before it moves the module to a GPU, so that the average would stay on the CPU, and takes it
    away again before the module, and callbacks that draw what it finds, are told that validation has ended. What is
    frozen, or a whole number (places in a sentence), stays bit for bit as it is.

    Args:
        decay: the share that the average keeps at each step.
    """

    def __init__(self, decay: float) -> None:
        super().__init__()
        self._decay = decay

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Make the average."""
        if stage == "fit":
            self._average_model = _MovingAverage(pl_module, trainer.strategy.root_device, self._decay)

    def on_validation_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Keep the average, which others look at now."""

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Go back to the weights of the training."""
        super().on_validation_epoch_end(trainer, pl_module)


class _MovingAverage(AveragedModel):
    """A moving average of parameters and buffers on one device, for which the host does not wait.

    Args:
        model: whose weights they are.
        device: of the average.
        decay: the share that it keeps at each step.
    """

    def __init__(self, model: nn.Module, device: torch.device, decay: float) -> None:
        super().__init__(model, device, use_buffers=True)
        self.n_averaged = torch.zeros_like(self.n_averaged, device="cpu")  # it is read at each step
        self._decay = decay

    @torch.no_grad()
    def update_parameters(self, model: nn.Module) -> None:
        """Move towards the weights of a model; the first time take them."""
        groups: dict[torch.dtype, tuple[list[Tensor], list[Tensor]]] = {}
        averages, weights = (chain(one.parameters(), one.buffers()) for one in (self.module, model))
        for average, weight in zip(averages, weights, strict=True):
            of_type = groups.setdefault(average.dtype, ([], []))
            of_type[0].append(average)
            of_type[1].append(weight)
        for kind, (own, others) in groups.items():
            if kind.is_floating_point and self.n_averaged:
                torch._foreach_lerp_(own, others, 1 - self._decay)
            else:
                torch._foreach_copy_(own, others)
        self.n_averaged += 1


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


def bytes_of_checkpoints(module: nn.Module, averaged: bool = False) -> float:
    """How large checkpoints get at most: two with Adam's two moments, one more while it is written.

    Args:
        module: what is trained.
        averaged: they hold the weights and their moving average.

    Examples:
        >>> bytes_of_checkpoints(nn.Linear(1, 1))
        80.0
    """
    frozen, trained = (
        sum(each.numel() for each in module.parameters() if each.requires_grad == wanted) for wanted in (False, True)
    )
    return 4.0 * (trained * (3 * (3 + averaged) + 1) + frozen * (3 * (1 + averaged) + 1))


def layout(languages: Sequence[str]) -> dict[str, dict[str, list[Any]]]:
    """The charts of the tab Custom Scalars: category → title → kind and tags; the same for all runs of a recipe.

    Args:
        languages: that retrieval is tested in.
    """
    recall = {f"mean recall, {language}": [f"val/{language}/mean_recall$"] for language in languages}
    charts = {
        "Recall on validation": recall | {"sum of R@K, by which the epoch is chosen": ["val/rsum$"]},
        "BLEU on validation": {"BLEU": ["val/bleu$"]},
        "Losses": {"training": ["train/loss$"], "validation (translators)": ["val/loss$"]},
        "Throughput": {f"{what} a second": [f"pace/{what} a second$"] for what in COUNTED},
    }
    return {
        category: {title: ["Multiline", tags] for title, tags in titles.items()} for category, titles in charts.items()
    }


class Charts(Callback):
    """Writes the layout of charts at the start of training."""

    def __init__(self, languages: Sequence[str]) -> None:
        self.languages = languages

    @rank_zero_only
    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Write it."""
        if trainer.logger is not None:
            trainer.logger.experiment.add_custom_scalars(layout(self.languages))  # type: ignore[attr-defined]


class _Clock:
    """Seconds since it was made, pauses apart."""

    def __init__(self) -> None:
        self._since = self._paused = time.monotonic()

    def pause(self) -> None:
        """Stop."""
        self._paused = time.monotonic()

    def go_on(self) -> None:
        """Go on."""
        self._since += time.monotonic() - self._paused

    def seconds(self) -> float:
        """How long it has run."""
        return time.monotonic() - self._since


class Pace(Callback):
    """Logs steps a second and memory of rank 0 beside each loss, and captions or words a second of each epoch.

    Args:
        memory: gives the peak memory of the process, in megabytes; on a GPU, that of the GPU is logged.
    """

    def __init__(self, memory: Callable[[], float]) -> None:
        self._memory = memory

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Begin to count steps."""
        self._steps, self._step = _Clock(), batches_of(trainer)

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Begin to count what an epoch reads."""
        self._epoch, self._read = _Clock(), Counter[str]()

    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Stop the clocks during validation."""
        self._steps.pause()
        self._epoch.pause()

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Go on."""
        self._steps.go_on()
        self._epoch.go_on()

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Count what the step has read; log steps and memory each time that a loss is logged."""
        self._read += _contents(batch)
        steps = batches_of(trainer) - self._step
        if steps < LOG_EVERY or trainer.logger is None:
            return
        memory = self._memory()
        if pl_module.device.type == "cuda":
            memory = torch.cuda.max_memory_allocated(pl_module.device) / 1e6
        pace = {"pace/steps a second": steps / self._steps.seconds(), "pace/peak MB": memory}
        _log(trainer, pace)
        self.on_train_start(trainer, pl_module)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Log what the epoch has read a second, on all devices together."""
        seconds, pace = self._epoch.seconds(), {}
        for what, count in self._read.items():
            total = trainer.strategy.reduce(torch.tensor(float(count), device=pl_module.device), reduce_op="sum")
            pace[f"pace/{what} a second"] = float(total) / seconds
        _log(trainer, pace)


def _log(trainer: pl.Trainer, figures: dict[str, float]) -> None:
    """Give figures to all loggers, at the step where the training is."""
    for logger in trainer.loggers:
        logger.log_metrics(figures, batches_of(trainer))


def _contents(batch: Mapping[str, Any]) -> Counter[str]:
    """How many captions a batch of vse has, or words of the target a batch of mmt; waits for no GPU."""
    if "target_lengths" in batch:  # on the CPU
        lengths = batch["target_lengths"]
        return Counter(words=int(lengths[lengths > 1].sum()))  # without the sentences that fill a GPU's batch
    return Counter(captions=len(batch["type"]))
