"""Commands that use trained models: translate, export, evaluate, index, search, describe, embed, caption, imagine."""

from pathlib import Path
from typing import Annotated

import typer

from data.processes import cores
from pipeline.commands.options import (
    DATA,
    ONLY_NAMED,
    SEED_ALONE,
    SETTINGS,
    RecipeArgument,
    RecipeOption,
    listed,
    named_recipe,
    open_workspace,
    recipe_of,
    refuse_settings,
)
from pipeline.engine.files import require_output
from pipeline.errors import RecipeError

GalleryFolder = Annotated[Path | None, typer.Option("--gallery", help="the gallery's folder; the recipe's own if none")]
MOST = 1_000_000
"""Results that can be asked for."""
_MODEL_HELP = "an exported model, or its name on the hub"
_MEASURED_HELP = f"{_MODEL_HELP}; hub:NAME: a dual encoder of transformers as it is (CLIP, SigLIP), by folder or name"
ModelFolder = Annotated[Path | None, typer.Option("--model", help=f"{_MODEL_HELP}; the recipe's own if none")]
Plain = Annotated[bool, typer.Option("--no-rerank", help="do not rerank: keep the order of the indexed model")]
Replace = Annotated[bool, typer.Option("--force", help="replace the output file if it exists")]
AsJson = Annotated[bool, typer.Option("--json", help="print JSON lines instead of a table")]

app = typer.Typer()


@app.command(**SETTINGS)
def translate(
    ctx: typer.Context, recipe: RecipeArgument = None, named: RecipeOption = None,
    path: Annotated[
        str | None, typer.Option("--with", help="required: system and languages, mt:en-de or mmt:en-de-en")
    ] = None,
    model: Annotated[Path | None, typer.Option(help=f"{_MODEL_HELP}, for its translators")] = None,
    source: Annotated[Path | None, typer.Option("--input", help="a sentence a line; standard input if none")] = None,
    output: Annotated[Path | None, typer.Option(help="file to write; standard output if none")] = None,
    images: Annotated[Path | None, typer.Option(help="an image a line: its id; with --model, its file")] = None,
    n_best: Annotated[
        int, typer.Option(max=1000, help="translations a sentence, up to augment.beam_size; several: JSON lines")
    ] = 1,
    moses: Annotated[bool, typer.Option("--moses", help="write n-best lists in Moses' format")] = False,
    force: Replace = False,
) -> None:  # fmt: skip
    """Translate a file line by line with the translators of a recipe or of an exported model."""
    if output is not None:
        require_output(output, "translate: --output", force, [source, images])
    loaded = recipe_of(ctx, recipe, named)
    if path is None:
        raise RecipeError("translate: --with is missing; expected a system and languages, --with mt:en-de")
    from pipeline.export.translate import TranslationRequest, translate_by_recipe, translate_exported

    request = TranslationRequest(path, source, output, images, n_best, moses)
    if model is not None:
        translate_exported(model, loaded.augment, request)
    else:
        translate_by_recipe(loaded, open_workspace(), request)


@app.command("rerank-translations")
def rerank_translations(
    ctx: typer.Context,
    tune: Annotated[Path, typer.Option(help="n-best lists that weights are tuned on, in Moses' format")],
    references: Annotated[Path, typer.Option(help="their references, a sentence a line")],
    features: Annotated[Path | None, typer.Option(help="further features: names, then a line a candidate")] = None,
    lists: Annotated[Path | None, typer.Option(help="other lists to re-rank; those of --tune if none")] = None,
    lists_references: Annotated[Path | None, typer.Option(help="references of --lists, to score them")] = None,
    lists_features: Annotated[Path | None, typer.Option(help="further features of --lists")] = None,
    use: Annotated[str, typer.Option(help="features that are weighted, name,name …; all if none are given")] = "",
    seeds: Annotated[int, typer.Option(help="tunings (seeds 1, 2 …); the best re-ranks")] = 5,
    language: Annotated[str | None, typer.Option(help="of the translations; needed for those without spaces")] = None,
    output: Annotated[
        Path | None, typer.Option(help="file for the best translations, a sentence a line; default: scores alone")
    ] = None,
    n_best: Annotated[bool, typer.Option("--n-best", help="write whole lists in their new order instead")] = False,
    force: Replace = False,
) -> None:  # fmt: skip
    """Re-rank n-best lists of any toolkit by weights that k-best MIRA tunes on other lists."""
    refuse_settings(ctx)
    if n_best and output is None:
        raise RecipeError("rerank-translations: --n-best chooses what --output FILE holds; give that too")
    if output is not None:
        inputs = [tune, references, features, lists, lists_references, lists_features]
        require_output(output, "rerank-translations: --output", force, inputs)
    if lists is None and (lists_references or lists_features):
        raise RecipeError("rerank-translations: --lists-references and --lists-features need --lists")
    from pipeline.translation.nbest import ListFiles
    from pipeline.translation.nbest import rerank_translations as run

    test = None if lists is None else ListFiles(lists, lists_references, lists_features)
    run(ListFiles(tune, references, features), test, listed(use), seeds, language, output, n_best)


