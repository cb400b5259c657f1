"""`caption` and `imagine`: an exported model writes a caption of a picture, and draws the picture that it thinks of."""

import json
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from modules.retrieval_models.generated import drawn_pictures
from modules.translators.beam import BeamSettings
from pipeline.engine.console import info, info_aside, printable
from pipeline.engine.files import write_output
from pipeline.engine.workspace import Workspace
from pipeline.errors import RecipeError, as_recipe_error
from pipeline.export.exported_files import model_of
from pipeline.export.exported_model import ExportedModel
from pipeline.recipes.settings import Recipe
from pipeline.recipes.typed import located
from pipeline.retrieval.generation import written_captions
from pipeline.visualization.pictures import of_generator

ENLARGED = 256
"""Height and width of a drawn picture as it is shown; the network's own are smaller."""


def caption(
    recipe: Recipe, workspace: Workspace, model: Path | None, pictures: Sequence[str], language: str | None,
    beam: int, as_json: bool,
) -> None:  # fmt: skip
    """Print a caption of each picture, in a language or in each of the model's.

    The arguments are those of the command.

    Raises:
        RecipeError: the model has no decoder, or was not trained on the language; there is no picture.
    """
    if not pictures:
        raise RecipeError("caption: give a picture, or several")
    exported = given_model(recipe, workspace, model)
    exported = generating(exported, "writes") or exported
    for picture in pictures:
        regions = exported.regions_of(picture)[0][None]
        for code in exported.languages if language is None else [exported.require_language(language)]:
            text = captions_of_regions(exported, regions, code, beam)[0]
            if as_json:
                print(json.dumps({"picture": picture, "language": code, "caption": text}, ensure_ascii=False))
            else:
                print(f"{code}  {printable(text)}")


def imagine(
    recipe: Recipe, workspace: Workspace, model: Path | None, text: str | None, language: str | None,
    output: Path,
) -> None:  # fmt: skip
    """Draw a sentence and write the picture as a PNG.

    The arguments are those of the command; the seed of the noise is the recipe's.

    Raises:
        RecipeError: the model draws no pictures, there is no sentence, or the file cannot be written.
    """
    if not text or not text.strip():
        raise RecipeError("imagine: give a sentence")
    exported = given_model(recipe, workspace, model)
    picture = picture_of(exported, text, language, recipe.seed)
    if note := (generating(exported, "draws") or exported).reading(text, language).note:
        info_aside(note)
    content = BytesIO()
    picture.save(content, "PNG")
    write_output(output, content.getvalue(), "imagine: --output")
    info(f"wrote {output}")


def generating(exported: ExportedModel, what: Literal["writes", "draws"]) -> ExportedModel | None:
    """The exported model, or else its reranker, if it writes captions or draws pictures; None where neither does."""
    models = [exported] if exported.reranker is None else [exported, exported.reranker]
    return next((model for model in models if getattr(model.model, what)), None)


def captions_of_regions(
    exported: ExportedModel, regions: NDArray[np.floating], language: str, beam: int = 5
) -> list[str]:
    """Captions of pictures in one language, by beam search.

    Args:
        exported: the model, or one whose reranker writes captions.
        regions: of the pictures (N, R, D), as the model reads them.

    Raises:
        RecipeError: the model writes no captions, or does not know the language.
    """
    exported = generating(exported, "writes") or exported
    language = exported.require_language(language)
    with located(str(exported.folder)), as_recipe_error():
        return written_captions(exported.model, exported.text, regions, language, BeamSettings(beam))


def picture_of(exported: ExportedModel, text: str, language: str | None = None, seed: int = 0) -> Image.Image:
    """The picture that a model imagines of a sentence, enlarged.

    Raises:
        RecipeError: the model draws no pictures, or was not trained on the language.
    """
    exported = generating(exported, "draws") or exported
    language = exported.language_of(text) if language is None else exported.require_language(language)
    with located(str(exported.folder)), as_recipe_error():
        pictures = drawn_pictures(exported.model, exported.text.encode, [(text, language)], seed)
    return of_generator(pictures[0], ENLARGED)


def given_model(recipe: Recipe, workspace: Workspace, model: Path | None) -> ExportedModel:
    """The given model, or else the recipe's."""
    return ExportedModel.from_pretrained(model) if model else ExportedModel.load(model_of(recipe, workspace))
