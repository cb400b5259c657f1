"""Commands that show figures: tables of papers, sentence similarity, two runs side by side, plots."""

from pathlib import Path
from typing import Annotated

import typer

from pipeline.commands.options import (
    PORT,
    SETTINGS,
    Address,
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
    runner_for,
)

app = typer.Typer()


@app.command(**SETTINGS)
def table(
    ctx: typer.Context, recipe: RecipeArgument = None, named: RecipeOption = None,
    name: Annotated[
        str | None, typer.Option("--table", help="the table's name; without it the names are listed")
    ] = None,
    dry_run: DryRun = False, verbose: Verbose = False, jobs: Jobs = None, cluster: Cluster = None,
) -> None:  # fmt: skip
    """Train what a paper's table needs and print it beside the published figures."""
    loaded = recipe_of(ctx, recipe, named)
    from pipeline.reporting.paper_tables import table as work

    with runner_for("table", loaded, dry_run=dry_run, jobs=jobs, cluster=cluster, table=name) as made:
        work(*made, name)


@app.command(**SETTINGS)
def sts(
    ctx: typer.Context, recipe: RecipeArgument = None, named: RecipeOption = None, force: Force = False,
    dry_run: DryRun = False, verbose: Verbose = False, jobs: Jobs = None, cluster: Cluster = None,
) -> None:  # fmt: skip
    """Test trained retrieval models on sentence similarity (sts.sets) and print Pearson's r."""
    loaded = recipe_of(ctx, recipe, named)
    from pipeline.reporting.sts import sts as work

    with runner_for("sts", loaded, force=force, dry_run=dry_run, jobs=jobs, cluster=cluster) as made:
        work(*made, force)


@app.command(**SETTINGS)
def draw(
    ctx: typer.Context, recipe: RecipeArgument = None, named: RecipeOption = None, force: Force = False,
    dry_run: DryRun = False, verbose: Verbose = False, jobs: Jobs = None, cluster: Cluster = None,
) -> None:  # fmt: skip
    """Draw what trained retrieval models look at, and their joint space, as PNG files; prints their folders."""
    loaded = recipe_of(ctx, recipe, named)
    from pipeline.reporting.drawings import draw as work

    with runner_for("draw", loaded, force=force, dry_run=dry_run, jobs=jobs, cluster=cluster) as made:
        work(*made, force)


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


@app.command()
def tensorboard(
    ctx: typer.Context,
    folder: Annotated[Path, typer.Argument(help="of the files of trainings")] = Path("lightning_logs"),
    address: Address = "127.0.0.1",
    port: Annotated[int, typer.Option(help="of the page", **PORT)] = 6006,
) -> None:
    """Open TensorBoard on the curves of trainings."""
    refuse_settings(ctx)
    from pipeline.visualization.board import show_board

    raise typer.Exit(show_board(folder, address, port))
