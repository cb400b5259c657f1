"""Progress bars of long loops."""

import sys
from collections.abc import Iterable
from multiprocessing import parent_process
from typing import TypeVar

from rich.progress import track

Item = TypeVar("Item")


def shown(items: Iterable[Item], what: str, count: int) -> Iterable[Item]:
    """The items, with a bar in a terminal that is gone afterwards; elsewhere, and in a process beside others, nothing
    is printed.

    Args:
        items: to go through.
        what: the bar says.
        count: of the items.
    """
    alone = parent_process() is None
    return track(items, what, count, transient=True, disable=not (alone and sys.stdout.isatty()))
