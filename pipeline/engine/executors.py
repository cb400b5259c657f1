"""Executors of jobs that do not need each other: what all of them have in common, and processes of this machine."""

import multiprocessing
import os
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing.context import BaseContext
from multiprocessing.queues import SimpleQueue
from types import TracebackType
from typing import Any, Literal

import psutil

from data.processes import cores, end_with_the_parent
from pipeline.engine.console import CONSOLE
from pipeline.engine.machine_errors import quieten
from pipeline.recipes.settings import Recipe
from pipeline.recipes.trainer_settings import TrainerSettings

_MEMORY = 1.5e9  # bytes of a process; a job of the demo takes 1.0e9 at most
_ON_A_GPU, _GPU_MEMORY = 3, 20e9  # jobs at most; bytes for each: SAN's regions of Multi30K are 4.6 GB
_SOCKET = 70  # bytes of the folder in which the process that is forked has its socket; a path of one has 107 at most
GPU_JOBS = "BILDWORT_GPU_JOBS"
"""Environment: how many jobs share the GPU that a process sees."""


class JobExecutor(Executor):
    """An executor that can be stopped: when its `with` block is left by an error, what runs is ended.

    Attributes:
        at_once: how many jobs run at the same time.
        remote: jobs run on other machines, so that a single one is sent there too.
    """

    at_once: int
    remote = False

    def expect(self) -> None:
        """Called when several jobs are about to be run: what takes long to start may begin."""

    def check(self) -> None:
        """Called every second while jobs run.

        Raises:
            RecipeError: nothing is left that could perform them.
        """

    def stop(self) -> None:
        """End all that runs; its jobs continue from their checkpoints when they are performed again."""

    def lost(self, error: BaseException) -> str | None:
        """A line about the loss of what performs jobs; None for an error of a job itself."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Literal[False]:
        """Wait for what runs, or stop it after an error."""
        if error is not None:
            self.stop()
        self.shutdown()
        return False


class LocalProcesses(ProcessPoolExecutor, JobExecutor):
    """Processes of this machine, started when they are needed; they end with this one.

    On Linux, without GPUs, they are forked from a process that has imported what jobs need (this takes seconds, and
    memory that they share) and done nothing else: it has no thread, whose locks a fork would copy.

    Args:
        gpus: CUDA's names of the GPUs; each process sees one of them, and takes a part of its memory where several do.
    """

    def __init__(self, processes: int, gpus: Sequence[str] = (), imported: Sequence[str] = ()) -> None:
        # A process that is forked could not start CUDA where an import has asked for GPUs.
        self._forked = (
            sys.platform == "linux" and not gpus and len(os.fsencode(tempfile.gettempdir())) <= _SOCKET
        )  # fmt: skip
        context: BaseContext = multiprocessing.get_context("forkserver" if self._forked else "spawn")
        if self._forked:
            context.set_forkserver_preload([*imported])
        queue = context.SimpleQueue()
        for number in range(processes):
            queue.put((gpus[number % len(gpus)], -(-processes // len(gpus))) if gpus else None)
        super().__init__(processes, context, _begin, (queue, dict(os.environ)))
        self.at_once = processes

    def expect(self) -> None:
        """Begin to import, beside what this process does meanwhile."""
        if self._forked:
            from multiprocessing import forkserver  # not on Windows

            with _starting():
                forkserver.ensure_running()

    def submit(self, *args: Any, **kwargs: Any) -> Future:
        """Perform a call in one of the processes, which is started if need be; Ctrl-C meets none that is starting."""
        with _starting():
            return super().submit(*args, **kwargs)

    def stop(self) -> None:
        """Kill the processes: Lightning would let a training that is asked to end go on for a while."""
        for process in list((self._processes or {}).values()):
            process.kill()
        self.shutdown(cancel_futures=True)

    def lost(self, error: BaseException) -> str | None:
        """A line about a process that has ended."""
        if isinstance(error, BrokenProcessPool):
            return "a process has ended; the same command continues from the last checkpoints"
        return None


def be_quiet() -> None:
    """Print nothing, in a process that performs jobs for another one, which prints its messages (`unsaid`)."""
    quieten()
    CONSOLE.quiet = True


def own_modules() -> dict[str, str]:
    """The environment of a Python process that finds modules where this one does, and not in its current folder.

    There it would look first, and `data` may be another person's.
    """
    return {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONSAFEPATH": "1"}


@contextmanager
def _starting() -> Iterator[None]:
    """Let Ctrl-C wait, here and (not on Windows) in started processes, which find modules where this one does."""
    masks, own = hasattr(signal, "pthread_sigmask"), own_modules()
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT}) if masks else set()
    before = {name: os.environ.get(name) for name in own}
    os.environ.update(own)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            os.environ.update({} if value is None else {name: value})
        if masks:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _begin(gpus: "SimpleQueue[tuple[str, int] | None]", environment: Mapping[str, str]) -> None:
    """Begin a process: it leaves Ctrl-C to its parent, and takes the next GPU, or a part of it."""
    os.environ.clear()
    os.environ.update(environment)  # of now, not of when the process was started that this one is forked from
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    end_with_the_parent()
    be_quiet()
    if (gpu := gpus.get()) is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpu[0]  # before CUDA starts
        os.environ[GPU_JOBS] = str(gpu[1])


def trains_alone(recipe: Recipe) -> bool:
    """Does each training run in one process?"""
    return all(trainer.devices == 1 and trainer.num_nodes == 1 for trainer in _trainers(recipe))


def may_use_gpus(recipe: Recipe) -> bool:
    """Does any training of a recipe run on a GPU where there is one?"""
    return any(trainer.accelerator != "cpu" for trainer in _trainers(recipe))


def gpus_of(recipe: Recipe) -> list[str]:
    """CUDA's names of this machine's GPUs, as CUDA_VISIBLE_DEVICES has them; none if a recipe trains on the CPU."""
    import torch

    if not may_use_gpus(recipe) or not torch.cuda.is_available():
        return []
    named, count = os.environ.get("CUDA_VISIBLE_DEVICES"), torch.cuda.device_count()  # CUDA stops at a wrong name
    return named.split(",")[:count] if named else [str(number) for number in range(count)]


def processes_for(recipe: Recipe, gpus: Sequence[str]) -> int:
    """How many jobs this machine can perform at once.

    With GPUs as many on each as its memory holds, three at most. Without, as many as the cores have room for if the
    recipe says how many threads each training uses, else one. Never more than the free memory has room for; one if a
    training runs in several processes.
    """
    if not trains_alone(recipe):
        return 1
    threads = [trainer.threads for trainer in _trainers(recipe)]
    known = [count for count in threads if count]
    on_cores = cores() // max(known) if len(known) == len(threads) else 1
    on_gpus = len(gpus) * _jobs_on_a_gpu() if gpus else on_cores
    return max(1, int(min(on_gpus, cores(), psutil.virtual_memory().available / _MEMORY)))


def _jobs_on_a_gpu() -> int:
    """How many jobs the memory of the smallest GPU holds; small trainings leave most of a GPU idle."""
    import torch

    if not torch.cuda.is_available():
        return 1
    sizes = [torch.cuda.get_device_properties(number).total_memory for number in range(torch.cuda.device_count())]
    return max(1, min(_ON_A_GPU, int(min(sizes) / _GPU_MEMORY)))


def _trainers(recipe: Recipe) -> list[TrainerSettings]:
    return [recipe.mmt.trainer, recipe.augment.trainer, recipe.vse.trainer]
