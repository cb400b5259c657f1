"""Stage vse: a retrieval model for each row and seed, selected on validation, ranked on test."""

from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np
from datasets import Dataset as Table

from data.captions import HUMAN, read_captions
from data.corpora.scenes import ScenesSettings
from data.retrieval import captions_of_images
from data.slots import parse_group
from modules.retrieval_models import model_class, option_names
from pipeline.corpus.prepare import corpus_job, prepare_if_missing
from pipeline.errors import RecipeError
from pipeline.jobs.console import detail
from pipeline.jobs.job import Job, chain, needed
from pipeline.jobs.workspace import Workspace
from pipeline.recipes.settings import Recipe, VseSettings
from pipeline.recipes.starts import ALONE, reranker_settings
from pipeline.retrieval.cautions import require_enough, require_segmenters
from pipeline.retrieval.folds import in_folds
from pipeline.retrieval.fusion import fused
from pipeline.retrieval.generated import generated_job
from pipeline.retrieval.images import image_arguments
from pipeline.retrieval.likelihood import by_likelihood
from pipeline.retrieval.query_translation import by_translation
from pipeline.retrieval.recognised import recognised_job
from pipeline.retrieval.reranking import index_job, on_first_lists, rerank_job
from pipeline.retrieval.retrieved import retrieved_job
from pipeline.retrieval.rows import Evaluation, Row, Training
from pipeline.retrieval.training import require_languages, training_job, watched_languages
from pipeline.retrieval.twins import senses_job
from pipeline.retrieval.words import require_read
from pipeline.translation.augment import synthesis_jobs


def vse_rows(recipe: Recipe, workspace: Workspace) -> list[Row]:
    """All rows and seeds of a recipe in the order of its table, whether they have been trained or not.

    Raises:
        RecipeError: a row can not be trained, or is tested in a language that it was not trained on.
    """
    settings = recipe.vse
    corpus, synthetic = corpus_job(recipe, workspace), synthesis_jobs(recipe, workspace)
    require_read(settings)
    rows = []
    for seed in settings.seeds:
        for name in settings.only or settings.rows:
            languages = frozenset(slot.language for text in settings.rows[name] for slot in parse_group(text))

            def train(model: str, name: str = name, seed: int = seed) -> Job:
                """The job that trains a model for this row and seed."""
                return training_job(
                    recipe, of_model(settings, model), name, seed, corpus, synthetic, workspace, _NOT_OF_TRAINING
                )

            evaluation = evaluation_of(settings)
            row = evaluation(Training(recipe, workspace, corpus, name, seed, languages, train))
            if evaluation in (as_trained, in_folds):
                row = _with_tests(row, corpus, recipe, languages)
            if row.unseen and settings.unseen == "error":
                first = min(row.unseen)
                raise RecipeError(
                    f"vse.rows.{name} is tested in {first!r}, but reads only {', '.join(sorted(languages))}; leave "
                    f"{first!r} out of vse.test, the row out of vse.only, or set vse.unseen=mark"
                )
            rows.append(row)
    return rows


def _with_tests(row: Row, corpus: Job, recipe: Recipe, languages: Collection[str]) -> Row:
    """A row of one model with the jobs that test its captions, its pictures and its branches."""
    (trained,), settings, scenes = row.trained, recipe.vse, recipe.corpus.options
    kind, options = model_class(settings.model), settings.options
    retrieved = retrieved_job(trained, corpus, settings) if settings.retrieved_captions else None
    generated = generated_job(trained, corpus, settings, languages) if kind.writes_with(**options) else None
    row = replace(row, retrieved=retrieved, generated=generated)
    if not isinstance(scenes, ScenesSettings):  # no other corpus knows its objects
        return row
    draws, branches = kind.draws_with(**options), kind.branches_with(**options)
    recognised = recognised_job(trained, corpus, settings, languages, scenes) if draws else None
    senses = senses_job(trained, corpus, settings) if branches and scenes.twins else None
    return replace(row, recognised=recognised, senses=senses)


def reranker_row(recipe: Recipe, workspace: Workspace) -> Row | None:
    """`vse.reranker`, trained with its own settings and tested on the first results of `vse.model`.

    Returns:
        None if there is none, its row is not among those trained, or `vse.model` is not one that it can rerank.
    """
    settings, model = recipe.vse, recipe.vse.reranker.get("model")
    name = str(recipe.vse.reranker.get("row"))
    indexed = model_class(settings.model).score_with(**settings.options) == "inner product"
    if not indexed or model in (None, settings.model) or name not in (settings.only or settings.rows):
        return None
    plain = replace(settings, **ALONE, only=[name], seeds=settings.seeds[:1])
    second = reranker_settings(settings)
    (first_row,), (row,) = (vse_rows(replace(recipe, vse=one), workspace) for one in (plain, second))
    corpus = corpus_job(recipe, workspace)
    index = index_job(first_row.job, corpus, plain)
    job = rerank_job(f"rerank-{settings.model}-{second.model}-{name}-{row.seed}", index, row.job, corpus, second)
    system = f"{second.model} on the first {second.first_k} of {settings.model}"
    return replace(
        row, job=job, trained=(row.job, first_row.job), system=system, generated=None, recognised=None, senses=None
    )


