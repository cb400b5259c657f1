"""Commands that show figures: tables of papers, sentence similarity, two runs side by side, plots."""

from pathlib import Path
from typing import Annotated

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
    open_workspace,
    recipe_of,
    refuse_settings,
    run,
)
from pipeline.jobs.machine_errors import explained

app = typer.Typer()


@app.command(epilog=EPILOG)
def table(
    ctx: typer.Context, recipe: RecipeArgument = None, named: RecipeOption = None,
    name: Annotated[str | None, typer.Option("--table", help="which of the recipe's tables")] = None,
    dry_run: DryRun = False, verbose: Verbose = False, jobs: Jobs = None, cluster: Cluster = None,
) -> None:  # fmt: skip
    """Train what a paper's table needs and print it beside the published figures."""
    loaded = recipe_of(ctx, recipe, named)
    with explained("vse"):
        work = load("pipeline.reporting.paper_tables", "table")
        run("table", loaded, lambda workspace: work(loaded, workspace, name), dry_run=dry_run, jobs=jobs,
            cluster=cluster, table=name)  # fmt: skip


@app.command(epilog=EPILOG)
def sts(
    ctx: typer.Context, recipe: RecipeArgument = None, named: RecipeOption = None, force: Force = False,
    dry_run: DryRun = False, verbose: Verbose = False, jobs: Jobs = None, cluster: Cluster = None,
) -> None:  # fmt: skip
    """Test trained retrieval models on sentence similarity (sts.sets) and print Pearson's r."""
    loaded = recipe_of(ctx, recipe, named)
    with explained("sts"):
        work = load("pipeline.reporting.sts", "sts")
        run("sts", loaded, lambda workspace: work(loaded, workspace, force), force=force, dry_run=dry_run, jobs=jobs,
            cluster=cluster)  # fmt: skip


@app.command(epilog=EPILOG)
def draw(
    ctx: typer.Context, recipe: RecipeArgument = None, named: RecipeOption = None, force: Force = False,
    dry_run: DryRun = False, verbose: Verbose = False, jobs: Jobs = None, cluster: Cluster = None,
) -> None:  # fmt: skip
    """Draw what trained retrieval models look at, and their joint space, as PNG files; prints their folders."""
    loaded = recipe_of(ctx, recipe, named)
    with explained("draw"):
        work = load("pipeline.reporting.drawings", "draw")
        run("draw", loaded, lambda workspace: work(loaded, workspace, force), force=force, dry_run=dry_run, jobs=jobs,
            cluster=cluster)  # fmt: skip


@app.command()
def compare(
    ctx: typer.Context,
    first: Annotated[str, typer.Argument(help="a finished job: its folder, `job/key`, or the first digits of a key")],
    second: Annotated[str, typer.Argument(help="the other one")],
) -> None:
    """Show why two runs differ: settings, inputs, source, libraries, figures."""
    refuse_settings(ctx)
    load("pipeline.reporting.compare", "compare")(first, second, open_workspace())


@app.command()
def plots(
    ctx: typer.Context,
    output: Annotated[Path | None, typer.Option(help="folder of the pictures; .screenshots if none is given")] = None,
) -> None:
    """Draw the READMEs' plots of recorded figures."""
    refuse_settings(ctx)
    load("pipeline.reporting.recorded_plots", "plots")(*([output] if output else []))
