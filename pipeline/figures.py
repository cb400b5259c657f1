"""Figures of finished jobs: from their artifacts, or from the committed CSV that outlives them."""

from collections.abc import Iterator, Sequence

from modules.metrics import bootstrap_interval
from pipeline.jobs import Job, Workspace
from pipeline.ranking import read_ranks
from pipeline.results_store import Result, Run
from pipeline.settings import Recipe

NOT_RUN = "not run"


def finished_runs(workspace: Workspace, jobs: Sequence[Job]) -> Iterator[Run]:
    """The figures of jobs whose artifacts are here, as rows of the committed CSV."""
    for job in jobs:
        if not workspace.done(job):
            continue
        manifest = workspace.manifest(job)
        metrics = manifest["metrics"]
        flat = {
            ("", name): float(value)
            for name, value in metrics.items()
            if isinstance(value, float) or name.endswith("_sentences")
        }
        for part in ("test", "twins", "folds"):
            for language, scores in metrics.get(part, {}).items():
                prefix = "" if part == "test" else f"{part}_"
                flat |= {(language, prefix + name): value for name, value in scores.items()}
        for (language, name), value in flat.items():
            yield Run(
                job.name, job.key, language, name, round(value, 4), manifest["wall_s"], manifest["peak_memory_mb"]
            )


class Figures:
    """All figures that a recipe's tables show; each is kept as a row of the results.

    Args:
        recipe: whose.
        workspace: its artifacts.
        committed: runs whose artifacts may be gone.
    """

    def __init__(self, recipe: Recipe, workspace: Workspace, committed: Sequence[Run]) -> None:
        self.recipe, self.workspace = recipe, workspace
        self.results: list[Result] = []
        self.committed: dict[tuple[str, str], dict[tuple[str, str], Run]] = {}
        for run in committed:
            self.committed.setdefault((run.job, run.key), {})[run.language, run.metric] = run
        options = recipe.corpus.options
        self.label, self.task = (
            getattr(options, "label", recipe.corpus.name),
            getattr(options, "task", recipe.corpus.name),
        )

    def add(self, split: str, system: str, source: str, language: str, metric: str, value: float,
            low: float | None, high: float | None, seeds: int, n: int) -> None:  # fmt: skip
        """Keep a figure as a row."""
        self.results.append(Result(self.recipe.name, self.label, split, system, source, language, self.task, metric,
                                   round(value, 4), low, high, seeds, n))  # fmt: skip

    def scores(self, job: Job) -> dict[tuple[str, str], float]:
        """(language, metric) → value of a job, from its artifact or else from the committed CSV."""
        runs = list(finished_runs(self.workspace, [job])) or list(self.committed.get((job.name, job.key), {}).values())
        return {(run.language, run.metric): run.value for run in runs}

    def interval(self, jobs: Sequence[Job], language: str) -> dict[str, tuple[float, float, int]]:
        """Metric → ends of its 95 % interval over images and the number of images; empty where an artifact is gone."""
        counted = [job for job in jobs if self.scores(job)]
        if not counted or not all(self.workspace.done(job) for job in counted):
            return {}
        ranks = [read_ranks(self.workspace.folder(job), language) for job in counted]
        found = bootstrap_interval(ranks, self.recipe.report.resamples)
        n = len(ranks[0].image_to_text)
        return {name: (round(one.low, 4), round(one.high, 4), n) for name, one in found.items()}


def fold_split(images: float) -> str:
    """The split of figures that are means over folds of so many images: `test-1k`."""
    count = int(images)
    return f"test-{count // 1000}k" if count and count % 1000 == 0 else f"test-{count}"
