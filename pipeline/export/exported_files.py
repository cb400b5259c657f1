"""The files of an exported model: which there are, and that each is what was exported."""

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from data.pictures.extractor import ExtractorSettings
from pipeline.engine.artifacts import has_form, read_json
from pipeline.engine.console import command
from pipeline.engine.files import digest_of
from pipeline.engine.machine_errors import of_machine
from pipeline.engine.workspace import Workspace
from pipeline.errors import RecipeError
from pipeline.recipes.settings import Recipe
from pipeline.recipes.typed import check_values, located
from pipeline.training.model_files import MODEL_FILES, TEXT
from pipeline.translation.translator_files import RETRIEVAL, files_of_translator, lies_elsewhere

FORMAT = 1
ABOUT, CARD, TRANSLATORS, RERANKER = "model.json", "README.md", "translators", "reranker"
CASING = "casing.json"
"""Target language → words as people write them, with their capital letters."""
_TRANSLATOR = re.compile(r"mm?t\d*(\+\w+)*-[a-z]{2,3}-[a-z]{2,3}", re.ASCII)
_OF_REGIONS = ("regions", "size", "version")
_KINDS = (".json", ".safetensors", ".txt", ".model", ".yaml", ".md")
_PICKLES = (".bin", ".ckpt", ".joblib", ".npy", ".npz", ".pickle", ".pkl", ".pt", ".pth")
Item = TypeVar("Item")
LICENSE = "LICENSE"
OF_OWNERS = {CARD, LICENSE}
"""Files that whoever shares a model may change or add; nothing is read from them."""


def require_outside(option: str, folder: Path, model: Path) -> None:
    """Refuse a folder for other files in that of an exported model, or the same one, by a RecipeError."""
    if Path(os.path.realpath(folder)).is_relative_to(os.path.realpath(model)):  # of a link to itself too
        raise RecipeError(f"{option} {folder}: lies in the model's folder {model}, which has exported files only; "
                          "choose another folder")  # fmt: skip


def require_texts(method: str, texts: Iterable[str]) -> list[str]:
    """A list of sentences; a RecipeError for one that is in no list, what is no text, and half a character.

    Args:
        method: what a message begins with.
        texts: any iterable, but a mapping or a table, whose keys these would be.
    """
    if isinstance(texts, str):
        raise RecipeError(f"{method}: expected a list of sentences, not one")
    listed = listed_items(method, texts, "sentences")
    for place, text in enumerate(listed):
        if not isinstance(text, str):
            raise RecipeError(f"{method}: item {place} is {text!r:.80}; expected a text")
    require_utf8(listed)
    return listed


def listed_items(method: str, items: Iterable[Item], what: str) -> list[Item]:
    """Items of any iterable, but a mapping or a table; a RecipeError for what is none."""
    if isinstance(items, bytes | Mapping) or hasattr(items, "columns") or not isinstance(items, Iterable):
        raise RecipeError(f"{method}: expected a list of {what}, not {type(items).__name__}")
    return list(items)


def require_utf8(texts: Iterable[str]) -> None:
    """Refuse sentences with half a character (a lone surrogate), as JSON can have them, by a RecipeError."""
    for text in texts:
        if not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text):
            raise RecipeError(f"{text.encode('utf-8', 'backslashreplace').decode()!r}: not UTF-8; convert it")


def read_about(folder: Path) -> dict[str, Any]:
    """The contents of `model.json` of an exported model.

    Raises:
        RecipeError: there is none, or it is damaged or of another format.
    """
    path, wanted = folder / ABOUT, command("export", target=["export"])
    try:
        about = json.loads(path.read_text(encoding="utf-8"))
        kinds = {"format": int, "name": str, "languages": list, "files": dict}
        whole = all(isinstance(about[name], kind) for name, kind in kinds.items())
        whole = whole and all(isinstance(digest, str) for digest in about["files"].values())
        regions = about["regions"]
        if not whole or not (regions is None or {type(regions[name]) for name in _OF_REGIONS} == {int}):
            raise ValueError("it is not complete")
        if any(Path(name).is_absolute() or ".." in Path(name).parts for name in about["files"]):
            raise ValueError("it names files outside the folder")
        for model in [about] if about.get("reranker") is None else [about, about["reranker"]]:
            if not model["languages"] or not has_form(model["languages"], [str]):
                raise ValueError("its languages are none")
            if not all(0 <= float(scores["t2i_r1"]) <= 100 for scores in (model.get("test") or {}).values()):
                raise ValueError("its test has no shares of right answers")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        why = f"no {ABOUT}" if isinstance(error, FileNotFoundError) else repr(error)
        missing = RecipeError(f"{path}: no exported model here ({why}); run `{wanted}` with its recipe")
        raise of_machine(error, path) or missing from None
    if about["format"] != FORMAT:
        raise RecipeError(f"{path}: format {about['format']}, this code reads {FORMAT}; run `{wanted}` again")
    with located(str(path)):
        check_values({} if regions is None else ExtractorSettings(regions["regions"], regions["size"]), "regions")
    return dict(about)


