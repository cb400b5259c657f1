"""The job that trains a retrieval model on one training configuration with one seed, and ranks the test by it."""

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset as Table
from datasets import concatenate_datasets
from torch import nn

from data.captions import HUMAN, read_captions
from data.pixels import PixelStore
from data.regions import RegionStore
from data.retrieval import RetrievalData
from data.slots import Slot, parse_group
from data.text import TextInput
from modules.retrieval_models import model_class
from modules.training.retrieval import Retrieval
from pipeline.corpus.prepare import pictures_of, twins_of
from pipeline.engine.artifacts import read_tensors
from pipeline.engine.job import Job
from pipeline.engine.workspace import Workspace
from pipeline.errors import RecipeError
from pipeline.recipes.overlays import overlaid
from pipeline.recipes.retrieval_settings import TrainingSettings, VseSettings
from pipeline.recipes.settings import Recipe
from pipeline.recipes.trainer_settings import job_settings
from pipeline.recipes.typed import names_of
from pipeline.retrieval.images import (
    files_of_images,
    image_arguments,
    images_in,
    pictures_to_read,
    start_images,
)
from pipeline.retrieval.preconditions import advise_on_regions, require_drawn, require_pairs
from pipeline.retrieval.probes import language_probe, twin_scores
from pipeline.retrieval.ranks import folds_of, validation_scores, write_ranks
from pipeline.retrieval.rows import recall_headline
from pipeline.retrieval.words import files_of_words, sentence_jobs, start_words, text_input, vectors_of_row
from pipeline.training.model_files import load_best, save_model
from pipeline.training.tensorboard import log_result
from pipeline.training.trainer import fit, log_folder, make_trainer
from pipeline.visualization.dashboards import query_galleries
from pipeline.visualization.embeddings import JointSpace

VERSION = 3  # 2: scores are in float32, under bf16-mixed too; 3: sentences outside the batch mask negatives


_Seen = tuple[Callable[[str, str], list[int]], RegionStore, Mapping[str, Path]]  # how captions and images are read
_Scores = dict[str, dict[str, float]]  # figures by language


@dataclass(frozen=True)
class _Mix:
    """The caption mix of a training configuration.

    Attributes:
        groups: of slots, which fill batches in equal shares.
        types: of its captions, `en/human`, each once.
        sources: of its synthetic captions.
        languages: of its captions.
    """

    groups: list[tuple[Slot, ...]]
    types: list[str]
    sources: list[str]
    languages: frozenset[str]


