"""Commands of the stages, and the check of their data."""

import time
from typing import Annotated

import typer

from pipeline.commands.options import (
    DATA,
    SETTINGS,
    Cluster,
    DryRun,
    Force,
    Jobs,
    RecipeArgument,
    RecipeOption,
    Verbose,
    recipe_of,
    runner_for,
)
from pipeline.engine.console import info

STAGES = {
    "prepare": "Read a corpus: caption table, parallel text, region store, data report.",
    "mmt": "Train and test translators: NMT on text, then MT and MMT on captions.",
    "augment": "Translate training captions into synthetic captions.",
    "vse": "Train and test retrieval models.",
    "rerank": "Tune re-ranked translators (mmt.rerank), compare sets of features and print the table.",
}
"""The stages of `pipeline.stages`, which takes seconds to import, and what their help says."""
PLAIN_NAMES = {"augment": "translate-captions", "vse": "train"}
"""Stage → another name of its command."""

app = typer.Typer()


def _add(name: str, text: str) -> None:
    """Add the command of a stage."""

    def command(
        ctx: typer.Context, recipe: RecipeArgument = None, named: RecipeOption = None, force: Force = False,
        dry_run: DryRun = False, verbose: Verbose = False, jobs: Jobs = None, cluster: Cluster = None,
    ) -> None:  # fmt: skip
        """Run the stage."""
        loaded = recipe_of(ctx, recipe, named)
        if name == "rerank":
            from pipeline.recipes.loading import require_reranked, translator_recipe

            require_reranked(translator_recipe(loaded))
        from pipeline.stages import run_stages

        with runner_for(name, loaded, force=force, dry_run=dry_run, jobs=jobs, cluster=cluster) as made:
            run_stages([name], *made, force)

    app.command(name, **SETTINGS, help=text)(command)
    if (plain := PLAIN_NAMES.get(name)) is not None:
        app.command(plain, **SETTINGS, help=f"The same as `{name}`.")(command)


for _name, _text in STAGES.items():
    _add(_name, _text)


@app.command(**SETTINGS)
def report(
    ctx: typer.Context, recipe: RecipeArgument = None, named: RecipeOption = None,
    dry_run: DryRun = False, verbose: Verbose = False,
) -> None:  # fmt: skip
    """Print and write tables of everything that has been run."""
    loaded = recipe_of(ctx, recipe, named)
    from pipeline.reporting.report import report as print_report

    with runner_for("report", loaded, dry_run=dry_run, jobs=1) as (graph, _):
        print_report(graph)


@app.command("all", **SETTINGS)
def run_all(
    ctx: typer.Context, recipe: RecipeArgument = None, named: RecipeOption = None, force: Force = False,
    dry_run: DryRun = False, verbose: Verbose = False, jobs: Jobs = None, cluster: Cluster = None,
) -> None:  # fmt: skip
    """Run all stages, prepare, mmt, augment, vse, rerank and report, and print a summary."""
    started, loaded = time.monotonic(), recipe_of(ctx, recipe, named)
    from pipeline.commands.summary import summary
    from pipeline.engine.machine import cpu_seconds, duration
    from pipeline.stages import all_jobs, run_stages

    with runner_for("all", loaded, force=force, dry_run=dry_run, jobs=jobs, cluster=cluster) as (graph, runner):
        runner.expect(all_jobs(graph), force)  # refuses what cannot be trained before anything runs
        run_stages(list(STAGES), graph, runner, force)
        name = recipe or named
        summary(graph, [*([] if name is None else [name]), *ctx.obj])
        used, here = cpu_seconds(running=True), " here" if cluster else ""  # the processes side by side still run
        info(f"in all {duration(time.monotonic() - started)} ({duration(used)} of CPU time{here})")


@app.command(**SETTINGS, rich_help_panel=DATA)
def doctor(
    ctx: typer.Context, recipe: RecipeArgument = None, named: RecipeOption = None,
    examples: Annotated[int, typer.Option(min=0, max=1_000_000, help="examples shown with each finding")] = 5,
) -> None:  # fmt: skip
    """Check a recipe's data and show what is in it; changes nothing."""
    from pipeline.corpus.doctor import doctor as check

    check(recipe_of(ctx, recipe, named), examples)
