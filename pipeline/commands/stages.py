"""Commands of the stages, and the check of their data."""

import shlex
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from pipeline.commands.options import (
    EPILOG,
    DryRun,
    Force,
    RecipeArgument,
    RecipeOption,
    Verbose,
    load,
    open_workspace,
    recipe_of,
    show_dry_run,
)
from pipeline.errors import RecipeError
from pipeline.jobs.console import say
from pipeline.jobs.machine_errors import explained

if TYPE_CHECKING:
    from pipeline.jobs.workspace import Workspace
    from pipeline.recipes.settings import Recipe

STAGES = {
    "prepare": "pipeline.corpus.prepare",
    "mmt": "pipeline.translation.mmt",
    "augment": "pipeline.translation.augment",
    "vse": "pipeline.retrieval.vse",
    "rerank": "pipeline.reporting.rerank",
    "report": "pipeline.reporting.report",
}

app = typer.Typer()


@app.command(epilog=EPILOG)
def prepare(
    ctx: typer.Context, recipe: RecipeArgument = None, named: RecipeOption = None, force: Force = False,
    dry_run: DryRun = False, verbose: Verbose = False,
) -> None:  # fmt: skip
    """Read a corpus: caption table, parallel text, region store, data report."""
    _run_stage("prepare", recipe_of(ctx, recipe, named), force, dry_run)


@app.command(epilog=EPILOG)
def mmt(
    ctx: typer.Context, recipe: RecipeArgument = None, named: RecipeOption = None, force: Force = False,
    dry_run: DryRun = False, verbose: Verbose = False,
) -> None:  # fmt: skip
    """Train and test translators: NMT on text, then MT and MMT on captions."""
    _run_stage("mmt", recipe_of(ctx, recipe, named), force, dry_run)


@app.command(epilog=EPILOG)
def augment(
    ctx: typer.Context, recipe: RecipeArgument = None, named: RecipeOption = None, force: Force = False,
    dry_run: DryRun = False, verbose: Verbose = False,
) -> None:  # fmt: skip
    """Translate training captions into synthetic captions."""
    _run_stage("augment", recipe_of(ctx, recipe, named), force, dry_run)


@app.command(epilog=EPILOG)
def vse(
    ctx: typer.Context, recipe: RecipeArgument = None, named: RecipeOption = None, force: Force = False,
    dry_run: DryRun = False, verbose: Verbose = False,
) -> None:  # fmt: skip
    """Train and test retrieval models."""
    _run_stage("vse", recipe_of(ctx, recipe, named), force, dry_run)


@app.command(epilog=EPILOG)
def rerank(
    ctx: typer.Context, recipe: RecipeArgument = None, named: RecipeOption = None, force: Force = False,
    dry_run: DryRun = False, verbose: Verbose = False,
) -> None:  # fmt: skip
    """Tune re-ranked translators (mmt.rerank), compare sets of features and print the table."""
    loaded = recipe_of(ctx, recipe, named)
    if not (loaded.mmt.rerank.systems or loaded.mmt.rerank.retrieval):
        raise RecipeError(f"recipe {loaded.name} re-ranks nothing; set mmt.rerank.retrieval.row to a row of vse.rows, "
                          "or name systems in mmt.rerank.systems and mmt.systems")  # fmt: skip
    _run_stage("rerank", loaded, force, dry_run)


@app.command(epilog=EPILOG)
def report(
    ctx: typer.Context, recipe: RecipeArgument = None, named: RecipeOption = None,
    dry_run: DryRun = False, verbose: Verbose = False,
) -> None:  # fmt: skip
    """Print and write tables of everything that has been run."""
    _run_stage("report", recipe_of(ctx, recipe, named), False, dry_run)


@app.command("all", epilog=EPILOG)
def run_all(
    ctx: typer.Context, recipe: RecipeArgument = None, named: RecipeOption = None, force: Force = False,
    dry_run: DryRun = False, verbose: Verbose = False,
    jobs: Annotated[int | None, typer.Option(min=1, help="jobs side by side; by the cores if none is given")] = None,
) -> None:  # fmt: skip
    """Run all stages, prepare, mmt, augment, vse, rerank and report, and print a summary."""
    started, loaded = time.monotonic(), recipe_of(ctx, recipe, named)
    from pipeline.jobs.cost import cpu_seconds, duration
    from pipeline.jobs.side_by_side import SideBySide, processes_for
    from pipeline.jobs.workspace import Workspace
    from pipeline.reporting.plan import all_jobs

    many = processes_for(loaded) if jobs is None else jobs
    if dry_run:
        show_dry_run("all", loaded, force, many)
        return
    side_by_side = SideBySide(loaded, all_jobs, many) if many > 1 else None
    workspace = Workspace(side_by_side=side_by_side)
    workspace.expect(all_jobs(loaded, workspace), force)  # refuses what cannot be trained before anything runs
    _run_stages([name for name in STAGES if name != "report"], loaded, force, workspace)
    with explained("report"):
        load("pipeline.reporting.summary", "summary")(loaded, workspace, _chosen(recipe or named, ctx.obj))
    if side_by_side is not None:
        side_by_side.close()
    say(f"in all {duration(time.monotonic() - started)}, {duration(cpu_seconds())} of CPU time")


@app.command(epilog=EPILOG)
def doctor(
    ctx: typer.Context, recipe: RecipeArgument = None, named: RecipeOption = None,
    examples: Annotated[int, typer.Option(help="examples shown with each finding")] = 5,
) -> None:  # fmt: skip
    """Check a recipe's data and show what is in it; changes nothing."""
    with explained("doctor"):
        load("pipeline.corpus.doctor", "doctor")(recipe_of(ctx, recipe, named), examples)


def _chosen(name: str | None, settings: Sequence[str]) -> str:
    """A recipe and its settings, as `make` takes them."""
    words = [f"RECIPE={name}"] if name not in (None, "scenes") else []
    words += [f"ARGS={shlex.join(settings)}"] if settings else []
    return shlex.join(words)


def _run_stage(name: str, recipe: "Recipe", force: bool, dry_run: bool) -> None:
    """Run a stage, or show what it would do."""
    if dry_run:
        show_dry_run(name, recipe, force)
    else:
        _run_stages([name], recipe, force)


def _run_stages(
    names: Sequence[str], recipe: "Recipe", force: bool = False, workspace: "Workspace | None" = None
) -> None:
    workspace = workspace or open_workspace()
    for name in names:
        stage = load(STAGES[name], name)
        with explained(name):
            stage(recipe, workspace, force)
