"""Figures of finished jobs: from their artifacts, or from records, which outlive them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import stdev
from typing import Literal

from torch import Tensor

from modules.metrics.intervals import FEW, Difference, bootstrap_interval, mean_interval, paired_difference
from modules.metrics.retrieval import MEDIANS, RECALLS, RetrievalRanks
from pipeline.engine.job import Job
from pipeline.errors import RecipeError
from pipeline.graph import Graph
from pipeline.reporting.records import Ends, Record, Result, flat_metrics, rounded, variant_of
from pipeline.retrieval.ranks import read_ranks, read_runs
from pipeline.retrieval.rows import Row
from pipeline.visualization.text_table import ONE_SEED, TextTable, shown_difference, shown_interval

NOT_RUN = "not run"
R_AT_K = ["t→i R@1", "5", "10", "i→t R@1", "5", "10"]
"""Heads of the columns that `Cell.shown` begins with."""
INTERVALS = f"95 % over images, and over seeds where there are several; {ONE_SEED}"
"""What intervals of retrieval figures hold."""
Seeds = Mapping[tuple[str, str], Sequence[Row]]
"""System and name of each line of a table → its rows, a row a seed."""


def by_line(rows: Iterable[Row]) -> Seeds:
    """The rows of each line of a table."""
    lines: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        lines.setdefault((row.system, row.name), []).append(row)
    return lines


@dataclass(frozen=True)
class Subject:
    """What figures are of, as `Result` says it; without a task that of the language's captions."""

    split: str
    system: str
    source: str
    language: str
    n: int = 0
    captions: int = 0
    captioned: int = 0
    task: str | None = None
    table: str = ""


@dataclass(frozen=True)
class Compared:
    """A row beside another one, `base`, on the same test images and seeds."""

    row: str
    base: str
    language: str
    metric: str
    difference: Difference


@dataclass(frozen=True)
class Mean:
    """A figure over seeds: its value in each run, and the ends of the interval of their mean."""

    by_seed: Sequence[float]
    ends: Ends = (None, None)

    @property
    def value(self) -> float:
        """The mean over seeds."""
        return sum(self.by_seed) / len(self.by_seed)

    def interval(self, sign: Literal["", "+"] = "", less: float = 0.0) -> str:
        """The interval as tables print it, or that of the difference from a figure without one."""
        low, high = self.ends
        return shown_interval(None if low is None else low - less, None if high is None else high - less, sign)

    def seeds(self, of: str = "images") -> str:
        """How many runs, and the standard deviation over them; of one, what alone its interval is over (`of`)."""
        if len(self.by_seed) > 1:
            return f"{len(self.by_seed)} (sd {stdev(self.by_seed):.1f})"
        return "1" if self.ends[0] is None else f"1 {_only(of)}"


@dataclass(frozen=True)
class Cell:
    """A line of a retrieval table.

    Attributes:
        figures: by metric: `RECALLS`, `mean_recall` and `rsum` in percent, and median ranks; without intervals where an
            artifact is gone, and for folds.
        validation: mean rsum on validation, what systems are chosen by; None where it was not validated.
    """

    figures: Mapping[str, Mean]
    validation: float | None

    def shown(self, metric: str, names: Sequence[str] = RECALLS) -> list[str]:
        """The cells of its line: R@K both ways, a summary metric, that one's interval, rsum on validation, seeds."""
        validated = "–" if self.validation is None else f"{self.validation:.1f}"
        means, summary = [f"{self.figures[name].value:.1f}" for name in (*names, metric)], self.figures[metric]
        return [*means, summary.interval(), validated, summary.seeds()]


