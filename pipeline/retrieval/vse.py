"""Stage vse: a retrieval model for each row and seed, selected on validation, ranked on test."""

from collections.abc import Container, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset as Table
from datasets import concatenate_datasets

from data.captions import HUMAN, read_captions
from data.regions import RegionStore
from data.retrieval import RetrievalData, parse_group
from data.text import TextInput
from modules.retrieval import Retrieval
from modules.retrieval_models import model_class, option_names
from pipeline.corpus.prepare import corpus_job, pictures_of, prepare_if_missing, twins_of
from pipeline.drawing.dashboards import query_galleries
from pipeline.drawing.embeddings import JointSpace
from pipeline.errors import RecipeError
from pipeline.jobs.board import log_result
from pipeline.jobs.console import detail
from pipeline.jobs.job import Job, chain, needed
from pipeline.jobs.trainer import fit, log_folder, make_trainer
from pipeline.jobs.weights import load_best
from pipeline.jobs.workspace import Workspace
from pipeline.recipes.settings import Recipe, VseSettings, job_settings
from pipeline.retrieval.cautions import advise_on_regions, require_two_languages
from pipeline.retrieval.folds import in_folds
from pipeline.retrieval.fusion import fused
from pipeline.retrieval.model_files import save_model
from pipeline.retrieval.query_translation import by_translation
from pipeline.retrieval.ranks import folds_of, validation_scores, write_ranks
from pipeline.retrieval.reranking import index_job, on_first_lists, rerank_job
from pipeline.retrieval.rows import Evaluation, Row, Training, recall_headline
from pipeline.retrieval.twins import twin_scores
from pipeline.retrieval.words import files_of_words, require_read, start_words, text_input, vectors_of_row
from pipeline.translation.augment import synthesis_jobs

VERSION = 3  # 2: scores are in float32, under bf16-mixed too; 3: sentences outside the batch mask negatives


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
                return _vse_job(recipe, of_model(settings, model), name, seed, corpus, synthetic, workspace)

            row = evaluation_of(settings)(Training(recipe, workspace, corpus, name, seed, languages, train))
            if row.unseen and settings.unseen == "error":
                first = min(row.unseen)
                raise RecipeError(
                    f"vse.rows.{name} is tested in {first!r}, but reads only {', '.join(sorted(languages))}; leave "
                    f"{first!r} out of vse.test, the row out of vse.only, or set vse.unseen=mark"
                )
            rows.append(row)
    return rows


def reranker_row(recipe: Recipe, workspace: Workspace) -> Row | None:
    """`vse.reranker`, trained with its own settings and tested on the first results of `vse.model`.

    Returns:
        None if there is none, its row is not among those trained, or `vse.model` is not one that it can rerank.
    """
    settings, own = recipe.vse, dict(recipe.vse.reranker)
    name = own.pop("row", None)
    indexed = model_class(settings.model).score_with(**settings.options) == "inner product"
    if not indexed or own.get("model") in (None, settings.model) or name not in (settings.only or settings.rows):
        return None
    plain = replace(
        settings, reranker={}, only=[name], seeds=settings.seeds[:1], fuse=[], translate=None, first=None, folds=1
    )
    second = replace(plain, **{"options": {}, "pretrained": None, "pretrained_rate": 0.0, **own})
    (first_row,), (row,) = (vse_rows(replace(recipe, vse=one), workspace) for one in (plain, second))
    corpus = corpus_job(recipe, workspace)
    index = index_job(first_row.job, corpus, plain)
    job = rerank_job(f"rerank-{settings.model}-{second.model}-{name}-{row.seed}", index, row.job, corpus, second)
    system = f"{second.model} on the first {second.first_k} of {settings.model}"
    return replace(row, job=job, trained=(row.job, first_row.job), system=system)


def all_rows(recipe: Recipe, workspace: Workspace) -> list[Row]:
    """All that the stage trains and tests: the reranker's row, which takes longest, then those of the table."""
    second = reranker_row(recipe, workspace)
    return ([] if second is None else [second]) + vse_rows(recipe, workspace)


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
    "fuse": fused, "translate": by_translation, "first": on_first_lists, "folds": in_folds,
}  # fmt: skip
"""Setting of `vse` → how rows are tested where it is not at its default."""
_NOT_OF_TRAINING = {"rows", "only", "seeds", "first_k", "reranker", "unseen", *EVALUATIONS}


