"""What the library does in one call: train, export, load, index."""

from collections.abc import Sequence
from pathlib import Path

import torch

from data.processes import cores, require_main_guard
from pipeline.engine.machine_errors import quieten
from pipeline.engine.runner import Runner
from pipeline.engine.workspace import Workspace
from pipeline.errors import RecipeError, require_kind
from pipeline.export.export import export
from pipeline.export.exported_model import ExportedModel
from pipeline.gallery.gallery import Gallery
from pipeline.gallery.indexing import update_gallery
from pipeline.gallery.picture_sources import PictureFolder
from pipeline.graph import Graph
from pipeline.recipes.settings import Recipe
from pipeline.stages import STAGES, run_stages
from pipeline.training.model_files import require_float32


def train(recipe: Recipe, artifacts: str | Path | None = None, stages: Sequence[str] | None = None) -> None:
    """Run the stages of a recipe; what is finished is not repeated, what was stopped continues.

    Many captions and pictures are read by several processes, which import the main script: it must begin its work below
    `if __name__ == "__main__":`.

    Args:
        recipe: from `load_recipe`.
        artifacts: folder of all results; None: BILDWORT_ARTIFACTS, or `artifacts`.
        stages: some of `prepare`, `mmt`, `augment`, `vse`, `rerank`; None: all of them, in this order.

    Raises:
        DataError: data is missing or not as expected.
        ModelError: a network is missing or does not fit.
        RecipeError: there is no such stage, or the recipe cannot be done.

    Examples:
        >>> from pipeline.recipes.loading import load_recipe
        >>> train(load_recipe("scenes", networks=False), stages=["vsc"])
        Traceback (most recent call last):
            ...
        pipeline.errors.RecipeError: train: no stage 'vsc'; there are prepare, mmt, augment, vse, rerank
    """
    require_kind("train", recipe, Recipe, "a recipe, as load_recipe gives it")
    if isinstance(stages, str):
        raise RecipeError(f"train: stages is {stages!r}; expected a list of stages, [{stages!r}]")
    if unknown := [name for name in stages or () if name not in STAGES]:
        raise RecipeError(f"train: no stage {unknown[0]!r}; there are {', '.join(STAGES)}")
    require_float32()
    quieten()
    graph = Graph(recipe, Workspace(artifacts))
    runner = Runner(graph.workspace)
    gpus = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else []
    with torch.random.fork_rng(gpus):  # the caller's random numbers go on as if nothing had been trained
        run_stages([name for name in STAGES if stages is None or name in stages], graph, runner)


def export_model(recipe: Recipe, folder: str | Path, artifacts: str | Path | None = None) -> ExportedModel:
    """Write the best trained model of a recipe to a folder that can be moved and shared, with its translators.

    The best is the best on validation among those that know the most languages.

    Args:
        recipe: from `load_recipe`.
        folder: where to; it must not exist, or hold an exported model that is replaced.
        artifacts: as for `train`.

    Raises:
        RecipeError: nothing has been trained, or the folder holds something else.
    """
    require_kind("export_model", recipe, Recipe, "a recipe, as load_recipe gives it")
    return export(Graph(recipe, Workspace(artifacts)), Path(folder))


def load_model(name: str | Path, revision: str | None = None) -> ExportedModel:
    """An exported model, ready to be used.

    Args:
        name: its folder, or its name on the Hugging Face hub.
        revision: a commit, tag or branch on the hub; None: the newest.

    Raises:
        RecipeError: there is no exported model, or it is damaged.
    """
    return ExportedModel.from_pretrained(name, revision)


def index_pictures(pictures: str | Path, model: ExportedModel, gallery: str | Path) -> Gallery:
    """A gallery of the pictures of a folder, brought up to date: only new and changed pictures are read.

    Args:
        pictures: the folder.
        model: from `load_model` or `export_model`.
        gallery: the gallery's folder.

    Raises:
        DataError: there is no such folder, or no picture in it.
        RecipeError: the model has no single vectors or reads no pictures, or the gallery cannot be written.

    Examples:
        >>> gallery = index_pictures("holiday", load_model("model"), "holiday-gallery")  # doctest: +SKIP
        >>> [hit.name for hit in gallery.search("ein Hund am Strand", top=5)]  # doctest: +SKIP
    """
    require_kind("index_pictures", model, ExportedModel, "a model, as load_model gives it")
    require_main_guard()
    update_gallery(Path(gallery), model, PictureFolder(Path(pictures), cores()))
    return Gallery.open(gallery, model)