def training_job(
    recipe: Recipe, settings: VseSettings, row: str, seed: int, corpus: Job, synthetic: Mapping[str, Job],
    workspace: Workspace, pictures: Callable[[], str | None],
) -> Job:  # fmt: skip
    """The job that trains a model, chooses the best epoch on validation, and ranks the test.

    Args:
        recipe: whose.
        settings: of the model.
        row: of `vse.rows`.
        seed: of its training.
        corpus: the job that prepares the captions and regions.
        synthetic: path → the job that writes captions.
        workspace: where fingerprints of files are kept.
        pictures: gives a digest of the corpus's pictures, if the model reads them.

    Raises:
        RecipeError: the row can not be trained with these settings.
    """
    mix = _mix(settings, row, synthetic)
    require_pairs(settings, row, mix.groups)
    settings = replace(settings, word_vectors=vectors_of_row(settings, row, mix.languages))
    files = files_of_words(recipe, settings, workspace) | files_of_images(settings, workspace)
    of_training = names_of(TrainingSettings)
    plain = {key: value for key, value in job_settings(settings).items() if key in of_training}
    plain |= {"groups": settings.rows[row], "seed": seed} | files
    name = f"vse-{settings.model}-{row}-{seed}"
    needed = _needed(settings, mix, corpus, synthetic, files.get("pretrained"), pictures)
    for number, one in enumerate(overlaid(settings, start) for start in settings.start):
        needed[f"start-{number}"] = training_job(recipe, one, row, seed, corpus, synthetic, workspace, pictures)

    def run(folder: Path, inputs: dict[str, Path]) -> dict[str, Any]:
        """Train, choose the best epoch, rank the test."""
        store, captions = images_in(inputs), _captions(inputs, mix)
        text = text_input(settings, captions, mix.types, folder, inputs)
        data = _data(settings, captions, store, text, mix, seed, inputs)
        arguments = _arguments(settings, store, text, sorted(mix.languages | set(settings.test)))
        module = _module(settings, arguments, data.types, seed)
        advise_on_regions(module.model, store)
        started = start_words(module.model, recipe, settings, captions, mix.types, text, folder)
        start_images(module.model, settings)
        start_weights(module.model, [inputs[f"start-{number}"] for number in range(len(settings.start))])
        log_dir, epochs = log_folder(recipe, name, folder.name), settings.epochs + module.model.pretrain_epochs
        watched, seen = watched_languages(settings, mix.languages), (text.encode, store, pictures_of(inputs["corpus"]))
        best = fit(
            module, data, settings.trainer, folder, log_dir, epochs, module.selects, seed, settings.clip,
            query_galleries(captions, watched, *seen), settings.test,
        )  # fmt: skip
        load_best(module, best)
        save_model(folder, settings.model, arguments, module.model)
        tested, validated = _tested(module, data, settings, captions, seen, folder, log_dir)
        _log_result(log_dir, settings, row, seed, tested, validated)
        return {
            "test": tested, "val": validated,
            "twins": twin_scores(module, captions, store, text, twins_of(inputs["corpus"]), folder),
            "steps_an_epoch": len(data.train_dataloader()), "vocabulary": len(text),
            "parameters": sum(p.numel() for p in module.parameters()),
            **started, **language_probe(module.model, captions, text, mix.languages),
        }  # fmt: skip

    return Job(name, "vse", VERSION, plain, needed, run, True, asdict(settings.trainer), recall_headline)


def _needed(
    settings: VseSettings, mix: _Mix, corpus: Job, synthetic: Mapping[str, Job], text_model: str | None,
    pictures: Callable[[], str | None],
) -> dict[str, Job]:  # fmt: skip
    """The jobs that a training reads, but for those that it starts from, in the order in which they are to be done."""
    tables = {"corpus": corpus} | {source: synthetic[source] for source in mix.sources}
    # pictures come before the trainings that come first: there may be none
    return tables | pictures_to_read(settings, corpus, pictures) | sentence_jobs(settings, text_model, tables)


def _mix(settings: VseSettings, row: str, synthetic: Mapping[str, Job]) -> _Mix:
    """The caption mix of a row; RecipeError where its captions are not written, or weights are of others."""
    groups = [parse_group(text) for text in settings.rows[row]]
    require_drawn(row, groups)
    slots = [slot for group in groups for slot in group]
    sources, types = sorted({slot.source for slot in slots} - {HUMAN}), list(dict.fromkeys(slot.type for slot in slots))
    for source in sources:
        if source not in synthetic:
            raise RecipeError(
                f"vse.rows.{row} trains on {source!r}, which augment.paths lacks ({', '.join(synthetic)})"
            )
    if unknown := sorted(settings.type_weights.keys() - set(types)):
        raise RecipeError(f"vse.type_weights names {unknown[0]!r}, but row {row} trains on {', '.join(types)}")
    return _Mix(groups, types, sources, frozenset(slot.language for slot in slots))


def _tested(
    module: Retrieval, data: RetrievalData, settings: VseSettings, captions: Table, seen: _Seen, folder: Path,
    log_dir: Path,
) -> tuple[_Scores, _Scores]:  # fmt: skip
    """Figures of the test and of validation, by language, with the weights that have been chosen."""
    make_trainer(settings.trainer).validate(module, data, verbose=False)
    validated = validation_scores(module.ranks)
    of_test = (captions, settings.test, *seen, "test")
    shown = [*query_galleries(*of_test), *query_galleries(*of_test, kind=JointSpace)]
    make_trainer(settings.trainer, log_dir, callbacks=shown).test(module, data, verbose=False)
    return write_ranks(folder, module.ranks), validated


