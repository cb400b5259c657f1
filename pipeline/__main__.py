"""`python -m pipeline STAGE --recipe NAME [--section.key=value …]`: what the Makefile's targets run."""

import os

# Before torch is imported: waiting threads that spin take the cores from those that work (10× and more when shared).
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import argparse
import re
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.markup import escape

from data.errors import DataError
from modules.errors import ModelError
from pipeline.errors import RecipeError
from pipeline.jobs.console import ERRORS, printable, say
from pipeline.jobs.cost import cpu_seconds
from pipeline.jobs.machine_errors import lost_process, out_of_memory, unwritten
from pipeline.jobs.workspace import Workspace
from pipeline.recipes.loading import load_recipe
from pipeline.recipes.settings import Recipe

STAGES = ("prepare", "mmt", "augment", "vse", "report")
ALL, DOCTOR, TABLE, TRANSLATE = "all", "doctor", "table", "translate"
EXPORT, INDEX, SEARCH, DESCRIBE = "export", "index", "search", "describe"


_USING = (INDEX, SEARCH, DESCRIBE)
_OPTIONS: dict[str, tuple[str, tuple[str, ...]]] = {
    "with": ("path", (TRANSLATE,)), "input": ("input", (TRANSLATE,)), "output": ("output", (TRANSLATE, EXPORT)),
    "images": ("images", (TRANSLATE,)), "n-best": ("n_best", (TRANSLATE,)), "model": ("model", (INDEX,)),
    "gallery": ("gallery", _USING), "pictures": ("pictures", (INDEX,)), "queries": ("queries", (SEARCH,)),
    "language": ("language", (SEARCH,)), "top": ("top", (SEARCH, DESCRIBE)), "rerank": ("rerank", (SEARCH,)),
    "json": ("json", (SEARCH, DESCRIBE)), "sheet": ("sheet", (SEARCH,)),
}  # fmt: skip


_NAMES = {"recipe", "compare", "table", "examples", *_OPTIONS}
_SPACE = "\x1f"


def main(arguments: list[str] | None = None) -> int:
    """Run one stage of a recipe; errors that a person can act on are one line, and the status is 1."""
    parser = argparse.ArgumentParser(prog="python -m pipeline", description=__doc__, allow_abbrev=False)
    parser.add_argument(
        "stage", choices=(*STAGES, ALL, DOCTOR, TABLE, TRANSLATE, EXPORT, INDEX, SEARCH, DESCRIBE),
        help="one stage, all, or another look",
    )  # fmt: skip
    parser.add_argument("query", nargs="?", help="with search: what for; with describe: a picture")
    parser.add_argument("--recipe", default="scenes", help="name of a file in pipeline/configs, or a path")
    parser.add_argument("--force", action="store_true", help="with a stage: run its jobs even if they are done")
    parser.add_argument("--compare", nargs=2, metavar=("A", "B"), help="with report: say why two runs differ")
    parser.add_argument("--table", help="with table: which of the recipe's tables to train and print")
    parser.add_argument("--examples", type=int, help="with doctor: examples shown with each finding (5)")
    parser.add_argument("--with", dest="path", help="with translate: system and languages, `mt:en-de`, `mt:en-de-en`")
    parser.add_argument("--input", type=Path, help="with translate: a sentence a line (standard input)")
    parser.add_argument("--output", type=Path, help="with translate, export: where to")
    parser.add_argument("--images", type=Path, help="with translate: an image id a line, for a system that looks")
    parser.add_argument("--n-best", type=int, help="with translate: more than the best, as JSON lines")
    parser.add_argument("--model", type=Path, help="with index: an exported model (the recipe's best)")
    parser.add_argument("--gallery", type=Path, help="with index, search, describe: its folder (the recipe's)")
    parser.add_argument("--pictures", type=Path, help="with index: a folder of pictures (those of the corpus)")
    parser.add_argument("--queries", type=Path, help="with search: a query a line, or JSON lines (.jsonl)")
    parser.add_argument("--language", help="with search: of the queries (told apart)")
    parser.add_argument("--top", type=int, help="with search: pictures a query (10); with describe: captions (5)")
    parser.add_argument("--rerank", type=Path, help="with search: an exported SCAN that orders the first hundred")
    parser.add_argument("--json", action="store_true", default=None, help="with search, describe: JSON lines")
    parser.add_argument("--sheet", type=Path, help="with search: an HTML page with the pictures")
    arguments = sys.argv[1:] if arguments is None else arguments
    known, overrides = parser.parse_known_intermixed_args(_without_spaces(arguments))
    overrides = [one.replace(_SPACE, " ") for one in overrides]
    if known.stage in (SEARCH, DESCRIBE) and known.query is None and len(overrides) > 1 and overrides[-1][:2] != "--":
        known.query = overrides.pop()  # argparse takes what follows an unknown option for more of them
    _quieten()
    started = time.monotonic()
    try:
        _run(known, overrides)
    except (DataError, ModelError, RecipeError) as error:
        ERRORS.print(f"[red]error:[/] {escape(printable(str(error)))}")
        return 1
    except BrokenPipeError:  # whoever read us has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        if (line := unwritten(error)) is None:
            raise
        ERRORS.print(f"[red]error:[/] {escape(line)}")
        return 1
    except KeyboardInterrupt:
        ERRORS.print("stopped; the same command goes on from the last checkpoint")
        return 130
    if known.stage == ALL:
        say(f"in all {time.monotonic() - started:.0f} s, {cpu_seconds():.0f} s of CPU time")
    return 0