def of_model(settings: VseSettings, model: str) -> VseSettings:
    """The settings for one of several models: of the options, those that are its own."""
    own = option_names(model_class(model))
    return replace(settings, model=model, options={key: one for key, one in settings.options.items() if key in own})


def vse(recipe: Recipe, workspace: Workspace, force: bool = False) -> None:
    """Run the stage, preparing the corpus if necessary."""
    rows, settings = all_rows(recipe, workspace), recipe.vse
    jobs = chain([row.job for row in rows], "vse")
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


def _vse_job(
    recipe: Recipe, settings: VseSettings, row: str, seed: int, corpus: Job, synthetic: dict[str, Job],
    workspace: Workspace,
) -> Job:  # fmt: skip
    groups = [parse_group(text) for text in settings.rows[row]]
    sources = sorted({slot.source for group in groups for slot in group} - {HUMAN})
    _require_sources(row, sources, synthetic)
    types = dict.fromkeys(slot.type for group in groups for slot in group)
    if unknown := sorted(settings.type_weights.keys() - types.keys()):
        raise RecipeError(f"vse.type_weights names {unknown[0]!r}, but row {row} trains on {', '.join(types)}")
    require_two_languages(settings, row, groups)
    trained = {slot.language for group in groups for slot in group}
    settings = replace(settings, word_vectors=vectors_of_row(settings, row, trained))
    plain = {key: value for key, value in job_settings(settings).items() if key not in _NOT_OF_TRAINING}
    plain |= {"groups": settings.rows[row], "seed": seed} | files_of_words(recipe, settings, workspace)
    name = f"vse-{settings.model}-{row}-{seed}"

    def run(folder: Path, inputs: dict[str, Path]) -> dict[str, Any]:
        """Train, choose the best epoch, rank the test."""
        store = RegionStore(inputs["corpus"] / "regions", check_values=False)
        tables = [read_captions(inputs[place] / "captions.parquet") for place in ("corpus", *sources)]
        _require_training_images(tables[0], dict(zip(sources, tables[1:], strict=True)))
        captions = concatenate_datasets(tables)
        languages = sorted(trained | set(settings.test))
        text = text_input(settings, captions, types, folder)
        watched = _watched(settings, trained)
        _require_languages(captions, {"val": watched, "test": settings.test})
        data = RetrievalData(
            captions, store, text.encode, groups, languages, {"val": watched, "test": settings.test},
            settings.batch_size, seed, settings.steps, settings.trainer.workers,
        )  # fmt: skip
        arguments = _arguments(settings, store, text, languages)
        module = _module(settings, arguments, data.types, seed)
        advise_on_regions(module.model, store)
        folds_of(data, settings.folds, settings.test)  # before hours are spent
        started = start_words(module.model, recipe, settings, captions, types, text, folder)
        pictures, log_dir = pictures_of(inputs["corpus"]), log_folder(recipe, name, folder.name)
        best = fit(
            module, data, settings.trainer, folder, log_dir, settings.epochs, "val/rsum", seed, settings.clip,
            query_galleries(captions, watched, text.encode, store, pictures), settings.test,
        )  # fmt: skip
        load_best(module, best)
        make_trainer(settings.trainer).validate(module, data, verbose=False)
        validated = validation_scores(module.ranks)
        save_model(folder, settings.model, arguments, module.model)
        of_test = (captions, settings.test, text.encode, store, pictures, "test")
        shown = [*query_galleries(*of_test), *query_galleries(*of_test, kind=JointSpace)]
        make_trainer(settings.trainer, log_dir, callbacks=shown).test(module, data, verbose=False)
        twins = twins_of(inputs["corpus"])
        tested = write_ranks(folder, module.ranks)
        _log_result(log_dir, settings, row, seed, tested, validated)
        return {
            "test": tested, "val": validated,
            "twins": twin_scores(module, captions, store, text, twins, folder),
            "steps_an_epoch": len(data.train_dataloader()), "vocabulary": len(text),
            "parameters": sum(p.numel() for p in module.parameters()), **started,
        }  # fmt: skip

    inputs = {"corpus": corpus} | {source: synthetic[source] for source in sources}
    return Job(name, "vse", VERSION, plain, inputs, run, True, asdict(settings.trainer), recall_headline)


