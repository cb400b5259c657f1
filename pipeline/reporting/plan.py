"""What a run of one stage, of several, or of a table will do."""

from collections.abc import Sequence

import pipeline.retrieval.captioner  # noqa: F401 # writes the captions of `caption:de`
from pipeline.corpus.prepare import corpus_job
from pipeline.jobs.job import Job
from pipeline.jobs.workspace import Workspace
from pipeline.recipes.settings import Recipe
from pipeline.reporting.rerank import rerank_jobs
from pipeline.retrieval.vse import all_rows, vse_jobs
from pipeline.translation.augment import synthesis_jobs
from pipeline.translation.mmt import incongruent_jobs_of, translators_of, whose

STAGES = ("prepare", "mmt", "augment", "vse", "rerank")
"""Those that `bildwort all` runs."""


def all_jobs(
    recipe: Recipe, workspace: Workspace, stages: Sequence[str] = STAGES, table: str | None = None
) -> list[Job]:
    """The jobs of stages, in the order in which they run.

    Args:
        recipe: whose.
        workspace: its artifacts.
        stages: of `STAGES`, or `sts` or `draw`; `prepare` comes with each.
        table: a table of the recipe, whose jobs come last.

    Raises:
        RecipeError: a row of `vse` cannot be trained.
    """
    jobs = [corpus_job(recipe, workspace)]
    for stage in stages:
        jobs += [job for job in _jobs_of(stage, recipe, workspace) if job not in jobs]
    if table is not None:
        from pipeline.reporting.paper_tables import table_jobs

        jobs += table_jobs(recipe, workspace, table)
    return jobs


def _jobs_of(stage: str, recipe: Recipe, workspace: Workspace) -> list[Job]:
    """The jobs of a stage but for the corpus."""
    if stage == "mmt":
        translators = translators_of(recipe, workspace).values()
        return [*(job for job in translators if job.stage == "mmt"), *incongruent_jobs_of(recipe, workspace).values()]
    if stage == "augment":
        return [job for job in synthesis_jobs(recipe, workspace).values() if job.stage == "augment"]
    if stage == "vse":
        return vse_jobs(recipe, workspace, all_rows(recipe, workspace))
    if stage == "rerank":
        return rerank_jobs(whose(recipe), workspace)
    if stage == "sts":
        from pipeline.similarity.models import sts_rows

        return [row.job for row in sts_rows(recipe, workspace) if row.job is not None]
    if stage == "draw":
        from pipeline.reporting.drawings import drawing_jobs  # draws by matplotlib and scikit-learn

        return drawing_jobs(recipe, workspace)
    return []
