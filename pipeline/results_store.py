"""Figures: rows of `results.jsonl` that every table is a view of, and the committed CSV that outlives the artifacts."""

import csv
import io
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

COMMITTED = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Result:
    """One figure.

    Attributes:
        recipe: whose.
        corpus: the corpus's label.
        split: val, test or twins.
        system: translator (`mmt`) or retrieval model (`san`).
        source: direction of a translator, row of a retrieval model (what it was trained on).
        language: of the captions.
        task: which task of the corpus they are.
        metric: `t2i_r1`, `bleu` …
        value: mean over seeds.
        low: of the 95 % interval by bootstrap over images; None where there is none.
        high: see low.
        seeds: how many runs are averaged.
        n: images or sentences.
    """

    recipe: str
    corpus: str
    split: str
    system: str
    source: str
    language: str
    task: str
    metric: str
    value: float
    low: float | None
    high: float | None
    seeds: int
    n: int


@dataclass(frozen=True)
class Run:
    """A finished job's figure in the committed CSV: one line for each language and metric."""

    job: str
    key: str
    language: str
    metric: str
    value: float
    wall_s: float
    peak_memory_mb: float


def write_results(results: Iterable[Result], path: Path) -> None:
    """Write `results.jsonl`, one row a line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, "".join(json.dumps(asdict(result), ensure_ascii=False) + "\n" for result in results))


def read_runs(recipe: str, folder: Path = COMMITTED) -> list[Run]:
    """The committed runs of a recipe; none if there is no file."""
    path = folder / f"{recipe}.csv"
    if not path.is_file():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return [
            Run(
                row["job"], row["key"], row["language"], row["metric"], float(row["value"]), float(row["wall_s"]),
                float(row["peak_memory_mb"]),
            )
            for row in csv.DictReader(file)
        ]  # fmt: skip


def append_runs(recipe: str, runs: Sequence[Run], folder: Path = COMMITTED) -> int:
    """Add runs that are not yet in the recipe's CSV, by job, key, language and metric; how many were added."""
    known = {(run.job, run.key, run.language, run.metric) for run in read_runs(recipe, folder)}
    fresh = [run for run in runs if (run.job, run.key, run.language, run.metric) not in known]
    if not fresh:
        return 0
    path = folder / f"{recipe}.csv"
    folder.mkdir(parents=True, exist_ok=True)
    content = io.StringIO(newline="")
    writer = csv.DictWriter(content, [field.name for field in fields(Run)], lineterminator="\n")
    if path.is_file():
        content.write(path.read_text(encoding="utf-8"))
    else:
        writer.writeheader()
    writer.writerows(asdict(run) for run in fresh)
    write_whole(path, content.getvalue())
    return len(fresh)


def write_whole(path: Path, text: str) -> None:
    """Write a file whole or not at all, whoever else writes it at the same time."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(text, encoding="utf-8", newline="")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
