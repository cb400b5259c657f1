"""`init`: a recipe for a folder of pictures, from what is found in it."""

import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from data.corpora import Corpus
from data.corpora.subset import without_unreadable
from data.errors import DataError
from data.own_captions.checks import as_of_source, require_usable
from data.own_captions.corpus import read_found
from data.own_captions.data_set_files import HUB, is_data_set
from data.own_captions.data_sets import write_data_set
from data.own_captions.detection import FoundCaptions, look_at
from data.pictures.extractor import ExtractorSettings
from data.pictures.folder import is_written, unfit_name
from data.pictures.images import unreadable
from data.text.language_codes import ISO_639_1, require_language
from modules.pretrained.hub import ask_hub
from pipeline.engine.console import command, flag, info, status
from pipeline.engine.files import require_output, write_output
from pipeline.errors import RecipeError
from pipeline.init.messages import what_comes_next, what_was_found
from pipeline.init.networks import BUILT_IN, NONE, choose_backbone, choose_dual_encoder, choose_translator
from pipeline.init.recipe_text import Plan, recipe_text
from pipeline.recipes.loading import CONFIGS, load_recipe

_TRIED = 4  # pictures that a network reads to be timed


@dataclass
class InitOptions:
    """What the command line says: the options of `init`."""

    captions: Path | None = None
    output: Path | None = None
    backbone: str | None = None
    translator: str | None = None
    to: str | None = None
    languages: Sequence[str] = ()
    skip_missing: bool = False
    force: bool = False


def init(source: str, options: InitOptions, artifacts: Path) -> None:
    """Look at pictures and captions, write a recipe for them, and print what was found and what comes next.

    Args:
        source: a folder, or `hub:NAME` of an image–caption data set.
        artifacts: folder of results, which must not lie among the pictures.

    Raises:
        DataError, ModelError: the pictures, captions or networks cannot be read.
        RecipeError: the recipe exists or cannot be called so, there are too few pictures, or the data has errors.
    """
    if not source.strip():
        example = command("init", "FOLDER", target=["init", "PICTURES=FOLDER"])
        raise RecipeError(
            f"init: no folder is named; expected one with pictures and captions (`{example}`), or {HUB}NAME of a "
            "data set"
        )
    whole = source if source.startswith(HUB) else str(Path(source).absolute())
    if reason := unfit_name(whole):  # no recipe can name it
        raise RecipeError(f"{whole!r}: {reason}; rename the folder")
    codes = dict.fromkeys(require_language(name, "--languages") for name in options.languages)
    options = replace(options, languages=[*codes])
    if options.to is not None:
        options = replace(options, to=require_language(options.to, "--to"))
    if wrong := [code for code in options.languages if len(code) == 2 and code not in ISO_639_1]:
        raise RecipeError(f"--languages: {wrong[0]!r}; expected codes like en or de (ISO 639), with commas between")
    output = _output(source, options)
    with ExitStack() as undo:
        found, written = _found(source, output, options, undo)
        if artifacts.resolve().is_relative_to((found.root / found.pictures).resolve()):
            raise RecipeError(f"results would go to {artifacts}, among the pictures; start it from another folder, or "
                              "set BILDWORT_ARTIFACTS to one")  # fmt: skip
        try:
            found, corpus = read_found(found)
            if options.skip_missing:
                found.corpus["unreadable"], corpus = "skip", without_unreadable(corpus)
            else:
                corpus.require_pictures(f", or all such lines out by {flag('--skip-missing')}")
            require_usable(found, corpus)
        except DataError as error:
            raise as_of_source(error, found.captions, source) if written else error from None
        plan = _plan(source, found, corpus, options)
        _write(recipe_text(plan), output)
        undo.pop_all()
    for line in [*what_was_found(plan), *what_comes_next(output, plan)]:
        info(line)


