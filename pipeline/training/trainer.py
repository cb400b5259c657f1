"""Running Lightning for a job: one trainer, one way to resume, one way to keep the best."""

import gc
import logging
import math
import os
import statistics
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Callback, LearningRateMonitor, ModelCheckpoint, TQDMProgressBar
from pytorch_lightning.plugins.environments import LightningEnvironment
from pytorch_lightning.strategies import ParallelStrategy, SingleDeviceStrategy
from pytorch_lightning.strategies.launchers import _MultiProcessingLauncher
from pytorch_lightning.utilities import rank_zero_only
from pytorch_lightning.utilities.exceptions import MisconfigurationException

from data.errors import one_line
from modules.precision import bfloat16_cost
from modules.training.base import TrainedModule
from modules.training.callbacks import LOG_EVERY, AveragedWeights, Best, Charts, Pace, SeedEachEpoch, TensorFloat
from modules.training.graphs import StepGraphs
from pipeline.engine.console import CONSOLE, debug, info
from pipeline.engine.executors import GPU_JOBS
from pipeline.engine.job import DIGITS
from pipeline.engine.machine import duration, peak_memory_mb, process_rank, processes_of_run, started_together
from pipeline.errors import RecipeError
from pipeline.recipes.precision import precision_of
from pipeline.recipes.settings import Recipe
from pipeline.recipes.trainer_settings import TrainerSettings
from pipeline.training.checkpoints import WholeCheckpoints, disk_for_training, require_checkpoint
from pipeline.training.loggers import loggers_of

LOGS = Path("lightning_logs")
_PACE_STEPS = 20  # before an estimate is given
_LONG = 60.0  # seconds; what is shorter needs no estimate
_OF_GPU = 0.9  # of its memory is shared by trainings; CUDA itself takes some for each process
_SLOW = 1.5  # times float32's

logging.getLogger("pytorch_lightning").setLevel(logging.WARNING)  # it sets its own level when imported
# Lightning takes any RANK or SLURM_PROCID of the environment for it.
rank_zero_only.rank = process_rank()  # type: ignore[attr-defined]


for _said in (
    "predict returned None",  # Synthesis keeps what it finds
    r"Found \d+ module\(s\) in eval mode",  # pretrained parts may stay in it
    "RNN module weights are not part",  # one direction of a network that has two
    "You have overridden `transfer_batch_to_device`",  # lengths stay where they are
):
    warnings.filterwarnings("ignore", _said)


def log_folder(recipe: Recipe, name: str, key: str) -> Path:
    """TensorBoard's folder of a job, whose path is the name of its curves: `scenes/mmt-en-de/22a38a`.

    The first digits of the key keep trainings with other settings apart; `bildwort compare` takes them too.

    Args:
        key: of the job, or a name that begins with it, as that of the folder that it works in does.
    """
    return LOGS / recipe.name / name / key[:DIGITS]


class TimeEstimate(Callback):
    """Prints how long a training will take, once a few steps have been timed; nothing for a short one."""

    def __init__(self, name: str, disk: float) -> None:
        self.name, self.disk = name, disk
        self._times: list[float] = []

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule, *_: Any) -> None:
        """Take the time; after enough steps, print the estimate."""
        if len(self._times) > _PACE_STEPS:
            return
        self._times.append(time.monotonic())
        if len(self._times) > _PACE_STEPS:
            pace = statistics.median(b - a for a, b in zip(self._times, self._times[1:], strict=False))
            left = int(trainer.estimated_stepping_batches) - trainer.fit_loop.total_batch_idx - 1
            if left * pace > _LONG:
                say = debug if CONSOLE.is_terminal else info  # a terminal has a bar
                say(f"{self.name}: about {duration(left * pace)} for {left:,} steps, validation apart; "
                    f"up to {self.disk / 1e6:,.0f} MB on disk")  # fmt: skip
                if trainer.precision == "bf16-mixed" and pl_module.device.type == "cpu":
                    advise_precision()


def advise_precision() -> None:
    """Print a note where bfloat16 is slower than float32: on processors without instructions for it."""
    cost = bfloat16_cost()
    if cost > _SLOW:
        why = f"a training step takes {cost:.1f} times as long as in float32" if cost < math.inf else "it has no LSTM"
        info(f"  bfloat16 is slow on this processor ({why}): --trainer.precision=32-true should be quicker, and trains "
            "anew")  # fmt: skip