@app.command(**SETTINGS)
def export(
    ctx: typer.Context, recipe: RecipeArgument = None, named: RecipeOption = None,
    output: Annotated[Path | None, typer.Option(help="the folder; artifacts/RECIPE/model if none is given")] = None,
    license_id: Annotated[str | None, typer.Option("--license", help="for the model card: mit, cc-by-4.0 …")] = None,
    push: Annotated[str | None, typer.Option(help="USER/NAME: upload the folder to the hub")] = None,
    private: Annotated[bool, typer.Option("--private", help="with --push: only you can read it there")] = False,
    onnx: Annotated[Path | None, typer.Option(help="a folder: write the model there as two ONNX files too")] = None,
    transformers: Annotated[Path | None, typer.Option(help="a folder: a dual encoder, for transformers")] = None,
) -> None:  # fmt: skip
    """Write the best trained model to a folder that can be moved and shared."""
    loaded, workspace = recipe_of(ctx, recipe, named), open_workspace()
    from pipeline.export.export import export_and_share as run

    run(loaded, workspace, output, license_id, push, private, onnx, transformers)


@app.command(**SETTINGS, rich_help_panel=DATA)
def network(
    ctx: typer.Context, folder: Annotated[Path, typer.Argument(help="where to; it must not exist")],
    named: RecipeOption = None,
    languages: Annotated[str, typer.Option(help="of the captions that its words are from: en,de")] = "en",
    side: Annotated[int, typer.Option(min=8, max=1024, help="pixels of a picture's side")] = 64,
    patch: Annotated[int, typer.Option(min=2, max=256, help="pixels of a patch's side")] = 8,
    width: Annotated[int, typer.Option(min=32, max=4096, help="numbers of a vector, and of a tower's state")] = 128,
    layers: Annotated[int, typer.Option(min=1, max=48, help="layers of each tower")] = 4,
    vocabulary: Annotated[int, typer.Option(min=300, max=10**6, help="entries of its tokenizer")] = 1000,
) -> None:  # fmt: skip
    """Write a small dual encoder with random weights, by `--seed`, to train from nothing (`vse.pretrained: FOLDER`)."""
    loaded, workspace = recipe_of(ctx, None, named), open_workspace()
    from pipeline.vectors.new_network import network_of_corpus as run

    run(loaded, workspace, folder, listed(languages), side, patch, width, layers, vocabulary)