def _target(options: InitOptions, languages: Sequence[str]) -> str:
    """The language of synthetic captions, if there are to be some; RecipeError if options of it contradict."""
    target, named = options.to or ("de" if languages != ["de"] else "en"), " and ".join(languages)
    if options.to in languages:
        raise RecipeError(f"--to: captions are in {named} already; name another language, or leave --to out")
    if options.translator not in (None, NONE) and len(languages) > 1 and options.to is None:
        raise RecipeError(f"--translator: captions are in {named}; name another language by --to, or leave it out")
    return target


def _output(source: str, options: InitOptions) -> Path:
    """Where the recipe goes: beside the pictures' folder, so that none of its files are taken for somebody's own."""
    place, output = Path(source.removeprefix(HUB)), options.output
    if not source.startswith(HUB):
        place = place.resolve() if place.absolute().name in ("", "..") else place.absolute()
    known = {path.stem for path in CONFIGS.glob("*.yaml")}
    if output is None or output.is_dir() or not output.suffix:
        stem = re.sub(r"[^\w-]", "-", place.name).strip("-") or "pictures"
        folder = output or (Path() if source.startswith(HUB) else place.parent)
        output = folder / f"{stem}{'-pictures' if stem in known else ''}.yaml"
    if output.suffix not in (".yaml", ".yml"):
        raise RecipeError(f"--output: {output}; expected a folder, or a recipe that ends in .yaml")
    if output.stem in known:
        raise RecipeError(f"--output: {output.stem} is the name of a recipe of the package, and results are kept by "
                          "name; choose another one")  # fmt: skip
    require_output(output, "init: --output", options.force, [options.captions])
    here = Path.cwd()
    return output.relative_to(here) if output.is_relative_to(here) else output


def _found(source: str, output: Path, options: InitOptions, undo: ExitStack) -> tuple[FoundCaptions, bool]:
    """The captions of a folder, or those of a data set, which are written as a TSV beside the recipe; are they?"""
    if not source.startswith(HUB) and not Path(source).is_dir():
        raise DataError(
            f"{source}: no such folder; expected one with pictures and captions, or {HUB}NAME of a data set"
        )
    if source.startswith(HUB) and options.captions is not None:
        raise RecipeError(f"--captions: {source} brings its captions; leave --captions out, or name a folder")
    if options.captions is not None or not is_data_set(source):
        return look_at(Path(source), options.captions, options.languages), False
    data = output.absolute().parent / f"{output.stem}-data"
    exists = data.exists()
    if exists and is_written(data) and not options.force:
        raise RecipeError(f"{data} exists, where the data set is to be written; replace it by "
                          f"{flag('--force')}, or choose another --output")  # fmt: skip
    if source.startswith(HUB):
        ask_hub()
    with status("reading the data set …"):
        found = write_data_set(source, data, options.languages)
    if not exists:  # else the next try would be refused
        undo.callback(shutil.rmtree, data, ignore_errors=True)
    return found, True


def _plan(source: str, found: FoundCaptions, corpus: Corpus, options: InitOptions) -> Plan:
    """What the recipe is written from, once the networks have been tried."""
    counts = Counter(caption.language for caption in corpus.captions)
    languages = [language for language, _ in counts.most_common()]
    target = _target(options, languages)
    readable = (path for path in corpus.pictures.values() if not unreadable({"": path}, whole=True))
    tried, wanted = [*islice(readable, _TRIED)], options.backbone
    with status("trying a dual encoder …"):
        dual = choose_dual_encoder(wanted, tried)
    with status("trying a vision network …"):  # `prepare` needs regions, though a dual encoder reads none
        backbone = choose_backbone(wanted if dual.model is None else BUILT_IN, tried, ExtractorSettings().regions)
    translator = None
    if target not in languages and (len(languages) == 1 or options.to):
        with status("trying a translator …"):
            translator = choose_translator(options.translator, f"{languages[0]}-{target}")
    return Plan(source, found, corpus, languages, dual, backbone, translator, target)


def _write(text: str, output: Path) -> None:
    """Write the recipe; one that could not be loaded would be an error of this program."""
    with tempfile.TemporaryDirectory() as folder:
        draft = Path(folder) / output.name
        draft.write_text(text, encoding="utf-8")
        load_recipe(str(draft))
    write_output(output, text, "init: --output")
