"""Settings that depend on networks: which models, losses and searches exist, and what they take."""

import inspect
from collections.abc import Collection, Mapping
from importlib.util import find_spec
from typing import Any

from jsonargparse import ArgumentError

from modules.errors import ModelError
from modules.layers.shapes import shapes_alone
from modules.losses.registry import loss_names
from modules.retrieval_models import build_model, model_class, option_names
from modules.translators.beam import BeamSettings
from modules.translators.registry import NETWORKS, Search, build_translator, network_options
from modules.translators.sampling import SampleSettings
from pipeline.errors import RecipeError, as_recipe_error
from pipeline.recipes.overlays import trainings_beside, trainings_of
from pipeline.recipes.retrieval_settings import VseSettings
from pipeline.recipes.settings import Recipe
from pipeline.recipes.translator_settings import DecodingSettings, MmtSettings
from pipeline.recipes.typed import in_words, located, read_value, refuse_unknown

_BUILT: set[tuple[type, str]] = set()
_OF_BEAM, _OF_SAMPLE = ("beam_size", "groups", "diversity"), ("temperature", "top_p")


def check_networks(recipe: Recipe, where: str) -> None:
    """Refuse models, losses, networks and searches that do not exist or do not take such settings, in tables too.

    Raises:
        RecipeError: there is no such model, loss, network or search, or it does not take a setting.
    """
    sections = {"vse": recipe.vse, **trainings_beside(recipe)} | {
        f"tables.{title}.systems.{name}": system.vse
        for title, table in recipe.tables.items()
        for name, system in table.systems.items()
    }
    trainings: dict[str, VseSettings] = {}
    for section, whole in sections.items():
        for key, vse in ({section: whole} | trainings_of(whole, section)).items():
            place = ": ".join(filter(None, (where, key if key != "vse" else "")))
            trainings[place] = vse
            with located(place), as_recipe_error():
                _check_retrieval_models(vse)
                _check_loss(vse)
                if section == "augment.captioner":
                    _check_decoder(vse)
    _refuse_unread(trainings)
    with located(where):
        rows = map(recipe.vse.of_row, recipe.vse.rows)
        if recipe.vse.forgetting and not any(model_class(it.model).on_network and it.epochs for it in rows):
            raise RecipeError("vse.forgetting tests what trained dual encoders forget, but no row trains one; leave it "
                              "out")  # fmt: skip
        _check_translator(recipe.mmt)
        for stage in (recipe.mmt, recipe.augment, recipe.vse):
            require_loggers(stage.trainer.loggers)
        for name, settings in recipe.augment.searches.items():
            with located(f"augment.searches.{name}"), as_recipe_error():
                decoding_of(settings, recipe.seed)


def require_loggers(names: Collection[str]) -> None:
    """Refuse settings (`trainer.loggers`) that name a logger that is not installed."""
    if "wandb" in names and find_spec("wandb") is None:
        raise RecipeError(
            "trainer.loggers names wandb, which is not installed; run `make setup EXTRA=wandb`, or leave it out"
        )


def _check_retrieval_models(vse: VseSettings) -> None:
    """Refuse models that do not exist, options that none of them takes, and first models that cannot be indexed."""
    fused = {model: "vse.fuse" for model, _ in vse.fused_models}
    models = fused or ({vse.first: "vse.first"} if vse.first else {}) | {vse.model: "vse.model"}
    for name, key in models.items():
        with located(key), as_recipe_error():
            model_class(name)
    known = set[str]().union(*(option_names(model_class(name)) for name in models))
    refuse_unknown(vse.options, known, "vse.options.")
    for name in models:
        _check_read(name, vse)
        own = option_names(model_class(name))
        _check_options(name, {key: value for key, value in vse.options.items() if key in own})
    if vse.first is not None and (score := model_class(vse.first).score_with(**vse.options)) != "inner product":
        raise RecipeError(f"vse.first is {vse.first!r}, whose score is of {score}; expected an inner product")


