"""The job that trains a retrieval model on one training configuration with one seed, and ranks the test by it."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset as Table
from datasets import concatenate_datasets

from data.batches.retrieval import RetrievalData
from data.batches.slots import Slot, parse_group
from data.batches.taught import TEXT
from data.captions.checks import read_in_validation, require_languages, require_training_images
from data.captions.table import HUMAN, read_captions
from data.pictures.pixels import PixelStore
from data.pictures.regions import RegionStore
from data.text.text_inputs import TextInput
from modules.pretrained.interpolation import interpolate, weights_of
from modules.retrieval_models import model_class, option_names
from modules.training.ranked import EncodedModule
from modules.training.retrieval import Retrieval
from pipeline.corpus.prepare import about_corpus, pictures_of
from pipeline.engine.job import Job
from pipeline.engine.workspace import Workspace
from pipeline.errors import RecipeError
from pipeline.recipes.overlays import overlaid, teacher_settings, untrained
from pipeline.recipes.retrieval_settings import TrainingSettings, VseSettings, slots_in
from pipeline.recipes.settings import Recipe
from pipeline.recipes.trainer_settings import job_settings
from pipeline.recipes.typed import names_of
from pipeline.retrieval.preconditions import (
    advise_on_regions,
    require_drawn,
    require_language_of_path,
    require_pairs,
    watched_languages,
)
from pipeline.retrieval.probes import language_probe, twin_scores
from pipeline.retrieval.ranks import ModelTest, folds_of, validation_scores, write_ranks
from pipeline.retrieval.rows import Row, languages_of, recall_headline
from pipeline.retrieval.weights import start_network, start_scale, start_weights
from pipeline.retrieval.words import files_read, sentence_jobs, start_words, text_input, vectors_of_row
from pipeline.training.model_files import load_best, save_model
from pipeline.training.tensorboard import log_result
from pipeline.training.trainer import evaluate_split, fit, log_folder, make_trainer
from pipeline.translation.leakage import lenders_of, refuse_seen_images
from pipeline.vectors.images import IMAGES, encoder_arguments, images_in, images_to_read
from pipeline.vectors.teaching import taught_jobs, with_sentences, with_taught
from pipeline.visualization.dashboards import query_galleries

VERSION = 3  # 2: scores are in float32, under bf16-mixed too; 3: sentences outside the batch mask negatives


@dataclass(frozen=True)
class Training:
    """What one row is trained on, before an evaluation decides which models are trained and how they are tested.

    Attributes:
        synthetic: path → the job that writes its captions.
        translators: gives the recipe's translators by `system-direction`.
        pictures: gives a digest of the corpus's pictures, if a model reads them.
        name: of `vse.rows`.
    """

    recipe: Recipe
    workspace: Workspace
    corpus: Job
    synthetic: Mapping[str, Job]
    translators: Callable[[], Mapping[str, Job]]
    pictures: Callable[[], str | None]
    name: str
    seed: int

    @cached_property
    def settings(self) -> VseSettings:
        """Those that the row is trained with."""
        return self.recipe.vse.of_row(self.name)

    @property
    def languages(self) -> frozenset[str]:
        """Those that it is trained on (`languages_of`)."""
        return frozenset(languages_of(self.recipe.vse, self.name))

    def train(self, model: str) -> Job:
        """The job that trains a model on the row's captions; raises as `training_job`."""
        return training_job(self, of_model(self.settings, model))

    def tested(self, model: str) -> Row:
        """The line of a model, with the ranks that its training ends with; raises as `training_job`."""
        trained = self.train(model)
        return self.row(trained, [trained], model)

    def row(
        self, job: Job, trained: Collection[Job], system: str, languages: Collection[str] | None = None,
        unseen: Collection[str] | None = None,
    ) -> Row:  # fmt: skip
        """The line of the table.

        Args:
            languages: of its figures; None: all that are tested.
            unseen: which of them the models were not trained on; None: those without training captions.
        """
        shown = frozenset(self.recipe.vse.test if languages is None else languages)
        strange = shown - self.languages if unseen is None else frozenset(unseen)
        return Row(self.name, self.seed, job, tuple(trained), system, shown, strange)


