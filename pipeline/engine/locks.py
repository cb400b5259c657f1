"""Processes that share a job: one works at a time, the others wait for it through the file system."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
from filelock import AcquireReturnProxy, FileLock, Timeout

from pipeline.engine.console import error_line, info
from pipeline.engine.distributed import started_together
from pipeline.errors import RecipeError

PATIENCE = 300.0  # seconds that ranks above 0 wait for a rank 0 that shows no sign of life
GRACE = 5.0  # seconds that ranks above 0 have to end by themselves once rank 0 is gone


def barrier() -> None:
    """Wait until all ranks are here, so that none takes what --force deletes for done; nothing before they are one."""
    import torch.distributed

    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.barrier()


@contextmanager
def ending_with_rank_0(done: Callable[[], bool]) -> Iterator[None]:
    """On a rank above 0: end soon after Lightning's rank 0, the parent, if that leaves work undone.

    This one may be waiting for it elsewhere, for hours. (Rank 0 ends when another one does: Lightning looks after
    that, as torchrun and SLURM do after all ranks.)
    """
    parent, over = psutil.Process().parent(), threading.Event()

    def watch() -> None:
        """End the process once the parent is gone and the time for ending by itself has passed."""
        while parent is not None and _runs(parent):
            if over.wait(1):
                return
        if not over.wait(GRACE) and not done():
            error_line("rank 0 has ended; the same command continues from the last checkpoint")
            os._exit(1)

    if not started_together():
        threading.Thread(target=watch, daemon=True).start()
    try:
        yield
    finally:
        over.set()


def _runs(process: psutil.Process) -> bool:
    """Has a process not ended?"""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def wait_for_rank_0(ready: Callable[[], bool], final: Path, name: str) -> None:
    """Sleep until `ready`; rank 0 holds the job's lock while it works, so a lock that is free for long means that it
    has died.

    Raises:
        RecipeError: nobody has worked on the job for `PATIENCE` seconds.
    """
    seen = looked = time.monotonic()
    while not ready():
        time.sleep(0.1)
        now = time.monotonic()
        if now - looked > PATIENCE / 60:
            looked = now
            if _is_held(lock_file(final)):
                seen = now
            elif now - seen > PATIENCE and not ready():
                raise RecipeError(f"{name}: rank 0 has not worked on it for {PATIENCE:.0f} s; start all ranks again")


def lock_file(final: Path) -> Path:
    """Where the lock of the job that leaves `final` lies."""
    return final.with_name(final.name + ".lock")


def _is_held(path: Path) -> bool:
    """Is another process working on the job?"""
    if not path.exists():
        return False  # nobody has begun
    try:
        with FileLock(path, blocking=False):
            return False
    except Timeout:
        return True


@contextmanager
def lock(path: Path, name: str) -> Iterator[None]:
    """Let one run at a time work on a job; another one says so and waits. What is in the file means nothing.

    Raises:
        RecipeError: the folder cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        held = _acquired(path, name)
    except OSError as error:
        raise RecipeError(f"{path.parent}: cannot be written ({error.strerror}); set BILDWORT_ARTIFACTS") from None
    with held:
        yield


def _acquired(path: Path, name: str) -> AcquireReturnProxy:
    try:
        return FileLock(path).acquire(blocking=False)
    except Timeout:
        info(f"{name}: another process is working on it; waiting")
        return FileLock(path).acquire()