def _captions(inputs: Mapping[str, Path], mix: _Mix) -> Table:
    """The caption table, human and synthetic."""
    tables = [read_captions(inputs[place] / "captions.parquet") for place in ("corpus", *mix.sources)]
    _require_training_images(tables[0], dict(zip(mix.sources, tables[1:], strict=True)))
    return concatenate_datasets(tables)


def _data(
    settings: VseSettings, captions: Table, store: RegionStore, text: TextInput, mix: _Mix, seed: int,
    inputs: Mapping[str, Path],
) -> RetrievalData:  # fmt: skip
    """Batches of training, validation and test; RecipeError, before hours are spent, where it cannot be tested."""
    pictures = PixelStore(inputs["pixels"]) if "pixels" in inputs else None
    held_out = {"val": watched_languages(settings, mix.languages), "test": settings.test}
    require_languages(captions, held_out)
    data = RetrievalData(
        captions, store, text.encode, mix.groups, sorted(mix.languages | set(settings.test)), held_out,
        settings.batch_size, seed, settings.steps, settings.trainer.workers, pictures,
    )  # fmt: skip
    folds_of(data, settings.folds, settings.test)
    return data


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
        **_sentences(settings), **image_arguments(settings), **settings.options,
    }  # fmt: skip


def _sentences(settings: VseSettings) -> dict[str, Any]:
    """The arguments of a model that reads a vector a sentence."""
    if settings.pretrained_vectors == "words":
        return {}
    return {"pretrained_vectors": settings.pretrained_vectors, "pretrained_layer": settings.pretrained_layer}


def _module(settings: VseSettings, arguments: dict[str, Any], types: list[str], seed: int) -> Retrieval:
    weights = [settings.type_weights.get(name, 0.0) for name in types] if settings.type_weights else None
    torch.manual_seed(seed)
    return (model_class(settings.model).module() or Retrieval)(
        settings.model, arguments, settings.loss, settings.margin, weights, settings.warmup_epochs,
        settings.learning_rate, settings.decay_epoch, settings.decay, settings.test, settings.select,
        settings.drop_regions, settings.drop_words, settings.pretrained_rate, settings.caption_loss,
        settings.weight_decay, settings.negatives, settings.distance, settings.decay_every, settings.image_encoder_rate,
    )  # fmt: skip


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


def watched_languages(settings: VseSettings, trained: Container[str]) -> list[str]:
    """Languages that a model is validated in: those of its test that it learned or is selected by."""
    return [language for language in settings.test if language in trained or language in settings.select]


def require_languages(captions: Table, wanted: Mapping[str, Sequence[str]], key: str = "vse.test") -> None:
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


def start_weights(model: nn.Module, folders: Sequence[Path]) -> None:
    """Give a model the weights of trained ones; of a part that several have, those of the first.

    Args:
        model: gets them.
        folders: of the jobs that trained the others.

    Raises:
        RecipeError: a part has another shape, or nothing fits.
    """
    own = dict(model.state_dict(keep_vars=True))
    for folder in folders:
        given = read_tensors(folder / "weights.safetensors")
        if not own.keys() & given.keys() and own:
            raise RecipeError(f"vse.start: {folder} holds no part that the model lacks; leave it out")
        for name in sorted(own.keys() & given.keys()):
            if own[name].shape != given[name].shape:
                raise RecipeError(
                    f"vse.start: {name} has the shape {tuple(given[name].shape)} in {folder}, and "
                    f"{tuple(own[name].shape)} in this model; use equal sizes"
                )
            with torch.no_grad():
                own.pop(name).copy_(given[name])
