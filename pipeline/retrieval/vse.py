"""Stage vse: a retrieval model for each row and seed, selected on validation, ranked on test; captions by one."""

from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset as Table

from data.batches.mixing import CaptionsOfImages
from data.batches.slots import parse_group
from data.captions.checks import require_languages
from data.captions.table import HUMAN, listed_captions, training_images
from data.vectors.word_vectors import require_fasttext
from modules.pretrained.adapters import require_peft
from modules.translators.beam import BeamSettings
from pipeline.engine.console import debug
from pipeline.engine.files import require_network
from pipeline.engine.job import Job
from pipeline.engine.workspace import Workspace
from pipeline.recipes.overlays import trainings_beside, trainings_of
from pipeline.recipes.retrieval_settings import VseSettings, slots_in
from pipeline.recipes.settings import Recipe
from pipeline.recipes.systems import parse_path
from pipeline.retrieval.fusion import fused, in_folds
from pipeline.retrieval.generation import captions_of_corpus
from pipeline.retrieval.preconditions import (
    advise_on_selection,
    require_enough,
    require_equal_folds,
    require_segmenters,
    watched_languages,
)
from pipeline.retrieval.query_translation import by_translation
from pipeline.retrieval.reranking import by_likelihood, on_first_lists
from pipeline.retrieval.rows import Row
from pipeline.retrieval.training import Training
from pipeline.translation.augment import captions_headline, leave_written
from pipeline.vectors.images import encoder_arguments, images_in, test_inputs
from pipeline.vectors.teaching import require_taught

CAPTIONS_VERSION = 1
Evaluation = Callable[[Training], Row]


def evaluation_of(settings: VseSettings) -> Evaluation:
    """How rows with these settings are tested: by the first of `EVALUATIONS` whose setting is not at its default."""
    default = VseSettings()
    chosen = (
        evaluation for name, evaluation in EVALUATIONS.items() if getattr(settings, name) != getattr(default, name)
    )
    return next(chosen, as_trained)


def as_trained(training: Training) -> Row:
    """`vse.model`, with the ranks that its training ends with."""
    return training.tested(training.settings.model)


EVALUATIONS: dict[str, Evaluation] = {
    "fuse": fused, "translate": by_translation, "first": on_first_lists, "by_likelihood": by_likelihood,
    "folds": in_folds,
}  # fmt: skip
"""Setting of `vse` → how rows are tested where it is not at its default."""


def require_parts(recipe: Recipe) -> None:
    """Refuse, before anything is prepared, networks and segmenters of any training that are not there.

    Raises:
        ModelError, RecipeError: one is not.
    """
    sections = {"vse": recipe.vse, **trainings_beside(recipe)}
    trainings = [each for key, section in sections.items() for each in trainings_of(section, key).values()]
    for settings in trainings:
        require_segmenters(settings)
        if settings.words == "fasttext":
            require_fasttext(settings.word_dim)
        for setting in ("pretrained", "image_encoder"):
            if (network := getattr(settings, setting)) is not None:
                require_network(network, f"vse.{setting}")
        encoder_arguments(settings)
        if "lora" in (settings.options.get("text"), settings.options.get("image")):
            require_peft()


def say_recall(workspace: Workspace, rows: Iterable[Row], folds: int) -> None:
    """With `--verbose`, recall of finished rows on test, and its means over folds."""
    for row in rows:
        metrics = workspace.manifest(row.job)["metrics"]
        for part, where in (("test", ""), ("folds", f", mean of {folds} folds")):
            for language, scores in metrics.get(part, {}).items():
                recall = " ".join(f"{scores[f'{way}_r{k}']:.1f}" for way in ("t2i", "i2t") for k in (1, 5, 10))
                mean = scores["mean_recall"]
                debug(f"  {row.job.name}: {language}{where} R@1/5/10 text→image, image→text {recall}; mean {mean:.1f}")


def require_written(settings: VseSettings, captions: Table, corpus: Path) -> None:
    """Refuse, before the first row is trained, captions and sentences of a row or the test that the corpus has not.

    Raises:
        RecipeError: there are none of a language, or fewer of each image than a slot draws at once.
    """
    if settings.folds > 1:
        rows = zip(*(captions[name][:] for name in ("image_id", "split", "language")), strict=True)
        tested = {image for image, split, language in rows if split == "test" and language in settings.test}
        require_equal_folds(settings.folds, len(tested))
    training = CaptionsOfImages(captions.select(np.flatnonzero(np.array(captions["split"][:]) == "train")))
    for name in settings.only or settings.rows:
        slots = slots_in(settings.rows[name])
        groups = [parse_group(text) for text in settings.rows[name]]
        require_taught(settings.of_row(name), name, groups, corpus)
        written = [slot.language for slot in slots if slot.source == HUMAN]
        require_languages(captions, {"train": written}, f"vse.rows.{name}")
        require_enough(name, groups, training)
        learned = {slot.language for slot in slots}
        advise_on_selection(settings.of_row(name), name, learned, captions)
        watched = watched_languages(settings.of_row(name), learned)
        require_languages(captions, {"val": watched, "test": settings.test})


def captions_job(recipe: Recipe, corpus: Job, model: Job, path: str) -> Job:
    """Write a caption of each training image that has a human one in any language; empty ones are counted, left out.

    It is of stage `vse`, since it needs a trained retrieval model. It leaves `captions.parquet`, as translators do.

    Args:
        model: the job that trains the model of `augment.captioner`.
        path: `caption:de`.
    """
    settings, trainer, (language,) = recipe.augment, recipe.vse.trainer, parse_path(path)[1]
    search = BeamSettings(settings.beam_size, settings.length_penalty)

    def run(folder: Path, inputs: dict[str, Path]) -> dict[str, Any]:
        """Write, and leave the captions."""
        human = listed_captions(inputs["corpus"] / "captions.parquet")
        images = training_images(human)
        written = captions_of_corpus(inputs["model"], images_in(inputs), images, [language], search, trainer)
        longer = "train the captioner longer (augment.captioner.epochs)"
        return leave_written(folder, path, written[language], human, inputs["corpus"], longer)

    plain = {"path": path, "search": asdict(search)}
    name, inputs = f"synthetic-{path.replace(':', '-')}", test_inputs(model, corpus)
    return Job(name, "vse", CAPTIONS_VERSION, plain, inputs, run, False, asdict(trainer), captions_headline)
