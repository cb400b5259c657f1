"""The process that runs here: its rank in a distributed run, its machine, its cores, and what work costs."""

import os
import platform
import sys
import time
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil

_LIBRARIES = (
    "torch", "pytorch-lightning", "numpy", "tokenizers", "transformers", "pillow", "sacremoses", "sacrebleu",
    "faiss-cpu", "faiss-gpu",
)  # fmt: skip


def this_machine() -> dict[str, Any]:
    """The properties of the machine that may change the last digits of a figure."""
    import torch

    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return {"processor": platform.machine(), "instructions": torch.backends.cpu.get_cpu_capability(),
            "threads": torch.get_num_threads(), "gpu": gpu}  # fmt: skip


def same_machine(one: Any, other: Any) -> bool:
    """Are two machines of manifests alike, but for torch's threads, which a recipe sets after a job has begun?"""
    if not isinstance(one, dict) or not isinstance(other, dict):
        return False
    return one | {"threads": None} == other | {"threads": None}


def library_versions() -> dict[str, str]:
    """The installed versions of the libraries that may change a figure."""
    versions = {}
    for name in _LIBRARIES:
        try:
            versions[name] = version(name)
        except ImportError:
            continue
    return versions


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


def cpu_seconds(running: bool = False) -> float:
    """CPU time of this process and its finished children so far; with `running` of those that still run, too."""
    processes = [psutil.Process()]
    processes += processes[0].children(recursive=True) if running else []
    spent = 0.0
    for process in processes:
        with suppress(psutil.Error):  # it ends just now
            spent += sum(process.cpu_times()[:4])  # its own and its finished children's, of user and system
    return spent


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


def process_rank() -> int:
    """This process's rank before any process group exists (torchrun, SLURM and Lightning set these).

    `RANK` alone, which something else has left in the environment, is none: torchrun sets `WORLD_SIZE` too.
    """
    for name in (
        *(("RANK",) if "WORLD_SIZE" in os.environ else ()),
        *(("SLURM_PROCID",) if by_srun() else ()),
        "LOCAL_RANK",
    ):
        if os.environ.get(name, "").isdigit():
            return int(os.environ[name])
    return 0


def started_together() -> bool:
    """Did torchrun or SLURM start all ranks at once? (Lightning's own start rank 0 first.)"""
    return "TORCHELASTIC_RUN_ID" in os.environ or by_srun()


def by_srun() -> bool:
    """Is this one of several processes that srun has started?

    In an allocation, a batch script or an interactive shell SLURM's variables are set for a plain command too. Such a
    shell is recognised by its job's name, as Lightning does it.
    """
    tasks, by_hand = _tasks_of_srun(), os.environ.get("SLURM_JOB_NAME") in ("bash", "interactive")
    return {"SLURM_PROCID", "SLURM_STEP_ID"} <= os.environ.keys() and not by_hand and tasks.isdigit() and int(tasks) > 1


def _tasks_of_srun() -> str:
    return os.environ.get("SLURM_STEP_NUM_TASKS", os.environ.get("SLURM_NTASKS", "1"))


def processes_of_run() -> int | None:
    """How many processes share this run, once they have met or torchrun or srun has started them; None: unknown."""
    import torch.distributed as dist

    if dist.is_available() and dist.is_initialized():
        return dist.get_world_size()
    known = os.environ.get("WORLD_SIZE", "") if "TORCHELASTIC_RUN_ID" in os.environ else ""
    known = _tasks_of_srun() if not known and by_srun() else known
    return int(known) if known.isdigit() else None


def run_id() -> str:
    """An id that all ranks of one run share and no other run on the machine has."""
    if "TORCHELASTIC_RUN_ID" in os.environ:
        return f"{os.environ.get('MASTER_ADDR', '')}-{os.environ.get('MASTER_PORT', '')}"
    if started_together():
        return f"{os.environ.get('SLURM_JOB_ID', '')}-{os.environ.get('SLURM_STEP_ID', '')}"
    return str(os.getppid() if process_rank() else os.getpid())  # Lightning's rank 0 starts the others