def translators_in(folder: Path, files: Mapping[str, str]) -> list[str]:
    """The names of the translators of an exported model, each whole and by itself.

    Raises:
        RecipeError: one is not.
    """
    translators: dict[str, set[str]] = {}
    for name in files:
        if name.startswith(f"{TRANSLATORS}/"):
            of, _, file = name.removeprefix(f"{TRANSLATORS}/").partition("/")
            translators.setdefault(of, set())
            if not file.startswith(f"{RETRIEVAL}/{TEXT}/"):
                translators[of].add(file)
    for name, held in translators.items():
        place = folder / TRANSLATORS / name
        if not _TRANSLATOR.fullmatch(name) or "network.json" not in held or held != files_of_translator(place):
            raise RecipeError(f"{place}: no whole translator; get the model folder again")
        if lies_elsewhere(place):
            raise RecipeError(f"{place}: names a pretrained translator that lies elsewhere; an exported model has none")
    return sorted(translators)


def require_text_models(models: Sequence[Path]) -> None:
    """Refuse a model folder in which a model names a text model that it does not bring.

    Args:
        models: folders of its models: its own, its reranker's, those that re-rank translations.
    """
    for folder in models:
        named = False
        with suppress(ValueError, KeyError, TypeError, AttributeError):  # `load_model` says what is wrong
            network, words = (read_json(folder / name) for name in ("network.json", "words.json"))
            named = network["arguments"].get("pretrained") is not None or "pretrained" in words
        if named and not (folder / TEXT / "config.json").is_file():
            raise RecipeError(f"{folder}: its text model ({TEXT}/) is missing; get the model folder again")


def require_nothing_elsewhere(folder: Path, files: Iterable[str]) -> None:
    """Refuse a model folder in which settings of a part name a network elsewhere, on the hub or on this disk."""
    for name in files:
        if name.endswith(("network.json", "config.json")):
            content = read_json(folder / name)
            arguments = content.get("arguments") if isinstance(content, dict) else None
            top = {**arguments, "pretrained": None} if isinstance(arguments, dict) else content  # its own text model
            try:
                named = _elsewhere(top)
            except RecursionError:
                raise RecipeError(f"{folder / name}: its settings are too deep; get the model from elsewhere") from None
            if named is not None:
                raise RecipeError(f"{folder / name}: names the network {named!r}, which is no part of the model; get "
                                  "the model from elsewhere")  # fmt: skip


def _elsewhere(settings: Any) -> str | None:
    """The network that settings, or those in them, say is to be loaded from elsewhere; None if they name none."""
    if isinstance(settings, list):
        return next(filter(None, map(_elsewhere, settings)), None)
    if not isinstance(settings, dict):
        return None
    if isinstance(named := settings.get("pretrained"), str):
        return named
    if isinstance(named := settings.get("backbone"), str) and (
        settings.get("use_pretrained_backbone") or "/" in named or ":" in named
    ):
        return named
    return _elsewhere(list(settings.values()))


def check_files(folder: Path) -> dict[str, Any]:
    """Refuse a model folder whose files are not those that were exported, or could run code.

    Returns:
        the contents of its `model.json`, as `read_about`.

    Raises:
        RecipeError: it is so; it names the file.
    """
    about = read_about(folder)
    files = about["files"]
    paths = [path.relative_to(folder) for path in folder.rglob("*") if not path.is_dir()]
    present = {path.as_posix() for path in paths if not any(part.startswith(".") for part in path.parts)} - {ABOUT}
    for path in (folder / name for name in sorted(present)):
        if path.suffix in _PICKLES:
            raise RecipeError(f"{path}: can be a pickle, which runs code when it is read; an exported model has "
                              "safetensors only: delete the file, or get the model from elsewhere")  # fmt: skip
        if path.suffix in (".py", ".so", ".pyc"):
            raise RecipeError(f"{path}: code in a model folder is not run; delete it, or get the model from elsewhere")
    for name in sorted({*MODEL_FILES, *files}):
        if name not in files:
            raise RecipeError(f"{folder / ABOUT}: names no {name}; get the model folder again")
        if name not in present:
            raise RecipeError(f"{folder / name}: no such file, though {ABOUT} names it; get the model folder again")
        if Path(name).suffix not in _KINDS:
            raise RecipeError(f"{folder / name}: a file of this kind is not loaded; expected {', '.join(_KINDS)}")
        if name not in OF_OWNERS and digest_of(folder / name) != files[name]:
            raise RecipeError(f"{folder / name}: is not what was exported; get the model folder again (one of the hub: "
                              "`hf download NAME --force-download`)")  # fmt: skip
    if foreign := sorted(present - files.keys() - OF_OWNERS):
        raise RecipeError(f"{folder / foreign[0]}: was not exported; move it out of the model folder")
    return about


def model_of(recipe: Recipe, workspace: Workspace) -> Path:
    """Where a recipe's model is exported to, unless the command says otherwise."""
    return workspace.of_recipe(recipe.name, recipe.file) / "model"