def _without_spaces(arguments: list[str]) -> list[str]:
    """With a space in it, argparse would take an override (`--vse.rows={both: [en/human]}`) for the query."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    return [
        one.replace(" ", _SPACE)
        if place < end and re.match(r"--[\w.]+=", one) and one.partition("=")[0][2:] not in _NAMES else one
        for place, one in enumerate(arguments)
    ]  # fmt: skip


def _run(known: argparse.Namespace, overrides: list[str]) -> None:
    """What the command line asks for."""
    options = (
        ("compare", known.compare, ("report",)), ("examples", known.examples, (DOCTOR,)),
        ("table", known.table, (TABLE,)), ("force", known.force or None, (*STAGES[:-1], ALL)),
        *((name, getattr(known, key), stages) for name, (key, stages) in _OPTIONS.items()),
    )  # fmt: skip
    for name, given, stages in options:
        if given is not None and known.stage not in stages:
            raise RecipeError(f"--{name} goes with {', '.join(stages)}, not with {known.stage}")
    if known.query is not None and known.stage not in (SEARCH, DESCRIBE):
        raise RecipeError(f"{known.query!r} goes with search or describe, not with {known.stage}")
    recipe = load_recipe(known.recipe, overrides)
    if known.stage in (EXPORT, *_USING):
        _use(known, recipe)
    elif known.compare:
        from pipeline.reporting.compare import compare

        compare(known.compare[0], known.compare[1], Workspace())
    elif known.stage == DOCTOR:
        from pipeline.corpus.doctor import doctor

        with _told(DOCTOR):
            doctor(recipe, 5 if known.examples is None else known.examples)
    elif known.stage == TRANSLATE:
        if known.path is None:
            raise RecipeError("translate: --with is missing; expected a system and languages, --with mt:en-de")
        from pipeline.translation.translate import translate

        with _told("augment"):
            n_best = 1 if known.n_best is None else known.n_best
            translate(recipe, Workspace(), known.path, known.input, known.output, known.images, n_best)
    elif known.stage == TABLE:
        from pipeline.reporting.paper_tables import table

        with _told("vse"):
            table(recipe, Workspace(), known.table)
    else:
        if known.stage == ALL:  # a row that nothing can be trained on is told before the first hour
            from pipeline.retrieval.vse import vse_rows

            vse_rows(recipe, Workspace())
        for name in STAGES if known.stage == ALL else (known.stage,):
            with _told(name):
                _stage(name)(recipe, Workspace(), known.force)


def _use(known: argparse.Namespace, recipe: Recipe) -> None:
    """What is done with a trained model."""
    from pipeline.search.commands import describe, search
    from pipeline.search.export import export, model_of
    from pipeline.search.index_command import index

    workspace = Workspace()
    with _told("vse"):
        if known.stage == EXPORT:
            export(recipe, workspace, known.output or model_of(recipe, workspace))
        elif known.stage == INDEX:
            index(recipe, workspace, known.model, known.gallery, known.pictures, os.cpu_count() or 1)
        elif known.stage == SEARCH:
            top = 10 if known.top is None else known.top
            asked = known.query, known.queries, known.language
            search(recipe, workspace, known.gallery, *asked, top, known.rerank, bool(known.json), known.sheet)
        else:
            top = 5 if known.top is None else known.top
            describe(recipe, workspace, known.gallery, known.query, top, bool(known.json))


@contextmanager
def _told(stage: str) -> Iterator[None]:
    """Raise errors of the machine's as a `RecipeError` that says what to do."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if (line := out_of_memory(error, stage) or lost_process(error, stage)) is None:
            raise
        raise RecipeError(line) from None


def _stage(name: str) -> Callable[..., None]:
    """The stage's function; imported late, so that a slip in a recipe is told within a second."""
    if name == "prepare":
        from pipeline.corpus.prepare import prepare as stage
    elif name == "mmt":
        from pipeline.translation.mmt import mmt as stage
    elif name == "augment":
        from pipeline.translation.augment import augment as stage
    elif name == "vse":
        from pipeline.retrieval.vse import vse as stage
    else:
        from pipeline.reporting.report import report as stage
    return stage


def _thread_failed(failure: threading.ExceptHookArgs) -> None:
    """Leave to the main thread what a full disk does to TensorBoard's writer: it hears of it at its next figure."""
    if not (isinstance(failure.exc_value, OSError) and unwritten(failure.exc_value)):
        threading.__excepthook__(failure)


def _quieten() -> None:
    """Keep Lightning's notices about things we chose on purpose out of the way of what matters."""
    threading.excepthook = _thread_failed
    for message in (".*does not have many workers.*", ".*Checkpoint directory.*exists and is not empty.*",
                    ".*LeafSpec.*", ".*isinstance.treespec.*", ".*You're resuming from a checkpoint.*",
                    ".*no-op.*", ".*Trying to infer the .batch_size.*"):  # fmt: skip
        warnings.filterwarnings("ignore", message)


if __name__ == "__main__":
    sys.exit(main())
