"""What jobs will cost, before they run: time, memory and disk of like jobs that are done."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from pipeline.engine.job import Job
from pipeline.engine.progress import kind, likeness, likeness_of
from pipeline.engine.workspace import Workspace

_Like = str | tuple[str, str, str | None, str]
"""What jobs have in common: all that costs time, or stage, kind, model and corpus."""


@dataclass(frozen=True)
class Estimate:
    """What a job may cost; None: not known.

    Attributes:
        seconds: wall time of the whole job.
        memory_mb: its peak, in megabytes.
        disk_mb: what it leaves, in megabytes.
        alike: of jobs that differ in nothing that costs time; else of those of the same kind, model and corpus.
    """

    seconds: float | None = None
    memory_mb: float | None = None
    disk_mb: float | None = None
    alike: bool = True


@dataclass
class _Costs:
    """What like jobs cost."""

    seconds: list[float] = field(default_factory=list)
    memory_mb: list[float] = field(default_factory=list)
    disk_mb: list[float] = field(default_factory=list)

    def add(self, manifest: Mapping[str, Any], folder: Path) -> None:
        """Add a finished job."""
        if not manifest["resumed"]:  # else its time is that of the last part
            self.seconds.append(float(manifest["wall_s"]))
        if manifest.get("peak_memory_mb"):
            self.memory_mb.append(float(manifest["peak_memory_mb"]))
        self.disk_mb.append(megabytes_in(folder))

    def estimate(self, alike: bool) -> Estimate:
        """The median of each."""
        seconds, memory, disk = (median(one) if one else None for one in (self.seconds, self.memory_mb, self.disk_mb))
        return Estimate(seconds, memory, disk, alike)


class Estimates:
    """Costs of the jobs that a workspace holds, of this machine; reads their manifests once.

    Args:
        workspace: the artifacts.
    """

    def __init__(self, workspace: Workspace) -> None:
        self._known: dict[_Like, _Costs] = {}
        for manifest in workspace.manifests_of_this_machine():
            with suppress(KeyError, TypeError, AttributeError, ValueError):  # a damaged one tells nothing
                folder = workspace.root / "jobs" / manifest["job"] / manifest["key"]
                for name in _names_of(manifest):
                    self._known.setdefault(name, _Costs()).add(manifest, folder)

    def of(self, job: Job) -> Estimate:
        """What a job may cost, by the median of like jobs."""
        if (like := self._known.get(likeness(job))) is not None:
            return like.estimate(alike=True)
        if (corpus := job.inputs.get("corpus")) is None:
            return Estimate()
        near = self._known.get((job.stage, kind(job.name), job.settings.get("model"), corpus.key))
        return Estimate() if near is None else near.estimate(alike=False)


def _names_of(manifest: Mapping[str, Any]) -> Iterator[_Like]:
    """What a finished job tells of: jobs like it, and those of its kind on its corpus, if it reads one."""
    yield likeness_of(manifest)
    if "corpus" in manifest["inputs"]:
        model = manifest["settings"].get("model")
        yield manifest["stage"], kind(manifest["job"]), model, manifest["inputs"]["corpus"]["key"]


def megabytes_in(folder: Path) -> float:
    """The size of the files in a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6
