"""Messages for errors of the machine: a full or read-only disk, too little memory, a process that has died."""

import errno
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from pipeline.errors import RecipeError

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_CLOSED = (errno.EROFS, errno.EACCES, errno.EPERM)
_NO_MEMORY = ("can't allocate memory", "not enough memory", "out of memory")
_LOST = ("closed by peer", "reset by peer", "broken pipe", "remote process exited", "connection was likely closed")
_LOWER = {
    "prepare": "regions.size",
    "mmt": "mmt.batch_tokens",
    "augment": "augment.batch_tokens or augment.beam_size",
    "vse": "vse.batch_size",
    "report": "report.resamples",
}


def unwritten(error: OSError) -> str | None:
    """A line about a disk that is full or read-only; None for another error."""
    short = error.errno is None and "written" in str(
        error
    )  # numpy reports how many items were written, but not the reason
    if short or error.errno in _FULL:
        advice = "make room (artifacts lie where BILDWORT_ARTIFACTS says)"
    elif error.errno in _CLOSED:
        advice = "allow it (artifacts lie where BILDWORT_ARTIFACTS says)"
    else:
        return None
    where = f"{error.filename}: " if error.filename else ""
    return f"{where}{error.strerror or error}; {advice}, then the same command continues"


def out_of_memory(error: BaseException, stage: str) -> str | None:
    """A line that names the setting to lower, if there is one; None for another error.

    Args:
        error: what was raised.
        stage: where.
    """
    import torch

    known = isinstance(error, (MemoryError, torch.OutOfMemoryError)) or any(text in str(error) for text in _NO_MEMORY)
    if not known:
        return None
    whose = "the GPU" if isinstance(error, torch.OutOfMemoryError) or "CUDA" in str(error) else "this machine"
    advice = f"; lower {_LOWER[stage]}, then the same command continues" if stage in _LOWER else ""
    return f"{stage}: {whose} has too little memory for this{advice}"


def lost_process(error: BaseException, stage: str) -> str | None:
    """A line about another process of a distributed run that has ended; None for another error."""
    if not any(text in str(error).lower() for text in _LOST):
        return None
    return f"{stage}: another process of this run has ended; the same command continues from the last checkpoint"


@contextmanager
def explained(command: str) -> Iterator[None]:
    """Raise the machine's errors (too little memory, a lost process) as a `RecipeError` that says what to do."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if (line := out_of_memory(error, command) or lost_process(error, command)) is None:
            raise
        raise RecipeError(line) from None


def _thread_failed(failure: threading.ExceptHookArgs) -> None:
    """Hide a full disk's error in TensorBoard's writer thread: the main thread raises it at its next figure."""
    if not (isinstance(failure.exc_value, OSError) and unwritten(failure.exc_value)):
        threading.__excepthook__(failure)


def quieten() -> None:
    """Hide Lightning's warnings about settings that are chosen on purpose."""
    threading.excepthook = _thread_failed
    for message in (".*does not have many workers.*", ".*Checkpoint directory.*exists and is not empty.*",
                    ".*LeafSpec.*", ".*isinstance.treespec.*", ".*You're resuming from a checkpoint.*",
                    ".*no-op.*", ".*Trying to infer the .batch_size.*",
                    ".*is smaller than the logging interval.*"):  # fmt: skip
        warnings.filterwarnings("ignore", message)
