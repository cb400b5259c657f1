"""Reading a recipe: base, file and command line laid over one another, then checked and typed before anything runs."""

import difflib
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from data.corpora.registry import CORPORA
from data.evaluation.sts import StsSettings
from data.lines import read_text
from data.pictures.extractor import ExtractorSettings
from data.pictures.folder import unfit_name
from data.yaml_text import parse_yaml
from pipeline.errors import RecipeError
from pipeline.recipes.overlays import check_overlays, check_trainings, read_table
from pipeline.recipes.retrieval_settings import VseSettings
from pipeline.recipes.settings import AugmentSettings, CorpusSettings, Recipe, ReportSettings
from pipeline.recipes.trainer_settings import TrainerSettings
from pipeline.recipes.translator_settings import MmtSettings
from pipeline.recipes.typed import check_values, located, names_of, refuse_unknown, typed
from pipeline.recipes.yaml_files import laid_over, mapping_of, read_mapping

_COMMAND_LINE = "the command line"
_OTHERS = ("--mmt.network=", "--vse.model=", "--vse.pretrained=", "--vse.image_encoder=")
_BASES, _SHOWN, _DEEPEST = 20, 300, 20  # recipes below one another; letters of a name in an error; dots of a key
_READ_OF_BORROWED = {"directions", "systems", "pretrained", "trainer"}
_OF_CAPTIONS = {"paths", "searches", "filters", "captioner", "translators"}
CONFIGS = Path(__file__).parents[1] / "configs"
SECTIONS: dict[str, type] = {
    "regions": ExtractorSettings,
    "mmt": MmtSettings,
    "augment": AugmentSettings,
    "vse": VseSettings,
    "sts": StsSettings,
    "report": ReportSettings,
}
# What makes a system of a table what it is: on the command line these are for `stage-vse`, not for tables.
_OF_A_SYSTEM = {
    "model", "options", "fuse", "translate", "first", "by_likelihood", "first_k", "loss", "words", "word_vectors",
    "pretrained", "pretrained_rate", "pretrained_vectors", "pretrained_layer", "drop_regions", "drop_words", "rows",
    "only", "select", "test", "folds", "row_settings", "teacher", "interpolate", "start", "image_encoder",
    "image_encoder_rate", "image_encoder_size",
}  # fmt: skip
_NEUTRAL = {"vse.seeds", "vse.only", "vse.forgetting", "corpus.root"}  # they choose what is run, not how
_TOP = {"base", "seed", "trainer", "corpus", "tables", *SECTIONS}


def load_recipe(name: str | Path, overrides: Iterable[str] = (), networks: bool = True) -> Recipe:
    """Read a recipe.

    Args:
        name: of a file `pipeline/configs/<name>.yaml`, or a path: it has a `/`, or ends in `.yaml`.
        overrides: `--section.key=value`, which replace its settings.
        networks: whether settings of networks are checked and `precision: auto` is settled, which imports torch.

    Raises:
        RecipeError: no such recipe, an unknown key, a value of the wrong type, or settings that contradict.

    Examples:
        >>> recipe = load_recipe("scenes", ["--vse.epochs=30"], networks=False)
        >>> recipe.name, recipe.vse.epochs
        ('scenes', 30)
        >>> load_recipe("scenes", ["--vse.epoch=30"])
        Traceback (most recent call last):
            ...
        pipeline.errors.RecipeError: the command line: unknown key vse.epoch; did you mean vse.epochs?
    """
    path, given = _find(str(name)), list(overrides)
    raw = _read_with_base(path)
    whole = raw
    for override in sorted(given, key=lambda text: not text.startswith(_OTHERS)):  # they drop what belongs to another
        values = _parse_override(override)
        with located(_COMMAND_LINE):
            whole = laid_over(whole, values)
    with located(str(path)):
        file_vse = mapping_of(raw, "vse")
    try:
        recipe = build_recipe(whole, path.stem, str(path), file_vse)
    except RecipeError:
        build_recipe(raw, path.stem, str(path))  # does the file alone fail?
        recipe = build_recipe(whole, path.stem, _COMMAND_LINE, file_vse)
    _refuse_borrowed(recipe, [*map(_key, given)])
    if recipe.refused:
        own = build_recipe(raw, path.stem, str(path)) if given else recipe
        for reason in own.refused.values():
            raise RecipeError(reason)
    if networks:
        from pipeline.recipes.networks import check_networks  # imports torch, so it comes after the cheap checks
        from pipeline.recipes.precision import with_precision

        try:
            check_networks(recipe, str(path))
        except RecipeError:
            check_networks(build_recipe(raw, path.stem, str(path)), str(path))
            check_networks(recipe, _COMMAND_LINE)
        recipe = with_precision(recipe)
    lent = [override for override in given if ".root=" in override or "trainer." in override.partition("=")[0]]
    file = "" if (place := path.resolve()).parent == CONFIGS.resolve() else str(place)
    return replace(
        recipe, lent=lent, variant=variant_of(given), table_variant=variant_of(given, True), file=file,
        not_of_tables=list(dict.fromkeys(filter(_is_of_rows, map(_key, given)))),
    )  # fmt: skip


