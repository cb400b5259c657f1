"""Figures of finished jobs: from their artifacts, or from records, which outlive them."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import stdev
from typing import Any, Literal

from torch import Tensor

from modules.metrics.intervals import bootstrap_interval, mean_interval, paired_difference
from modules.metrics.retrieval import RECALLS
from pipeline.engine.job import Job
from pipeline.engine.workspace import Workspace
from pipeline.errors import RecipeError
from pipeline.graph import Graph
from pipeline.recipes.settings import Recipe
from pipeline.reporting.records import Record, Result
from pipeline.retrieval.ranks import read_ranks, read_runs
from pipeline.visualization.text_table import TextTable, shown_difference

NOT_RUN = "not run"
NO_INTERVAL = "–"
COUNTS_OF_CAPTIONS = (
    "captions", "unique_source", "unique_with_synthetic", "unique_synthetic", "copies_of_parent", "copies_of_human",
)  # fmt: skip
_COUNTS = ("choices", *COUNTS_OF_CAPTIONS)


def finished_records(
    workspace: Workspace, jobs: Iterable[Job], recipe: Recipe, variants: Mapping[str, str]
) -> Iterator[Record]:
    """The figures of jobs whose artifacts are here, as records.

    Those by part and language (`test`, `val`, `folds` …) are named `<part>_<metric>`; of `test` by the metric alone.

    Args:
        workspace: with the artifacts.
        jobs: those that are not done are left out.
        recipe: of the jobs.
        variants: key of a job → the system of a table that it is of; others are of the recipe's own rows.
    """
    for job in jobs:
        if not workspace.done(job):
            continue
        manifest, folder = workspace.manifest(job), workspace.folder(job)
        flat = _flat(manifest["metrics"])
        ranked = {one for one, _ in flat if one and (folder / f"ranks-{one}.npz").is_file()}
        intervals = {
            one: bootstrap_interval([read_ranks(folder, one)], recipe.report.resamples) for one in sorted(ranked)
        }
        made = (version("bildwort"), str(manifest.get("finished", "")).partition("T")[0])
        for (language, name), value in flat.items():
            found = intervals.get(language, {}).get(name)
            ends = (None, None) if found is None else (round(found.low, 4), round(found.high, 4))
            yield Record(
                job=job.name, variant=_variant(job, recipe, variants), language=language, metric=name,
                value=round(value, 4), low=ends[0], high=ends[1], settings=job.key, version=made[0], date=made[1],
                wall_s=manifest["wall_s"], peak_memory_mb=manifest["peak_memory_mb"],
            )  # fmt: skip


def _variant(job: Job, recipe: Recipe, variants: Mapping[str, str]) -> str:
    """Whose settings a job has, as records say it: the system of a table, and what else was set."""
    return "; ".join(filter(None, (variants.get(job.key, ""), recipe.variant)))


def _flat(metrics: Mapping[str, Any]) -> dict[tuple[str, str], float]:
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


MEDIANS = ("t2i_medr", "i2t_medr")
R_AT_K = ["t→i R@1", "5", "10", "i→t R@1", "5", "10"]
"""Heads of the columns that `Cell.shown` begins with."""


Ends = tuple[float | None, float | None]
"""Of an interval; None where there is none."""
FEW = 50
"""Images of a test below which an interval of R@1 may be 28 points wide."""
ONE_SEED = "one seed: images only"
"""What intervals of one training hold: they do not say how far another one may lie away."""
INTERVALS = f"95 % over images, and over seeds where there are several; {ONE_SEED}"
"""What intervals of retrieval figures hold."""


@dataclass(frozen=True)
class Cell:
    """A line of a retrieval table: the mean over the seeds that have been run.

    Attributes:
        mean: metric → percent, `RECALLS`, `mean_recall` and `rsum`; and median ranks.
        interval: metric → ends of its 95 % interval (`INTERVALS`); empty where an artifact is gone, and for folds.
        by_seed: metric → its value in each run.
        validation: mean rsum on validation, what systems are chosen by; None where it was not validated.
    """

    mean: Mapping[str, float]
    interval: Mapping[str, tuple[float, float]]
    by_seed: Mapping[str, Sequence[float]]
    validation: float | None

    def shown(self, metric: str, names: Sequence[str] = RECALLS) -> list[str]:
        """The cells of its line: R@K both ways, a summary metric, that one's interval, rsum on validation, seeds."""
        validated = "–" if self.validation is None else f"{self.validation:.1f}"
        means = [f"{self.mean[name]:.1f}" for name in (*names, metric)]
        return [*means, self.bounds(metric), validated, over_seeds(self.by_seed[metric], self.bounds(metric))]

    def bounds(self, metric: str, less: float | None = None) -> str:
        """The interval as tables print it, or that of the difference from a figure without one."""
        if metric not in self.interval:
            return NO_INTERVAL
        low, high = self.interval[metric]
        return f"{low:.1f} … {high:.1f}" if less is None else f"{low - less:+.1f} … {high - less:+.1f}"


