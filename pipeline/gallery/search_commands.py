"""`search` and `describe`: a gallery is searched from the shell."""

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from data.lines import read_lines
from pipeline.engine.console import command, info_aside, printable
from pipeline.engine.files import write_output
from pipeline.engine.workspace import Workspace
from pipeline.errors import RecipeError
from pipeline.export.exported_model import ExportedModel
from pipeline.gallery.gallery import Gallery, gallery_of
from pipeline.gallery.hits import Found, Hit, Query, index_command
from pipeline.recipes.settings import Recipe
from pipeline.recipes.typed import located
from pipeline.visualization.pages import render
from pipeline.visualization.pictures import embedded, read_thumbnail

_SIZE = 220  # pixels of a picture on a contact sheet
_SHOWN = 3


def search(
    recipe: Recipe, workspace: Workspace, gallery: Path | None, query: str | None,
    queries: Path | None, language: str | None, top: int, rerank: Path | None, plain: bool, as_json: bool,
    sheet: Path | None,
) -> None:  # fmt: skip
    """Print the pictures nearest to a sentence, or to each of a file.

    Args:
        queries: a sentence a line, or in a `.jsonl` file an object a line: `query`, and if wanted `language`, `top`.
        language: of the queries that name none; None: detected.
        top: pictures for each query that names no number.

    Raises:
        RecipeError: there is no query or no gallery, or they do not fit.
    """
    if (query is None) == (queries is None):
        example = command("search", "a dog", target=["search", "QUERY=a dog"])
        raise RecipeError(f"search: give a query (`{example}`) or --queries FILE, one of the two")
    requests = [Query(query, language, top)] if query is not None else []
    if queries is not None:
        requests = list(_queries(queries, language, top))
        if not requests:
            raise RecipeError(f"search: {queries} has no query; expected one a line")
    opened = Gallery.open(gallery or gallery_of(recipe, workspace))
    for number, request in enumerate(requests if queries is not None else [], 1):
        if request.language is not None:  # before the first answer is printed
            with located(f"{queries}:{number}"):
                opened.exported.require_language(request.language)
    second = None if rerank is None else ExportedModel.from_pretrained(rerank)
    answers = []
    for request in requests:
        found = opened.search(request.text, request.top, request.language, second, 0 if plain else None)
        answers.append((request.text, found))
        if as_json:
            print(json.dumps(found.record(request.text), ensure_ascii=False))
        else:
            several = len(requests) > 1
            for note in found.notes:
                info_aside(note, f"{request.text}:" if several else "")
            _print_hits(found, f"{request.text} {found.reading.language or '?'}" if several else "")
    if sheet is not None:
        write_output(sheet, contact_sheet(answers), "search: --sheet")
        info_aside(f"written {sheet}; next: `python3 -m webbrowser {sheet.absolute().as_uri()}`")


def describe(
    recipe: Recipe, workspace: Workspace, gallery: Path | None, picture: str | None, top: int, plain: bool,
    as_json: bool,
) -> None:  # fmt: skip
    """Print a picture's own captions, then similar ones, in every language.

    The arguments are those of the command.

    Raises:
        RecipeError: there is no such picture.
    """
    if picture is None:
        example = command("describe", "a.jpg", target=["describe", "PICTURE=a.jpg"])
        raise RecipeError(f"describe: give a picture (`{example}`), a file or the name of one in the gallery")
    opened = Gallery.open(gallery or gallery_of(recipe, workspace))
    place = opened.place_of(picture)
    known = place is not None and not _is_another(Path(picture), opened.rows([place])[0]["path"])
    if not known and not Path(picture).exists():
        if alike := opened.shared_name(picture):
            raise RecipeError(f"describe: {len(alike)} pictures of {opened.folder} are called {picture}: "
                              f"{', '.join(alike[:_SHOWN])}; give the whole name of one")  # fmt: skip
        raise RecipeError(f"describe: {picture}: no such file, and no picture of {opened.folder}; give another one")
    first = 0 if plain else None
    captions = opened.describe_known(picture, top, first) if known else opened.describe(Path(picture), top, first)
    if not captions:
        raise RecipeError(f"{opened.folder}: it has no captions; run {index_command(opened.folder)} with a recipe "
                          "that has")  # fmt: skip
    for record in captions.records(picture) if as_json else ():
        print(json.dumps(record, ensure_ascii=False))
    for note in () if as_json else captions.notes:
        info_aside(note)
    for language, hits in captions.items() if not as_json else ():
        if own := captions.own_in(language):
            print(printable("\n      ".join([f"{picture} {language}, captions:", *own])))
        _print_hits(hits, f"{picture} {language}, {captions.title}:")


def _is_another(file: Path, known: str | None) -> bool:
    """Is it a file, but not that of the gallery's picture which is called so, or a part of its name?"""
    return file.is_file() and (known is None or file.resolve() != Path(known).resolve())


def contact_sheet(answers: Sequence[tuple[str, Found]]) -> str:
    """One HTML page, its pictures inside it: for each query what was found, best first."""
    shown = [
        (
            query, found.reading.language or "", found.notes,
            [(hit.name, hit.score, embedded(read_thumbnail(hit.path, _SIZE))) for hit in found],
        )
        for query, found in answers
    ]  # fmt: skip
    return render("found.html", title="Bildwort: search", answers=shown)


def _queries(path: Path, language: str | None, top: int) -> Iterator[Query]:
    """The queries of a file; an error names the line."""
    for number, line in enumerate(read_lines(path, "a query a line"), 1):
        if path.suffix != ".jsonl":
            if not line.strip():
                raise RecipeError(f"{path}:{number}: the query is empty; leave the line out")
            yield Query(line.strip(), language, top)
            continue
        try:
            content = json.loads(line)
            query = Query(content["query"], content.get("language", language), content.get("top", top))
            if not isinstance(query.text, str) or type(query.top) is not int:
                raise TypeError("query is a text, top a whole number")
            if not isinstance(query.language, str | None):
                raise TypeError("language is a text")
            if not query.text.strip() or query.top < 1:
                raise ValueError("query is empty" if query.top > 0 else f"top is {query.top}, not 1 or more")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise RecipeError(
                f'{path}:{number}: {error}; expected {{"query": …}}, "language" and "top" if wanted'
            ) from None
        yield query


def _print_hits(hits: Sequence[Hit], heading: str) -> None:
    """A line each, below a heading if there is one."""
    if heading:
        print(printable(heading))
    for rank, hit in enumerate(hits, 1):
        print(f"{rank:4d}  {hit.score:6.3f}  {printable(str(hit.path or hit.name))}")
    if not hits:
        print("nothing was found", file=sys.stderr)