def _refuse_borrowed(recipe: Recipe, keys: Iterable[str]) -> None:
    """Refuse overrides of translators and captions that are another recipe's, where they would change nothing."""
    setting = "captions" if recipe.augment.captions else "translators"
    owner = recipe.augment.captions or recipe.augment.translators
    for key in keys if owner else ():
        section, *names = key.split(".")
        own = section == "mmt" and names[:1] and names[0] not in _READ_OF_BORROWED
        if own or (section == "augment" and setting == "captions" and names[:1] and names[0] in _OF_CAPTIONS):
            raise RecipeError(f"{_COMMAND_LINE}: {key} changes nothing, as the {setting} are those of {owner} "
                              f"(augment.{setting}); give it to that recipe")  # fmt: skip


def variant_of(overrides: Iterable[str], of_tables: bool = False) -> str:
    """The overrides by which a recipe's figures, or those of its tables, are others; the last one of a key counts."""
    last = {_key(override): override.partition("=")[2] for override in overrides}
    changing = {
        key: text for key, text in last.items()
        if key not in _NEUTRAL and not key.startswith("report.")
        and (".trainer." not in f".{key}" or key.endswith(".precision"))
        and not (of_tables and _is_of_rows(key))
    }  # fmt: skip
    return " ".join(f"{key}={text}" for key, text in sorted(changing.items()))


def _key(override: str) -> str:
    return override.removeprefix("--").partition("=")[0]


def _is_of_rows(key: str) -> bool:
    """Does a setting change the rows of `vse`, and no system of a table?"""
    return key.startswith("vse.") and key.split(".")[1] in _OF_A_SYSTEM


def lender(recipe: Recipe, name: str, section: str = "augment") -> Recipe:
    """The recipe whose translators or captions a section of another borrows, with the borrower's trainer and data root.

    Raises:
        RecipeError: there is none, or it leads back to itself.
    """
    if name == recipe.name:
        raise RecipeError(f"recipe {name}: {section} borrows from itself; name another recipe or leave it out")
    path = _find(name, Path(recipe.file).parent) if recipe.file else name
    owner = load_recipe(path, recipe.lent)
    if owner.augment.translators or owner.augment.captions:
        raise RecipeError(f"recipe {recipe.name}: {section} borrows from {name}, which borrows itself; name its lender")
    return owner


def translator_recipe(recipe: Recipe) -> Recipe:
    """The recipe that trains a recipe's translators: itself, or the one that it borrows them from.

    Raises:
        RecipeError: as `lender`.
    """
    name = recipe.augment.captions or recipe.augment.translators
    return lender(recipe, name) if name else recipe


def require_reranked(recipe: Recipe) -> None:
    """Refuse stage rerank of a recipe that re-ranks nothing."""
    if not (recipe.mmt.rerank.systems or recipe.mmt.rerank.retrieval):
        raise RecipeError(f"recipe {recipe.name} re-ranks nothing; set mmt.rerank.retrieval.row to a row of vse.rows, "
                          "or name systems in mmt.rerank.systems and mmt.systems")  # fmt: skip


def build_recipe(raw: dict[str, Any], name: str, where: str, file_vse: dict[str, Any] | None = None) -> Recipe:
    """Check and type a recipe that has been read into plain values; `where` names its file in errors.

    Tables lie over the `vse` section, but what makes a system is taken from `file_vse`, the file's own, if given. Those
    that cannot be made are in `Recipe.refused`.

    Raises:
        RecipeError: as `load_recipe`.
    """
    raw = _at_home(raw)
    with located(where):
        refuse_unknown(raw, _TOP, "")
        trainer = mapping_of(raw, "trainer")
        check_values(typed(TrainerSettings, trainer, "trainer"), "trainer")
        sections: dict[str, Any] = {}
        values_of = {section: mapping_of(raw, section) for section in SECTIONS}
        for section, kind in SECTIONS.items():
            values = values_of[section]
            if "trainer" in names_of(kind):
                values["trainer"] = {**trainer, **mapping_of(values, "trainer", f"{section}.")}
            sections[section] = typed(kind, values, section)
        seed = raw.get("seed", 0)
        if not isinstance(seed, int) or isinstance(seed, bool) or seed < 0:
            raise RecipeError(f"seed is {seed!r}; expected a whole number from 0")
        recipe = Recipe(name=name, seed=seed, corpus=_corpus(mapping_of(raw, "corpus")), **sections)
        recipe.check()
        check_overlays(recipe)
        tables = mapping_of(raw, "tables")
    below = {key: value for key, value in values_of["vse"].items() if file_vse is None or key not in _OF_A_SYSTEM}
    below |= {key: value for key, value in (file_vse or {}).items() if key in _OF_A_SYSTEM}
    if below != values_of["vse"]:
        with suppress(RecipeError):  # a row that has no meaning without the overrides has no figures either
            settings = typed(VseSettings, below, "vse")
            check_trainings(recipe, settings, "vse")
            recipe.below_tables = settings
    for title, table in tables.items():
        try:
            recipe.tables[str(title)] = read_table(recipe, table, below, f"tables.{title}")
        except RecipeError as error:
            recipe.refused[str(title)] = f"{where}: {error}"
    every = [recipe.vse, *(system.vse for table in recipe.tables.values() for system in table.systems.values())]
    used = any(vse.first or vse.by_likelihood for vse in every) or recipe.vse.reranker or recipe.refused
    if recipe.vse.first_k != VseSettings().first_k and not used:
        raise RecipeError(f"{where}: vse.first_k is {recipe.vse.first_k}, but nothing is reranked; set vse.first, "
                          "vse.by_likelihood or vse.reranker, or leave it out")  # fmt: skip
    return recipe