def _log_result(
    log_dir: Path, settings: VseSettings, row: str, seed: int, tested: Mapping[str, Mapping[str, float]],
    validated: Mapping[str, Mapping[str, float]],
) -> None:  # fmt: skip
    """A model's settings and figures in TensorBoard."""
    shown = {
        "model": settings.model, "trained on": row, "seed": seed, "learning_rate": settings.learning_rate,
        "dropout": settings.dropout, "dim": settings.dim, "batch_size": settings.batch_size,
        "epochs": settings.epochs, "loss": settings.loss, "margin": settings.margin,
    }  # fmt: skip
    results = {f"mean recall, {language}": scores["mean_recall"] for language, scores in tested.items()}
    results |= {"val rsum": sum(validated[language]["rsum"] for language in settings.select)}
    log_result(log_dir, settings.test, shown, results)


def _arguments(settings: VseSettings, store: RegionStore, text: TextInput, languages: list[str]) -> dict[str, Any]:
    return {
        "region_dim": store.dim, "vocabulary_size": len(text), "languages": languages, "dim": settings.dim,
        "word_dim": settings.word_dim, "dropout": settings.dropout, "pretrained": settings.pretrained,
        **settings.options,
    }  # fmt: skip


def _module(settings: VseSettings, arguments: dict[str, Any], types: list[str], seed: int) -> Retrieval:
    weights = [settings.type_weights.get(name, 0.0) for name in types] if settings.type_weights else None
    torch.manual_seed(seed)
    return (model_class(settings.model).module or Retrieval)(
        settings.model, arguments, settings.loss, settings.margin, weights, settings.warmup_epochs,
        settings.learning_rate, settings.decay_epoch, settings.decay, settings.test, settings.select,
        settings.drop_regions, settings.drop_words, settings.pretrained_rate, settings.caption_loss,
        settings.weight_decay,
    )  # fmt: skip


def _require_sources(row: str, sources: Sequence[str], synthetic: Mapping[str, Job]) -> None:
    """Refuse a row of captions that no job writes.

    Raises:
        RecipeError: there is none of a source.
    """
    for source in sources:
        if source not in synthetic:
            raise RecipeError(
                f"vse.rows.{row} trains on {source!r}, which augment.paths lacks ({', '.join(synthetic)})"
            )


def _require_training_images(human: Table, synthetic: Mapping[str, Table]) -> None:
    """Refuse synthetic captions of images that this corpus does not train on; they may come from another recipe.

    Raises:
        RecipeError: there is one.
    """
    rows = zip(human["image_id"][:], human["split"][:], strict=True)
    trained = {image_id for image_id, split in rows if split == "train"}
    for source, table in synthetic.items():
        if strangers := set(table["image_id"][:]) - trained:
            raise RecipeError(
                f"{source}: captions of {len(strangers)} images that are not in train here, first {min(strangers)!r}; "
                "use captions written for the same split (augment.captions)"
            )


def _require_written(settings: VseSettings, captions: Table) -> None:
    """Refuse, before the first row is trained, human captions of a row or of the test that the corpus does not have.

    Raises:
        RecipeError: there are none of a language.
    """
    for name in settings.only or settings.rows:
        slots = [slot for text in settings.rows[name] for slot in parse_group(text)]
        written = [slot.language for slot in slots if slot.source == HUMAN]
        _require_languages(captions, {"train": written}, f"vse.rows.{name}")
        watched = _watched(settings, {slot.language for slot in slots})
        _require_languages(captions, {"val": watched, "test": settings.test})


def _watched(settings: VseSettings, trained: Container[str]) -> list[str]:
    """Languages that a model is validated in: those of its test that it learned or is selected by."""
    return [language for language in settings.test if language in trained or language in settings.select]


def _require_languages(captions: Table, wanted: Mapping[str, Sequence[str]], key: str = "vse.test") -> None:
    """Refuse a language that a split has no human caption in, and name the setting that wants it.

    Raises:
        RecipeError: there is one.
    """
    columns = (captions[name][:] for name in ("split", "language", "source"))
    found = {(split, language) for split, language, source in zip(*columns, strict=True) if source == HUMAN}
    for split, languages in wanted.items():
        for language in languages:
            if (split, language) not in found:
                has = sorted(other for where, other in found if where == split)
                raise RecipeError(
                    f"{key} names {language!r}, but the corpus has no human caption of it for {split}; it has "
                    f"{', '.join(has) or 'none'}; name another, or give pictures of that split captions"
                )
