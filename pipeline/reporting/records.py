"""Figures: rows of `results.jsonl` that every table is a view of, and records, which outlive the artifacts."""

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from importlib.metadata import version
from pathlib import Path
from typing import Any

from modules.metrics.intervals import Difference, Interval, bootstrap_interval
from pipeline.engine.files import lock, write_atomically
from pipeline.engine.job import Job
from pipeline.engine.workspace import Workspace
from pipeline.errors import RecipeError
from pipeline.graph import Graph
from pipeline.recipes.settings import Recipe
from pipeline.retrieval.ranks import read_ranks

RECORDS = Path(__file__).parents[1] / "results"
COUNTS_OF_CAPTIONS = (
    "captions", "unique_source", "unique_with_synthetic", "unique_synthetic", "copies_of_parent", "copies_of_human",
)  # fmt: skip
_COUNTS = ("choices", *COUNTS_OF_CAPTIONS)
Ends = tuple[float | None, float | None]
"""Of a 95 % interval; None where there is none."""


@dataclass(frozen=True)
class Result:
    """One figure.

    Attributes:
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
        captioned: of the n images, how many have captions: the queries of image → text; 0 where that is not known.
        table: of the recipe's `tables`, whose system it is; empty for its own translators and rows.
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
    captioned: int = 0
    table: str = ""


def own_results(results: Iterable[Result]) -> list[Result]:
    """Those of the recipe's translators and rows, without those of its tables."""
    return [result for result in results if not result.table]


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
    """Write `results.jsonl`, one row a line.

    Raises:
        RecipeError: there are none, and the file has some.
    """
    results = list(results)
    if not results and path.is_file() and path.stat().st_size:
        raise RecipeError(f"{path.parent}: this report stays as it is, because nothing has been trained with these "
                          "settings on these data; give the settings of its training, or train again")  # fmt: skip
    write_atomically(path, "".join(json.dumps(asdict(result), ensure_ascii=False) + "\n" for result in results))


def records_of(recipe: Recipe) -> list[Record]:
    """The records of a recipe; none if it has no file of them.

    Raises:
        RecipeError: a line of the file is no record.
    """
    return read_records(recipe.name, _folder_of(recipe))


def _folder_of(recipe: Recipe) -> Path:
    """Where a recipe's records lie: in `pipeline/results`, or in `NAME-records` beside a recipe of somebody's own."""
    return Path(recipe.file).parent / f"{recipe.name}-records" if recipe.file else RECORDS


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
    folder.mkdir(parents=True, exist_ok=True)
    with lock(folder / f".{recipe}.lock", f"{recipe}.csv"):
        known = {_figure(row): row for row in read_records(recipe, folder)}
        given = {_figure(row): row for row in records}
        fresh = [
            row for figure, row in given.items()
            if figure not in known or (known[figure].value, known[figure].settings) != (row.value, row.settings)
        ]  # fmt: skip
        if fresh:
            again = {(row.job, row.variant): row.settings for row in fresh}  # all figures of a job are of one run
            known = {
                figure: row for figure, row in known.items()
                if again.get((row.job, row.variant), row.settings) == row.settings
            }  # fmt: skip
            known |= {figure: row for figure, row in given.items() if (row.job, row.variant) in again}
            text = io.StringIO()
            writer = csv.DictWriter(text, [field.name for field in fields(Record)], lineterminator="\n")
            writer.writeheader()
            writer.writerows(asdict(row) for row in known.values())
            write_atomically(folder / f"{recipe}.csv", text.getvalue())
        return len(fresh)


def _figure(record: Record) -> tuple[str, str, str, str]:
    return record.job, record.variant, record.language, record.metric


def record(graph: Graph, jobs: Iterable[Job], variants: Mapping[str, str]) -> None:
    """Keep the figures of finished jobs as records, if the recipe asks for it; see `finished_records`."""
    recipe = graph.recipe
    if recipe.report.record:
        new = list(finished_records(graph.workspace, jobs, recipe, variants))
        add_records(recipe.name, new, _folder_of(recipe))


def finished_records(
    workspace: Workspace, jobs: Iterable[Job], recipe: Recipe, variants: Mapping[str, str]
) -> Iterator[Record]:
    """The figures of jobs whose artifacts are here, as records.

    Those by part and language (`test`, `val`, `folds` …) are named `<part>_<metric>`; of `test` by the metric alone.

    Args:
        jobs: those that are not done are left out.
        variants: of `variants_of`.
    """
    for job in jobs:
        if not workspace.done(job):
            continue
        manifest, folder = workspace.manifest(job), workspace.folder(job)
        flat = flat_metrics(manifest["metrics"])
        ranked = {language for language, _ in flat if language and (folder / f"ranks-{language}.npz").is_file()}
        intervals = {
            language: bootstrap_interval([read_ranks(folder, language)], recipe.report.resamples)
            for language in sorted(ranked)
        }
        made = (version("bildwort"), str(manifest.get("finished", "")).partition("T")[0])
        for (language, name), value in flat.items():
            low, high = rounded(intervals.get(language, {}).get(name))
            yield Record(
                job=job.name, variant=variant_of(job, recipe, variants), language=language, metric=name,
                value=round(value, 4), low=low, high=high, settings=job.key, version=made[0], date=made[1],
                wall_s=manifest["wall_s"], peak_memory_mb=manifest["peak_memory_mb"],
            )  # fmt: skip


def variant_of(job: Job, recipe: Recipe, variants: Mapping[str, str]) -> str:
    """Whose settings a job has, as records say it: the system of a table, and what else was set."""
    of_table = job.key in variants
    return "; ".join(filter(None, (variants.get(job.key, ""), recipe.table_variant if of_table else recipe.variant)))


def flat_metrics(metrics: Mapping[str, Any]) -> dict[tuple[str, str], float]:
    """(language, metric) → value."""
    flat = {
        ("", name): float(value) for name, value in metrics.items()
        if isinstance(value, float) or name.endswith("_sentences") or name in _COUNTS
    }  # fmt: skip
    parts = {
        name: value for name, value in metrics.items()
        if isinstance(value, dict) and all(isinstance(scores, dict) for scores in value.values())
    }  # fmt: skip
    for part in sorted(parts, key=lambda name: name != "test"):
        for language, scores in parts[part].items():
            prefix = "" if part == "test" else f"{part}_"
            flat |= {(language, prefix + name): value for name, value in scores.items()}
    return flat


def rounded(interval: Interval | Difference | None) -> Ends:
    """The ends of an interval as results and records keep them."""
    return (None, None) if interval is None else (round(interval.low, 4), round(interval.high, 4))