class _PassingBar(TQDMProgressBar):
    """A progress bar that leaves nothing in the terminal."""

    def init_train_tqdm(self) -> Any:
        """The bar of training."""
        return _not_left(super().init_train_tqdm())

    def on_train_epoch_start(self, trainer: pl.Trainer, *_: Any) -> None:
        """Begin an epoch, whose number stands before the bar."""
        super().on_train_epoch_start(trainer)
        self.train_progress_bar.set_description(f"epoch {trainer.current_epoch + 1} of {trainer.max_epochs}")

    def init_predict_tqdm(self) -> Any:
        """The bar of prediction."""
        return _not_left(super().init_predict_tqdm())

    def init_validation_tqdm(self) -> Any:
        """The bar of validation."""
        return _not_left(super().init_validation_tqdm())

    def init_test_tqdm(self) -> Any:
        """The bar of the test."""
        return _not_left(super().init_test_tqdm())


def _not_left(bar: Any) -> Any:
    bar.leave = False
    return bar


def make_trainer(
    settings: TrainerSettings, log_dir: Path | None = None, callbacks: Sequence[Callback] = (), **more: Any
) -> pl.Trainer:
    """A Lightning trainer for a recipe's settings; its progress bars are drawn in a terminal alone.

    Raises:
        RecipeError: a device is requested that is not there, a logger that cannot begin, or another number of processes
            than this run has, or ones that would end with each training; or the environment has settings of Lightning.
    """
    _refuse_settings_of_environment()
    _forget_other_runs(settings)
    if settings.threads is not None:
        torch.set_num_threads(settings.threads)
    if settings.accelerator in ("gpu", "cuda") and not torch.cuda.is_available():
        raise RecipeError(
            "trainer.accelerator is gpu, but torch sees no GPU here; use --trainer.accelerator=cpu or auto"
        )
    _share_gpu()
    # By TORCH_ALLOW_TF32_CUBLAS_OVERRIDE of the environment it is tf32, whatever the precision.
    torch.set_float32_matmul_precision("highest")
    logger = False if log_dir is None else loggers_of(settings.loggers, log_dir)
    bar = [_PassingBar(refresh_rate=10)] if settings.progress and sys.stdout.isatty() and not CONSOLE.quiet else []
    # Lightning takes every command in an allocation of SLURM's for one that srun has started
    precision = precision_of(settings)
    own = [*callbacks, TensorFloat()] if precision == "tf32" else callbacks
    alone = [LightningEnvironment()] if "SLURM_NTASKS" in os.environ and not started_together() else []
    try:
        trainer = pl.Trainer(
            accelerator=settings.accelerator, devices=settings.devices, num_nodes=settings.num_nodes,
            strategy=settings.strategy, precision="32-true" if precision == "tf32" else precision,
            logger=logger, use_distributed_sampler=False, num_sanity_val_steps=0, enable_model_summary=False,
            enable_progress_bar=bool(bar), log_every_n_steps=LOG_EVERY, callbacks=[*own, *bar],
            plugins=[WholeCheckpoints(), *alone], **more,
            default_root_dir=LOGS,  # in an allocation it takes a `hpc_ckpt_1.ckpt` there for one of any training
        )  # fmt: skip
        _leave_signals_alone(trainer)
        if isinstance(trainer.strategy, ParallelStrategy) and (started := trainer.strategy.cluster_environment):
            started.validate_settings(trainer.num_devices, trainer.num_nodes)  # as Lightning does it later
    except (ValueError, TypeError, RuntimeError, MisconfigurationException, ImportError) as error:
        reason = one_line(error, 1000)
        raise RecipeError(f"trainer: Lightning refuses these settings: {reason}") from None
    if isinstance(trainer.strategy.launcher, _MultiProcessingLauncher):
        raise RecipeError(
            f"trainer.devices is {settings.devices}, but with trainer.strategy {settings.strategy} the processes end "
            "with each training here, and what they found with them; use one device in a notebook, elsewhere the "
            "strategy auto or ddp"
        )
    there = processes_of_run()
    if there is not None and there != trainer.world_size:
        raise RecipeError(
            f"{there} processes share this run, but trainer.devices × trainer.num_nodes of this stage is "
            f"{trainer.world_size}; run the stage by a command of its own, or let both be the same"
        )
    return trainer


def _leave_signals_alone(trainer: pl.Trainer) -> None:
    """Keep Lightning from answering SIGTERM and SLURM's SIGUSR1: it does so amid a step, by collectives that may hang.

    It still puts back the handler of Ctrl-C, which it takes away while it ends.
    """
    signals = trainer._signal_connector

    def keep() -> None:
        """Remember the handlers that are put back."""
        signals._original_handlers = signals._get_current_signal_handlers()

    signals.register_signal_handlers = keep  # type: ignore[method-assign]


def _refuse_settings_of_environment() -> None:
    """Refuse `PL_TRAINER_MAX_STEPS` and the like, by which Lightning would train otherwise than a recipe says."""
    if named := [name for name, value in os.environ.items() if name.startswith("PL_TRAINER_") and value]:
        raise RecipeError(
            f"the environment has {', '.join(sorted(named))}, by which Lightning would train otherwise than the recipe "
            f"says; unset {'it' if len(named) == 1 else 'them'}"
        )


