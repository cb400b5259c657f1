"""Messages for errors of the machine: files that cannot be read or written, too little memory, processes that died."""

import errno
import logging
import os
import re
import shutil
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from data.errors import one_line
from pipeline.errors import RecipeError

_WHERE = "artifacts lie where BILDWORT_ARTIFACTS says"
_TOO_LITTLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_NOT_ALLOWED = (errno.EROFS, errno.EACCES, errno.EPERM)
_ADVICE = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), f"make room ({_WHERE}), then the same command continues"),
    errno.EFBIG: "allow larger files (`ulimit -f unlimited`), then the same command continues",
    **dict.fromkeys(_NOT_ALLOWED, f"allow it ({_WHERE}), then the same command continues"),
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.ENOENT: "check the path",
    **dict.fromkeys((errno.ENOTDIR, errno.EEXIST, errno.EISDIR), "expected a folder, or a file, of another kind there"),
    errno.EMFILE: "allow more open files (`ulimit -n 1024`)",
    errno.ELOOP: "it is a link to itself",
    errno.EINVAL: "choose another name",
}
_OF_MACHINE = {errno.EACCES, errno.EPERM, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ESTALE, errno.ENOMEM}
_NO_MEMORY = ("can't allocate memory", "not enough memory", "out of memory")
_NO_THREAD = "can't start new thread"
_LOST = ("closed by peer", "reset by peer", "broken pipe", "remote process exited", "connection was likely closed")
_LOWER = {
    "prepare": "regions.size",
    "mmt": "mmt.batch_tokens",
    "augment": "augment.batch_tokens",
    "translate": "augment.batch_tokens",
    "vse": "vse.batch_size",
    "report": "report.resamples",
    "all": "report.resamples",
}
_ANEW = {"prepare", "mmt", "vse"}  # what is lowered there is in the keys of jobs


def line_of(error: OSError) -> str | None:
    """The one line for a file that cannot be read or written: which, why, and what to do; None for a slip of ours."""
    while isinstance(error, shutil.Error):  # of many files of a folder; the first is told
        first = error.args[0][0] if error.args and isinstance(error.args[0], list) and error.args[0] else None
        if not isinstance(first, tuple):
            return f"{one_line(error, 1000)}; {_ADVICE[errno.ENOSPC]}"
        number = _number_in(str(first[2]))
        error = OSError(number, os.strerror(number) if number else str(first[2]), str(first[1]))
    short = error.errno is None and "written" in str(error)  # numpy says how many items were written, but not why
    if error.errno is None and not short:
        return None
    advice = _ADVICE[errno.ENOSPC] if short else _ADVICE.get(error.errno or 0, "check the file and its folder")
    copied = error.errno in _TOO_LITTLE and error.filename2 is not None  # the first name is what was read
    named = error.filename2 if copied else error.filename
    where = os.fsdecode(named) if isinstance(named, str | bytes) else "a file or the output"
    if named is None and error.errno in (errno.ENOSPC, errno.EDQUOT):
        advice = f"make room where the command writes ({_WHERE}, temporary files where TMPDIR says)"
    if "lightning_logs" in Path(where).parts and error.errno in _NOT_ALLOWED:
        advice = "run the command from a folder where you may write"
    return f"{where}: {error.strerror or error}; {advice}"


def require_current_folder() -> None:
    """Refuse to go on where the current folder has been deleted: there torch ends a process that imports it.

    Raises:
        RecipeError: it has been.
    """
    try:
        Path.cwd()
    except FileNotFoundError:
        raise RecipeError("the current folder has been deleted; change to another one (cd)") from None


def of_machine(error: Exception, path: Path) -> OSError | None:
    """The machine's error behind one of a file: a missing right, a disk that fails; None: the file itself is wrong.

    Examples:
        >>> str(of_machine(PermissionError("[Errno 13] Failed to open local file"), Path("a.parquet")))
        "[Errno 13] Permission denied: 'a.parquet'"
        >>> of_machine(FileNotFoundError(2, "No such file or directory"), Path("a.parquet")) is None
        True
    """
    number = error.errno or _number_in(str(error)) if isinstance(error, OSError) else 0
    number = number or (errno.EACCES if isinstance(error, PermissionError) else 0)
    if number not in _OF_MACHINE and path.is_file():  # safetensors has no file where there is one it may not read
        try:
            path.open("rb").close()
        except OSError as own:
            number = own.errno or 0
    return OSError(number, os.strerror(number), str(path)) if number in _OF_MACHINE else None


def _number_in(text: str) -> int:
    """The number of an error that is told as `[Errno 28] No space left on device`; 0 if it has none."""
    match = re.search(r"\[Errno (\d+)\]", text)
    return int(match[1]) if match else 0


def out_of_memory(error: BaseException, stage: str) -> str | None:
    """A line that names the setting to lower, if there is one; None for another error."""
    import torch

    if _NO_THREAD in str(error):
        return f"{stage}: no more threads can be started; allow more (`ulimit -u`), or set BILDWORT_JOBS=1"
    known = isinstance(error, (MemoryError, torch.OutOfMemoryError)) or any(text in str(error) for text in _NO_MEMORY)
    if not known:
        return None
    whose = "the GPU" if isinstance(error, torch.OutOfMemoryError) or "CUDA" in str(error) else "this machine"
    advice = ""
    if stage in _LOWER:
        again = ", which begins its jobs anew" if stage in _ANEW else ""
        advice = f"; set BILDWORT_JOBS=1, then the same command continues, or lower {_LOWER[stage]}{again}"
    return f"{stage}: {whose} has too little memory for this{advice}"


def lost_process(error: BaseException, stage: str) -> str | None:
    """A line about a data worker, or another process of a distributed run, that has ended; None for another error."""
    if "DataLoader worker" in str(error):
        return (f"{stage}: a data worker has ended, most often as /dev/shm or the memory is too small; set "
                "trainer.workers=0, or allow more (docker run --shm-size=2g); the same command continues")  # fmt: skip
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
    """Hide the error of a file in TensorBoard's writer thread: the main thread raises it at its next figure."""
    if not isinstance(failure.exc_value, OSError):
        threading.__excepthook__(failure)


def quieten() -> None:
    """Hide Lightning's warnings about settings that are chosen on purpose, and what Pillow says of damaged pictures."""
    threading.excepthook = _thread_failed
    logging.getLogger("PIL").setLevel(logging.CRITICAL)
    logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)  # which weights a font lacks
    warnings.filterwarnings("ignore", module=r"PIL\..*")
    for message in (".*does not have many workers.*", ".*Checkpoint directory.*exists and is not empty.*",
                    ".*LeafSpec.*", ".*isinstance.treespec.*", ".*You're resuming from a checkpoint.*",
                    ".*no-op.*", ".*Trying to infer the .batch_size.*",
                    ".*is smaller than the logging interval.*", ".*recommended to use .self.log.*sync_dist.*",
                    r"torch\.distributed\.nn\.functional\..* is deprecated"):  # fmt: skip
        warnings.filterwarnings("ignore", message)