@app.command(epilog="Settings of the recipe of --on recipe:NAME follow: --corpus.root=FOLDER.")
def evaluate(
    ctx: typer.Context,
    model: Annotated[str, typer.Argument(help=_MEASURED_HELP)],
    on: Annotated[str, typer.Option("--on", help="a folder with pictures and captions, recipe:NAME, or mteb:TASK")],
    split: Annotated[
        str | None, typer.Option(help="train, val or test; default: test, all of a folder, the task's own of mteb")
    ] = None,
    against: Annotated[str | None, typer.Option(help="a second model; show how much better the first one is")] = None,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Measure a model on other data, and say how much of it the model was trained on."""
    loaded = None
    if on.startswith("recipe:"):
        if not (name := on.removeprefix("recipe:")):
            raise RecipeError("--on recipe: expected the name of a recipe behind it, or its YAML file")
        loaded = recipe_of(ctx, name, None, networks=False)
    else:
        refuse_settings(ctx)
    from pipeline.evaluation.command import evaluate as run

    run(model, on, loaded, open_workspace(), split, as_json, against)


@app.command(**SETTINGS)
def index(
    ctx: typer.Context, recipe: RecipeArgument = None, named: RecipeOption = None, gallery: GalleryFolder = None,
    model: Annotated[Path | None, typer.Option(help=f"{_MODEL_HELP}; the recipe's if none")] = None,
    pictures: Annotated[Path | None, typer.Option(help="a folder of pictures; the corpus's if none is given")] = None,
) -> None:  # fmt: skip
    """Bring a gallery up to date with the pictures of a folder or of the corpus."""
    loaded = recipe_of(ctx, recipe, named)
    from pipeline.gallery.index_command import index as run

    run(loaded, open_workspace(), model, gallery, pictures, cores())


@app.command(epilog=ONLY_NAMED)
def search(
    ctx: typer.Context, query: Annotated[str | None, typer.Argument(help="a few words", show_default=False)] = None,
    named: RecipeOption = None, gallery: GalleryFolder = None,
    queries: Annotated[Path | None, typer.Option(help="a query a line, or JSON lines (.jsonl)")] = None,
    language: Annotated[str | None, typer.Option(help="of the queries; detected if none is given")] = None,
    top: Annotated[int, typer.Option(max=MOST, help="pictures a query")] = 10,
    rerank: Annotated[Path | None, typer.Option(help=f"{_MODEL_HELP}, that reranks; the gallery's if none")] = None,
    plain: Plain = False, as_json: AsJson = False,
    sheet: Annotated[Path | None, typer.Option(help="write an HTML page with the pictures too")] = None,
    force: Replace = False,
) -> None:  # fmt: skip
    """Find the pictures nearest to a sentence."""
    if sheet is not None:
        require_output(sheet, "search: --sheet", force, [queries])
    loaded = named_recipe(ctx, named)
    from pipeline.gallery.search_commands import search as run

    run(loaded, open_workspace(), gallery, query, queries, language, top, rerank, plain, as_json, sheet)


@app.command(epilog=ONLY_NAMED)
def describe(
    ctx: typer.Context,
    picture: Annotated[str | None, typer.Argument(help="a file, or a name in the gallery", show_default=False)] = None,
    named: RecipeOption = None, gallery: GalleryFolder = None,
    top: Annotated[int, typer.Option(max=MOST, help="captions a language")] = 5,
    plain: Plain = False, as_json: AsJson = False,
) -> None:  # fmt: skip
    """Show a picture's own captions and similar ones, in every language."""
    loaded = named_recipe(ctx, named)
    from pipeline.gallery.search_commands import describe as run

    run(loaded, open_workspace(), gallery, picture, top, plain, as_json)


@app.command(epilog=ONLY_NAMED)
def embed(
    ctx: typer.Context,
    output: Annotated[Path, typer.Option(help="the file: .parquet (id, vector, model), .csv, or .npy and its ids")],
    pictures: Annotated[Path | None, typer.Option(help="a folder of pictures")] = None,
    captions: Annotated[Path | None, typer.Option(help="a caption a line")] = None,
    named: RecipeOption = None, model: ModelFolder = None,
    language: Annotated[str | None, typer.Option(help="of the captions; detected if none is given")] = None,
    force: Replace = False,
) -> None:  # fmt: skip
    """Write vectors of pictures or captions to a file for a vector database; continues where it was stopped."""
    loaded = named_recipe(ctx, named)
    from pipeline.embedding.embed import check_output, embed
    from pipeline.embedding.items import items_of

    check_output(output, captions)
    items = items_of(pictures, captions, language, cores())
    from pipeline.export.generation import given_model

    exported = given_model(loaded, open_workspace(), model)
    embed(exported, items, output, force)


@app.command(epilog=ONLY_NAMED)
def caption(
    ctx: typer.Context,
    pictures: Annotated[list[str] | None, typer.Argument(help="picture files", show_default=False)] = None,
    named: RecipeOption = None, model: ModelFolder = None,
    language: Annotated[str | None, typer.Option(help="of the captions; all of the model's if none is given")] = None,
    beam: Annotated[int, typer.Option(min=1, max=1000, help="size of the beam; 1 is greedy search")] = 5,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Write a caption of a picture, with a model that has a decoder."""
    loaded = named_recipe(ctx, named)
    from pipeline.export.generation import caption as run

    run(loaded, open_workspace(), model, pictures or [], language, beam, as_json)


@app.command(epilog=SEED_ALONE)
def imagine(
    ctx: typer.Context,
    text: Annotated[str | None, typer.Argument(help="a sentence", show_default=False)] = None,
    named: RecipeOption = None, model: ModelFolder = None,
    language: Annotated[str | None, typer.Option(help="of the sentence; detected if none is given")] = None,
    output: Annotated[Path, typer.Option(help="the PNG file")] = Path("imagined.png"), force: Replace = False,
) -> None:  # fmt: skip
    """Draw a small picture of a sentence, with a model that has a generator; `--seed N` gives another one."""
    require_output(output, "imagine: --output", force)
    loaded = named_recipe(ctx, named)
    from pipeline.export.generation import imagine as run

    run(loaded, open_workspace(), model, text, language, output)
