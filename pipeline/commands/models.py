"""Commands that use trained models: translate, export, index, search, describe."""

import os
from pathlib import Path
from typing import Annotated

import typer

from pipeline.commands.options import EPILOG, RecipeArgument, RecipeOption, load, open_workspace, recipe_of
from pipeline.errors import RecipeError
from pipeline.jobs.machine_errors import explained

GalleryFolder = Annotated[Path | None, typer.Option("--gallery", help="the gallery's folder; the recipe's own if none")]
Plain = Annotated[bool, typer.Option("--no-rerank", help="in the order of the indexed model alone")]
AsJson = Annotated[bool, typer.Option("--json", help="print JSON lines instead of a table")]

app = typer.Typer()


@app.command(epilog=EPILOG)
def translate(
    ctx: typer.Context, recipe: RecipeArgument = None, named: RecipeOption = None,
    path: Annotated[str | None, typer.Option("--with", help="system and languages: mt:en-de, mmt:en-de-en")] = None,
    source: Annotated[Path | None, typer.Option("--input", help="a sentence a line; standard input if none")] = None,
    output: Annotated[Path | None, typer.Option(help="where to; standard output if none")] = None,
    images: Annotated[Path | None, typer.Option(help="an image id a line, for a system that reads regions")] = None,
    n_best: Annotated[int, typer.Option(help="translations a sentence; more than 1 are written as JSON lines")] = 1,
) -> None:  # fmt: skip
    """Translate a file line by line with a recipe's translators."""
    loaded = recipe_of(ctx, recipe, named)
    if path is None:
        raise RecipeError("translate: --with is missing; expected a system and languages, --with mt:en-de")
    run = load("pipeline.translation.translate", "translate")
    with explained("augment"):
        run(loaded, open_workspace(), path, source, output, images, n_best)


@app.command(epilog=EPILOG)
def export(
    ctx: typer.Context, recipe: RecipeArgument = None, named: RecipeOption = None,
    output: Annotated[Path | None, typer.Option(help="the folder; artifacts/RECIPE/model if none is given")] = None,
) -> None:  # fmt: skip
    """Write the best trained model to a folder that can be moved and shared."""
    loaded, workspace = recipe_of(ctx, recipe, named), open_workspace()
    from pipeline.search.export import export as run
    from pipeline.search.export import model_of

    run(loaded, workspace, output or model_of(loaded, workspace))


@app.command(epilog=EPILOG)
def index(
    ctx: typer.Context, recipe: RecipeArgument = None, named: RecipeOption = None, gallery: GalleryFolder = None,
    model: Annotated[Path | None, typer.Option(help="an exported model; the recipe's best if none is given")] = None,
    pictures: Annotated[Path | None, typer.Option(help="a folder of pictures; the corpus's if none is given")] = None,
) -> None:  # fmt: skip
    """Bring a gallery up to date with the pictures of a folder or of the corpus."""
    loaded = recipe_of(ctx, recipe, named)
    run = load("pipeline.search.index_command", "index")
    with explained("index"):
        run(loaded, open_workspace(), model, gallery, pictures, os.cpu_count() or 1)


@app.command(epilog=EPILOG)
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
    loaded = recipe_of(ctx, None, named, networks=False)
    run = load("pipeline.search.commands", "search")
    with explained("search"):
        run(loaded, open_workspace(), gallery, query, queries, language, top, rerank, plain, as_json, sheet)


@app.command(epilog=EPILOG)
def describe(
    ctx: typer.Context,
    picture: Annotated[str | None, typer.Argument(help="a file, or a name in the gallery", show_default=False)] = None,
    named: RecipeOption = None, gallery: GalleryFolder = None,
    top: Annotated[int, typer.Option(help="captions a language")] = 5, plain: Plain = False, as_json: AsJson = False,
) -> None:  # fmt: skip
    """Find the captions nearest to a picture, in every language."""
    loaded = recipe_of(ctx, None, named, networks=False)
    run = load("pipeline.search.commands", "describe")
    with explained("describe"):
        run(loaded, open_workspace(), gallery, picture, top, plain, as_json)
