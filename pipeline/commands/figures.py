"""Commands that show figures: tables of papers, sentence similarity, two runs side by side, plots."""

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
    open_workspace,
    recipe_of,
    refuse_settings,
    run,
)
from pipeline.engine.machine_errors import explained

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
        from pipeline.reporting.paper_tables import table as work

        run("table", loaded, lambda graph: work(graph, name), dry_run=dry_run, jobs=jobs,
            cluster=cluster, table=name)  # fmt: skip


@app.command(epilog=EPILOG)
def sts(
    ctx: typer.Context, recipe: RecipeArgument = None, named: RecipeOption = None, force: Force = False,
    dry_run: DryRun = False, verbose: Verbose = False, jobs: Jobs = None, cluster: Cluster = None,
) -> None:  # fmt: skip
    """Test trained retrieval models on sentence similarity (sts.sets) and print Pearson's r."""
    loaded = recipe_of(ctx, recipe, named)
    with explained("sts"):
        from pipeline.reporting.sts import sts as work

        run("sts", loaded, lambda graph: work(graph, force), force=force, dry_run=dry_run, jobs=jobs,
            cluster=cluster)  # fmt: skip


@app.command(epilog=EPILOG)
def draw(
    ctx: typer.Context, recipe: RecipeArgument = None, named: RecipeOption = None, force: Force = False,
    dry_run: DryRun = False, verbose: Verbose = False, jobs: Jobs = None, cluster: Cluster = None,
) -> None:  # fmt: skip
    """Draw what trained retrieval models look at, and their joint space, as PNG files; prints their folders."""
    loaded = recipe_of(ctx, recipe, named)
    with explained("draw"):
        from pipeline.reporting.drawings import draw as work

        run("draw", loaded, lambda graph: work(graph, force), force=force, dry_run=dry_run, jobs=jobs,
            cluster=cluster)  # fmt: skip


@app.command()
def compare(
    ctx: typer.Context,
    first: Annotated[str, typer.Argument(help="a finished job: its folder, `job/key`, or the first digits of a key")],
    second: Annotated[str, typer.Argument(help="the other one")],
) -> None:
    """Show why two runs differ: settings, inputs, source, libraries, figures."""
    refuse_settings(ctx)
    from pipeline.reporting.compare import compare

    compare(first, second, open_workspace())
