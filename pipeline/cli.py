"""The command line: `bildwort COMMAND [RECIPE] [--section.key VALUE …]`, a subcommand for each verb.

A command imports what it needs when it runs: help, and the refusal of a wrong setting, need no torch.
"""

import os

# Before torch is imported: waiting threads that spin take the cores from those that work (10× and more when shared).
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import re
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from data.errors import DataError
from modules.errors import ModelError
from pipeline.errors import RecipeError
from pipeline.jobs.console import ERRORS, be_verbose, escaped, say
from pipeline.jobs.machine_errors import explained, quieten, unwritten
from pipeline.recipes.command_line import split_settings

if TYPE_CHECKING:
    from pipeline.jobs.workspace import Workspace
    from pipeline.recipes.settings import Recipe

CONFIGS = Path(__file__).parent / "configs"
STAGES = {
    "prepare": "pipeline.corpus.prepare",
    "mmt": "pipeline.translation.mmt",
    "augment": "pipeline.translation.augment",
    "vse": "pipeline.retrieval.vse",
    "report": "pipeline.reporting.report",
}
UsageError: type[Exception] = typer.BadParameter.__bases__[0]  # Typer does not export it
_INTERRUPTED = 130  # by Ctrl-C, as shells and Typer have it
_EPILOG = "Settings of the recipe follow: --vse.epochs 30, or --vse.epochs=30; `bildwort config keys` lists them."


def recipe_names(incomplete: str = "") -> list[str]:
    """The recipes of the package whose names begin with `incomplete`."""
    return sorted(path.stem for path in CONFIGS.glob("*.yaml") if path.stem.startswith(incomplete))


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"bildwort {installed_version('bildwort')}")
        raise typer.Exit


_RECIPE_HELP = "name of a recipe (`bildwort recipes` lists them), or a YAML file; scenes if none is given"
RecipeArgument = Annotated[
    str | None, typer.Argument(metavar="[RECIPE]", help=_RECIPE_HELP, autocompletion=recipe_names, show_default=False)
]
RecipeOption = Annotated[
    str | None, typer.Option("--recipe", "-r", help=_RECIPE_HELP, autocompletion=recipe_names, show_default=False)
]
Force = Annotated[bool, typer.Option("--force", help="run finished jobs again")]
Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", callback=be_verbose, help="print details of each job and all tables")
]
GalleryFolder = Annotated[Path | None, typer.Option("--gallery", help="the gallery's folder; the recipe's own if none")]
Plain = Annotated[bool, typer.Option("--no-rerank", help="in the order of the indexed model alone")]
AsJson = Annotated[bool, typer.Option("--json", help="print JSON lines instead of a table")]

app = typer.Typer(
    name="bildwort", help="Multilingual image-text retrieval, trained with captions that a translator writes.",
    no_args_is_help=True, pretty_exceptions_enable=False, context_settings={"help_option_names": ["-h", "--help"]},
)  # fmt: skip
config = typer.Typer(help="Show the settings of a recipe, or all settings there are.", no_args_is_help=True)
app.add_typer(config, name="config")


@app.callback()
def _options(
    version: Annotated[bool, typer.Option("--version", callback=_show_version, is_eager=True, help="show it")] = False,
) -> None:
    """Options of the program itself."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; an error that a person can act on is one line, and the status 1 (2: no such command)."""
    quieten()
    be_verbose(False)
    try:
        settings, rest = split_settings(sys.argv[1:] if arguments is None else arguments)
        status = typer.main.get_command(app).main(rest, "bildwort", standalone_mode=False, obj=settings)
    except (DataError, ModelError, RecipeError) as error:
        ERRORS.print(f"[red]error:[/] {escaped(str(error))}")
        return 1
    except (typer.Abort, KeyboardInterrupt):
        status = _INTERRUPTED
    except BrokenPipeError:  # the reader of our output has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        if (line := unwritten(error)) is None:
            raise
        ERRORS.print(f"[red]error:[/] {escaped(line)}")
        return 1
    except UsageError as error:
        if text := " ".join(error.format_message().split()):  # type: ignore[attr-defined] # none: help was printed
            ERRORS.print(f"[red]error:[/] {escaped(text)}")
        return 2
    if status == _INTERRUPTED:
        ERRORS.print("stopped; the same command continues from the last checkpoint")
    return int(status or 0)


