"""What a run of all stages will do."""

import pipeline.retrieval.captioner  # noqa: F401 # writes the captions of `caption:de`
from pipeline.corpus.prepare import corpus_job
from pipeline.jobs.job import Job
from pipeline.jobs.workspace import Workspace
from pipeline.recipes.settings import Recipe
from pipeline.reporting.rerank import rerank_jobs
from pipeline.retrieval.vse import all_rows, vse_jobs
from pipeline.translation.augment import synthesis_jobs
from pipeline.translation.mmt import incongruent_jobs_of, translators_of, whose


def all_jobs(recipe: Recipe, workspace: Workspace) -> list[Job]:
    """The jobs of all stages, in the order in which they run.

    Raises:
        RecipeError: a row of `vse` cannot be trained.
    """
    rows, translators = all_rows(recipe, workspace), translators_of(recipe, workspace)
    trained = vse_jobs(recipe, workspace, rows)
    reranked = [job for job in rerank_jobs(whose(recipe), workspace) if job not in trained]
    return [
        corpus_job(recipe, workspace),
        *(job for job in translators.values() if job.stage == "mmt"),
        *incongruent_jobs_of(recipe, workspace).values(),
        *(job for job in synthesis_jobs(recipe, workspace).values() if job.stage == "augment"),
        *trained,
        *reranked,
    ]
