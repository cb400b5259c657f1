"""A job: work that leaves one folder, named by a digest of all that changes what is in it."""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

DIGITS = 6
"""Of a key, where the first ones stand for it."""
Run = Callable[[Path, dict[str, Path]], dict[str, Any]]
Headline = Callable[[Mapping[str, Any]], str]


@dataclass(frozen=True)
class Job:
    """One piece of work.

    Attributes:
        name: `mmt-en-de`, `vse-san-none-1` …; the folder under `artifacts/jobs`.
        stage: the stage it belongs to; `make stage-<stage>` runs it.
        version: raised when the code changes what the job computes.
        settings: plain values that change the result.
        inputs: jobs whose folders it reads, by a name of its own.
        run: called with the folder to write into and the inputs' folders; returns figures for the manifest.
        collective: all ranks of a distributed run take part; else rank 0 alone works and the others wait.
        runtime: where and how fast it runs; written to the manifest, no part of the key.
        headline: its main figure as text, from the figures that `run` returned; printed when it is done.
    """

    name: str
    stage: str
    version: int
    settings: Mapping[str, Any]
    inputs: Mapping[str, "Job"]
    run: Run = field(compare=False)
    collective: bool = False
    runtime: Mapping[str, Any] = field(default_factory=dict, compare=False)
    headline: Headline = field(default=lambda figures: "", compare=False)

    @cached_property
    def key(self) -> str:
        """Twelve hexadecimal digits of a digest of name, version, settings and the inputs' keys."""
        content = {
            "job": self.name,
            "version": self.version,
            "settings": self.settings,
            "inputs": {name: job.key for name, job in self.inputs.items()},
        }
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]


def unique_names(jobs: Iterable[Job]) -> dict[str, str]:
    """Names of jobs by key; one that several have, as rows of a table, is followed by the key's first digits."""
    names = {job.key: job.name for job in jobs}
    count = Counter(names.values())
    return {key: name if count[name] == 1 else f"{name} {key[:DIGITS]}" for key, name in names.items()}


def topological_order(jobs: Iterable[Job], stage: str | None = None) -> list[Job]:
    """Jobs and what they need, each once and after what it needs; of what they need only jobs of a stage, if given."""
    order: dict[tuple[str, str], Job] = {}
    for job in jobs:
        needed = [each for each in job.inputs.values() if stage in (None, each.stage)]
        order |= {(node.name, node.key): node for node in [*topological_order(needed, stage), job]}
    return list(order.values())