def _forget_other_runs(settings: TrainerSettings) -> None:
    """Forget where the processes of another run meet, where Lightning itself starts all of this one, here.

    They would wait for ones that never come, at an address or a port that may not be theirs.
    """
    if settings.num_nodes == 1 and "LOCAL_RANK" not in os.environ and not started_together():
        for name in ("MASTER_ADDR", "MASTER_PORT", "NODE_RANK", "GROUP_RANK"):
            os.environ.pop(name, None)


def _share_gpu() -> None:
    """Take no more than this process's part of the GPU's memory, where several jobs are on it."""
    jobs = int(set_jobs) if (set_jobs := os.environ.get(GPU_JOBS, "1")).isdecimal() else 1
    if jobs > 1 and torch.cuda.is_available():
        torch.cuda.set_per_process_memory_fraction(_OF_GPU / jobs)


def fit(
    module: TrainedModule, data: pl.LightningDataModule, settings: TrainerSettings, folder: Path, log_dir: Path,
    epochs: int, monitor: str, seed: int, clip: float, callbacks: Sequence[Callback] = (),
    languages: Sequence[str] = (), average: float = 0.0,
) -> Path:  # fmt: skip
    """Train, from the last checkpoint in `folder` if there is one.

    Args:
        data: its batches; the training sampler must give the same batches for the same epoch number.
        folder: the job's folder; checkpoints go below it.
        epochs: in all.
        monitor: the logged figure whose highest value is best.
        seed: of dropout.
        clip: largest norm of the gradient; 0 does not clip.
        languages: that retrieval is tested in, for TensorBoard's charts.
        average: decay of the moving average of the weights, which is validated and kept; 0: none.

    Returns:
        the checkpoint of the best epoch.
    """
    checkpoints = folder / "checkpoints"
    keep = Best(
        checkpoints, filename="best", monitor=monitor, mode="max", save_top_k=1,
        enable_version_counter=False, save_on_train_epoch_end=True,
    )  # fmt: skip
    # A callback of its own: `save_last` with `monitor` writes only when an epoch is the best so far.
    resume = ModelCheckpoint(checkpoints, filename="last", enable_version_counter=False, save_on_train_epoch_end=True)
    module.clip = clip
    trainer = make_trainer(
        settings, log_dir, max_epochs=epochs,
        gradient_clip_val=(clip or None) if module.automatic_optimization else None,
        callbacks=[
            SeedEachEpoch(seed), LearningRateMonitor("epoch"),
            TimeEstimate(folder.parent.name, disk_for_training(module, folder, bool(average))),
            Charts(languages), Pace(peak_memory_mb), keep, resume, *callbacks,
            *([AveragedWeights(average)] if average else []),  # the last: others look at the average
        ],
    )  # fmt: skip
    last, best = checkpoints / "last.ckpt", checkpoints / "best.ckpt"
    if whole := last.is_file() and best.is_file():  # else they were being deleted
        for checkpoint in (last, best):
            require_checkpoint(checkpoint, module)
    module.graphs = StepGraphs(module) if wants_graphs(module, settings, trainer) else None
    try:
        with stopping():
            trainer.fit(module, data, ckpt_path=str(last) if whole else None, weights_only=True)
    finally:
        if module.graphs is not None:
            module.graphs = None
            gc.collect()  # graphs hold themselves, and so their memory
            torch.cuda.empty_cache()
    trainer.strategy.barrier()
    return best


def wants_graphs(module: TrainedModule, settings: TrainerSettings, trainer: pl.Trainer) -> bool:
    """Whether the steps of a training are to be CUDA graphs: on one NVIDIA GPU, where the module's may be."""
    one_gpu = isinstance(trainer.strategy, SingleDeviceStrategy) and trainer.strategy.root_device.type == "cuda"
    return settings.graph == "auto" and one_gpu and module.has_graphs and trainer.accumulate_grad_batches == 1


def evaluate_split(trainer: pl.Trainer, split: str, module: pl.LightningModule, data: Any) -> None:
    """Run validation (`val`) or the test, which leaves its ranks in the module."""
    with stopping():
        (trainer.test if split == "test" else trainer.validate)(module, data, verbose=False)


@contextmanager
def stopping() -> Iterator[None]:
    """Raise KeyboardInterrupt on Ctrl-C, where Lightning would end the process without a message.

    Lightning's own work after Ctrl-C may fail, as of a logger that is just being closed.
    """
    try:
        yield
    except SystemExit:
        raise KeyboardInterrupt from None
    except Exception as error:
        if isinstance(error.__context__, KeyboardInterrupt):
            raise KeyboardInterrupt from None
        raise
