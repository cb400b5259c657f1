"""Commands of the stages, and the check of their data."""

import shlex
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from pipeline.commands.options import (
    EPILOG,
    Cluster,
    DryRun,
    Force,
    Jobs,
    RecipeArgument,
    RecipeOption,
    Verbose,
    load,
    recipe_of,
    run,
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
    dry_run: DryRun = False, verbose: Verbose = False, jobs: Jobs = None, cluster: Cluster = None,
) -> None:  # fmt: skip
    """Read a corpus: caption table, parallel text, region store, data report."""
    _run_stage("prepare", recipe_of(ctx, recipe, named), force, dry_run, jobs, cluster)


@app.command(epilog=EPILOG)
def mmt(
    ctx: typer.Context, recipe: RecipeArgument = None, named: RecipeOption = None, force: Force = False,
    dry_run: DryRun = False, verbose: Verbose = False, jobs: Jobs = None, cluster: Cluster = None,
) -> None:  # fmt: skip
    """Train and test translators: NMT on text, then MT and MMT on captions."""
    _run_stage("mmt", recipe_of(ctx, recipe, named), force, dry_run, jobs, cluster)


@app.command(epilog=EPILOG)
def augment(
    ctx: typer.Context, recipe: RecipeArgument = None, named: RecipeOption = None, force: Force = False,
    dry_run: DryRun = False, verbose: Verbose = False, jobs: Jobs = None, cluster: Cluster = None,
) -> None:  # fmt: skip
    """Translate training captions into synthetic captions."""
    _run_stage("augment", recipe_of(ctx, recipe, named), force, dry_run, jobs, cluster)


@app.command(epilog=EPILOG)
def vse(
    ctx: typer.Context, recipe: RecipeArgument = None, named: RecipeOption = None, force: Force = False,
    dry_run: DryRun = False, verbose: Verbose = False, jobs: Jobs = None, cluster: Cluster = None,
) -> None:  # fmt: skip
    """Train and test retrieval models."""
    _run_stage("vse", recipe_of(ctx, recipe, named), force, dry_run, jobs, cluster)


@app.command(epilog=EPILOG)
def rerank(
    ctx: typer.Context, recipe: RecipeArgument = None, named: RecipeOption = None, force: Force = False,
    dry_run: DryRun = False, verbose: Verbose = False, jobs: Jobs = None, cluster: Cluster = None,
) -> None:  # fmt: skip
    """Tune re-ranked translators (mmt.rerank), compare sets of features and print the table."""
    loaded = recipe_of(ctx, recipe, named)
    if not (loaded.mmt.rerank.systems or loaded.mmt.rerank.retrieval):
        raise RecipeError(f"recipe {loaded.name} re-ranks nothing; set mmt.rerank.retrieval.row to a row of vse.rows, "
                          "or name systems in mmt.rerank.systems and mmt.systems")  # fmt: skip
    _run_stage("rerank", loaded, force, dry_run, jobs, cluster)


@app.command(epilog=EPILOG)
def report(
    ctx: typer.Context, recipe: RecipeArgument = None, named: RecipeOption = None,
    dry_run: DryRun = False, verbose: Verbose = False,
) -> None:  # fmt: skip
    """Print and write tables of everything that has been run."""
    loaded = recipe_of(ctx, recipe, named)
    run("report", loaded, lambda workspace: _perform(["report"], loaded, workspace), dry_run=dry_run, jobs=1)


@app.command("all", epilog=EPILOG)
def run_all(
    ctx: typer.Context, recipe: RecipeArgument = None, named: RecipeOption = None, force: Force = False,
    dry_run: DryRun = False, verbose: Verbose = False, jobs: Jobs = None, cluster: Cluster = None,
) -> None:  # fmt: skip
    """Run all stages, prepare, mmt, augment, vse, rerank and report, and print a summary."""
    started, loaded = time.monotonic(), recipe_of(ctx, recipe, named)
    from pipeline.jobs.cost import cpu_seconds, duration
    from pipeline.reporting.plan import all_jobs

    def work(workspace: "Workspace") -> None:
        """All stages, and the summary."""
        workspace.expect(all_jobs(loaded, workspace), force)  # refuses what cannot be trained before anything runs
        _perform([name for name in STAGES if name != "report"], loaded, workspace, force)
        with explained("report"):
            load("pipeline.reporting.summary", "summary")(loaded, workspace, _chosen(recipe or named, ctx.obj))

    run("all", loaded, work, force=force, dry_run=dry_run, jobs=jobs, cluster=cluster)
    if not dry_run:  # the processes side by side have ended: their CPU time counts
        here = " here" if cluster else ""
        say(f"in all {duration(time.monotonic() - started)}, {duration(cpu_seconds())} of CPU time{here}")


@app.command(epilog=EPILOG)
def doctor(
    ctx: typer.Context, recipe: RecipeArgument = None, named: RecipeOption = None,
    examples: Annotated[int, typer.Option(min=0, max=1_000_000, help="examples shown with each finding")] = 5,
) -> None:  # fmt: skip
    """Check a recipe's data and show what is in it; changes nothing."""
    with explained("doctor"):
        load("pipeline.corpus.doctor", "doctor")(recipe_of(ctx, recipe, named), examples)


def _chosen(name: str | None, settings: Sequence[str]) -> str:
    """A recipe and its settings, as `make` takes them."""
    words = [f"RECIPE={name}"] if name not in (None, "scenes") else []
    words += [f"ARGS={shlex.join(settings)}"] if settings else []
    return shlex.join(words)


def _run_stage(name: str, recipe: "Recipe", force: bool, dry_run: bool, jobs: int | None, cluster: str | None) -> None:
    """Run a stage, or show what it would do."""
    run(name, recipe, lambda workspace: _perform([name], recipe, workspace, force), force=force, dry_run=dry_run,
        jobs=jobs, cluster=cluster)  # fmt: skip


def _perform(names: Sequence[str], recipe: "Recipe", workspace: "Workspace", *options: bool) -> None:
    for name in names:
        stage = load(STAGES[name], name)
        with explained(name):
            stage(recipe, workspace, *options)
