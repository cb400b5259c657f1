"""Retrieval models by name. To add one, write a class with `@register("name")` in a file of this folder, or in a
package of your own that lists its module as an entry point of the group `bildwort`."""

import difflib
import importlib
import inspect
import pkgutil
from functools import cache
from typing import Any

from modules.errors import ModelError
from modules.layers.shapes import shapes_alone
from modules.plugins import import_plugins
from modules.retrieval_models.base import MODELS, RetrievalModel, register

_COMMON = {*inspect.signature(RetrievalModel.__init__).parameters, "network", "image_side", "vector_dim"}

__all__ = ["RetrievalModel", "build_model", "model_class", "option_names", "parameters_of_a_language", "register"]


def model_class(name: str) -> type[RetrievalModel]:
    """Return the class registered under a name.

    Raises:
        ModelError: the name is unknown; the message gives the nearest names.
    """
    _register_all()
    if name not in MODELS:
        near = difflib.get_close_matches(name, MODELS, 3, cutoff=0.4) or sorted(MODELS)
        raise ModelError(f"{name!r}: no such retrieval model; nearest are {', '.join(near)}")
    return MODELS[name]


@cache
def _register_all() -> None:
    """Import all files of this folder, and the modules that other packages list."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    import_plugins()


def option_names(kind: type[RetrievalModel]) -> set[str]:
    """Return the names of a model's own options (`vse.options` of a recipe), without those common to all models."""
    return set(inspect.signature(kind.__init__).parameters) - _COMMON - {"common"}


def build_model(name: str, **arguments: Any) -> RetrievalModel:
    """Build a model from the common arguments of `RetrievalModel` and its own options."""
    return model_class(name)(**arguments)


def parameters_of_a_language(name: str, **arguments: Any) -> int | None:
    """Return how many parameters a model has more if it is built for one language more, without tables of word vectors.

    Args:
        name: of the model.
        arguments: those of `build_model`.

    Returns:
        None for a model on a pretrained text model, which would have to be loaded.
    """
    if arguments.get("pretrained") is not None:
        return None
    sizes = []
    for languages in (arguments["languages"], [*arguments["languages"], "one-more"]):
        with shapes_alone():
            model = build_model(name, **arguments | {"languages": languages})
        tables = {id(table.weight) for table in model.word_tables}
        sizes.append(sum(parameter.numel() for parameter in model.parameters() if id(parameter) not in tables))
    return sizes[1] - sizes[0]
