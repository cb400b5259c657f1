"""Figures: rows of `results.jsonl` that every table is a view of, and the committed CSV that outlives the artifacts."""

import csv
import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from pipeline.errors import RecipeError
from pipeline.jobs.files import write_whole
from pipeline.jobs.locks import lock

COMMITTED = Path(__file__).parents[1] / "results"


@dataclass(frozen=True)
class Result:
    """One figure.

    Attributes:
        recipe: whose.
        corpus: the corpus's label.
        split: val, test, twins, or train of synthetic captions and of what a row trains on; `test-1k` is the mean over
            folds of 1,000 test images, each ranked by itself; of sentence similarity the set, with `-clean` its pairs
            without training captions.
        system: translator (`mmt`) or retrieval model (`san`).
        source: direction of a translator, row of a retrieval model (what it was trained on).
        language: of the captions.
        task: which task of the corpus they are, or `sts`.
        metric: `t2i_r1`, `bleu`, `pearson` (r × 100) …
        value: mean over seeds.
        low: of the 95 % interval over images, or sentence pairs, and over seeds if there are several; None where there
            is none.
        high: see low.
        seeds: how many runs are averaged.
        n: images, sentences or sentence pairs.
        captions: of a retrieval figure, how many: the queries of text → image; 0 where that is not known.
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
    captions: int = 0


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
    write_whole(path, "".join(json.dumps(asdict(result), ensure_ascii=False) + "\n" for result in results))


def read_runs(recipe: str, folder: Path = COMMITTED) -> list[Run]:
    """The committed runs of a recipe; none if there is no file.

    Raises:
        RecipeError: a line of the file is no such run.
    """
    path = folder / f"{recipe}.csv"
    if not path.is_file():
        return []
    runs = []
    with path.open(encoding="utf-8", newline="") as file:
        try:
            for row in (reader := csv.DictReader(file, strict=True)):
                numbers = (float(row[name]) for name in ("value", "wall_s", "peak_memory_mb"))
                runs.append(Run(row["job"], row["key"], row["language"], row["metric"], *numbers))
        except (KeyError, TypeError, ValueError, csv.Error):
            expected = ",".join(field.name for field in fields(Run))
            raise RecipeError(f"{path}:{reader.line_num}: expected {expected}, the last three numbers") from None
    return runs


def append_runs(recipe: str, runs: Sequence[Run], folder: Path = COMMITTED) -> int:
    """Add runs to the recipe's CSV, by job, key, language and metric; returns how many are new or have changed."""
    with lock(folder / f".{recipe}.lock", f"{recipe}.csv"):
        return _append_runs(recipe, runs, folder)


def _append_runs(recipe: str, runs: Sequence[Run], folder: Path) -> int:
    known = {_line(run): run for run in read_runs(recipe, folder)}
    fresh = {_line(run): run for run in runs if (old := known.get(_line(run))) is None or old.value != run.value}
    if fresh:
        again = {(run.job, run.key) for run in fresh.values()}  # its cost differs too
        known |= {_line(run): run for run in runs if (run.job, run.key) in again}
        text = io.StringIO()
        writer = csv.DictWriter(text, [field.name for field in fields(Run)], lineterminator="\n")
        writer.writeheader()
        writer.writerows(asdict(run) for run in known.values())
        write_whole(folder / f"{recipe}.csv", text.getvalue())
    return len(fresh)


def _line(run: Run) -> tuple[str, str, str, str]:
    return run.job, run.key, run.language, run.metric
