"""The retrieval model whose similarities are features of n-best lists."""

from dataclasses import replace
from typing import Any

from pipeline.jobs.job import Job
from pipeline.jobs.workspace import Workspace
from pipeline.recipes.settings import Recipe
from pipeline.recipes.starts import ALONE
from pipeline.recipes.systems import CAPTION, CHANNEL, members_of, parse_path
from pipeline.retrieval.vse import vse_rows
from pipeline.translation.reranked import trains_retrieval_models

_OF_REGIONS: dict[str, Any] = {"image_encoder": None, "image_encoder_rate": 0.0, "image_encoder_size": 224}


@trains_retrieval_models
def retrieval_of_features(recipe: Recipe, workspace: Workspace) -> Job:
    """The job that trains the model of `mmt.rerank.retrieval`: a row of `vse.rows`, and what else differs from `vse`.

    Its captions cannot be by translators that it re-ranks.

    Raises:
        RecipeError: the row cannot be trained.
    """
    own = dict(recipe.mmt.rerank.retrieval)
    only = [own.pop("row")]
    settings = replace(recipe.vse, **{"seeds": recipe.vse.seeds[:1], **own, **ALONE, **_OF_REGIONS, "only": only})
    systems = [one for one in recipe.mmt.systems if members_of(one)[1] in (None, CHANNEL)]
    paths = [one for one in recipe.augment.paths if parse_path(one)[0] in [*systems, CAPTION]]
    mmt, augment = replace(recipe.mmt, systems=systems), replace(recipe.augment, paths=paths)
    (row, *_) = vse_rows(replace(recipe, vse=settings, mmt=mmt, augment=augment), workspace)
    return row.job
