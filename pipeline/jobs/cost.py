"""What work costs: wall time, CPU time and memory; and how many cores there are for it."""

import os
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil


class Cost:
    """Wall time, CPU time (children too) and peak memory between making it and `stop`."""

    def __init__(self) -> None:
        with suppress(OSError):  # makes Linux forget the process's highest memory so far
            Path("/proc/self/clear_refs").write_text("5")
        self.wall, self.cpu = time.monotonic(), cpu_seconds()

    def stop(self) -> dict[str, float]:
        """Seconds and megabytes, rounded."""
        wall, cpu = time.monotonic() - self.wall, cpu_seconds() - self.cpu
        return {"wall_s": round(wall, 2), "cpu_s": round(cpu, 2), "peak_memory_mb": round(peak_memory_mb(), 1)}


def duration(seconds: float) -> str:
    """A time as text: `40 s`, `12 min`, `3.5 h`."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def cpu_seconds() -> float:
    """CPU time of this process and its finished children so far."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def peak_memory_mb() -> float:
    """The most memory that this process has held since a `Cost` was made, in megabytes (1024² bytes).

    Elsewhere than on Linux it is the peak since the process began.
    """
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1]) / 1024
    except OSError:
        pass
    if (peak := getattr(psutil.Process().memory_info(), "peak_wset", None)) is not None:  # Windows
        return peak / 1024**2
    import resource  # not on Windows; psutil knows no peak on macOS

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024**2 if sys.platform == "darwin" else 1024)


def cores() -> int:
    """How many cores this process may use: those of its container, where one limits them."""
    from joblib import cpu_count  # a tenth of a second

    return int(cpu_count())