class Figures:
    """All figures that a recipe's tables show; each is kept as a row of the results.

    Args:
        records: figures of jobs whose artifacts may be gone.
        variants: key of a job → the system of a table that it is of.
    """

    def __init__(
        self, graph: Graph, records: Sequence[Record], variants: Mapping[str, str] | None = None
    ) -> None:  # fmt: skip
        self.graph, self.recipe, self.workspace, self.variants = graph, graph.recipe, graph.workspace, variants or {}
        self.results: list[Result] = []
        self.compared: list[Compared] = []
        self._records: dict[tuple[str, str], dict[tuple[str, str], float]] = {}
        self._recorded: set[tuple[str, str, str]] = set()
        for record in records:
            self._records.setdefault((record.job, record.variant), {})[record.language, record.metric] = record.value
            self._recorded.add((record.job, record.variant, record.settings))
        options = self.recipe.corpus.options
        self.label = getattr(options, "label", self.recipe.corpus.name)
        self._task: str = getattr(options, "task", self.recipe.corpus.name)
        self._tasks: Mapping[str, str] = getattr(options, "tasks", {})

    def task_of(self, language: str) -> str:
        """Which task of the corpus the captions in a language are."""
        return self._tasks.get(language, self._task)

    def add(self, subject: Subject, metric: str, value: float, ends: Ends = (None, None), seeds: int = 1) -> None:
        """Keep a figure as a row of the results."""
        about = vars(subject) | {"task": subject.task or self.task_of(subject.language)}
        low, high = ends
        result = Result(
            self.recipe.name, self.label, metric=metric, value=round(value, 4), low=low, high=high, seeds=seeds, **about
        )
        if result not in self.results:  # a row may stand in several tables
            self.results.append(result)

    def scores(self, job: Job) -> dict[tuple[str, str], float]:
        """(language, metric) → value of a job, from its artifact or else from its record."""
        if self.workspace.done(job):
            return flat_metrics(self.workspace.manifest(job)["metrics"])
        return self._records.get((job.name, self._variant(job)), {})

    def _variant(self, job: Job) -> str:
        return variant_of(job, self.recipe, self.variants)

    def own_scores(self, jobs: Iterable[Job]) -> dict[str, dict[str, float]]:
        """Key of each of some jobs → its figures that are of no language in particular; none for one that has none."""
        jobs = list(jobs)
        scores: dict[str, dict[str, float]] = {job.key: {} for job in jobs}
        for job in self._comparable(jobs):
            of_job = self.scores(job).items()
            scores[job.key] = {metric: value for (language, metric), value in of_job if not language}
        return scores

    def _comparable(self, jobs: Sequence[Job]) -> list[Job]:
        """Jobs whose figures may stand beside each other: where an artifact is here, records of its settings alone."""
        if not any(map(self.workspace.done, jobs)):
            return [*jobs]
        return [
            job for job in jobs
            if self.workspace.done(job) or (job.name, self._variant(job), job.key) in self._recorded
        ]  # fmt: skip

    def mean(self, subject: Subject, metric: str, by_seed: Sequence[float], ends: Ends = (None, None)) -> Mean:
        """Keep the mean of a figure over seeds as a row of the results."""
        mean = Mean(by_seed, ends)
        self.add(subject, metric, mean.value, ends, len(by_seed))
        return mean

    def run(self, jobs: Iterable[Job], language: str, metric: str) -> tuple[list[Job], list[dict[str, float]]]:
        """Those of some jobs that have a figure in a language, each once, and the figures of each in it.

        Where an artifact of one is here, records stand for others only if they are of the same settings.
        """
        each = list({job.key: job for job in jobs}.values())  # a row that is not trained has one job for all seeds
        all_scores = [(job, self.scores(job)) for job in self._comparable(each)]
        known = [(job, scores) for job, scores in all_scores if (language, metric) in scores]
        by_metric = [{name: value for (code, name), value in scores.items() if code == language} for _, scores in known]
        return [job for job, _ in known], by_metric

    def not_run(self, jobs: Iterable[Job]) -> str:
        """What stands for the figures of jobs that have none: they were not run, or there was nothing to measure."""
        return "–" if any(map(self.workspace.done, jobs)) else NOT_RUN

    def cell(
        self, jobs: Sequence[Job], system: str, row: str, language: str, folds: bool = False, table: str = ""
    ) -> Cell | None:  # fmt: skip
        """The figures of one row's jobs, a job a seed, kept as rows of the results; None if none was run.

        Args:
            system: what the results call it.
            row: what it was trained on.
            folds: the mean over folds of the test images instead of all at once.
            table: that the row is of; empty for `vse.rows`.
        """
        part = "folds_" if folds else ""
        counted, scores = self.run(jobs, language, f"{part}t2i_r1")
        if not counted:
            return None
        n, captions, captioned = int(scores[0]["folds_images"]) if folds else 0, 0, 0
        intervals: dict[str, Ends] = {}
        if not folds and all(map(self.workspace.done, counted)):
            runs = read_runs([self.workspace.folder(job) for job in counted], [language])
            ranks = [run[language] for run in runs]
            exact = bootstrap_interval(ranks, self.recipe.report.resamples)
            intervals = {name: rounded(interval) for name, interval in exact.items()}
            n, captions, captioned = _counts(ranks[0])
        split = fold_split(n) if folds else "test"
        subject = Subject(split, system, row, language, n, captions, captioned, table=table)
        figures = {
            name: self.mean(
                subject, name, [job_scores[part + name] for job_scores in scores], intervals.get(name, (None, None))
            )
            for name in (*RECALLS, *MEDIANS, "mean_recall", "rsum")
        }
        validated = [job_scores["val_rsum"] for job_scores in scores if "val_rsum" in job_scores]
        if len(validated) < len(scores):
            return Cell(figures, None)
        return Cell(figures, self.mean(Subject("val", system, row, language, table=table), "rsum", validated).value)

    def interval(self, jobs: Sequence[Job], read: Callable[[Path], Tensor], least: float, most: float) -> Ends:
        """Ends of the interval of a mean over items and seeds; none where an artifact is gone.

        Args:
            jobs: a job a seed.
            read: the value of each item (N,) that a job left in its folder.
            least: no mean is below it.
            most: no mean is above it.
        """
        if not jobs or not all(self.workspace.done(job) for job in jobs):
            return None, None
        values = [read(self.workspace.folder(job)) for job in jobs]
        for job, run in zip(jobs, values, strict=True):
            if len(run) != len(values[0]):
                folder = self.workspace.folder(job)
                raise RecipeError(
                    f"{folder}: {len(run)} values, another seed has {len(values[0])}; delete it and run the stage again"
                )
        return rounded(mean_interval(values, self.recipe.report.resamples, least=least, most=most))

    def size(self, jobs: Iterable[Job], language: str) -> str:
        """How many images and captions the figures of a language are of, as tables print it; empty if none is here."""
        for job in jobs:
            if self.workspace.done(job) and (language, "t2i_r1") in self.scores(job):
                images, captions, captioned = _counts(read_ranks(self.workspace.folder(job), language))
                some = f", {captioned:,} of them with captions" if captioned < images else ""
                few = ", too few to compare systems" if captioned < FEW else ""
                return f" ({images:,} images{some}, {captions:,} captions{few})"
        return ""

    def differences(
        self,
        title: str,
        pairs: Iterable[tuple[str, str, Mapping[int, Job], Mapping[int, Job]]],
        language: str,
        metric: str,
    ) -> TextTable:
        """How rows differ from others on the same images and the seeds of both, by a paired test.

        Args:
            pairs: a row and the one that it is compared with, and the jobs of both by seed.

        Returns:
            a line a pair, without those of which no seed's ranks are here.
        """
        lines = [(f"{pair[0]} − {pair[1]}", self._difference(*pair, language, metric)) for pair in pairs]
        heads = ["difference", metric.replace("_", " "), "95 %", "p", "by seed"]
        return TextTable(f"{title}; {INTERVALS}", heads, [[label, *cells] for label, cells in lines if cells])

    def _difference(
        self, row: str, beside: str, jobs: Mapping[int, Job], base: Mapping[int, Job], language: str, metric: str
    ) -> list[str]:  # fmt: skip
        seeds = sorted(
            seed for seed in jobs.keys() & base.keys()
            if all(self.workspace.done(job) and (language, "t2i_r1") in self.scores(job)
                   for job in (jobs[seed], base[seed]))
        )  # fmt: skip
        if not seeds:
            return []
        folders = [self.workspace.folder(side[seed]) for side in (jobs, base) for seed in seeds]
        ranks = [run[language] for run in read_runs(folders, [language])]
        difference = paired_difference(ranks[: len(seeds)], ranks[len(seeds) :], self.recipe.report.resamples)[metric]
        by_seed = [self.scores(jobs[s])[language, metric] - self.scores(base[s])[language, metric] for s in seeds]
        self.compared.append(Compared(row, beside, language, metric, difference))
        seen = " ".join(f"{value:+.2f}" for value in by_seed)
        return [*shown_difference(difference), seen if len(by_seed) > 1 else f"{seen} {_only('images')}"]


def _counts(ranks: RetrievalRanks) -> tuple[int, int, int]:
    """How many images and captions are ranked, and how many of the images have captions."""
    return len(ranks.image_to_text), len(ranks.text_to_image), int((ranks.image_to_text > 0).sum())


def _only(of: str) -> str:
    return f"({of} only)"


def fold_split(images: float) -> str:
    """The split of figures that are means over folds of so many images: `test-1k`."""
    count = int(images)
    return f"test-{count // 1000}k" if count and count % 1000 == 0 else f"test-{count}"
