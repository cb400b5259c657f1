"""Reading a recipe: base, file and command line laid over one another, then checked and typed before anything runs."""

import difflib
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar, get_args, get_type_hints

import torch
import yaml
from jsonargparse import ArgumentError, ArgumentParser

from data.corpora.registry import CORPORA
from data.extractor import ExtractorSettings
from modules.errors import ModelError
from modules.losses import LOSSES
from modules.retrieval_models import model_class, option_names
from modules.translation import build_translator, network_options
from pipeline.errors import RecipeError
from pipeline.settings import (
    AugmentSettings,
    CorpusSettings,
    MmtSettings,
    Recipe,
    ReportSettings,
    System,
    TrainerSettings,
    VseSettings,
)
from pipeline.settings import Table as TableSettings

T = TypeVar("T")
_COMMAND_LINE = "the command line"
CONFIGS = Path(__file__).parent / "configs"
_SECTIONS: dict[str, type] = {
    "regions": ExtractorSettings,
    "mmt": MmtSettings,
    "augment": AugmentSettings,
    "vse": VseSettings,
    "report": ReportSettings,
}
# What makes a system of a table what it is: on the command line these are for `stage-vse`, not for tables.
_OF_A_SYSTEM = {
    "model", "options", "fuse", "translate", "first", "first_k", "loss", "words", "pretrained", "pretrained_rate",
    "drop_regions", "drop_words", "rows", "only", "select", "test", "folds",
}  # fmt: skip
_TOP = {"base", "seed", "trainer", "corpus", "tables", *_SECTIONS}


def load_recipe(name: str, overrides: Iterable[str] = ()) -> Recipe:
    """Read a recipe by name (`pipeline/configs/<name>.yaml`) or path, with overrides `--section.key=value`.

    Raises:
        RecipeError: no such recipe, an unknown key, a value of the wrong type, or settings that contradict.
    """
    path, given = _find(name), list(overrides)
    raw = _read_with_base(path)
    whole = raw
    for override in given:
        whole = _merge(whole, _parse_override(override), _COMMAND_LINE)
    file_vse = _mapping(raw, "vse", str(path))
    try:
        recipe = build_recipe(whole, path.stem, str(path), file_vse)
    except RecipeError:
        build_recipe(raw, path.stem, str(path))  # is the file at fault?
        recipe = build_recipe(whole, path.stem, _COMMAND_LINE, file_vse)
    lent = [override for override in given if ".root=" in override or "trainer." in override.partition("=")[0]]
    return replace(recipe, lent=lent)


def lender(recipe: Recipe, name: str) -> Recipe:
    """The recipe whose translators or captions another borrows, run on the borrower's devices and data root.

    Raises:
        RecipeError: there is none, or it leads back to itself.
    """
    if name == recipe.name:
        raise RecipeError(f"recipe {name}: augment borrows from itself; name another recipe or leave it out")
    found = load_recipe(name, recipe.lent)
    if found.augment.translators or found.augment.captions:
        raise RecipeError(f"recipe {recipe.name}: augment borrows from {name}, which borrows itself; name its lender")
    return found


def build_recipe(raw: dict[str, Any], name: str, where: str, file_vse: dict[str, Any] | None = None) -> Recipe:
    """Check and type a recipe that has been read into plain values; `where` names its file in errors.

    Tables lie over the `vse` section, but what makes a system is taken from `file_vse`, the file's own, if given.
    """
    _refuse_unknown(raw, _TOP, where, "")
    trainer = raw.get("trainer") or {}
    _refuse_unknown(trainer, _names(TrainerSettings), where, "trainer.")
    sections: dict[str, Any] = {}
    values_of: dict[str, dict[str, Any]] = {}
    for section, kind in _SECTIONS.items():
        values = values_of[section] = _mapping(raw, section, where)
        if "trainer" in _names(kind):
            values["trainer"] = {**trainer, **_mapping(values, "trainer", where, f"{section}.")}
        sections[section] = typed(kind, values, where, section)
    seed = raw.get("seed", 0)
    if not isinstance(seed, int) or isinstance(seed, bool) or seed < 0:
        raise RecipeError(f"{where}: seed is {seed!r}; expected a whole number from 0")
    recipe = Recipe(name=name, seed=seed, corpus=_corpus(_mapping(raw, "corpus", where), where), **sections)
    _check(recipe, where)
    below = {key: value for key, value in values_of["vse"].items() if file_vse is None or key not in _OF_A_SYSTEM}
    below |= {key: value for key, value in (file_vse or {}).items() if key in _OF_A_SYSTEM}
    for title, table in _mapping(raw, "tables", where).items():
        recipe.tables[str(title)] = _table(recipe, table, below, where, f"tables.{title}")
    return recipe


