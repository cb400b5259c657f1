"""What jobs cost, by like jobs that are done: how long the rest of a run may take, and what a dry run shows."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from pipeline.engine.job import Job, unique_names
from pipeline.engine.machine import duration

_PREPARE = "prepare"
_VARIANT = {"seed", "direction", "languages", "groups", "path"}  # settings that hardly change how long a job takes
_ANY_CORPUS, _STAGE = 2, 3  # levels of likeness
_SPEED = ("devices", "num_nodes", "threads")  # settings of the trainer that do


@dataclass(frozen=True)
class Estimate:
    """What a job may cost, or did; None: not known.

    Attributes:
        seconds: wall time of the whole job.
        memory_mb: its peak, in megabytes.
        disk_mb: what it leaves, in megabytes.
        alike: of jobs that differ in nothing that costs time; else of those of the same kind and model, and of the same
            corpus or scaled by the amount of work.
    """

    seconds: float | None = None
    memory_mb: float | None = None
    disk_mb: float | None = None
    alike: bool = True


class Costs:
    """Costs of jobs that are done, by which those of like jobs are estimated.

    Args:
        root: of the workspace that they lie in; None: nothing is known of disk.
    """

    def __init__(self, manifests: Iterable[Mapping[str, Any]] = (), root: Path | None = None) -> None:
        self._root = root
        self._known: dict[str, list[tuple[Estimate, Mapping[str, Any], str]]] = {}  # cost, settings, corpus
        self._captions: dict[str, float] = {}
        for manifest in manifests:
            self.add(manifest)

    def add(self, manifest: Mapping[str, Any]) -> None:
        """Add a job that is done."""
        with suppress(KeyError, TypeError, AttributeError, ValueError):  # a damaged one tells nothing
            if manifest["stage"] == _PREPARE and "captions" in manifest["metrics"]:
                self._captions[manifest["key"]] = float(manifest["metrics"]["captions"])
            name, settings = manifest["job"], manifest["settings"]
            seconds = None if manifest["resumed"] else float(manifest["wall_s"])  # else that of its last part
            disk = None if self._root is None else megabytes_in(self._root / "jobs" / name / manifest["key"])
            corpus = manifest["inputs"].get("corpus", {}).get("key", "")
            cost = Estimate(seconds, manifest.get("peak_memory_mb") or None, disk)
            runtime = manifest.get("runtime", {})
            for likeness in _likenesses(manifest["stage"], name, settings, corpus, runtime).values():
                self._known.setdefault(likeness, []).append((cost, settings, corpus))

    def of(self, job: Job, of_stage: bool = False) -> Estimate:
        """What a job may cost: medians of like jobs, else of those of its kind, model and corpus, else of any corpus.

        Where the amount of work is known of both, time is scaled by it, but for jobs that are alike.

        Args:
            of_stage: where no such job is known, of its stage: of trainings, or of the others.
        """
        corpus = job.inputs["corpus"].key if "corpus" in job.inputs else ""
        known, alike = dict[str, float](), True
        for level, likeness in _likenesses(job.stage, job.name, job.settings, corpus, job.runtime).items():
            found = self._known.get(likeness, []) if of_stage or level != _STAGE else []
            costs = [self._scaled(*cost, job.settings, corpus, level) if level else cost[0] for cost in found]
            for name in ("seconds", "memory_mb", "disk_mb"):
                values = [value for cost in costs if (value := getattr(cost, name)) is not None]
                if values and name not in known:  # of a job that was continued, no time is known
                    known[name], alike = median(values), alike and level == 0
        return Estimate(**known, alike=alike)

    def _scaled(
        self, cost: Estimate, settings: Mapping[str, Any], corpus: str, wanted: Mapping[str, Any], at: str, level: int
    ) -> Estimate:
        """The cost of another amount of work; the time of another corpus is not known where an amount is not."""
        before, now = (_amount(one, self._captions.get(key)) for one, key in ((settings, corpus), (wanted, at)))
        if before and now and cost.seconds is not None:
            return replace(cost, seconds=cost.seconds * now / before)
        return replace(cost, seconds=None) if level == _ANY_CORPUS else cost


class Progress:
    """The jobs that a run has to do, and the time that those left may take.

    A job's time is the median of like jobs, done before or in this run, else of jobs of its stage: of trainings by what
    they read, of others as it is.
    """

    def __init__(self, at_once: int = 1) -> None:
        self._at_once = at_once
        self._waiting: dict[str, Job] = {}
        self._total = self._width = 0
        self._costs: Costs | None = None
        self._known: dict[str, Job] = {}
        self._names: dict[str, str] = {}

    def line_up(self, jobs: Iterable[Job]) -> None:
        """Make the names of jobs a column as wide as the longest; equal names get the first digits of their keys."""
        self._known |= {job.key: job for job in jobs}
        self._names = unique_names(self._known.values())
        self._width = max(map(len, self._names.values()), default=0)

    def expect(self, jobs: Iterable[Job], manifests: Iterable[Mapping[str, Any]] = ()) -> None:
        """Add jobs that will be done, unless they are known.

        Args:
            manifests: of jobs done on this machine before; they are read by the first call alone.
        """
        new = {job.key: job for job in jobs}
        self._total += len(new.keys() - self._waiting.keys())
        self._waiting |= new
        self._costs = self._costs or Costs(manifests)

    def finish(self, job: Job, manifest: Mapping[str, Any], figure: str) -> str:
        """The line of a job that is done: name, main figure, time, and what is left of the run."""
        expected = self._waiting.pop(job.key, None)
        if self._costs is not None:
            self._costs.add(manifest)
        took = duration(manifest["wall_s"]) + (" (continued)" if manifest["resumed"] else "")
        parts = [f"{self._line(job, figure)}  {took:>6}"]
        if expected and self._total > 1:
            parts += [f"{self._total - len(self._waiting)} of {self._total} jobs", *self.left()]
        return " · ".join(parts)

    def skip(self, job: Job, figure: str) -> str:
        """The line of a job that had been done before."""
        self._waiting.pop(job.key, None)
        return f"{self._line(job, figure)}  is up to date"

    def _line(self, job: Job, figure: str) -> str:
        return f"{self._names.get(job.key, job.name):{self._width}}  {figure:45}"

    def work_from(self, jobs: Sequence[Job]) -> dict[str, float]:
        """Work from the beginning of each job to the end of the longest chain of jobs that need it, by key.

        Its unit is seconds where the time of all is known, else what each training reads.

        Args:
            jobs: each after what it needs.
        """
        times = {job.key: self._costs.of(job).seconds if self._costs else None for job in jobs}
        amounts = {job.key: _amount(job.settings, None) for job in jobs}
        own = {key: weight or 0.0 for key, weight in (amounts if None in times.values() else times).items()}
        return longest_chains(jobs, own)

    def left(self) -> list[str]:
        """How long the jobs left may take, as text, if the time of half of them is known; nothing if none is left."""
        costs = self._costs or Costs()
        guesses = [costs.of(job, of_stage=True).seconds for job in self._waiting.values()]
        known = [guess for guess in guesses if guess is not None]
        if not guesses:
            return []
        if 2 * len(known) < len(guesses):
            return ["time left unknown"]
        seconds = max(1, sum(known) / self._at_once)
        return [f"{'about' if len(known) == len(guesses) else 'more than'} {duration(seconds)} left"]


def longest_chains(jobs: Sequence[Job], own: Mapping[str, float]) -> dict[str, float]:
    """From each job to the end of the longest chain of jobs that need it, by key, in the unit of `own`.

    Args:
        jobs: each after what it needs.
        own: of each job itself, by key.
    """
    work = dict(own)
    for job in reversed(jobs):
        for needed in job.inputs.values():
            if needed.key in work:
                work[needed.key] = max(work[needed.key], own[needed.key] + work[job.key])
    return work


def _likenesses(
    stage: str, name: str, settings: Mapping[str, Any], corpus: str, runtime: Mapping[str, Any]
) -> dict[int, str]:  # fmt: skip
    """Level → what a job shares with jobs that cost about as much, then with those of its kind, model and corpus,
    then with those of its kind and model, then with those of its stage that train or do not."""
    kind = re.sub(r"\d+$", "", name.partition("-")[0])  # `mmt2-en-de` is of the kind `mmt`
    costly = {key: value for key, value in settings.items() if key not in _VARIANT}
    speed = [runtime.get(setting) for setting in _SPEED]
    of_kind = [stage, kind, settings.get("model")]
    shared: dict[int, list[Any]] = {0: [stage, kind, costly, corpus, speed]}
    if corpus:
        shared |= {1: [*of_kind, corpus], _ANY_CORPUS: of_kind}
    shared[_STAGE] = [stage, bool(_amount(settings, None))]
    return {level: json.dumps([level, each], sort_keys=True) for level, each in shared.items()}


def _amount(settings: Mapping[str, Any], captions: float | None) -> float | None:
    """How much work a job has: tokens or captions that a training reads, else the captions of its corpus."""
    if isinstance(phase := settings.get("phase"), Mapping):
        return float(phase["steps"]) * float(settings.get("batch_tokens", 1))
    if isinstance(epochs := settings.get("epochs"), int) and epochs:
        steps = settings.get("steps")
        read = captions if steps is None else float(steps) * float(settings.get("batch_size", 1))
        return None if read is None else epochs * read
    return captions


def megabytes_in(folder: Path) -> float:
    """The size of the files in a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6