@app.command(epilog=_EPILOG)
def prepare(
    ctx: typer.Context, recipe: RecipeArgument = None, named: RecipeOption = None, force: Force = False,
    verbose: Verbose = False,
) -> None:  # fmt: skip
    """Read a corpus: caption table, parallel text, region store, data report."""
    _run_stages(["prepare"], _recipe(ctx, recipe, named), force)


@app.command(epilog=_EPILOG)
def mmt(
    ctx: typer.Context, recipe: RecipeArgument = None, named: RecipeOption = None, force: Force = False,
    verbose: Verbose = False,
) -> None:  # fmt: skip
    """Train and test translators: NMT on text, then MT and MMT on captions."""
    _run_stages(["mmt"], _recipe(ctx, recipe, named), force)


@app.command(epilog=_EPILOG)
def augment(
    ctx: typer.Context, recipe: RecipeArgument = None, named: RecipeOption = None, force: Force = False,
    verbose: Verbose = False,
) -> None:  # fmt: skip
    """Translate training captions into synthetic captions."""
    _run_stages(["augment"], _recipe(ctx, recipe, named), force)


@app.command(epilog=_EPILOG)
def vse(
    ctx: typer.Context, recipe: RecipeArgument = None, named: RecipeOption = None, force: Force = False,
    verbose: Verbose = False,
) -> None:  # fmt: skip
    """Train and test retrieval models."""
    _run_stages(["vse"], _recipe(ctx, recipe, named), force)


@app.command(epilog=_EPILOG)
def report(
    ctx: typer.Context, recipe: RecipeArgument = None, named: RecipeOption = None, verbose: Verbose = False
) -> None:
    """Print and write tables of everything that has been run."""
    _run_stages(["report"], _recipe(ctx, recipe, named))


@app.command("all", epilog=_EPILOG)
def run_all(
    ctx: typer.Context, recipe: RecipeArgument = None, named: RecipeOption = None, force: Force = False,
    verbose: Verbose = False,
    jobs: Annotated[int | None, typer.Option(min=1, help="jobs side by side; by the cores if none is given")] = None,
) -> None:  # fmt: skip
    """Run all stages, prepare, mmt, augment, vse and report, and print a summary."""
    started, loaded = time.monotonic(), _recipe(ctx, recipe, named)
    from pipeline.jobs.cost import cpu_seconds, duration
    from pipeline.jobs.side_by_side import SideBySide, processes_for
    from pipeline.jobs.workspace import Workspace
    from pipeline.reporting.plan import all_jobs

    many = processes_for(loaded) if jobs is None else jobs
    side_by_side = SideBySide(loaded, all_jobs, many) if many > 1 else None
    workspace = Workspace(side_by_side=side_by_side)
    workspace.expect(all_jobs(loaded, workspace), force)  # refuses what cannot be trained before anything runs
    _run_stages([name for name in STAGES if name != "report"], loaded, force, workspace)
    with explained("report"):
        _load("pipeline.reporting.summary", "summary")(loaded, workspace, _chosen(recipe or named, ctx.obj))
    if side_by_side is not None:
        side_by_side.close()
    say(f"in all {duration(time.monotonic() - started)}, {duration(cpu_seconds())} of CPU time")


@app.command(epilog=_EPILOG)
def doctor(
    ctx: typer.Context, recipe: RecipeArgument = None, named: RecipeOption = None,
    examples: Annotated[int, typer.Option(help="examples shown with each finding")] = 5,
) -> None:  # fmt: skip
    """Check a recipe's data and show what is in it; changes nothing."""
    with explained("doctor"):
        _load("pipeline.corpus.doctor", "doctor")(_recipe(ctx, recipe, named), examples)