def _check_read(name: str, vse: VseSettings) -> None:
    """Refuse settings of what a model reads that it does not, or lacks."""
    kind = model_class(name)
    options = {key: value for key, value in vse.options.items() if key in option_names(kind)}
    of_vectors, model = kind.vectors_with(**options), f"vse.model is {name}"
    if kind.on_network and vse.pretrained is None:
        raise RecipeError(f"{model}, but vse.pretrained names no dual encoder; name a folder or a model of the hub "
                          "(google/siglip2-base-patch16-224)")  # fmt: skip
    unread = ("pretrained_vectors", "pretrained_rate", "drop_words", "drop_regions") if kind.on_network else ()
    for setting in (each for each in unread if getattr(vse, each) != getattr(VseSettings(), each)):
        raise RecipeError(f"{model}, which reads whole pictures and captions in its own way; leave vse.{setting} out")
    if vse.interpolate and not (kind.on_network or vse.start):
        raise RecipeError(f"{model}, which starts at random, so there is nothing to interpolate with; leave "
                          "vse.interpolate out")  # fmt: skip
    if kind.given_vectors and vse.image_encoder is not None:
        raise RecipeError(f"{model}, which has images of its own or of a teacher; leave vse.image_encoder out")
    if kind.taught and not vse.teacher:
        raise RecipeError(f"{model}, but vse.teacher names no model to learn from; write both for a row "
                          "of its own: vse.row_settings.ROW: {model: …, teacher: {row: OTHER}}")  # fmt: skip
    if vse.teacher and not of_vectors:
        why = "; freeze its image tower (vse.options.image=frozen)" if kind.given_vectors else ""
        raise RecipeError(
            f"{model}, which reads images itself, so it learns from no vse.teacher{why or '; take `student`'}"
        )
    if vse.epochs == 0 and not kind.on_network:
        raise RecipeError(f"{model} and vse.epochs is 0; only dual-encoder is tested without training")
    if vse.epochs and kind.on_network and {options.get("text"), options.get("image", "frozen")} == {"frozen"}:
        raise RecipeError(
            f"{model} with both towers frozen, and vse.epochs is {vse.epochs}; set it to 0, or train a tower"
        )
    if vse.warmup_steps and options.get("generate"):
        raise RecipeError(f"vse.warmup_steps is {vse.warmup_steps}, but {name} with options.generate has an Adam for "
                          "each loss; set it to 0")  # fmt: skip
    if vse.caption_loss and not kind.takes_caption_loss:
        raise RecipeError(f"vse.caption_loss is {vse.caption_loss:g}, but {name} has a loss between captions of its "
                          "own; set it to 0, and choose that one's weight by vse.options")  # fmt: skip
    if vse.cached_chunk and kind.score_with(**options) == "sets":
        raise RecipeError(f"vse.cached_chunk is {vse.cached_chunk}, but {name} has no single vectors; set it to 0")
    if vse.cached_chunk and options.get("generate"):
        raise RecipeError(f"vse.cached_chunk is {vse.cached_chunk}, but {name} with options.generate generates from a "
                          "whole batch; set it to 0")  # fmt: skip


def _check_options(model: str, options: dict[str, Any]) -> None:
    """Refuse values of options by which a retrieval model cannot be built; those of several systems are tried once."""
    if (tried := (model_class(model), repr(options))) in _BUILT:
        return
    _check_types(model_class(model), options, "vse.options.")
    try:
        with shapes_alone():
            build_model(model, region_dim=4, vocabulary_size=4, languages=["en"], dim=4, word_dim=4, **options)
    except (ModelError, TypeError, ValueError, RuntimeError) as error:
        raise RecipeError(f"vse.model {model!r}, vse.options: {error}") from None
    _BUILT.add(tried)


def _check_types(kind: type, options: Mapping[str, Any], prefix: str) -> None:
    """Refuse options that are not of the types that a class's arguments are annotated with."""
    parameters = inspect.signature(kind).parameters
    for name, value in options.items():
        kind_of_value = parameters[name].annotation
        try:
            fits = read_value(kind_of_value, value) == value  # a text that could be read as a number does not
        except ArgumentError:
            fits = False
        if not fits:
            raise RecipeError(f"{prefix}{name} is {value!r}; expected {in_words(kind_of_value)}")