class Figures:
    """All figures that a recipe's tables show; each is kept as a row of the results.

    Args:
        graph: of the recipe.
        records: figures of jobs whose artifacts may be gone.
        variants: key of a job → the system of a table that it is of.
    """

    def __init__(
        self, graph: Graph, records: Sequence[Record], variants: Mapping[str, str] | None = None
    ) -> None:  # fmt: skip
        self.graph, self.recipe, self.workspace, self.variants = graph, graph.recipe, graph.workspace, variants or {}
        self.results: list[Result] = []
        self._records: dict[tuple[str, str], dict[tuple[str, str], float]] = {}
        for record in records:
            self._records.setdefault((record.job, record.variant), {})[record.language, record.metric] = record.value
        options = self.recipe.corpus.options
        self.label = getattr(options, "label", self.recipe.corpus.name)
        self._task: str = getattr(options, "task", self.recipe.corpus.name)
        self._tasks: Mapping[str, str] = getattr(options, "tasks", {})

    def task_of(self, language: str) -> str:
        """Which task of the corpus the captions in a language are."""
        return self._tasks.get(language, self._task)

    def add(self, split: str, system: str, source: str, language: str, metric: str, value: float,
            low: float | None, high: float | None, seeds: int, n: int, task: str | None = None,
            captions: int = 0) -> None:  # fmt: skip
        """Keep a figure as a row; the task is that of the language's captions if none is given."""
        found = Result(self.recipe.name, self.label, split, system, source, language, task or self.task_of(language),
                       metric, round(value, 4), low, high, seeds, n, captions)  # fmt: skip
        if found not in self.results:  # a row may stand in several tables
            self.results.append(found)

    def scores(self, job: Job) -> dict[tuple[str, str], float]:
        """(language, metric) → value of a job, from its artifact or else from its record."""
        if self.workspace.done(job):
            return _flat(self.workspace.manifest(job)["metrics"])
        return self._records.get((job.name, _variant(job, self.recipe, self.variants)), {})

    def cell(self, jobs: Sequence[Job], system: str, row: str, language: str, folds: bool = False) -> Cell | None:
        """The figures of one row's jobs, a job a seed, kept as rows of the results; None if none was run.

        Args:
            jobs: of the row.
            system: what the results call it.
            row: what it was trained on.
            language: of the captions.
            folds: the mean over folds of the test images instead of all at once.
        """
        part = "folds_" if folds else ""
        counted = [job for job in jobs if (language, f"{part}t2i_r1") in self.scores(job)]
        if not counted:
            return None
        scores = [self.scores(job) for job in counted]
        names = [*RECALLS, *MEDIANS, "mean_recall", "rsum"]
        by_seed = {name: [one[language, part + name] for one in scores] for name in names}
        mean = {name: sum(values) / len(values) for name, values in by_seed.items()}
        n, captions = int(scores[0][language, "folds_images"]) if folds else 0, 0
        interval: dict[str, tuple[float, float]] = {}
        if not folds and all(self.workspace.done(job) for job in counted):
            runs = read_runs([self.workspace.folder(job) for job in counted], [language])
            ranks = [run[language] for run in runs]
            found = bootstrap_interval(ranks, self.recipe.report.resamples)
            interval = {name: (round(found[name].low, 4), round(found[name].high, 4)) for name in mean}
            n, captions = len(ranks[0].image_to_text), len(ranks[0].text_to_image)
        split = fold_split(n) if folds else "test"
        for name, value in mean.items():
            low, high = interval.get(name, (None, None))
            self.add(split, system, row, language, name, value, low, high, len(scores), n, captions=captions)
        validated = [one[language, "val_rsum"] for one in scores if (language, "val_rsum") in one]
        validation = sum(validated) / len(scores) if len(validated) == len(scores) else None
        if validation is not None:
            self.add("val", system, row, language, "rsum", validation, None, None, len(scores), 0)
        return Cell(mean, interval, by_seed, validation)

    def interval(self, jobs: Sequence[Job], read: Callable[[Path], Tensor]) -> Ends:
        """Ends of the interval of a mean over items and seeds; none where an artifact is gone.

        Args:
            jobs: a job a seed.
            read: the value of each item (N,) that a job left in its folder.
        """
        if not jobs or not all(self.workspace.done(job) for job in jobs):
            return None, None
        values = [read(self.workspace.folder(job)) for job in jobs]
        for job, one in zip(jobs, values, strict=True):
            if len(one) != len(values[0]):
                folder = self.workspace.folder(job)
                raise RecipeError(
                    f"{folder}: {len(one)} values, another seed has {len(values[0])}; delete it and run the stage again"
                )
        found = mean_interval(values, self.recipe.report.resamples)
        return round(found.low, 4), round(found.high, 4)

    def size(self, jobs: Iterable[Job], language: str) -> str:
        """How many images and captions the figures of a language are of, as tables print it; empty if none is here."""
        for job in jobs:
            if self.workspace.done(job) and (language, "t2i_r1") in self.scores(job):
                ranks = read_ranks(self.workspace.folder(job), language)
                images, captions = int((ranks.image_to_text > 0).sum()), len(ranks.text_to_image)
                few = ", too few to compare systems" if images < FEW else ""
                return f" ({images:,} images, {captions:,} captions{few})"
        return ""

    def differences(
        self, title: str, pairs: Iterable[tuple[str, Mapping[int, Job], Mapping[int, Job]]], language: str, metric: str
    ) -> TextTable:
        """How rows differ from others on the same images and the seeds of both, by a paired test.

        Args:
            title: of the table.
            pairs: a label, the row's jobs by seed, and those of the row that it is compared with.
            language: of the captions.
            metric: whose difference is shown.

        Returns:
            a line a pair, without those of which no seed's ranks are here.
        """
        lines = [(label, self._difference(jobs, base, language, metric)) for label, jobs, base in pairs]
        heads = ["difference", metric.replace("_", " "), "95 %", "p", "by seed"]
        return TextTable(f"{title}; {INTERVALS}", heads, [[label, *cells] for label, cells in lines if cells])

    def _difference(self, jobs: Mapping[int, Job], base: Mapping[int, Job], language: str, metric: str) -> list[str]:
        seeds = sorted(
            seed for seed in jobs.keys() & base.keys()
            if all(self.workspace.done(job) and (language, "t2i_r1") in self.scores(job)
                   for job in (jobs[seed], base[seed]))
        )  # fmt: skip
        if not seeds:
            return []
        folders = [self.workspace.folder(side[seed]) for side in (jobs, base) for seed in seeds]
        ranks = [run[language] for run in read_runs(folders, [language])]
        found = paired_difference(ranks[: len(seeds)], ranks[len(seeds) :], self.recipe.report.resamples)[metric]
        by_seed = [self.scores(jobs[s])[language, metric] - self.scores(base[s])[language, metric] for s in seeds]
        seen = " ".join(f"{value:+.2f}" for value in by_seed)
        return [*shown_difference(found), seen if len(by_seed) > 1 else f"{seen} {_only('images')}"]


def shown_interval(low: float | None, high: float | None, sign: Literal["", "+"] = "") -> str:
    """An interval as tables print it; with `sign` `+` that of a difference."""
    return NO_INTERVAL if low is None else f"{low:{sign}.1f} … {high:{sign}.1f}"


def over_seeds(values: Sequence[float], interval: str, of: str = "images") -> str:
    """The number of seeds, and the standard deviation over them; of one, what alone its interval is over.

    Args:
        values: one a seed.
        interval: beside it, as `shown_interval` prints it.
        of: what the interval is over.
    """
    if len(values) > 1:
        return f"{len(values)} (sd {stdev(values):.1f})"
    return str(len(values)) if interval == NO_INTERVAL else f"{len(values)} {_only(of)}"


def _only(of: str) -> str:
    return f"({of} only)"


def fold_split(images: float) -> str:
    """The split of figures that are means over folds of so many images: `test-1k`."""
    count = int(images)
    return f"test-{count // 1000}k" if count and count % 1000 == 0 else f"test-{count}"
