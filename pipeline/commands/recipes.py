"""Commands that list recipes and settings, write a recipe for a folder of pictures, and look after data sets."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipeline.commands.options import (
    CONFIGS,
    SETTINGS,
    RecipeArgument,
    RecipeOption,
    listed,
    open_workspace,
    recipe_names,
    recipe_of,
    refuse_settings,
)

if TYPE_CHECKING:
    from pipeline.recipes.settings import Recipe

app = typer.Typer()
config = typer.Typer(help="Show the settings of a recipe, or all settings there are.", no_args_is_help=True)
app.add_typer(config, name="config")


@app.command()
def init(
    ctx: typer.Context,
    source: Annotated[
        str, typer.Argument(metavar="FOLDER", help="pictures and captions, or hub:NAME of an image-caption data set")
    ],
    output: Annotated[
        Path | None, typer.Option(help="the recipe, or a folder for it; beside FOLDER, with its name, if none is given")
    ] = None,
    captions: Annotated[
        Path | None, typer.Option(help="the file of captions, or a folder of texts; found if none is given")
    ] = None,
    backbone: Annotated[
        str | None,
        typer.Option(
            help="a dual encoder, or a network for regions, by folder or hub name; or built-in; default: the first of "
            "SigLIP 2, SigLIP, CLIP that is available"
        ),
    ] = None,
    translator: Annotated[
        str | None,
        typer.Option(help="writes captions in a second language: folder or hub name, or none; default: OPUS-MT"),
    ] = None,
    to: Annotated[
        str | None, typer.Option(help="language of the translations; default: de, or en where captions are German")
    ] = None,
    languages: Annotated[
        str | None, typer.Option(help="languages of the captions, en,de …; default: those of the files, else detected")
    ] = None,
    skip_missing: Annotated[
        bool, typer.Option("--skip-missing", help="leave out captions whose picture is not there or cannot be read")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="replace the recipe, and the data that init has written")
    ] = False,
) -> None:
    """Look at a folder of pictures and captions, write a recipe for it, and print the next commands."""
    refuse_settings(ctx)
    from pipeline.init.command import InitOptions, init

    options = InitOptions(captions, output, backbone, translator, to, listed(languages or ""), skip_missing, force)
    init(source, options, open_workspace().root)


@app.command("data")
def data_set(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(help="multi30k, flickr8k or coco")],
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="where its files are, or will be")],
    download: Annotated[
        bool, typer.Option("--download", help="download missing files, except those that their owners give on request")
    ] = False,
) -> None:
    """Say where the files of a data set come from, check those in a folder, and lay them out for the recipes."""
    refuse_settings(ctx)
    from pipeline.corpus.originals import show_originals

    show_originals(name, folder, download)


@app.command()
def recipes(ctx: typer.Context) -> None:
    """List the recipes that come with the package."""
    refuse_settings(ctx)
    width = max(map(len, recipe_names())) + 2
    for name in recipe_names():
        first = (CONFIGS / f"{name}.yaml").read_text(encoding="utf-8").partition("\nseed")[0].partition("\nbase")[0]
        text = " ".join(line.lstrip("# ") for line in first.splitlines() if line.startswith("#"))
        print(f"{name:{width}}{re.split(r'(?<=[.:]) |:$', text)[0].rstrip(':')}")


@app.command(**SETTINGS, context_settings={"ignore_unknown_options": True, "allow_extra_args": True})
def extras(
    ctx: typer.Context, recipe: RecipeArgument = None, named: RecipeOption = None,
    table: Annotated[str | None, typer.Option("--table", help="a table of the recipe: its extras too")] = None,
) -> None:  # fmt: skip
    """Print the extras that a recipe needs, and the command that adds them; nothing where it needs none."""
    name = None if recipe and recipe.startswith("-") else recipe  # an option of the command that `make` runs next
    if needed := _extras_of(recipe_of(ctx, name, named, networks=False), table):
        print(f'{" ".join(needed)}: make setup EXTRA="{" ".join(needed)}"')


@config.command("show", **SETTINGS)
def show(ctx: typer.Context, recipe: RecipeArgument = None, named: RecipeOption = None) -> None:
    """Print a recipe's settings, each with its documentation; the output is a recipe too, without the tables."""
    from pipeline.recipes.documentation import documented_recipe

    print(documented_recipe(recipe_of(ctx, recipe, named)))


@config.command("keys")
def keys(
    ctx: typer.Context, section: Annotated[str | None, typer.Argument(help="mmt, vse …; all if none")] = None
) -> None:
    """List the settings there are, with type, default and documentation."""
    refuse_settings(ctx)
    from pipeline.recipes.documentation import documented_keys

    for line in documented_keys(section):
        print(line)


def _extras_of(recipe: "Recipe", table: str | None) -> list[str]:
    """The extras of `pyproject.toml` that a recipe needs, or a table of it too."""
    from data.text.segmentation import PACKAGES
    from pipeline.recipes.overlays import trainings_beside, trainings_of
    from pipeline.recipes.retrieval_settings import slots_in

    systems = recipe.tables[table].systems.values() if table in recipe.tables else ()
    sections = [recipe.vse, *(system.vse for system in systems), *trainings_beside(recipe).values()]
    trainings = [training for vse in sections for training in trainings_of(vse, "vse").values()]
    slots = [slot for vse in trainings for row in vse.only for slot in slots_in(vse.rows[row])]
    languages = {slot.language for slot in slots}.union(*(vse.test for vse in trainings))
    loggers = {name for stage in (recipe.mmt, recipe.augment, recipe.vse) for name in stage.trainer.loggers}
    files = {file for vse in trainings for file in vse.word_vectors.values()}
    needed = {
        "fasttext": any(vse.words == "fasttext" for vse in trainings) or any(file.endswith(".bin") for file in files),
        "asian": any(vse.segment == "words" for vse in trainings) and not languages.isdisjoint(PACKAGES),
        "lora": any("lora" in (vse.options.get("text"), vse.options.get("image")) for vse in trainings),
        "translators": bool(recipe.mmt.pretrained),
        "wandb": "wandb" in loggers,
    }
    return [name for name, wanted in needed.items() if wanted]
