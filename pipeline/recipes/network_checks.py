"""Checks of settings that depend on networks: which models, losses and searches exist, and what they take."""

import inspect
from collections.abc import Collection, Mapping, Sequence
from importlib.util import find_spec
from typing import Any, Literal, get_args, get_origin

import torch
from jsonargparse import ArgumentError, ArgumentParser

from modules.errors import ModelError
from modules.losses.registry import LOSSES
from modules.retrieval_models import build_model, model_class, option_names
from modules.translators.beam import BeamSettings
from modules.translators.registry import NETWORKS, build_translator, network_options
from pipeline.errors import RecipeError
from pipeline.recipes.checks import refuse_unknown
from pipeline.recipes.decoding import decoding_of
from pipeline.recipes.settings import MmtSettings, Recipe, VseSettings
from pipeline.recipes.starts import captioner_settings, overlaid, reranker_settings


def check_networks(recipe: Recipe, where: str) -> None:
    """Refuse models, losses, networks and searches that do not exist or do not take such settings, in tables too.

    Raises:
        ModelError: there is no such retrieval model.
        RecipeError: there is no such loss, network or search, or it does not take a setting.
    """
    of_tables = {
        f"{where}: tables.{title}.systems.{name}": system.vse
        for title, table in recipe.tables.items()
        for name, system in table.systems.items()
    }
    if recipe.vse.reranker.get("model") is not None:
        of_tables[f"{where}: vse.reranker"] = reranker_settings(recipe.vse)
    if recipe.augment.captioner:
        of_tables[f"{where}: augment.captioner"] = captioner_settings(recipe.vse, recipe.augment.captioner)
    checked = set[str]()  # systems of a table often differ in other settings, and tables of languages have the same
    for place, vse in {where: recipe.vse, **of_tables}.items():
        starts = {f"{place}: vse.start[{number}]": overlaid(vse, change) for number, change in enumerate(vse.start)}
        for its_place, its in (starts | {place: vse}).items():
            if (models := repr((its.model, its.fuse, its.first, its.options))) not in checked:
                _check_retrieval_models(its, its_place)
                checked.add(models)
        _check_loss(vse, place)
    if recipe.augment.captioner:
        _check_decoder(of_tables[f"{where}: augment.captioner"], f"{where}: augment.captioner")
    _check_translator(recipe.mmt, where)
    for stage in (recipe.mmt, recipe.augment, recipe.vse):
        require_loggers(stage.trainer.loggers, where)
    for section in (recipe.mmt, recipe.augment):
        name = "mmt" if section is recipe.mmt else "augment"
        try:
            BeamSettings(section.beam_size, section.length_penalty)
        except ModelError as error:
            raise RecipeError(f"{where}: {name}: {error}") from None
    for name, settings in recipe.augment.searches.items():
        try:
            decoding_of(settings, recipe.seed)
        except ModelError as error:
            raise RecipeError(f"{where}: augment.searches.{name}: {error}") from None


def require_loggers(names: Collection[str], where: str) -> None:
    """Refuse settings that name a logger that is not installed.

    Args:
        names: of `trainer.loggers`.
        where: the settings stand.

    Raises:
        RecipeError: it is not.
    """
    if "wandb" in names and find_spec("wandb") is None:
        raise RecipeError(f"{where}: trainer.loggers names wandb, which is not installed; run `make setup "
                          "EXTRA=wandb`, or leave it out")  # fmt: skip


def _check_retrieval_models(vse: VseSettings, where: str) -> None:
    """Refuse models that do not exist, options that none of them takes, and first models that cannot be indexed."""
    models = vse.fuse or [vse.model, *([vse.first] if vse.first else [])]
    known = set[str]().union(*(option_names(model_class(name)) for name in models))
    refuse_unknown(vse.options, known, where, "vse.options.")
    for name in models:
        own = option_names(model_class(name))
        _check_options(name, {key: one for key, one in vse.options.items() if key in own}, where)
    if vse.first is not None and (score := model_class(vse.first).score_with(**vse.options)) != "inner product":
        raise RecipeError(f"{where}: vse.first is {vse.first!r}, whose score is of {score}; expected an inner product")


def _check_options(model: str, options: dict[str, Any], where: str) -> None:
    """Refuse values of options by which a retrieval model cannot be built."""
    _check_types(model_class(model), options, f"{where}: vse.options.")
    try:
        with torch.device("meta"):  # shapes alone
            build_model(model, region_dim=4, vocabulary_size=4, languages=["en"], dim=4, word_dim=4, **options)
    except (ModelError, TypeError, ValueError, RuntimeError) as error:
        raise RecipeError(f"{where}: vse.model {model!r}, vse.options: {error}") from None


def _check_types(kind: type, options: Mapping[str, Any], prefix: str) -> None:
    """Refuse options that are not of the types that a class's arguments are annotated with."""
    parameters = inspect.signature(kind).parameters
    for name, value in options.items():
        parser, kind_of_value = ArgumentParser(exit_on_error=False), parameters[name].annotation
        parser.add_argument(f"--{name}", type=kind_of_value)
        try:
            fits = parser.parse_object({name: value})[name] == value  # a text that could be read as a number does not
        except ArgumentError:
            fits = False
        if not fits:
            raise RecipeError(f"{prefix}{name} is {value!r}; expected {_shown(kind_of_value)}")


def _shown(hint: Any) -> str:
    """A type in short: `int`, `float | None`, `one of a, b`, `a list of a, b`."""
    if get_origin(hint) is Literal:
        return f"one of {', '.join(map(str, get_args(hint)))}"
    if get_origin(hint) is Sequence:
        return f"a list of {_shown(get_args(hint)[0]).removeprefix('one of ')}"
    return hint.__name__ if isinstance(hint, type) else str(hint)


def _check_decoder(vse: VseSettings, where: str) -> None:
    """Refuse a model that is to write captions and has no decoder."""
    if not model_class(vse.model).writes_with(**vse.options):
        raise RecipeError(f"{where}: {vse.model!r} has no decoder with these options, so it writes no captions; "
                          "expected model: gxn with options.generate: [i2t]")  # fmt: skip


def _check_loss(vse: VseSettings, where: str) -> None:
    """Refuse losses that do not exist, and weights that the loss does not read."""
    if vse.loss not in (None, *LOSSES):
        raise RecipeError(f"{where}: vse.loss is {vse.loss!r}; expected one of {', '.join(LOSSES)}")
    if vse.type_weights and (vse.loss or model_class(vse.model).loss) != "hardest":
        raise RecipeError(f"{where}: vse.type_weights weighs the hardest negatives, but vse.loss is not `hardest`")


def _check_translator(mmt: MmtSettings, where: str) -> None:
    """Refuse a network of translators that cannot be built."""
    refuse_unknown(mmt.network_options, set(network_options(mmt.network)), where, "mmt.network_options.")
    _check_types(NETWORKS[mmt.network], mmt.network_options, f"{where}: mmt.network_options.")
    sizes = {"vocabulary_size": 4, "embedding_dim": mmt.embedding_dim, "hidden_dim": mmt.hidden_dim}
    try:
        with torch.device("meta"):  # shapes alone
            build_translator(mmt.network, region_dim=1, **sizes, **mmt.network_options)
    except (ModelError, TypeError, RuntimeError) as error:
        raise RecipeError(f"{where}: mmt.network {mmt.network!r}, mmt.network_options: {error}") from None