def _check_decoder(vse: VseSettings) -> None:
    """Refuse a model that is to write captions and has no decoder."""
    if not model_class(vse.model).writes_with(**vse.options):
        raise RecipeError(f"{vse.model!r} has no decoder with these options, so it writes no captions; "
                          "expected model: gxn with options.generate: [i2t]")  # fmt: skip


def _check_loss(vse: VseSettings) -> None:
    """Refuse losses that do not exist, and weights that the loss does not read."""
    if vse.loss not in (None, *loss_names()):
        raise RecipeError(f"vse.loss is {vse.loss!r}; expected one of {', '.join(loss_names())}")
    if vse.type_weights and _loss_of(vse) != "hardest":
        raise RecipeError("vse.type_weights weighs the hardest negatives, but vse.loss is not `hardest`")


def _refuse_unread(trainings: Mapping[str, VseSettings]) -> None:
    """Refuse negatives and a distance that no training reads; one that does not may have them from the same section.

    Args:
        trainings: where their settings stand → these.
    """
    known: dict[str, set[Any]] = {
        "negatives": {vse.negatives for vse in trainings.values() if _loss_of(vse) == "hardest-k"},
        "distance": {vse.distance for vse in trainings.values() if _compares_vectors(vse)},
    }
    needed = {"negatives": "the loss `hardest-k`", "distance": "a model of single vectors (score: inner product)"}
    for place, vse in trainings.items():
        for name, read in known.items():
            if (value := getattr(vse, name)) not in {getattr(VseSettings(), name), *read}:
                with located(place):
                    raise RecipeError(f"vse.{name} is {value}, which {needed[name]} alone reads, and no training has "
                                      "one; leave it out")  # fmt: skip


def _loss_of(vse: VseSettings) -> str:
    return vse.loss or model_class(vse.model).loss


def _compares_vectors(vse: VseSettings) -> bool:
    """Is the score of one of its models an inner product of single vectors?"""
    models = [vse.model, *([vse.first] if vse.first else []), *(model for model, _ in vse.fused_models)]
    return any(model_class(model).score_with(**vse.options) == "inner product" for model in models)


def _check_translator(mmt: MmtSettings) -> None:
    """Refuse a network of translators that cannot be built."""
    refuse_unknown(mmt.network_options, set(network_options(mmt.network)), "mmt.network_options.")
    _check_types(NETWORKS[mmt.network], mmt.network_options, "mmt.network_options.")
    sizes = {"vocabulary_size": 4, "embedding_dim": mmt.embedding_dim, "hidden_dim": mmt.hidden_dim}
    try:
        with shapes_alone():
            build_translator(mmt.network, region_dim=1, **sizes, **mmt.network_options)
    except (ModelError, TypeError, RuntimeError) as error:
        raise RecipeError(f"mmt.network {mmt.network!r}, mmt.network_options: {error}") from None


def decoding_of(settings: DecodingSettings, seed: int) -> Search:
    """The search that settings describe.

    Raises:
        ModelError: they do not fit, or belong to the other method.
    """
    for name in _OF_SAMPLE if settings.method == "beam" else _OF_BEAM:
        if getattr(settings, name) != getattr(DecodingSettings(), name):
            raise ModelError(f"{name} is nothing to method {settings.method}; leave it out or take the other method")
    if settings.groups == 1 and settings.diversity != DecodingSettings().diversity:
        raise ModelError(f"diversity is {settings.diversity:g}, between groups, but groups is 1; leave it out")
    normalised = {"length_penalty": settings.length_penalty}
    if settings.method == "sample":
        return SampleSettings(settings.captions, settings.temperature, settings.top_p, seed=seed, **normalised)
    if not 1 <= settings.captions <= settings.beam_size:
        raise ModelError(f"captions is {settings.captions}; expected 1 to beam_size ({settings.beam_size})")
    return BeamSettings(settings.beam_size, groups=settings.groups, diversity=settings.diversity, **normalised)