def of_model(settings: VseSettings, model: str) -> VseSettings:
    """The settings for one of several models: of the options, those that are its own."""
    own = option_names(model_class(model))
    plain = {key: value for key, value in settings.options.items() if key in own}
    return replace(settings, model=model, options=plain, start=settings.start if model == settings.model else [])


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


def training_job(training: Training, settings: VseSettings) -> Job:
    """The job that trains a model with some settings, chooses the best epoch on validation, and ranks the test.

    Raises:
        RecipeError: the row can not be trained with these settings.
    """
    row, recipe, synthetic, corpus = training.name, training.recipe, training.synthetic, training.corpus
    if not settings.epochs:  # nothing is drawn, and nothing of how it would be trained counts
        training = replace(training, seed=1)
        settings = replace(untrained(settings), rows={**settings.rows, row: []})
    mix = _mix(settings, row, synthetic)
    require_pairs(settings, row, mix.groups)
    teacher = _teacher(training, settings)
    starts = [training_job(training, overlaid(settings, start)) for start in settings.start]
    settings = replace(settings, word_vectors=vectors_of_row(recipe, settings, row, mix.languages))
    files, digests = files_read(settings, training.workspace), training.workspace.digests
    plain = {key: value for key, value in job_settings(settings).items() if key in names_of(TrainingSettings)}
    for name, used in (("teaching_contrast", settings.teacher), ("average", settings.average)):
        if not used:
            del plain[name]
    plain |= {"groups": settings.rows[row], "seed": training.seed} | files
    tables = {"corpus": corpus} | {source: synthetic[source] for source in mix.sources}
    network = files.get("pretrained")  # its pictures come before the trainings that come first: there may be none
    inputs = tables | images_to_read(settings, corpus, training.pictures, network, teacher, digests)
    taught = taught_jobs(slots_in(settings.rows[row]), settings, teacher, corpus, synthetic)
    inputs |= sentence_jobs(settings, network, tables, taught) | taught
    inputs |= {f"start-{number}": start for number, start in enumerate(starts)}
    paths = dict.fromkeys(slot.source.removeprefix(TEXT) for slot in slots_in(settings.rows[row]))
    borrowed = [job for path, job in synthetic.items() if path in paths and job.inputs["corpus"].key != corpus.key]
    inputs |= lenders_of(borrowed, corpus)
    run = _Run(recipe, settings, row, training.seed, mix)
    version, runtime = VERSION + model_class(settings.model).changes, asdict(settings.trainer)
    return Job(run.name, "vse", version, plain, inputs, run, True, runtime, recall_headline)


def _teacher(training: Training, settings: VseSettings) -> Job | None:
    """The job that trains the teacher of a training with some settings, with the same seed; None: it has none."""
    if not settings.teacher:
        return None
    of_teacher = teacher_settings(training.recipe.vse, settings.teacher)
    if (score := model_class(of_teacher.model).score_with(**of_teacher.options)) != "inner product":
        raise RecipeError(
            f"vse.teacher is {of_teacher.model}, whose score is of {score}, not an inner product of single vectors; "
            "take another model (san, dan, vse-inf, dual-encoder …)"
        )
    return training_job(replace(training, name=settings.teacher["row"]), of_model(of_teacher, of_teacher.model))


