"""What each command will do: its jobs, in the order in which they run."""

from collections.abc import Callable

import pipeline.retrieval.captioner  # noqa: F401 # writes the captions of `caption:de`
from pipeline.corpus.prepare import corpus_job
from pipeline.jobs.job import Job, everything
from pipeline.jobs.workspace import Workspace
from pipeline.recipes.settings import Recipe
from pipeline.reporting.drawings import trained_drawings
from pipeline.reporting.paper_tables import table_jobs
from pipeline.reporting.rerank import rerank_jobs
from pipeline.reporting.sts import sts_jobs
from pipeline.retrieval.vse import all_rows, vse_jobs
from pipeline.translation.augment import synthesis_jobs
from pipeline.translation.mmt import incongruent_jobs_of, translators_of, whose

ListJobs = Callable[[Recipe, Workspace], list[Job]]


def all_jobs(recipe: Recipe, workspace: Workspace) -> list[Job]:
    """The jobs of all stages, in the order in which they run.

    Raises:
        RecipeError: a row of `vse` cannot be trained.
    """
    trained = _vse(recipe, workspace)  # refuses what cannot be trained before anything else
    reranked = [job for job in _rerank(recipe, workspace) if job not in trained]
    return [
        corpus_job(recipe, workspace), *_mmt(recipe, workspace), *_augment(recipe, workspace), *trained, *reranked
    ]  # fmt: skip


def _mmt(recipe: Recipe, workspace: Workspace) -> list[Job]:
    trained = [job for job in translators_of(recipe, workspace).values() if job.stage == "mmt"]
    return [*trained, *incongruent_jobs_of(recipe, workspace).values()]


def _augment(recipe: Recipe, workspace: Workspace) -> list[Job]:
    return [job for job in synthesis_jobs(recipe, workspace).values() if job.stage == "augment"]


def _vse(recipe: Recipe, workspace: Workspace) -> list[Job]:
    return vse_jobs(recipe, workspace, all_rows(recipe, workspace))


def _rerank(recipe: Recipe, workspace: Workspace) -> list[Job]:
    return rerank_jobs(whose(recipe), workspace)


_JOBS_OF: dict[str, ListJobs] = {
    "prepare": lambda recipe, workspace: [corpus_job(recipe, workspace)],
    "mmt": lambda recipe, workspace: [corpus_job(whose(recipe), workspace), *_mmt(recipe, workspace)],
    "augment": lambda recipe, workspace: [corpus_job(recipe, workspace), *_augment(recipe, workspace)],
    "vse": lambda recipe, workspace: [corpus_job(recipe, workspace), *_vse(recipe, workspace)],
    "rerank": _rerank,
    "report": lambda recipe, workspace: [],
    "all": all_jobs,
    "sts": sts_jobs,
    "draw": trained_drawings,
}


def jobs_of(command: str, recipe: Recipe, workspace: Workspace, table: str | None = None) -> list[Job]:
    """The jobs that a command performs unless they are done.

    Args:
        command: a stage, `all`, `table`, `sts` or `draw`.
        recipe: whose.
        workspace: its artifacts.
        table: the name of the table, of `table`.

    Raises:
        RecipeError: what the command itself refuses before it performs the first job.
    """
    if command == "table":
        return everything(table_jobs(recipe, workspace, table))
    return _JOBS_OF[command](recipe, workspace)
