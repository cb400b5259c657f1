"""Bildwort as a library, `import bildwort`: train by a recipe, use a trained model, search pictures.

    import bildwort

    if __name__ == "__main__":  # reading pictures starts processes, which import this file
        recipe = bildwort.load_recipe("scenes", ["--vse.epochs=30"])
        bildwort.train(recipe)
        model = bildwort.export_model(recipe, "model")
        gallery = bildwort.index_pictures("holiday", model, "holiday-gallery")
        for hit in gallery.search("ein kleiner roter Ball", top=5):
            print(hit.score, hit.name)

These names stay as they are; all others, in `data`, `modules` and `pipeline`, may change between versions. Each is
imported when it is first used, so that `import bildwort` takes no time.
"""

import sys
import warnings
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from data.errors import DataError
    from modules.errors import ModelError
    from pipeline.errors import RecipeError
    from pipeline.export.exported_model import ExportedModel
    from pipeline.gallery.gallery import Gallery
    from pipeline.gallery.hits import Hit
    from pipeline.library import export_model, index_pictures, load_model, train
    from pipeline.recipes.loading import load_recipe
    from pipeline.recipes.settings import Recipe

__all__ = [
    "DataError", "ExportedModel", "Gallery", "Hit", "ModelError", "Recipe", "RecipeError", "export_model",
    "index_pictures", "load_model", "load_recipe", "train",
]  # fmt: skip

warnings.filterwarnings("ignore", "IProgress not found")  # tqdm's in notebooks, where no bar of it is drawn

_HOMES = {
    "DataError": "data.errors",
    "ExportedModel": "pipeline.export.exported_model",
    "Gallery": "pipeline.gallery.gallery",
    "Hit": "pipeline.gallery.hits",
    "ModelError": "modules.errors",
    "Recipe": "pipeline.recipes.settings",
    "RecipeError": "pipeline.errors",
    "export_model": "pipeline.library",
    "index_pictures": "pipeline.library",
    "load_model": "pipeline.library",
    "load_recipe": "pipeline.recipes.loading",
    "train": "pipeline.library",
}


def __getattr__(name: str) -> Any:
    """A public name, imported now."""
    if name not in _HOMES:
        raise AttributeError(f"bildwort has no {name!r}; it has {', '.join(__all__)}")
    try:
        return getattr(import_module(_HOMES[name]), name)
    except ModuleNotFoundError as error:
        hidden = (error.name or "").partition(".")[0]
        if hidden not in ("data", "modules", "pipeline"):
            raise
        there = getattr(sys.modules.get(hidden), "__file__", None) or "another package"
        raise ImportError(f"{there} hides Bildwort's package {hidden!r}: rename it, or start Python in another "
                          "folder") from None  # fmt: skip


def __dir__() -> list[str]:
    """The public names."""
    return __all__
