"""Captions of the training images by a retrieval model with a decoder: the source `caption:de`."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from data.captions import Caption, read_captions, write_captions
from modules.beam import BeamSettings
from pipeline.errors import RecipeError
from pipeline.jobs.job import Job
from pipeline.recipes.settings import Recipe
from pipeline.recipes.systems import parse_path
from pipeline.retrieval.captioning import Writer
from pipeline.retrieval.images import images_in, images_of
from pipeline.translation.augment import diversity, refuse_held_out

VERSION = 1


def captions_job(recipe: Recipe, corpus: Job, model: Job, path: str) -> Job:
    """Write a caption of each training image that has a human one in any language; empty ones are counted, left out.

    It is of stage `vse`, since it needs a trained retrieval model. It leaves `captions.parquet`, as translators do.

    Args:
        recipe: whose.
        corpus: the job that prepares its data.
        model: the job that trains the model of `augment.captioner`.
        path: `caption:de`.
    """
    settings, trainer, (language,) = recipe.augment, recipe.vse.trainer, parse_path(path)[1]
    search = BeamSettings(settings.beam_size, settings.length_penalty)

    def run(folder: Path, inputs: dict[str, Path]) -> dict[str, Any]:
        """Write, and leave the captions."""
        human = [Caption(**row) for row in read_captions(inputs["corpus"] / "captions.parquet")]
        train = [one for one in human if one.split == "train"]
        images = list(dict.fromkeys(one.image_id for one in train))
        written = Writer(inputs["model"], images_in(inputs), trainer, search).write(images, language)
        synthetic = [
            Caption(image, f"{image}|{path}", language, text, "train", path)
            for image, text in written.items() if text.strip()
        ]  # fmt: skip
        refuse_held_out(synthetic, human)
        if not synthetic:
            raise RecipeError(f"{path}: every caption is empty; train the captioner longer (augment.captioner.epochs)")
        write_captions(synthetic, folder / "captions.parquet")
        return diversity(train, synthetic, language) | {"empty": len(written) - len(synthetic)}

    plain = {"path": path, "search": asdict(search)}
    inputs = {"corpus": corpus, "model": model} | images_of(model)
    return Job(
        f"synthetic-{path.replace(':', '-')}", "vse", VERSION, plain, inputs, run, False, asdict(trainer), _headline
    )


def _headline(figures: Mapping[str, Any]) -> str:
    """How many captions, and how many are empty, as text."""
    empty = f"; {figures['empty']:,} empty ones are left out" if figures["empty"] else ""
    return f"{figures['captions']:,} captions{empty}"
