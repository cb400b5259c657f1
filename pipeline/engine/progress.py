"""How far a run is: its jobs, what they took, and how long the rest may take."""

import json
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from statistics import median
from typing import Any

from pipeline.engine.job import Job, unique_names
from pipeline.engine.machine import duration

_VARIANT = {"seed", "direction", "languages", "groups", "path"}  # settings that hardly change how long a job takes
_PACE = ("devices", "num_nodes", "threads")  # of the trainer, that do


class Progress:
    """The jobs that a run has to do, and the time that those left may take.

    A job's time is the median of like jobs: those done in this run, else those whose manifests are on disk, else of the
    jobs of its stage in this run. Jobs are alike if they are of one kind and corpus, and their settings differ in
    nothing that costs time.

    Args:
        at_once: how many jobs run side by side.
    """

    def __init__(self, at_once: int = 1) -> None:
        self._at_once = at_once
        self._waiting: dict[tuple[str, str], Job] = {}
        self._total = 0
        self._before: dict[str, list[float]] = {}
        self._now: dict[str, list[float]] = {}
        self._known: dict[str, Job] = {}
        self._names: dict[str, str] = {}
        self._width = 0

    def line_up(self, jobs: Iterable[Job]) -> None:
        """Make the names of jobs a column as wide as the longest, and tell those apart that are equal."""
        self._known |= {job.key: job for job in jobs}
        self._names = unique_names(self._known.values())
        self._width = max(map(len, self._names.values()), default=0)

    def expect(self, jobs: Iterable[Job], manifests: Iterable[Mapping[str, Any]] = ()) -> None:
        """Add jobs that will be done, unless they are known.

        Args:
            jobs: which.
            manifests: of jobs done on this machine before.
        """
        new = {(job.name, job.key): job for job in jobs}
        self._total += len(new.keys() - self._waiting.keys())
        self._waiting |= new
        for one in manifests:
            with suppress(KeyError, TypeError, AttributeError):  # a damaged one tells nothing
                if not one["resumed"]:  # else its time is that of the last part
                    self._before.setdefault(likeness_of(one), []).append(float(one["wall_s"]))

    def finish(self, job: Job, seconds: float, figure: str, whole: bool) -> str:
        """The line of a job that is done: name, main figure, time, and what is left of the run.

        Args:
            job: which.
            seconds: it took.
            figure: what it came to, as text.
            whole: it was not continued from a checkpoint, so its time tells that of others.
        """
        known = self._waiting.pop((job.name, job.key), None)
        if whole:
            for name in (likeness(job), job.stage):
                self._now.setdefault(name, []).append(seconds)
        took = duration(seconds) + ("" if whole else " (continued)")
        parts = [f"{self._name(job):{self._width}}  {figure:34}  {took:>6}"]
        if known and self._total > 1:
            parts += [f"{self._total - len(self._waiting)} of {self._total} jobs", *self.left()]
        return " · ".join(parts)

    def skip(self, job: Job, figure: str) -> str:
        """The line of a job that had been done before."""
        self._waiting.pop((job.name, job.key), None)
        return f"{self._name(job):{self._width}}  {figure:34}  is up to date"

    def _name(self, job: Job) -> str:
        return self._names.get(job.key, job.name)

    def left(self) -> list[str]:
        """How long the jobs left may take, as text; nothing if none is left."""
        if not self._waiting:
            return []
        guesses = [self._guess(job) for job in self._waiting.values()]
        known = [guess for guess in guesses if guess is not None]
        if not known:
            return ["time left unknown"]
        seconds = max(1, sum(known) / self._at_once)
        return [f"{'about' if len(known) == len(guesses) else 'more than'} {duration(seconds)} left"]

    def _guess(self, job: Job) -> float | None:
        like = likeness(job)
        times = self._now.get(like) or self._before.get(like) or self._now.get(job.stage)
        return median(times) if times else None


def likeness(job: Job) -> str:
    """What jobs have in common that take about as long, as text."""
    return _described(job.stage, job.name, job.settings, _corpus(job), job.runtime)


def likeness_of(manifest: Mapping[str, Any]) -> str:
    """The same of a job that is done, by its manifest."""
    corpus, runtime = manifest["inputs"].get("corpus", {}).get("key"), manifest.get("runtime", {})
    return _described(manifest["stage"], manifest["job"], manifest["settings"], corpus, runtime)


def kind(name: str) -> str:
    """The kind of a job: `mmt2-en-de` is of the kind `mmt`."""
    return re.sub(r"\d+$", "", name.partition("-")[0])


def _corpus(job: Job) -> str | None:
    return job.inputs["corpus"].key if "corpus" in job.inputs else None


def _described(
    stage: str, name: str, settings: Mapping[str, Any], corpus: str | None, runtime: Mapping[str, Any]
) -> str:
    costly = {key: value for key, value in settings.items() if key not in _VARIANT}
    where = [runtime.get(one) for one in _PACE]
    return json.dumps([stage, kind(name), costly, corpus, where], sort_keys=True)
