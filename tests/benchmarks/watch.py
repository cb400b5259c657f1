"""Not a test: a watch for trainings that jobs perform, on a CPU or a GPU."""

import contextlib
import time
from dataclasses import dataclass, field
from inspect import signature
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Callback

from pipeline.engine.job import Job
from pipeline.engine.perform import perform
from pipeline.engine.workspace import Workspace
from pipeline.training.trainer import fit

HAS_GPU = torch.cuda.is_available()
PROFILED, LOOK = 20, 0.2  # steps; seconds between looks at the GPU
MORE = PROFILED if HAS_GPU else 0  # steps that a training has beside those that are timed


def now() -> float:
    """Seconds, once the GPU has done what it was asked to."""
    if HAS_GPU:
        torch.cuda.synchronize()
    return time.perf_counter()


@dataclass
class Watch(Callback):
    """Times a training: from a job's start to its first step, steps behind the first quarter, and a validation.

    The share of time in which the GPU computes is looked up (with pynvml), or summed up by a profiler in more steps.
    """

    steps: int
    began: float = field(default_factory=time.perf_counter)
    waited = pace = validation = words = weights = fixed = 0.0
    busy: float | None = None

    def __post_init__(self) -> None:
        self.first, self.data, self.looks = self.steps // 4, None, list[float]()
        self.profiler: Any = None

    def on_train_batch_start(self, trainer: pl.Trainer, module: pl.LightningModule, batch: Any, number: int) -> None:
        if number == 0:
            self.waited = now() - self.began
        if number == self.first:
            self.start = self.looked = now()
        if number == self.steps and HAS_GPU and not self.looks:
            self.profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA])
            self.profiler.start()
            self.start = now()

    def on_train_batch_end(
        self, trainer: pl.Trainer, module: pl.LightningModule, outputs: Any, batch: Any, number: int
    ) -> None:
        if self.first <= number < self.steps:
            if "target_lengths" in batch:
                real = batch["target_lengths"] > 1
                self.words += sum(float(batch[name][real].sum()) for name in ("source_lengths", "target_lengths"))
            if HAS_GPU and time.perf_counter() - self.looked > LOOK:
                with contextlib.suppress(Exception):  # no pynvml
                    self.looks.append(torch.cuda.utilization())
                self.looked = time.perf_counter()
        if number == self.steps - 1:
            self.pace = (now() - self.start) / (self.steps - self.first)
        if self.profiler is not None and number == self.steps + PROFILED - 1:
            spent = now() - self.start
            self.profiler.stop()
            self.busy = sum(event.self_device_time_total for event in self.profiler.key_averages()) / 1e6 / spent

    def on_validation_start(self, *_: Any) -> None:
        self.start = now()

    def on_validation_end(self, *_: Any) -> None:
        self.validation = now() - self.start

    def fit(self, *arguments: Any, **named: Any) -> Path:
        """`fit` of a job, watched."""
        call = signature(fit).bind(*arguments, **named)
        given = call.arguments
        self.data = given["data"]
        self.weights = sum(weight.numel() for weight in given["module"].parameters()) / 1e6
        given["callbacks"] = [*given.get("callbacks", ()), self]
        return fit(*call.args, **call.kwargs)

    @property
    def words_a_second(self) -> str:
        """Of both sides, as text."""
        return f"{self.words / (self.steps - self.first) / self.pace:,.0f} words/s"

    def whole(self, steps: int, validations: int) -> float:
        """Seconds of such a job of so many steps."""
        return self.fixed + steps * self.pace + validations * self.validation

    @property
    def share(self) -> str:
        """The GPU's, as text."""
        busy = sum(self.looks) / len(self.looks) / 100 if self.looks else self.busy
        return "-" if busy is None else f"{min(1.0, busy):.0%}"


def do(job: Job, workspace: Workspace, steps: int) -> Watch:
    """Perform a job whose inputs are done."""
    watch = Watch(steps)
    with patch("pipeline.retrieval.training.fit", watch.fit), patch("pipeline.translation.mmt.fit", watch.fit):
        perform(job, workspace)
    watch.fixed = max(0.0, now() - watch.began - (steps + MORE) * watch.pace - watch.validation)
    return watch
