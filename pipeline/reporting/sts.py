"""Stage sts: trained retrieval models are tested on sentence similarity; tables of Pearson's r."""

from collections.abc import Iterator, Mapping, Sequence

from modules.metrics.intervals import Interval
from modules.metrics.sentence_similarity import pearson_interval
from pipeline.engine.console import command, info, stage_command
from pipeline.engine.job import Job
from pipeline.engine.machine import process_rank
from pipeline.engine.runner import Runner
from pipeline.errors import RecipeError
from pipeline.graph import Graph
from pipeline.reporting.records import record, records_of, rounded
from pipeline.reporting.results import INTERVALS, NOT_RUN, Figures, Subject
from pipeline.similarity.models import StsRow, can_run, sts_rows
from pipeline.similarity.sets import CLEAN, read_sets, read_tested
from pipeline.visualization.text_table import NO_INTERVAL, TextTable

UNDEFINED = "undefined"
"""What stands for r where all predictions, or all gold scores, are equal."""


def sts(graph: Graph, runner: Runner, force: bool = False) -> None:
    """Test all models that have been trained, and the baselines, and print the tables.

    Raises:
        RecipeError: the recipe has no sets or no data root, or nothing has been trained.
        DataError: a set is missing or not as expected.
    """
    recipe, workspace, jobs, rows = graph.recipe, graph.workspace, sts_jobs(graph), sts_rows(graph)
    runner.expect(jobs, force)
    runner.run(jobs, force)
    workspace.note(recipe.name, "sts", {f"{job.name} {job.key}": job for job in jobs})
    if process_rank() > 0:
        return
    record(graph, jobs, sts_variants(rows))
    for sheet in sts_tables(Figures(graph, records_of(recipe), sts_variants(rows)), rows):
        sheet.show()
    if untrained := sum(row.job is not None and not row.optional and not can_run(row, workspace) for row in rows):
        again = command("sts", target=["sts"])
        info(f"{untrained} not run: run {stage_command('vse')}, then again `{again}`")


def sts_variants(rows: Sequence[StsRow]) -> dict[str, str]:
    """Key of a job → the system of a table whose model it tests, or the captions of a baseline if there are several."""
    first: dict[str, str] = {}
    variants: dict[str, str] = {}
    for row in sorted(rows, key=lambda row: row.optional):
        if row.job is None or (not row.optional and first.setdefault(row.job.name, row.job.key) == row.job.key):
            continue
        if first.get(row.job.name) != row.job.key:
            variants.setdefault(row.job.key, row.system if row.optional else row.source)
    return variants


def sts_jobs(graph: Graph) -> list[Job]:
    """The jobs that test models that have been trained, and the baselines.

    Raises:
        RecipeError: the recipe has no sets or no data root, or nothing has been trained.
        DataError: a set is missing or not as expected.
    """
    recipe, workspace = graph.recipe, graph.workspace
    if not recipe.sts.sets:
        raise RecipeError(f"recipe {recipe.name} has no sts.sets; name one: "
                          "--sts.sets.images-2014=sts/STS2014.input.images.txt")  # fmt: skip
    read_sets(recipe)  # before anything runs
    jobs = [row.job for row in sts_rows(graph) if row.job is not None and can_run(row, workspace)]
    if not any("model" in job.inputs for job in jobs):
        raise RecipeError("no retrieval model of these settings that reads "
                          f"{recipe.sts.language!r} has been trained; run {stage_command('vse')}")  # fmt: skip
    return jobs


def sts_tables(figures: Figures, rows: Sequence[StsRow]) -> list[TextTable]:
    """Pearson's r of each row, a table for each set; those of the recipe's tables only where they have been tested."""
    language = figures.recipe.sts.language
    lines: dict[tuple[str, str], list[StsRow]] = {}
    for row in rows:
        lines.setdefault((row.system, row.source), []).append(row)
    heads = ["system", "trained on", "r", "95 %", "pairs", "clean r", "95 %", "pairs", "seeds"]
    tables = []
    for name in figures.recipe.sts.sets if rows else ():
        title = (
            f"Sentence similarity, {name}, {language}: Pearson's r × 100 with gold scores; clean: without pairs that "
            f"hold a training caption; {INTERVALS.replace('images', 'pairs')}"
        )
        shown = [line for named in lines.values() for line in _line(figures, name, named)]
        for system, values in figures.recipe.sts.published.items():
            if name in values:
                shown.append([system, "published", f"{values[name]:.1f}", *[""] * 6])
        tables.append(TextTable(title, heads, shown))
    return tables


def _line(figures: Figures, name: str, rows: Sequence[StsRow]) -> Iterator[list[str]]:
    """The line of one row's seeds in the table of a set; none if it is optional and was not tested."""
    first, language = rows[0], figures.recipe.sts.language
    if first.job is None:
        if not first.optional:
            yield [first.system, f"{first.source} (not trained on {language})", "–", *[""] * 6]
        return
    jobs, scores = figures.run([row.job for row in rows if row.job], language, f"{name}_pairs")
    if jobs:
        whole, clean = (_cells(figures, name, first, jobs, scores, clean) for clean in (False, True))
        yield [first.system, first.source, *whole[:-1], *clean[:-1], whole[-1]]
    elif not first.optional:
        how = f"{NOT_RUN}: needs {first.lacks}" if first.lacks else NOT_RUN
        yield [first.system, first.source, how, *[""] * 6]


def _cells(
    figures: Figures, name: str, row: StsRow, jobs: Sequence[Job], scores: Sequence[Mapping[str, float]], clean: bool
) -> list[str]:
    """r, its interval, the number of pairs of a set's whole or clean part, and the seeds; a row of the results."""
    part, language = name + CLEAN if clean else name, figures.recipe.sts.language
    values = [job_scores[f"{part}_pearson"] for job_scores in scores if f"{part}_pearson" in job_scores]
    n = int(scores[0][f"{part}_pairs"])
    if len(values) < len(jobs):
        return [UNDEFINED, NO_INTERVAL, f"{n:,}", str(len(jobs))]
    subject = Subject(part, row.system, row.source, language, n, task="sts")
    mean = figures.mean(subject, "pearson", values, rounded(_interval(figures, name, jobs, clean)))
    return [f"{mean.value:.1f}", mean.interval(), f"{n:,}", mean.seeds("pairs")]


def _interval(figures: Figures, name: str, jobs: Sequence[Job], clean: bool) -> Interval | None:
    """The interval of the mean over seeds; None where an artifact is gone."""
    if not all(figures.workspace.done(job) for job in jobs):
        return None
    parts = [read_tested(figures.workspace.folder(job), name).part(clean) for job in jobs]
    return pearson_interval([prediction for prediction, _ in parts], parts[0][1], figures.recipe.report.resamples)
