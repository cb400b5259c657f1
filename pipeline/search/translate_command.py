"""`translate`: a file through the translators of a recipe or of an exported model."""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from data.regions import RegionStore, write_regions
from pipeline.errors import RecipeError
from pipeline.graph import Graph
from pipeline.jobs.workspace import Workspace
from pipeline.recipes.settings import AugmentSettings, Recipe
from pipeline.recipes.systems import parse_path
from pipeline.search.exported_files import read_about
from pipeline.search.exported_model import ExportedModel
from pipeline.translation.translate import Request, Sight, translate, translate_lines


def translate_by_recipe(recipe: Recipe, workspace: Workspace, request: Request) -> None:
    """Translate a file line by line with a recipe's translators, its own or borrowed; see `translate`."""
    own = Graph(recipe, workspace).of_translators
    translate(own.recipe, workspace, request, own.translators, recipe.augment)


def translate_exported(model: Path, options: AugmentSettings, request: Request) -> None:
    """Translate a file line by line with the translators of an exported model; `images` are picture files.

    Args:
        model: its folder.
        options: beam, length penalty, batches and devices.
        request: what to translate.

    Raises:
        DataError: a picture cannot be read.
        RecipeError: there is no such translator, the model reads no pixels, or the files do not fit.
    """
    exported = ExportedModel.from_pretrained(model)
    if not (directions := request.directions):
        raise RecipeError(f"translate: {request.path!r} names one language; expected two or more, mt:en-de")
    system = parse_path(request.path)[0]
    with TemporaryDirectory() as folder:
        sight = Sight(
            lambda names: _regions(exported, names, Path(folder)),
            read_about(exported.folder).get("without_regions") == "captions",
            "is no file; give a picture, or leave its line out",
        )
        load = exported.translators.load
        translate_lines(request, lambda: [load(system, direction) for direction in directions], options, sight)


def _regions(exported: ExportedModel, names: Sequence[str], folder: Path) -> RegionStore:
    """The regions of those pictures that are files."""
    found = {name: exported.regions_of(name) for name in names if Path(name).is_file()}
    nothing = (np.zeros((1, exported.model.input_dim)), np.zeros((1, 4)))
    pictures = found or {"no picture": nothing}  # a store has one image or more
    write_regions(folder, list(pictures), pictures.values())
    return RegionStore(folder, check_values=False)
