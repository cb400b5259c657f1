"""What to say of errors that are the machine's: a full or closed disk, too little memory, a process that has died."""

import errno

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
    """A line about a disk that is full or closed to us; None for another error."""
    short = error.errno is None and "written" in str(error)  # numpy tells how many items went in, and not why
    if short or error.errno in _FULL:
        advice = "make room (artifacts lie where BILDWORT_ARTIFACTS says)"
    elif error.errno in _CLOSED:
        advice = "allow it (artifacts lie where BILDWORT_ARTIFACTS says)"
    else:
        return None
    where = f"{error.filename}: " if error.filename else ""
    return f"{where}{error.strerror or error}; {advice}, then the same command goes on"


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
    advice = f"; lower {_LOWER[stage]}, then the same command goes on" if stage in _LOWER else ""
    return f"{stage}: {whose} has too little memory for this{advice}"


def lost_process(error: BaseException, stage: str) -> str | None:
    """A line about another process of a distributed run that has ended; None for another error."""
    if not any(text in str(error).lower() for text in _LOST):
        return None
    return f"{stage}: another process of this run has ended; the same command goes on from the last checkpoint"
