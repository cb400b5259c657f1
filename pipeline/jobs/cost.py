"""What work costs: wall time, CPU time and memory."""

import os
import sys
import time
from contextlib import suppress
from pathlib import Path

try:
    import resource
except ModuleNotFoundError:  # Windows has none
    resource = None  # type: ignore[assignment]


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
    """The most memory that this process has held since a `Cost` was made, in megabytes; 0 where it is not known.

    psutil knows no peak on Linux and macOS. Elsewhere than on Linux the peak is that of the whole process.
    """
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1]) / 1024
    except OSError:
        pass
    if resource is None:
        return 0.0
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024**2 if sys.platform == "darwin" else 1024)
