"""Captions of the training images by a retrieval model with a decoder: the source `caption:de`."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from data.captions import Caption, read_captions, write_captions
from modules.beam import BeamSettings
from pipeline.corpus.prepare import corpus_job
from pipeline.errors import RecipeError
from pipeline.jobs.job import Job
from pipeline.jobs.workspace import Workspace
from pipeline.recipes.settings import Recipe
from pipeline.recipes.starts import captioner_settings
from pipeline.recipes.systems import CAPTION, parse_path
from pipeline.retrieval.images import images_in, images_of
from pipeline.retrieval.vse import vse_rows
from pipeline.retrieval.written import Writer
from pipeline.translation.augment import diversity, refuse_held_out, writes_captions

VERSION = 1


def captioner_job(recipe: Recipe, workspace: Workspace) -> Job:
    """The job that trains the model of `augment.captioner`; it reads no captions that it writes itself.

    Raises:
        RecipeError: the row cannot be trained.
    """
    settings = captioner_settings(recipe.vse, recipe.augment.captioner)
    paths = [path for path in recipe.augment.paths if parse_path(path)[0] != CAPTION]
    (row,) = vse_rows(replace(recipe, vse=settings, augment=replace(recipe.augment, paths=paths)), workspace)[:1]
    return row.trained[0]


@writes_captions
def captions_job(recipe: Recipe, workspace: Workspace, path: str) -> Job:
    """Write a caption of each training image that has a human one in any language; empty ones are counted, left out.

    It is of stage `vse`, since it needs a trained retrieval model. It leaves `captions.parquet`, as translators do.

    Args:
        recipe: whose.
        workspace: its artifacts.
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
    model = captioner_job(recipe, workspace)
    inputs = {"corpus": corpus_job(recipe, workspace), "model": model} | images_of(model)
    return Job(
        f"synthetic-{path.replace(':', '-')}", "vse", VERSION, plain, inputs, run, False, asdict(trainer), _headline
    )


def _headline(figures: Mapping[str, Any]) -> str:
    """How many captions, and how many are empty, as text."""
    empty = f"; {figures['empty']:,} empty ones are left out" if figures["empty"] else ""
    return f"{figures['captions']:,} captions{empty}"
