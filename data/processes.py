"""Processes that share work."""

import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

from data.errors import DataError

Item = TypeVar("Item")
Result = TypeVar("Result")
_GUARD = 'begin its work below `if __name__ == "__main__":`'


def pool(workers: int) -> ProcessPoolExecutor:
    """Spawned processes, not forked ones: the parent may hold threads of torch, whose locks a fork would copy."""
    return ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), end_with_the_parent)


def require_main_guard() -> None:
    """Refuse to begin in a process that is being started: its main script begins the work of the first process again.

    Raises:
        DataError: it is so.
    """
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise DataError(f"this process is being started, and imports the main script, which must {_GUARD}")


def require_processes() -> None:
    """Refuse to go on where no process can be started, after one has ended.

    Raises:
        DataError: it is so.
    """
    with pool(1) as processes:
        try:
            processes.submit(abs, 0).result()
        except BrokenProcessPool:
            reason = "a process ended while it was being started: it imports the main script"
            raise DataError(f"{reason}, which must {_GUARD}") from None


def end_with_the_parent() -> None:
    """End this worker when its parent ends: else it would wait forever for one that was killed."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        """Wait for the parent to end, then end the process."""
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def cores() -> int:
    """How many cores this process may use: those of its container, where one limits them."""
    from joblib import cpu_count  # a tenth of a second

    return int(cpu_count())


def in_parallel(
    work: Callable[[Sequence[Item]], list[Result]], items: Sequence[Item], chunk: int, workers: int | None = None
) -> Iterator[Result]:
    """Do the same work on many items: by all cores where there are chunks enough, else here.

    Args:
        work: what is done with some items, a result for each; it and the items are pickled.
        items: all of them.
        chunk: how many a process takes at a time.
        workers: processes at most; None: `cores()`.

    Yields:
        The result of each item, in their order.
    """
    chunks = [items[start : start + chunk] for start in range(0, len(items), chunk)]
    workers, done = min(cores() if workers is None else workers, len(chunks)), 0
    if workers > 1 and multiprocessing.parent_process() is None:  # a worker itself shares the cores with others
        try:
            with pool(workers) as processes:
                for results in processes.map(work, chunks):
                    done += 1
                    yield from results
        except (BrokenProcessPool, OSError):  # one was killed, or none can be started: go on without
            pass
    for some in chunks[done:]:
        yield from work(some)