@app.command(epilog=_EPILOG)
def table(
    ctx: typer.Context, recipe: RecipeArgument = None, named: RecipeOption = None,
    name: Annotated[str | None, typer.Option("--table", help="which of the recipe's tables")] = None,
    verbose: Verbose = False,
) -> None:  # fmt: skip
    """Train what a paper's table needs and print it beside the published figures."""
    with explained("vse"):
        _load("pipeline.reporting.paper_tables", "table")(_recipe(ctx, recipe, named), _workspace(), name)


@app.command()
def compare(
    ctx: typer.Context,
    first: Annotated[str, typer.Argument(help="a finished job: its folder, `job/key`, or the first digits of a key")],
    second: Annotated[str, typer.Argument(help="the other one")],
) -> None:
    """Show why two runs differ: settings, inputs, source, libraries, figures."""
    _refuse_settings(ctx)
    _load("pipeline.reporting.compare", "compare")(first, second, _workspace())


@app.command()
def plots(
    ctx: typer.Context,
    output: Annotated[Path | None, typer.Option(help="folder of the pictures; .screenshots if none is given")] = None,
) -> None:
    """Draw the READMEs' plots of recorded figures."""
    _refuse_settings(ctx)
    _load("pipeline.reporting.recorded_plots", "plots")(*([output] if output else []))


@app.command(epilog=_EPILOG)
def translate(
    ctx: typer.Context, recipe: RecipeArgument = None, named: RecipeOption = None,
    path: Annotated[str | None, typer.Option("--with", help="system and languages: mt:en-de, mmt:en-de-en")] = None,
    source: Annotated[Path | None, typer.Option("--input", help="a sentence a line; standard input if none")] = None,
    output: Annotated[Path | None, typer.Option(help="where to; standard output if none")] = None,
    images: Annotated[Path | None, typer.Option(help="an image id a line, for a system that reads regions")] = None,
    n_best: Annotated[int, typer.Option(help="translations a sentence; more than 1 are written as JSON lines")] = 1,
) -> None:  # fmt: skip
    """Translate a file line by line with a recipe's translators."""
    loaded = _recipe(ctx, recipe, named)
    if path is None:
        raise RecipeError("translate: --with is missing; expected a system and languages, --with mt:en-de")
    run = _load("pipeline.translation.translate", "translate")
    with explained("augment"):
        run(loaded, _workspace(), path, source, output, images, n_best)


@app.command(epilog=_EPILOG)
def export(
    ctx: typer.Context, recipe: RecipeArgument = None, named: RecipeOption = None,
    output: Annotated[Path | None, typer.Option(help="the folder; artifacts/RECIPE/model if none is given")] = None,
) -> None:  # fmt: skip
    """Write the best trained model to a folder that can be moved and shared."""
    loaded, workspace = _recipe(ctx, recipe, named), _workspace()
    from pipeline.search.export import export as run
    from pipeline.search.export import model_of

    run(loaded, workspace, output or model_of(loaded, workspace))


@app.command(epilog=_EPILOG)
def index(
    ctx: typer.Context, recipe: RecipeArgument = None, named: RecipeOption = None, gallery: GalleryFolder = None,
    model: Annotated[Path | None, typer.Option(help="an exported model; the recipe's best if none is given")] = None,
    pictures: Annotated[Path | None, typer.Option(help="a folder of pictures; the corpus's if none is given")] = None,
) -> None:  # fmt: skip
    """Bring a gallery up to date with the pictures of a folder or of the corpus."""
    loaded = _recipe(ctx, recipe, named)
    run = _load("pipeline.search.index_command", "index")
    with explained("index"):
        run(loaded, _workspace(), model, gallery, pictures, os.cpu_count() or 1)