@dataclass(frozen=True)
class _Run:
    """The work of a training job.

    Attributes:
        row: of `vse.rows`.
        mix: what it is trained on.
    """

    recipe: Recipe
    settings: VseSettings
    row: str
    seed: int
    mix: _Mix

    @property
    def name(self) -> str:
        """Of the job."""
        return f"vse-{self.settings.model}-{self.row}-{self.seed}"

    @property
    def languages(self) -> list[str]:
        """Those that the model is trained or tested in."""
        return sorted(self.mix.languages | set(self.settings.test))

    @property
    def watched(self) -> list[str]:
        """Those that it is validated in."""
        return watched_languages(self.settings, self.mix.languages)

    def __call__(self, folder: Path, inputs: dict[str, Path]) -> dict[str, Any]:
        """Train, choose the best epoch, rank the test."""
        settings, mix = self.settings, self.mix
        store, captions = with_sentences(images_in(inputs), inputs), _captions(inputs, mix)
        text = text_input(settings, captions, mix.types, folder, inputs)
        data = self._data(captions, store, text, inputs)
        arguments = self._arguments(store, text)
        module = self._module(arguments, data.types)
        advise_on_regions(module.model, store)
        started = start_words(module.model, settings, captions, mix.types, text, folder)
        if settings.image_encoder is not None and module.model.image_encoder is not None:
            module.model.image_encoder.load(settings.image_encoder)
        start_network(module, settings, inputs.get(IMAGES))
        start_weights(module.model, [inputs[f"start-{number}"] for number in range(len(settings.start))])
        start_scale(module)
        began = weights_of(module) if settings.interpolate else {}
        log_dir = log_folder(self.recipe, self.name, folder.name)
        pictures = pictures_of(inputs["corpus"])
        galleries = partial(query_galleries, captions, encode=text.encode, store=store, pictures=pictures)
        epochs, chosen = settings.epochs + module.model.pretrain_epochs, dict[str, int]()
        if settings.epochs:
            best = fit(
                module, data, settings.trainer, folder, log_dir, epochs, module.selects, self.seed, settings.clip,
                galleries(self.watched), settings.test, settings.average,
            )  # fmt: skip
            chosen = {"epoch": load_best(module, best), "epochs": epochs}
        trained = [weight.numel() for weight in module.model.parameters() if weight.requires_grad]
        shares = interpolate(module, began, settings.interpolate, partial(self._validated, module, data))
        module.finish()
        save_model(folder, settings.model, arguments, module.model)
        self._validated(module, data)
        validated = validation_scores(module.ranks)
        shown = make_trainer(settings.trainer, log_dir, callbacks=galleries(settings.test, split="test"))
        evaluate_split(shown, "test", module, data)
        tested = write_ranks(folder, module.ranks)
        self._log_result(log_dir, tested, validated)
        test = ModelTest(EncodedModule(module.model, settings.test), text, captions, store, settings.trainer)
        twins = about_corpus(inputs["corpus"])["twins"]
        return {
            "test": tested, "val": validated, "twins": twin_scores(test, twins, folder),
            "steps_an_epoch": len(data.train_dataloader()) if settings.epochs else 0, "vocabulary": len(text),
            "parameters": sum(p.numel() for p in module.model.parameters()),
            "trained_parameters": sum(trained) if settings.epochs else 0,
            **({"interpolated": shares} if shares else {}), **started, **chosen,
            **language_probe(module.model, captions, text, mix.languages),
        }  # fmt: skip

    def _validated(self, module: Retrieval, data: RetrievalData) -> float:
        """Validate; the sum of rsum by which the model is selected."""
        evaluate_split(make_trainer(self.settings.trainer), "val", module, data)
        scores = validation_scores(module.ranks)
        return sum(scores[language]["rsum"] for language in self.settings.select)

    def _data(self, captions: Table, store: RegionStore, text: TextInput, inputs: Mapping[str, Path]) -> RetrievalData:
        """Batches of training, validation and test; RecipeError, before hours are spent, where it cannot be tested."""
        settings, pixels = self.settings, inputs.get("pixels")
        require_languages(captions, {"val": self.watched, "test": settings.test})
        held_out = {"val": read_in_validation(captions, self.watched, settings.test), "test": settings.test}
        data = RetrievalData(
            captions, store, text, self.mix.groups, self.languages, held_out, settings.batch_size, self.seed,
            settings.steps, settings.trainer.workers, PixelStore(pixels) if pixels else None, settings.trainer.regions,
        )  # fmt: skip
        folds_of(data, settings.folds, settings.test)
        return data

    def _arguments(self, store: RegionStore, text: TextInput) -> dict[str, Any]:
        """Those that the model is made with."""
        settings = self.settings
        arguments = {"region_dim": store.dim, "vocabulary_size": len(text), "languages": self.languages}
        arguments |= {name: getattr(settings, name) for name in ("dim", "word_dim", "dropout", "pretrained")}
        if settings.pretrained_vectors != "words":  # a model that reads a vector a sentence
            arguments |= {name: getattr(settings, name) for name in ("pretrained_vectors", "pretrained_layer")}
        return arguments | encoder_arguments(settings) | settings.options

    def _module(self, arguments: dict[str, Any], types: list[str]) -> Retrieval:
        settings = self.settings
        weights = [settings.type_weights.get(name, 0.0) for name in types] if settings.type_weights else None
        torch.manual_seed(self.seed)
        return (model_class(settings.model).module() or Retrieval)(
            settings.model, arguments, settings.loss, settings.margin, weights, settings.warmup_epochs,
            settings.learning_rate, settings.decay_epoch, settings.decay, settings.test, settings.select,
            settings.drop_regions, settings.drop_words, settings.pretrained_rate, settings.caption_loss,
            settings.weight_decay, settings.negatives, settings.distance, settings.decay_every,
            settings.image_encoder_rate, settings.cached_chunk,
            [f"/{TEXT}" in name for name in types], settings.teaching_contrast, settings.warmup_steps,
        )  # fmt: skip

    def _log_result(
        self, log_dir: Path, tested: Mapping[str, Mapping[str, float]], validated: Mapping[str, Mapping[str, float]]
    ) -> None:
        """The model's settings and figures in TensorBoard."""
        settings = self.settings
        names = ("learning_rate", "dropout", "dim", "batch_size", "epochs", "loss", "margin")
        shown = {"model": settings.model, "trained on": self.row, "seed": self.seed}
        shown |= {name: getattr(settings, name) for name in names}
        results = {f"mean recall, {language}": scores["mean_recall"] for language, scores in tested.items()}
        results |= {"val rsum": sum(validated[language]["rsum"] for language in settings.select)}
        log_result(log_dir, settings.test, shown, results)


