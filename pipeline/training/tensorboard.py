"""What every training writes to TensorBoard: a layout of charts, its pace, and its settings with its results."""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Callback
from pytorch_lightning.utilities import rank_zero_only
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData
from tensorboard.plugins.hparams.summary_v2 import HParam, Metric, hparams_config_pb, hparams_pb
from torch.utils.tensorboard import SummaryWriter

from modules.training.base import batches_of
from pipeline.engine.machine import peak_memory_mb

LOG_EVERY = 10  # steps
_COUNTED = ("captions", "words")  # in batches of vse and of mmt
_SETTINGS = ("model", "trained on", "seed", "learning_rate", "dropout", "dim", "batch_size", "batch_tokens", "epochs",
             "steps", "loss", "margin")  # fmt: skip
_FIRST = ("model", "trained on", "seed", "learning_rate", "dim")  # the five that TensorBoard shows at first
_RESULTS = ("BLEU", "ambiguous words %", "val rsum")


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
        "Throughput": {f"{what} a second": [f"pace/{what} a second$"] for what in _COUNTED},
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
    """Steps a second and memory of rank 0 beside each logged loss; captions or words a second of each epoch."""

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
        memory = peak_memory_mb()
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


def _columns(languages: Sequence[str]) -> Summary:
    """The columns of the tab HParams, all of them: TensorBoard takes those of all runs from one of them."""
    names = [*_RESULTS, *(f"mean recall, {language}" for language in languages)]
    results = [Metric(f"result/{name}", display_name=name) for name in names]
    summary = hparams_config_pb([HParam(name) for name in _SETTINGS], results)
    kept = summary.value[0].metadata.plugin_data
    content = HParamsPluginData.FromString(kept.content)
    for column in content.experiment.hparam_infos:
        column.differs = column.name in _FIRST
    kept.content = content.SerializeToString()
    return summary


def _contents(batch: Mapping[str, Any]) -> Counter[str]:
    """How many captions a batch of vse has, or words of the target a batch of mmt; waits for no GPU."""
    if "target_lengths" in batch:  # on the CPU
        lengths = batch["target_lengths"]
        return Counter(words=int(lengths[lengths > 1].sum()))  # without the sentences that fill a GPU's batch
    return Counter(captions=len(batch["type"]))


@rank_zero_only
def log_result(
    log_dir: Path, languages: Sequence[str], settings: Mapping[str, Any], results: Mapping[str, float]
) -> None:
    """Write a finished run's settings and results for the tab HParams; results are scalars `result/…` too.

    Args:
        log_dir: TensorBoard's folder of the run.
        languages: that retrieval is tested in.
        settings: values of some of `_SETTINGS`; those that are None are left out.
        results: values of some of `_RESULTS` and of `mean recall, <language>`.
    """
    known = {name: value for name, value in settings.items() if value is not None}
    with SummaryWriter(str(log_dir)) as board:
        board.file_writer.add_summary(_columns(languages))
        board.file_writer.add_summary(hparams_pb(known, trial_id=f"{log_dir.parent.name}/{log_dir.name}"))
        for name, value in results.items():
            board.add_scalar(f"result/{name}", value)
