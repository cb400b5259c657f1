"""`index`: a gallery is brought up to date, from the shell."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from data.captions.table import HUMAN, read_captions
from data.corpora.registry import CORPORA
from data.pictures.folder import pictures_in
from data.pictures.network_pixels import NetworkPixels
from data.pictures.pixels import PixelExtractor, open_images
from pipeline.corpus.doctor import read_corpus
from pipeline.corpus.pixels import pictures_job
from pipeline.corpus.prepare import pictures_of
from pipeline.engine.console import command, counted, info
from pipeline.engine.workspace import Workspace
from pipeline.export.export import up_to_date
from pipeline.export.exported_model import ExportedModel
from pipeline.gallery.gallery import gallery_of
from pipeline.gallery.hits import Own
from pipeline.gallery.indexing import update_gallery
from pipeline.gallery.picture_sources import PictureFiles, PictureFolder, Pictures, StoredRegions
from pipeline.graph import Graph
from pipeline.recipes.settings import Recipe

_SHOWN = 20  # left-out files that are named on the screen


def index(
    recipe: Recipe, workspace: Workspace, model: Path | None, gallery: Path | None, pictures: Path | None, workers: int
) -> None:
    """Bring a gallery up to date: with the pictures of a folder, or with those of the recipe's corpus.

    Captions are the human ones of the corpus. Where a folder and a model are both given, they are taken if pictures of
    the folder are files of the corpus, else those that the gallery has stay. The recipe's best model is exported where
    none is given; with a model, a corpus that is not prepared is read from its own files. The arguments are
    those of the command.

    Raises:
        RecipeError: there is no model, or it does not read such pictures.
    """
    graph = Graph(recipe, workspace)
    exported = ExportedModel.from_pretrained(model) if model is not None else up_to_date(graph)
    captions, own, files, prepared = None, None, dict[str, Path](), workspace.done(graph.corpus)
    if prepared:
        folder = workspace.folder(graph.corpus)
        files, rows = pictures_of(folder), read_captions(folder / "captions.parquet").to_list()
        captions, own = _captions(rows, exported.languages)
    elif _has_pictures(recipe) and (pictures is None or _is_of(recipe, pictures)):  # of a model that other data trained
        content = read_corpus(recipe, Path(), check_pictures=False)  # the gallery leaves out what cannot be read
        files = content.pictures
        captions, own = _captions(map(asdict, content.captions), exported.languages)
    if pictures is not None:
        source: Pictures = PictureFolder(pictures, workers)
        own = _by_file(own or {}, files, source)  # a name may be that of another picture there
        if model is not None and not own:  # both are of something else
            captions = own = None
    else:
        source = PictureFiles(files, workers) if files and not prepared else _of_corpus(exported, graph, workers)
    if pictures is None:
        _say_pictures_without_captions(recipe, source)
    place = gallery or gallery_of(recipe, workspace)
    done = update_gallery(place, exported, source, captions, own)
    for name, reason in list(done.left.items())[:_SHOWN]:
        info(f"{name}: {reason}", "left out:", "yellow")
    if len(done.left) > _SHOWN:
        info(f"… and {len(done.left) - _SHOWN:,} more; all are in {place / 'generations'}, left.json of the newest one")
    counts = ", ".join(f"{count:,} {language}" for language, count in done.captions.items())
    info(
        f"{place}: {counted(done.pictures, 'pictures')} ({done.new:,} new, {done.gone:,} gone, "
        f"{len(done.left):,} left out), captions: {counts or 'none'}"
    )
    info(f"next: `{command('app', str(place), target=['app', f'GALLERY={place}'])}` (search page)")


def _has_pictures(recipe: Recipe) -> bool:
    """Are the corpus's pictures files of the person, from which models find all that they read?"""
    corpus = recipe.corpus
    return corpus.root is not None and not CORPORA[corpus.name].brings_regions(corpus.options)


def _is_of(recipe: Recipe, pictures: Path) -> bool:
    """Is it the folder of a recipe's pictures, or one in it?"""
    folder = getattr(recipe.corpus.options, "pictures", None)
    root = recipe.corpus.root
    return bool(root and folder) and pictures.resolve().is_relative_to((Path(str(root)) / str(folder)).resolve())


def _say_pictures_without_captions(recipe: Recipe, source: Pictures) -> None:
    """Say how many pictures of somebody's own folder no caption names, and how they are searched too."""
    folder = getattr(recipe.corpus.options, "pictures", None)
    if recipe.corpus.name != "folder" or folder is None or recipe.corpus.root is None:
        return
    folder = Path(recipe.corpus.root) / folder
    if spare := len(pictures_in(folder)[0].keys() - source.paths.keys()):
        every = command("index", recipe.file or recipe.name, "--pictures", str(folder))
        info(f"left out: {counted(spare, 'pictures')} of {folder} without a caption, or not readable; `{every}` "
             "takes the former too")  # fmt: skip


def _captions(
    rows: Iterable[Mapping[str, Any]], languages: Collection[str]
) -> tuple[dict[str, list[str]], dict[str, Own]]:
    """The human captions of a corpus by language, and the same of each image."""
    captions, own = {language: list[str]() for language in languages}, dict[str, Own]()
    for row in rows:
        if row["source"] == HUMAN and row["language"] in captions:
            captions[row["language"]].append(row["text"])
            own.setdefault(row["image_id"], {}).setdefault(row["language"], []).append(row["text"])
    return captions, own


def _by_file(own: Mapping[str, Own], files: Mapping[str, Path], source: Pictures) -> dict[str, Own]:
    """Captions of images by the names that pictures of a folder have, where both are the same file."""
    images = {path.resolve(): image for image, path in files.items() if image in own}
    named = {name: images.get(path.resolve()) for name, path in source.paths.items() if path is not None}
    return {name: own[image] for name, image in named.items() if image is not None}


def _of_corpus(exported: ExportedModel, graph: Graph, workers: int) -> Pictures:
    """The images of a corpus as the model is given them; RecipeError where they have not been made."""
    workspace, corpus = graph.workspace, graph.corpus
    folder, reader = workspace.require(corpus), exported.extractor
    if isinstance(reader, NetworkPixels):
        return PictureFiles(pictures_of(folder), workers)
    store = folder / "regions"
    if isinstance(reader, PixelExtractor):
        store = workspace.require(pictures_job(corpus, reader.size, graph.pictures))
    return StoredRegions(open_images(store), pictures_of(folder))
