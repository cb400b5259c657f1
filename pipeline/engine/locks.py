"""Locks of files that several processes write."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import AcquireReturnProxy, FileLock, Timeout

from pipeline.engine.console import info
from pipeline.errors import RecipeError


def is_held(path: Path) -> bool:
    """Does another process hold a lock?"""
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