def typed(kind: type[T], values: Mapping[str, Any], where: str, section: str) -> T:
    """Make the dataclass `kind` of plain values, or say which key is unknown or has a value of the wrong type."""
    _check_keys(kind, values, where, section)
    parser = ArgumentParser(exit_on_error=False)
    parser.add_class_arguments(kind, "it")
    try:
        return parser.instantiate_classes(parser.parse_object({"it": dict(values)})).it
    except (ArgumentError, TypeError, ValueError) as error:
        text = (
            " ".join(str(error).split()).replace('Parser key "it.', f'key "{section}.').replace('"it"', f'"{section}"')
        )
        raise RecipeError(f"{where}: {text}") from None


def _table(recipe: Recipe, raw: Any, vse: Mapping[str, Any], where: str, prefix: str) -> TableSettings:
    """A table whose systems' settings are laid over the recipe's own, each checked like a recipe."""
    _refuse_unknown(raw, _names(TableSettings), where, f"{prefix}.")
    systems = {}
    for name, values in _mapping(raw, "systems", where, f"{prefix}.").items():
        inner = f"{prefix}.systems.{name}"
        _refuse_unknown(values, _names(System), where, f"{inner}.")
        laid = _merge(dict(vse), _mapping(values, "vse", where, f"{inner}."), where)
        rows = values.get("rows") or list(laid.get("rows") or VseSettings().rows)
        settings = typed(VseSettings, laid | {"only": rows}, where, f"{inner}.vse")
        _check(replace(recipe, vse=settings), f"{where}: {inner}")
        if raw.get("folds") and (settings.folds == 1 or settings.fuse or settings.translate or settings.first):
            raise RecipeError(
                f"{where}: {prefix}.folds needs vse.folds of 2 or more, without vse.fuse, vse.translate and vse.first"
            )
        if raw.get("language", "en") not in settings.test:
            raise RecipeError(f"{where}: {prefix}.language is {raw.get('language', 'en')!r}, which vse.test lacks")
        published = _mapping(values, "published", where, f"{inner}.")
        for row, figures in published.items():
            numbers = isinstance(figures, list) and all(isinstance(value, int | float) for value in figures)
            if row not in rows or not numbers or len(figures) != 6:
                raise RecipeError(f"{where}: {inner}.published.{row}: expected R@1, 5, 10 both ways of one of its rows")
        systems[str(name)] = System(rows, settings, published)
    plain = {key: value for key, value in raw.items() if key != "systems"}
    return replace(typed(TableSettings, plain, where, prefix), systems=systems)


def _mapping(values: Mapping[str, Any], key: str, where: str, prefix: str = "") -> dict[str, Any]:
    value = values.get(key) or {}
    if not isinstance(value, Mapping):
        raise RecipeError(f"{where}: {prefix}{key} is {value!r}; expected keys with values")
    return dict(value)


def _find(name: str, folder: Path = Path()) -> Path:
    path = folder / name if name.endswith((".yaml", ".yml")) else CONFIGS / f"{name}.yaml"
    if not path.is_file():
        known = sorted(p.stem for p in CONFIGS.glob("*.yaml"))
        near = difflib.get_close_matches(name, known, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}"
        raise RecipeError(f"recipe {name!r}: no file {path}; {hint}")
    return path.resolve()


def _read_with_base(path: Path, seen: tuple[Path, ...] = ()) -> dict[str, Any]:
    try:
        raw = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise RecipeError(f"{path}: not a YAML file ({' '.join(str(error).split())})") from None
    if not isinstance(raw, dict):
        raise RecipeError(f"{path}: expected sections (corpus, mmt, vse …), found {type(raw).__name__}")
    base = raw.pop("base", None)
    if base is None:
        return raw
    if not isinstance(base, str):
        raise RecipeError(f"{path}: base is {base!r}; expected the name or path of one recipe")
    if path in seen:
        raise RecipeError(f"{path}: its base leads back to itself")
    below = _read_with_base(_find(base, path.parent), (*seen, path))
    if _corpus_name(raw) not in (None, _corpus_name(below) or CorpusSettings.name):
        below.pop("corpus", None)  # another corpus has other keys
    below.pop("tables", None)  # their figures were published for the base's own settings
    return _merge(below, raw, str(path))