@app.command(epilog=_EPILOG)
def search(
    ctx: typer.Context, query: Annotated[str | None, typer.Argument(help="a few words", show_default=False)] = None,
    named: RecipeOption = None, gallery: GalleryFolder = None,
    queries: Annotated[Path | None, typer.Option(help="a query a line, or JSON lines (.jsonl)")] = None,
    language: Annotated[str | None, typer.Option(help="of the queries; detected if none is given")] = None,
    top: Annotated[int, typer.Option(help="pictures a query")] = 10,
    rerank: Annotated[Path | None, typer.Option(help="an exported SCAN that reranks; the gallery's if none")] = None,
    plain: Plain = False, as_json: AsJson = False,
    sheet: Annotated[Path | None, typer.Option(help="write an HTML page with the pictures too")] = None,
) -> None:  # fmt: skip
    """Find the pictures nearest to a sentence."""
    loaded = _recipe(ctx, None, named, networks=False)
    run = _load("pipeline.search.commands", "search")
    with explained("search"):
        run(loaded, _workspace(), gallery, query, queries, language, top, rerank, plain, as_json, sheet)


@app.command(epilog=_EPILOG)
def describe(
    ctx: typer.Context,
    picture: Annotated[str | None, typer.Argument(help="a file, or a name in the gallery", show_default=False)] = None,
    named: RecipeOption = None, gallery: GalleryFolder = None,
    top: Annotated[int, typer.Option(help="captions a language")] = 5, plain: Plain = False, as_json: AsJson = False,
) -> None:  # fmt: skip
    """Find the captions nearest to a picture, in every language."""
    loaded = _recipe(ctx, None, named, networks=False)
    run = _load("pipeline.search.commands", "describe")
    with explained("describe"):
        run(loaded, _workspace(), gallery, picture, top, plain, as_json)


@app.command()
def recipes(ctx: typer.Context) -> None:
    """List the recipes that come with the package."""
    _refuse_settings(ctx)
    for name in recipe_names():
        first = (CONFIGS / f"{name}.yaml").read_text(encoding="utf-8").partition("\nseed")[0].partition("\nbase")[0]
        text = " ".join(line.lstrip("# ") for line in first.splitlines() if line.startswith("#"))
        print(f"{name:27}{re.split(r'(?<=[.:]) |:$', text)[0].rstrip(':')}")


@config.command("show", epilog=_EPILOG)
def show(ctx: typer.Context, recipe: RecipeArgument = None, named: RecipeOption = None) -> None:
    """Print a recipe with all its settings, each with its documentation; the output is a recipe too."""
    print(_load("pipeline.recipes.documentation", "documented_recipe")(_recipe(ctx, recipe, named)))


@config.command("keys")
def keys(
    ctx: typer.Context, section: Annotated[str | None, typer.Argument(help="mmt, vse …; all if none")] = None
) -> None:
    """List the settings there are, with type, default and documentation."""
    _refuse_settings(ctx)
    for line in _load("pipeline.recipes.documentation", "documented_keys")(section):
        print(line)


def _recipe(ctx: typer.Context, name: str | None, named: str | None, networks: bool = True) -> "Recipe":
    """The recipe that a command names, with the settings that follow."""
    if name and named and name != named:
        raise RecipeError(f"two recipes are named, {name!r} and {named!r}; name one")
    return _load("pipeline.recipes.loading", "load_recipe")(name or named or "scenes", ctx.obj, networks)


def _refuse_settings(ctx: typer.Context) -> None:
    if ctx.obj:
        raise RecipeError(f"{ctx.command_path} takes no settings, but {ctx.obj[0]!r} is given; leave it out")


def _load(module: str, name: str) -> Callable[..., Any]:
    """A function of a module, imported now."""
    return getattr(import_module(module), name)


def _workspace() -> "Workspace":
    from pipeline.jobs.workspace import Workspace

    return Workspace()


def _chosen(name: str | None, settings: Sequence[str]) -> str:
    """A recipe and its settings, as `make` takes them."""
    words = [f"RECIPE={name}"] if name not in (None, "scenes") else []
    words += [f"ARGS={shlex.join(settings)}"] if settings else []
    return shlex.join(words)


def _run_stages(
    names: Sequence[str], recipe: "Recipe", force: bool = False, workspace: "Workspace | None" = None
) -> None:
    workspace = workspace or _workspace()
    for name in names:
        stage = _load(STAGES[name], name)
        with explained(name):
            stage(recipe, workspace, force)
