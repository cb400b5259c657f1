"""Figures: rows of `results.jsonl` that every table is a view of, and records, which outlive the artifacts."""

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from pipeline.engine.files import lock, write_atomically
from pipeline.errors import RecipeError

RECORDS = Path(__file__).parents[1] / "results"


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
class Record:
    """A measured figure of a job, a line of `pipeline/results/<recipe>.csv`; it is only read, never computed by.

    Attributes:
        job: what was measured: kind, model, row and seed (`vse-san-mmt-f-1`), or translator (`mt-en-de`).
        variant: whose settings it had: empty for the recipe's own, the system of a table (`SCAN fusion`), what else was
            set on the command line (`vse.epochs=30`), or another description.
        language: of the captions; empty for translators.
        metric: `t2i_r1`, `test_bleu` …
        value: of the metric.
        low: of its 95 % interval over images; None where there is none.
        high: see low.
        settings: digits of a digest of the settings, the inputs and the code's version.
        version: of Bildwort.
        date: when it was measured.
        wall_s: seconds that the job took.
        peak_memory_mb: of memory that it had at most.
    """

    job: str
    variant: str
    language: str
    metric: str
    value: float
    low: float | None
    high: float | None
    settings: str
    version: str
    date: str
    wall_s: float
    peak_memory_mb: float


def write_results(results: Iterable[Result], path: Path) -> None:
    """Write `results.jsonl`, one row a line."""
    write_atomically(path, "".join(json.dumps(asdict(result), ensure_ascii=False) + "\n" for result in results))


def read_records(recipe: str, folder: Path = RECORDS) -> list[Record]:
    """The records of a recipe; none if there is no file.

    Raises:
        RecipeError: a line of the file is no record.
    """
    path = folder / f"{recipe}.csv"
    if not path.is_file():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file, strict=True)
        try:
            return [_record(row) for row in reader]
        except (KeyError, TypeError, ValueError, csv.Error):
            expected = ",".join(field.name for field in fields(Record))
            raise RecipeError(f"{path}:{reader.line_num}: expected {expected}") from None


def _record(row: Mapping[str, str]) -> Record:
    numbers = {name: float(row[name]) for name in ("value", "wall_s", "peak_memory_mb")}
    ends = {name: float(row[name]) if row[name] else None for name in ("low", "high")}
    return Record(**{**{field.name: row[field.name] for field in fields(Record)}, **numbers, **ends})  # type: ignore[arg-type]


def add_records(recipe: str, records: Sequence[Record], folder: Path = RECORDS) -> int:
    """Add records to those of a recipe, in place of older ones of the same figures; returns how many are new."""
    with lock(folder / f".{recipe}.lock", f"{recipe}.csv"):
        known = {_figure(one): one for one in read_records(recipe, folder)}
        given = {_figure(one): one for one in records}
        fresh = [one for figure, one in given.items() if figure not in known or known[figure].value != one.value]
        if fresh:
            again = {(one.job, one.variant) for one in fresh}  # all figures of a job are of one run
            known |= {figure: one for figure, one in given.items() if (one.job, one.variant) in again}
            text = io.StringIO()
            writer = csv.DictWriter(text, [field.name for field in fields(Record)], lineterminator="\n")
            writer.writeheader()
            writer.writerows(asdict(one) for one in known.values())
            write_atomically(folder / f"{recipe}.csv", text.getvalue())
        return len(fresh)


def _figure(record: Record) -> tuple[str, str, str, str]:
    return record.job, record.variant, record.language, record.metric