def all_rows(recipe: Recipe, workspace: Workspace) -> list[Row]:
    """All that the stage trains and tests: the reranker's row, which takes longest, then those of the table."""
    second = reranker_row(recipe, workspace)
    return ([] if second is None else [second]) + vse_rows(recipe, workspace)


def vse_jobs(recipe: Recipe, workspace: Workspace, rows: Sequence[Row]) -> list[Job]:
    """The jobs of the stage, each after what it needs: captions of pictures with what writes them, then the rows'."""
    written = [job for job in synthesis_jobs(recipe, workspace).values() if job.stage == "vse"]
    return chain([*written, *(job for row in rows for job in row.jobs)], "vse")


def evaluation_of(settings: VseSettings) -> Evaluation:
    """How rows with these settings are tested: by the first of `EVALUATIONS` whose setting is not at its default."""
    default = VseSettings()
    chosen = (one for name, one in EVALUATIONS.items() if getattr(settings, name) != getattr(default, name))
    return next(chosen, as_trained)


def as_trained(training: Training) -> Row:
    """`vse.model`, with the ranks that its training ends with."""
    model = training.recipe.vse.model
    trained = training.train(model)
    return training.row(trained, [trained], model)


EVALUATIONS: dict[str, Evaluation] = {
    "fuse": fused, "translate": by_translation, "first": on_first_lists, "by_likelihood": by_likelihood,
    "folds": in_folds,
}  # fmt: skip
"""Setting of `vse` → how rows are tested where it is not at its default."""
_NOT_OF_TRAINING = {"rows", "only", "seeds", "first_k", "reranker", "unseen", "retrieved_captions", *EVALUATIONS}


def of_model(settings: VseSettings, model: str) -> VseSettings:
    """The settings for one of several models: of the options, those that are its own."""
    own = option_names(model_class(model))
    plain = {key: one for key, one in settings.options.items() if key in own}
    return replace(settings, model=model, options=plain, start=settings.start if model == settings.model else [])


def vse(recipe: Recipe, workspace: Workspace, force: bool = False) -> None:
    """Run the stage, preparing the corpus if necessary."""
    rows, settings = all_rows(recipe, workspace), recipe.vse
    require_segmenters(settings)
    image_arguments(settings)  # refuses an image encoder that is not there, before anything is prepared
    jobs = vse_jobs(recipe, workspace, rows)
    workspace.expect([corpus_job(recipe, workspace)])
    workspace.expect(jobs, force)
    prepare_if_missing(recipe, workspace)
    for row in rows:  # check all inputs before anything is trained
        for job in needed(row.job, "vse"):
            workspace.require(job)
    _require_written(settings, read_captions(workspace.folder(corpus_job(recipe, workspace)) / "captions.parquet"))
    workspace.perform_many(jobs, force)
    for row in rows:
        metrics = workspace.manifest(row.job)["metrics"]
        for part, where in (("test", ""), ("folds", f", mean of {settings.folds} folds")):
            for language, scores in metrics.get(part, {}).items():
                recall = " ".join(f"{scores[f'{way}_r{k}']:.1f}" for way in ("t2i", "i2t") for k in (1, 5, 10))
                mean = scores["mean_recall"]
                detail(f"  {row.job.name}: {language}{where} R@1/5/10 text→image, image→text {recall}; mean {mean:.1f}")
    workspace.note(recipe.name, "vse", {row.job.name: row.job for row in rows})


def _require_written(settings: VseSettings, captions: Table) -> None:
    """Refuse, before the first row is trained, human captions of a row or of the test that the corpus does not have.

    Raises:
        RecipeError: there are none of a language, or fewer of each image than a slot draws at once.
    """
    training = captions_of_images(captions.select(np.flatnonzero(np.array(captions["split"][:]) == "train")))
    for name in settings.only or settings.rows:
        slots = [slot for text in settings.rows[name] for slot in parse_group(text)]
        written = [slot.language for slot in slots if slot.source == HUMAN]
        require_languages(captions, {"train": written}, f"vse.rows.{name}")
        require_enough(name, [parse_group(text) for text in settings.rows[name]], training)
        watched = watched_languages(settings, {slot.language for slot in slots})
        require_languages(captions, {"val": watched, "test": settings.test})
