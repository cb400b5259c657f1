"""What commands share: their options, and how they get a recipe, a workspace, and the code that they run."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand

from pipeline.engine.console import be_verbose, info_aside
from pipeline.errors import RecipeError

if TYPE_CHECKING:
    from pipeline.engine.runner import Runner
    from pipeline.engine.workspace import Workspace
    from pipeline.graph import Graph
    from pipeline.recipes.settings import Recipe

CONFIGS = Path(__file__).parents[1] / "configs"
DATA, USE = "Data and recipes", "Use a trained model"
ONLY_NAMED = "The recipe only says which gallery or model is used; its settings change nothing here."
SEED_ALONE = "The recipe only says which model is used; of its settings --seed alone changes something here."


class _Completion(NamedTuple):
    """What a shell offers; Typer does not export its own class."""

    value: str
    help: str | None = None
    type: str = "plain"


class SettingsCommand(TyperCommand):
    """A command that settings of a recipe follow, which no option of it declares."""

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """What the shell offers for a word: options, and settings once a letter of them stands there."""
        offered = super().shell_complete(ctx, incomplete)
        if not incomplete.strip("-"):  # there are hundreds of settings
            return offered
        from pipeline.recipes.documentation import setting_names

        settings = (f"--{name}" for name in setting_names())
        return [*offered, *(_Completion(name) for name in settings if name.startswith(incomplete))]


SETTINGS: dict[str, Any] = {
    "cls": SettingsCommand,
    "epilog": "Settings of the recipe follow: --vse.epochs 30, or --vse.epochs=30; `bildwort config keys` lists them.",
}
"""How a command is declared that settings of a recipe follow."""


def listed(text: str) -> list[str]:
    """The names in a text, with commas between them."""
    return [name.strip() for name in text.split(",") if name.strip()]


def recipe_names(incomplete: str = "") -> list[str]:
    """The recipes of the package whose names begin with `incomplete`."""
    return sorted(path.stem for path in CONFIGS.glob("*.yaml") if path.stem.startswith(incomplete))


_RECIPE_HELP = "name of a recipe (`bildwort recipes` lists them), or a YAML file; scenes if none is given"
RecipeArgument = Annotated[
    str | None, typer.Argument(metavar="RECIPE", help=_RECIPE_HELP, autocompletion=recipe_names, show_default=False)
]
RecipeOption = Annotated[
    str | None, typer.Option("--recipe", "-r", help=_RECIPE_HELP, autocompletion=recipe_names, show_default=False)
]
Address = Annotated[str, typer.Option(help="address to listen on; 0.0.0.0: reachable from other machines")]
PORT = {"min": 0, "max": 65535}
Force = Annotated[bool, typer.Option("--force", help="run finished jobs again")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="only show what would run, its time, memory and disk; nothing is written")
]
Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", callback=be_verbose, help="print details of each job and all tables")
]

Jobs = Annotated[
    int | None,
    typer.Option(
        help="jobs that run at once; default: BILDWORT_JOBS, else by cores, memory and GPUs",
        show_default=False,
    ),
]
Cluster = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS", help="a Dask scheduler, tcp://HOST:8786, whose workers run the jobs", show_default=False
    ),
]


def recipe_of(ctx: typer.Context, name: str | None, named: str | None, networks: bool = True) -> "Recipe":
    """The recipe that a command names, with the settings that follow.

    Args:
        ctx: of the command; it holds the settings.
        networks: see `load_recipe`.

    Raises:
        RecipeError: two different recipes are named, or the recipe is wrong.
    """
    if name and named and name != named:
        raise RecipeError(f"two recipes are named, {name!r} and {named!r}; name one")
    from pipeline.recipes.loading import load_recipe

    return load_recipe(name or named or "scenes", ctx.obj, networks)


def named_recipe(ctx: typer.Context, named: str | None) -> "Recipe":
    """The recipe that only says which gallery or model is used; it says so of settings that follow, but for the seed.

    Raises:
        RecipeError: the recipe is wrong.
    """
    if unread := [word.partition("=")[0] for word in ctx.obj if not word.startswith("--seed=")]:
        info_aside(f"{unread[0]} changes nothing here: what was indexed or exported is used as it is")
    return recipe_of(ctx, None, named, networks=False)


def refuse_settings(ctx: typer.Context) -> None:
    """Refuse settings behind a command that takes none."""
    if ctx.obj:
        raise RecipeError(f"{ctx.command_path} takes no settings, but {ctx.obj[0]!r} is given; leave it out")


def open_workspace() -> "Workspace":
    """The artifacts of this folder, or of BILDWORT_ARTIFACTS."""
    from pipeline.engine.workspace import Workspace

    return Workspace()


@contextmanager
def runner_for(
    command: str, recipe: "Recipe", *, force: bool = False, dry_run: bool = False, jobs: int | None = None,
    cluster: str | None = None, table: str | None = None,
) -> Iterator["tuple[Graph, Runner]"]:  # fmt: skip
    """The graph of a recipe and what runs its jobs, side by side where it can; an error inside ends all that runs.

    With `--dry-run` it shows what the command would do, and ends the command.

    Args:
        command: a stage, `all`, `table`, `sts` or `draw`.
        table: the name of the table, of `table`.

    Raises:
        RecipeError: see `executor_for`.
        typer.Exit: it was a dry run.
    """
    from pipeline.commands.dry_run import show_plan
    from pipeline.engine.runner import Processes, Runner, executor_for
    from pipeline.engine.workspace import Workspace
    from pipeline.graph import Graph
    from pipeline.stages import jobs_of

    listed = partial(jobs_of, command, table=table)
    executor = executor_for(recipe, jobs, cluster, [jobs_of.__module__])
    with executor or nullcontext():
        if dry_run:
            workspace = Workspace(read_only=True)
            would_run = listed(recipe, workspace)
            forced = ({job.stage for job in would_run} if command == "all" else {command}) if force else ()
            show_plan(would_run, workspace, forced, 1 if executor is None else executor.at_once)
            raise typer.Exit
        workspace, processes = Workspace(), None if executor is None else Processes(executor, recipe, listed)
        yield Graph(recipe, workspace), Runner(workspace, processes)