def _corpus_name(raw: Mapping[str, Any]) -> Any:
    corpus = raw.get("corpus")
    return corpus.get("name") if isinstance(corpus, Mapping) else None


def _merge(below: dict[str, Any], above: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Lay one mapping over another; `rows` and other mappings are laid over key by key, lists replaced."""
    merged = dict(below)
    for key, value in above.items():
        if isinstance(value, Mapping) and isinstance(merged.get(key), dict):
            merged[key] = _merge(merged[key], value, where)
        elif isinstance(merged.get(key), dict):
            if value is not None:  # a section without keys changes nothing
                raise RecipeError(f"{where}: {key} is a section; expected {key}.KEY, found {value!r}")
        else:
            merged[key] = value
    return merged


def _parse_override(argument: str) -> dict[str, Any]:
    key, equals, text = argument.removeprefix("--").partition("=")
    if not argument.startswith("--") or not equals or not key:
        raise RecipeError(f"argument {argument!r}: expected --section.key=value")
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        raise RecipeError(f"argument {argument!r}: its value is not YAML; quote it") from None
    if isinstance(value, str):  # YAML reads 5e-4 as text
        with suppress(ValueError):
            value = float(value)
    for part in reversed(key.split(".")):
        value = {part: value}
    return value


def _corpus(values: dict[str, Any], where: str) -> CorpusSettings:
    name = values.pop("name", "scenes")
    root = values.pop("root", None) or os.environ.get("BILDWORT_DATA") or None
    if not isinstance(name, str) or name not in CORPORA:
        near = difflib.get_close_matches(str(name), list(CORPORA), 1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(CORPORA)}"
        raise RecipeError(f"{where}: corpus.name is {name!r}; {hint}")
    return CorpusSettings(name, root, typed(CORPORA[name].settings, values, where, "corpus"))


def _check_keys(kind: type, values: Mapping[str, Any], where: str, prefix: str) -> None:
    _refuse_unknown(values, _names(kind), where, f"{prefix}.")
    hints = get_type_hints(kind)
    for key, value in values.items():
        inner = next((t for t in (hints[key], *get_args(hints[key])) if is_dataclass(t)), None)
        if inner is not None and isinstance(value, Mapping):
            _check_keys(inner, value, where, f"{prefix}.{key}")  # type: ignore[arg-type]


def _refuse_unknown(values: Any, known: set[str], where: str, prefix: str) -> None:
    if not isinstance(values, Mapping):
        raise RecipeError(f"{where}: {prefix.rstrip('.')} is {values!r}; expected keys with values")
    for key in values:
        if key not in known:
            near = difflib.get_close_matches(str(key), known, 1)
            hint = f"did you mean {prefix}{near[0]}?" if near else f"known are {', '.join(sorted(known))}"
            raise RecipeError(f"{where}: unknown key {prefix}{key}; {hint}")


def _names(kind: type) -> set[str]:
    return {field.name for field in fields(kind)}


def _check(recipe: Recipe, where: str) -> None:
    """Refuse settings that contradict one another, each in a sentence that names both."""
    vse, mmt = recipe.vse, recipe.mmt
    models = vse.fuse or [vse.model, *([vse.first] if vse.first else [])]
    known = set[str]().union(*(option_names(model_class(name)) for name in models))
    _refuse_unknown(vse.options, known, where, "vse.options.")
    _check_network(mmt, where)
    if vse.fuse and vse.translate:
        raise RecipeError(f"{where}: vse.fuse and vse.translate are both set; leave one out")
    if len(vse.fuse) == 1:
        raise RecipeError(f"{where}: vse.fuse has {vse.fuse[0]!r} alone; expected two models or more")
    if vse.translate is not None:
        system, _, direction = vse.translate.partition(":")
        if system != "mt" or direction not in mmt.directions or not set(direction.split("-")) <= set(vse.test):
            raise RecipeError(
                f"{where}: vse.translate is {vse.translate!r}; expected mt:de-en (a query has no picture), its "
                f"direction one of mmt.directions ({', '.join(mmt.directions)}) and its languages of vse.test"
            )
    if vse.first is not None:
        _check_first(vse, vse.first, where)
    for row in vse.only:
        if row not in vse.rows:
            raise RecipeError(f"{where}: vse.only names {row!r}, but vse.rows has {', '.join(vse.rows)}")
    if not vse.seeds or not vse.rows:
        raise RecipeError(f"{where}: vse.seeds and vse.rows must each hold at least one entry")
    for path in recipe.augment.paths:
        system, _, way = path.partition(":")
        languages = way.split("-")
        if system not in ("mt", "mmt") or len(languages) < 2:
            raise RecipeError(f"{where}: augment.paths has {path!r}; expected mt:en-de, mmt:en-de, mmt:en-de-en …")
        for hop in pairwise(languages):
            if "-".join(hop) not in mmt.directions:
                raise RecipeError(f"{where}: augment.paths has {path!r}, but mmt.directions lacks {'-'.join(hop)!r}")
    for name, phase in (("pretrain", mmt.pretrain), ("finetune", mmt.finetune)):
        if phase.steps < (name == "finetune") or phase.eval_every < 1:
            raise RecipeError(
                f"{where}: mmt.{name}.steps is {phase.steps} and mmt.{name}.eval_every {phase.eval_every}; expected "
                "1 or more (only mmt.pretrain.steps may be 0)"
            )
        if phase.steps and phase.steps % phase.eval_every:
            raise RecipeError(
                f"{where}: mmt.{name}.steps is {phase.steps}, no multiple of mmt.{name}.eval_every {phase.eval_every}"
            )
    if vse.epochs < 1 or vse.batch_size < 1:
        raise RecipeError(f"{where}: vse.epochs is {vse.epochs}, vse.batch_size {vse.batch_size}; expected 1 or more")
    if vse.folds < 1:
        raise RecipeError(f"{where}: vse.folds is {vse.folds}; expected 1 (no folds) or more")
    for language in vse.select:
        if language not in vse.test:
            raise RecipeError(f"{where}: vse.select names {language!r}, but vse.test has {', '.join(vse.test)}")
    if vse.loss not in (None, *LOSSES):
        raise RecipeError(f"{where}: vse.loss is {vse.loss!r}; expected one of {', '.join(LOSSES)}")
    if vse.type_weights and (vse.loss or model_class(vse.model).loss) != "hardest":
        raise RecipeError(f"{where}: vse.type_weights weighs the hardest negatives, but vse.loss is not `hardest`")
    if vse.pretrained is not None and vse.words == "fasttext":
        raise RecipeError(f"{where}: vse.words is fasttext, but vse.pretrained reads the words; leave one out")
    for name in ("drop_regions", "drop_words"):
        if not 0 <= getattr(vse, name) < 1:
            raise RecipeError(f"{where}: vse.{name} is {getattr(vse, name)}; expected a share from 0 to below 1")
    if vse.warmup_epochs > vse.epochs:
        raise RecipeError(f"{where}: vse.warmup_epochs {vse.warmup_epochs} is more than vse.epochs {vse.epochs}")


def _check_network(mmt: MmtSettings, where: str) -> None:
    """Refuse what no translator can be made of, or pre-trained with."""
    _refuse_unknown(mmt.network_options, set(network_options(mmt.network)), where, "mmt.network_options.")
    sizes = {"vocabulary_size": 4, "embedding_dim": mmt.embedding_dim, "hidden_dim": mmt.hidden_dim}
    try:
        with torch.device("meta"):  # shapes alone
            build_translator(mmt.network, region_dim=1, **sizes, **mmt.network_options)
    except (ModelError, TypeError, RuntimeError) as error:
        raise RecipeError(f"{where}: mmt.network {mmt.network!r}, mmt.network_options: {error}") from None
    for origin, times in mmt.repeat.items():
        if times < 1:
            raise RecipeError(f"{where}: mmt.repeat.{origin} is {times}; expected 1 or more")
    if mmt.repeat and not mmt.pretrain.steps:
        raise RecipeError(f"{where}: mmt.repeat is of pre-training, but mmt.pretrain.steps is 0; leave one out")


def _check_first(vse: VseSettings, first: str, where: str) -> None:
    """Refuse lists that cannot be made or re-ranked."""
    for name, other in (("fuse", vse.fuse), ("translate", vse.translate)):
        if other:
            raise RecipeError(f"{where}: vse.first and vse.{name} are both set; leave one out")
    if first == vse.model:
        raise RecipeError(f"{where}: vse.first and vse.model are both {first!r}; expected another one to re-rank")
    if (score := model_class(first).score) != "inner product":
        raise RecipeError(f"{where}: vse.first is {first!r}, whose score is of {score}; expected an inner product")
    if vse.first_k < 1:
        raise RecipeError(f"{where}: vse.first_k is {vse.first_k}; expected 1 or more")