def _find(name: str, folder: Path = Path()) -> Path:
    """The file of a recipe: one of `folder` if its name has a `/` or its ending, else one of the package."""
    shown, is_path, ends = name[:_SHOWN], "/" in name, name.endswith((".yaml", ".yml"))
    path = (folder if is_path or ends else CONFIGS) / (name if ends or name.endswith("/") else f"{name}.yaml")
    own = folder / f"{name}.yaml"
    try:
        there, is_folder, is_own = path.is_file(), path.is_dir(), own.is_file()
    except (OSError, ValueError):  # too long, or a NUL in it
        there = is_folder = is_own = False
    if reason := unfit_name(name):
        raise RecipeError(f"recipe {shown!r}: {reason}; rename the file")
    if is_folder:
        raise RecipeError(f"recipe {shown!r}: {str(path)[:_SHOWN]} is a folder; expected a file that ends in .yaml")
    if not there:
        known = sorted(p.stem for p in CONFIGS.glob("*.yaml"))
        near = [f"./{own.name}"] if is_own else list(map(repr, difflib.get_close_matches(shown, known, 1)))
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
        hint = "expected the path of a recipe, a file that ends in .yaml" if is_path else hint
        raise RecipeError(f"recipe {shown!r}: no file {str(path)[:_SHOWN]}; {hint}")
    return path.resolve()


def _read_with_base(path: Path, seen: tuple[Path, ...] = ()) -> dict[str, Any]:
    raw = read_mapping(read_text(path, "a recipe"), str(path))
    base = raw.pop("base", None)
    if base is None:
        return raw
    if not isinstance(base, str):
        raise RecipeError(f"{path}: base is {base!r}; expected the name or path of one recipe")
    if path in seen or len(seen) == _BASES:
        raise RecipeError(f"{path}: its base leads back to itself, or over more than {_BASES} recipes")
    below = _read_with_base(_find(base, path.parent), (*seen, path))
    if _corpus_name(raw) not in (None, _corpus_name(below) or CorpusSettings.name):
        below.pop("corpus", None)  # another corpus has other keys
    below.pop("tables", None)  # their figures were published for the base's own settings
    with located(str(path)):
        return laid_over(below, raw)


def _at_home(value: Any) -> Any:
    """Plain values in which a path that begins with ~ is one below the user's folder, as a shell would have it."""
    if isinstance(value, dict):
        return {key: _at_home(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_at_home(each) for each in value]
    return str(Path(value).expanduser()) if isinstance(value, str) and value.startswith("~/") else value


def _corpus_name(raw: Mapping[str, Any]) -> Any:
    corpus = raw.get("corpus")
    return corpus.get("name") if isinstance(corpus, Mapping) else None


def _parse_override(argument: str) -> dict[str, Any]:
    key, equals, text = argument.removeprefix("--").partition("=")
    if not argument.startswith("--") or not equals or not key:
        raise RecipeError(f"argument {argument!r}: expected --section.key=value")
    if key.count(".") > _DEEPEST:
        raise RecipeError(f"argument {argument[:_SHOWN]!r}: no setting has so many parts; expected --section.key=value")
    try:
        value = parse_yaml(text)
    except ValueError as error:
        raise RecipeError(f"argument {argument!r}: its value is not YAML ({error}); quote it") from None
    if isinstance(value, str):  # YAML reads 5e-4 as text
        with suppress(ValueError):
            value = float(value)
    for part in reversed(key.split(".")):
        value = {part: value}
    return value


def _corpus(values: dict[str, Any]) -> CorpusSettings:
    name = values.pop("name", "scenes")
    root = values.pop("root", None) or _at_home(os.environ.get("BILDWORT_DATA")) or None
    if not isinstance(name, str) or name not in CORPORA:
        near = difflib.get_close_matches(str(name), list(CORPORA), 1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(CORPORA)}"
        raise RecipeError(f"corpus.name is {name!r}; {hint}")
    own = {"name": name, "root": root}
    own |= {field.name: values.pop(field.name) for field in fields(CorpusSettings)
            if field.name in values and field.name != "options"}  # fmt: skip
    settings = typed(CorpusSettings, own, "corpus")
    return replace(settings, options=typed(CORPORA[name].settings, values, "corpus"))