def _mix(settings: VseSettings, row: str, synthetic: Mapping[str, Job]) -> _Mix:
    """The caption mix of a row; RecipeError where its captions are not written, or weights are of others."""
    groups = [parse_group(text) for text in settings.rows[row]]
    require_drawn(row, groups)
    slots = slots_in(settings.rows[row])
    types = list(dict.fromkeys(slot.type for slot in slots))
    read = {slot.source for slot in slots} - {HUMAN}
    sources = sorted(source for source in read if not source.startswith(TEXT))
    if (taught := sorted(read - {*sources})) and not settings.teacher:
        raise RecipeError(f"vse.rows.{row} has {taught[0]!r}, but no teacher whose vectors it would learn; "
                          f"set it in vse.row_settings.{row}, with model: student")  # fmt: skip
    for source in (*sources, *(name.removeprefix(TEXT) for name in taught if ":" in name.removeprefix(TEXT))):
        if source not in synthetic:
            raise RecipeError(
                f"vse.rows.{row} trains on {source!r}, which augment.paths lacks ({', '.join(synthetic)})"
            )
    require_language_of_path(row, slots)
    if unknown := sorted(settings.type_weights.keys() - set(types)):
        raise RecipeError(f"vse.type_weights names {unknown[0]!r}, but row {row} trains on {', '.join(types)}")
    return _Mix(groups, types, sources, frozenset(slot.language for slot in slots))


def _captions(inputs: Mapping[str, Path], mix: _Mix) -> Table:
    """The caption table, human and synthetic."""
    refuse_seen_images(inputs, "the borrowed captions (augment.captions): their writer", ("pairs", "captions"))
    tables = [read_captions(inputs[place] / "captions.parquet", tokens=True) for place in ("corpus", *mix.sources)]
    require_training_images(tables[0], dict(zip(mix.sources, tables[1:], strict=True)))
    slots = [slot for group in mix.groups for slot in group]
    return concatenate_datasets(with_taught(tables, inputs, slots))
