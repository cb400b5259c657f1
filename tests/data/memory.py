"""How much memory Python takes for a piece of work."""

import gc
import tracemalloc
from collections.abc import Callable


def least_peak(work: Callable[[], object], times: int = 2) -> int:
    """Bytes at the peak of `work`, which may be called again: the least of `times` runs.

    All threads of the process are counted, those of other tests too: they can only add to a run.
    """
    return min(_peak(work) for _ in range(times))


def _peak(work: Callable[[], object]) -> int:
    gc.collect()
    tracemalloc.start()
    try:
        result = work()  # held until the peak is read
        peak = tracemalloc.get_traced_memory()[1]
        del result
    finally:
        tracemalloc.stop()
    return peak
