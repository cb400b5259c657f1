"""Processes that share a job: which rank this one is, and how they wait for one another through the file system."""

import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch.distributed
from rich.console import Console

from pipeline.errors import RecipeError

PATIENCE = 300.0  # seconds that ranks above 0 wait for a rank 0 that shows no sign of life
GRACE = 5.0  # seconds that ranks above 0 have to end by themselves once rank 0 is gone
CONSOLE = Console(highlight=False, soft_wrap=True)
ERRORS = Console(highlight=False, soft_wrap=True, stderr=True)  # never among translations or hits
for _console in (CONSOLE, ERRORS):
    _console.width = max(_console.width, 120)  # better lines that a terminal folds than figures that are cut away


def printable(text: str) -> str:
    """A text that does nothing to a terminal; lines stay lines."""
    return "".join(one if one.isprintable() or one == "\n" else "\N{REPLACEMENT CHARACTER}" for one in text)


def say(text: str) -> None:
    """Print a line for people, on rank 0 only."""
    if rank() == 0:
        CONSOLE.print(text)


def rank() -> int:
    """This process's rank before any process group exists (torchrun, SLURM and Lightning set these)."""
    for name in ("RANK", *(("SLURM_PROCID",) if by_srun() else ()), "LOCAL_RANK"):
        if os.environ.get(name, "").isdigit():
            return int(os.environ[name])
    return 0


def started_together() -> bool:
    """Did torchrun or SLURM start all ranks at once? (Lightning's own start rank 0 first.)"""
    return "TORCHELASTIC_RUN_ID" in os.environ or by_srun()


def by_srun() -> bool:
    """Is this one of several processes that srun has started?

    In an allocation, a batch script or an interactive shell SLURM's variables are set for a plain command too. Such
    a shell is told by its job's name, as Lightning does it.
    """
    tasks = os.environ.get("SLURM_STEP_NUM_TASKS", os.environ.get("SLURM_NTASKS", "1"))
    by_hand = os.environ.get("SLURM_JOB_NAME") in ("bash", "interactive")
    return {"SLURM_PROCID", "SLURM_STEP_ID"} <= os.environ.keys() and not by_hand and int(tasks) > 1


def run_id() -> str:
    """What all ranks of one run share and no other run on the machine has."""
    if "TORCHELASTIC_RUN_ID" in os.environ:
        return f"{os.environ.get('MASTER_ADDR', '')}-{os.environ.get('MASTER_PORT', '')}"
    if started_together():
        return f"{os.environ.get('SLURM_JOB_ID', '')}-{os.environ.get('SLURM_STEP_ID', '')}"
    return str(os.getppid() if rank() else os.getpid())  # Lightning's rank 0 starts the others


def meet() -> None:
    """Wait until all ranks are here, so that none takes what --force deletes for done; nothing before they are one."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.barrier()


@contextmanager
def ending_with_rank_0(done: Callable[[], bool]) -> Iterator[None]:
    """On a rank above 0: end soon after Lightning's rank 0, the parent, if that leaves work undone.

    This one may be waiting for it elsewhere, for hours. (Rank 0 ends when another one does: Lightning looks after
    that, as torchrun and SLURM do after all ranks.)
    """
    parent, over = os.getppid(), threading.Event()

    def watch() -> None:
        """End the process once the parent is gone and the time for ending by itself has passed."""
        while os.getppid() == parent:
            if over.wait(1):
                return
        if not over.wait(GRACE) and not done():
            ERRORS.print("[red]error:[/] rank 0 has ended; the same command goes on from the last checkpoint")
            os._exit(1)

    if not started_together():
        threading.Thread(target=watch, daemon=True).start()
    try:
        yield
    finally:
        over.set()


def wait_for_rank_0(ready: Callable[[], bool], final: Path, name: str) -> None:
    """Sleep until `ready`; rank 0 holds the job's lock while it works, so a lock long free tells that it has died.

    Raises:
        RecipeError: nobody has been at the job for `PATIENCE` seconds.
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
                raise RecipeError(f"{name}: rank 0 has not been at it for {PATIENCE:.0f} s; start all ranks again")


def lock_file(final: Path) -> Path:
    """Where the lock of the job that leaves `final` lies."""
    return final.with_name(final.name + ".lock")


def _is_held(path: Path) -> bool:
    """Is another process at the job?"""
    try:
        with path.open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        pass  # nobody has begun
    return False


@contextmanager
def lock(path: Path, name: str) -> Iterator[None]:
    """Let one run at a time work on a job and say in the file whose it is; another one waits and says so.

    Raises:
        RecipeError: the folder cannot be written, or its file system knows no locks.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a+")
    except OSError as error:
        raise RecipeError(f"{path.parent}: cannot be written ({error.strerror}); set BILDWORT_ARTIFACTS") from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"{name}: another process is at it; waiting")
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError as error:
            raise RecipeError(f"{path}: no locks here ({error.strerror}); set BILDWORT_ARTIFACTS") from None
        file.truncate(0)
        file.write(run_id())
        file.flush()
        yield
        file.truncate(0)


def is_ours(path: Path) -> bool:
    """Is rank 0 of this run at the job whose lock this is?"""
    try:
        return path.read_text(encoding="utf-8") == run_id()
    except OSError:
        return False
