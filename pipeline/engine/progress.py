"""What jobs cost, by like jobs that are done: how long the rest of a run may take, and what a dry run shows."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from pipeline.engine.job import Job, unique_names
from pipeline.engine.machine import duration

_PREPARE = "prepare"
_VARIANT = {"seed", "direction", "languages", "groups", "path"}  # settings that hardly change how long a job takes
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


@dataclass(frozen=True)
class _Known:
    """What a job that is done cost, and the amount of its work; None: not known."""

    seconds: float | None
    memory_mb: float | None
    disk_mb: float | None
    amount: float | None

    def scaled(self, amount: float | None, another_corpus: bool) -> "_Known":
        """The time of another amount of work; of another corpus nothing is known where an amount is not."""
        if amount and self.amount and self.seconds is not None:
            return replace(self, seconds=self.seconds * amount / self.amount)
        return replace(self, seconds=None) if another_corpus else self


class Costs:
    """Costs of jobs that are done, by which those of like jobs are estimated.

    Args:
        manifests: of these jobs.
        root: of the workspace that they lie in; None: nothing is known of disk.
    """

    def __init__(self, manifests: Iterable[Mapping[str, Any]], root: Path | None = None) -> None:
        self._known: dict[str, list[_Known]] = {}
        listed = list(manifests)
        self._captions: dict[str, float] = {}
        for manifest in listed:
            with suppress(KeyError, TypeError, AttributeError, ValueError):
                if manifest["stage"] == _PREPARE:
                    self._captions[manifest["key"]] = float(manifest["metrics"]["captions"])
        for manifest in listed:
            with suppress(KeyError, TypeError, AttributeError, ValueError):  # a damaged one tells nothing
                seconds = None if manifest["resumed"] else float(manifest["wall_s"])  # else that of its last part
                folder = None if root is None else root / "jobs" / manifest["job"] / manifest["key"]
                disk = None if folder is None else megabytes_in(folder)
                corpus = manifest["inputs"].get("corpus", {}).get("key")
                described = manifest["job"], manifest["settings"], corpus, manifest.get("runtime", {})
                amount = _amount(manifest["settings"], self._captions.get(corpus or ""))
                for likeness in _likenesses(manifest["stage"], *described):
                    cost = _Known(seconds, manifest.get("peak_memory_mb") or None, disk, amount)
                    self._known.setdefault(likeness, []).append(cost)

    def of(self, job: Job) -> Estimate:
        """What a job may cost: medians of like jobs, else of those of its kind, model and corpus, else of any corpus.

        Where the amount of work is known of both, time is scaled by it, but for jobs that are alike.
        """
        corpus = job.inputs["corpus"].key if "corpus" in job.inputs else ""
        amount = _amount(job.settings, self._captions.get(corpus))
        known, alike = dict[str, float](), True
        for level, likeness in enumerate(likenesses(job)):
            costs = [cost if level == 0 else cost.scaled(amount, level > 1) for cost in self._known.get(likeness, ())]
            for name in ("seconds", "memory_mb", "disk_mb"):
                values = [value for cost in costs if (value := getattr(cost, name)) is not None]
                if values and name not in known:  # of a job that was continued, no time is known
                    known[name], alike = median(values), alike and level == 0
        return Estimate(**known, alike=alike)


class Progress:
    """The jobs that a run has to do, and the time that those left may take.

    A job's time is the median of like jobs: those done in this run, else those done before, else of the jobs of its
    stage in this run: of trainings by what they read, of others as it is.

    Args:
        at_once: how many jobs run side by side.
    """

    def __init__(self, at_once: int = 1) -> None:
        self._at_once = at_once
        self._waiting: dict[str, Job] = {}
        self._total = self._width = 0
        self._before: Costs | None = None
        self._now: dict[str, list[float]] = {}  # seconds by likeness
        self._paces: dict[tuple[str, bool], list[float]] = {}  # by stage: of trainings seconds a token or caption
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
            jobs: which.
            manifests: of jobs done on this machine before; they are read by the first call alone.
        """
        new = {job.key: job for job in jobs}
        self._total += len(new.keys() - self._waiting.keys())
        self._waiting |= new
        self._before = self._before or Costs(manifests)

    def finish(self, job: Job, seconds: float, figure: str, whole: bool) -> str:
        """The line of a job that is done: name, main figure, time, and what is left of the run.

        Args:
            seconds: it took.
            figure: what it came to, as text.
            whole: it was not continued from a checkpoint, so its time tells that of others.
        """
        expected = self._waiting.pop(job.key, None)
        if whole:
            read = _amount(job.settings, None)
            self._now.setdefault(next(likenesses(job)), []).append(seconds)
            self._paces.setdefault((job.stage, bool(read)), []).append(seconds / (read or 1))
        took = duration(seconds) + ("" if whole else " (continued)")
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
        times = {job.key: self._before.of(job).seconds if self._before else None for job in jobs}
        amounts = {job.key: _amount(job.settings, None) for job in jobs}
        own = {key: weight or 0.0 for key, weight in (amounts if None in times.values() else times).items()}
        return longest_chains(jobs, own)

    def left(self) -> list[str]:
        """How long the jobs left may take, as text; nothing if none is left."""
        guesses = [self._guess(job) for job in self._waiting.values()]
        known = [guess for guess in guesses if guess is not None]
        if not known:
            return ["time left unknown"] if guesses else []
        seconds = max(1, sum(known) / self._at_once)
        return [f"{'about' if len(known) == len(guesses) else 'more than'} {duration(seconds)} left"]

    def _guess(self, job: Job) -> float | None:
        before = Estimate() if self._before is None else self._before.of(job)
        if times := self._now.get(next(likenesses(job))):
            return median(times)
        if before.alike and before.seconds is not None:
            return before.seconds
        read = _amount(job.settings, None)
        paces = self._paces.get((job.stage, bool(read)))
        return median(paces) * (read or 1) if paces else before.seconds


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


def likenesses(job: Job) -> Iterator[str]:
    """What a job has in common with jobs that cost about as much, then with those of its kind, model and corpus, then
    with those of its kind and model."""
    corpus = job.inputs["corpus"].key if "corpus" in job.inputs else None
    return _likenesses(job.stage, job.name, job.settings, corpus, job.runtime)


def _likenesses(
    stage: str, name: str, settings: Mapping[str, Any], corpus: str | None, runtime: Mapping[str, Any]
) -> Iterator[str]:
    kind = re.sub(r"\d+$", "", name.partition("-")[0])  # `mmt2-en-de` is of the kind `mmt`
    costly = {key: value for key, value in settings.items() if key not in _VARIANT}
    speed = [runtime.get(setting) for setting in _SPEED]
    yield json.dumps([stage, kind, costly, corpus, speed], sort_keys=True)
    if corpus is not None:
        yield json.dumps([stage, kind, settings.get("model"), corpus])
        yield json.dumps([stage, kind, settings.get("model")])


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
