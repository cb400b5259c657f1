"""A gallery on disk: pictures and captions as a model's vectors, indexed; updated while it is searched.

    gallery/gallery.json              which generation is the present one; replaced in one step
    gallery/generations/<n>/          pictures.parquet, index pictures/, captions-<language> alike, own-captions.parquet
    gallery/models/<copy>/            the exported model that made them, by a digest of what is in it
    gallery/parts/<model>/<kind>/     vectors (of pictures also regions and boxes) by the content they are of

An update computes missing vectors, a part at a time, then writes a new generation and points to it. If it is killed at
any moment, the old generation answers, and the next update reuses the finished parts. The previous generation stays,
for processes that have just opened it.
"""

import random
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray
from PIL import Image

from data.errors import DataError, one_line
from data.pictures.pixels import open_images
from data.text.characters import composed
from data.text.reading import plain_quotes
from modules.search.reranking import in_new_order
from modules.search.shards import ShardedIndex
from pipeline.engine.machine_errors import of_machine
from pipeline.engine.workspace import Workspace
from pipeline.errors import RecipeError, require_kind, whole_path
from pipeline.export.exported_model import ExportedModel
from pipeline.gallery.fit import Fits
from pipeline.gallery.generation import (
    CAPTION_COLUMNS,
    OWN,
    OWN_COLUMNS,
    PICTURE_COLUMNS,
    load_index,
    read_pointer,
    read_table,
)
from pipeline.gallery.hits import Described, Found, GalleryError, Hit, Own, Query, no_gallery, require_tops, to_index
from pipeline.gallery.vector_cache import VectorCache
from pipeline.recipes.settings import Recipe

FIRST, MOST_CAPTIONS = 100, 100  # results that a reranker orders, if it does not say; captions of a language at most


class Gallery:
    """One generation of a gallery, opened to be searched.

    Args:
        folder: of the gallery.
        exported: the model that made its vectors.
        generation: which.
        languages: of its captions.
    """

    def __init__(self, folder: Path, exported: ExportedModel, generation: str, languages: Sequence[str]) -> None:
        self.folder, self.exported = folder, exported
        place = folder / "generations" / generation
        self._rows = read_table(place / "pictures.parquet", PICTURE_COLUMNS)
        self._index = load_index(place / "pictures", exported, len(self)) if len(self) else None
        self._own = read_table(place / OWN, OWN_COLUMNS) if (place / OWN).exists() else None
        self._fits = Fits.load(place)
        self._captions: dict[str, tuple[pa.ChunkedArray, ShardedIndex]] = {}
        for language in languages:
            texts = read_table(place / f"captions-{language}.parquet", CAPTION_COLUMNS)["text"]
            self._captions[language] = texts, load_index(place / f"captions-{language}", exported, len(texts))

    @classmethod
    def open(cls, folder: str | Path, exported: ExportedModel | None = None) -> "Gallery":
        """Open the present generation.

        Args:
            folder: of the gallery.
            exported: its model, if that is loaded already; None: it is loaded from the gallery.

        Raises:
            RecipeError: there is none, it is damaged, or another model made it.
        """
        folder = whole_path(folder)
        if exported is not None:
            require_kind("Gallery.open", exported, ExportedModel, "a model, as load_model gives it")
        while True:
            about = read_pointer(folder)
            if about is None:
                raise GalleryError(no_gallery(folder))
            if exported is not None and about["made_of"] != exported.fingerprint:
                raise RecipeError(f"{folder}: made by another model ({about['model']}); run {to_index(folder)}, "
                                  "and with this one (--model)")  # fmt: skip
            try:
                made_by = exported or ExportedModel.load(folder / "models" / about["copy"])
                return cls(folder, made_by, about["generation"], about["languages"])
            except (OSError, pa.ArrowException, KeyError, RecipeError) as error:
                if (machine := of_machine(error, folder)) is not None:
                    raise machine from None
                if read_pointer(folder) == about:  # else it was updated while we read
                    raise GalleryError(
                        f"{folder}: not readable ({one_line(error, 1000)}); run {to_index(folder)} again"
                    ) from None

    def __len__(self) -> int:
        return int(self._rows.num_rows)

    def rows(self, places: Sequence[int] | None = None) -> list[dict[str, Any]]:
        """The records of pictures (`name`, `path`, `digest` …) by row number; None: all."""
        rows = self._rows if places is None else self._rows.take(pa.array(places, pa.int64()))
        return list(rows.to_pylist())

    def place_of(self, name: str) -> int | None:
        """The place of a picture, however the accents of its name are typed; None if it is not in the gallery.

        The ending of the name, or the folders before it, may be left out where only one picture is called so.
        """
        names = self._rows["name"]
        for spelled in (name, composed(name)):
            if (place := pc.index(names, spelled).as_py()) >= 0:
                return int(place)
        alike = self._called_so(name)
        return alike[0] if len(alike) == 1 else None

    def _called_so(self, name: str) -> list[int]:
        """The places of pictures that are called so but for the ending of the name; else but for the folders."""
        names, wanted = self._rows["name"], composed(name)
        begins = pc.indices_nonzero(pc.starts_with(names, f"{wanted}.")).to_pylist()
        if alike := [place for place in begins if "/" not in str(names[place])[len(wanted) :]]:
            return alike
        return list(pc.indices_nonzero(pc.ends_with(names, f"/{wanted}")).to_pylist())

    def shared_name(self, name: str) -> list[str]:
        """The names of several pictures, where a name without its ending, or without its folders, is that of all."""
        alike = self._called_so(name)
        return [str(self._rows["name"][place]) for place in alike] if len(alike) > 1 else []

    def search(
        self, query: str, top: int = 10, language: str | None = None, reranker: ExportedModel | None = None,
        first: int | None = None,
    ) -> Found:  # fmt: skip
        """Find the pictures nearest to a sentence.

        Args:
            query: the sentence; cut at 100 tokens, or where the model's text network ends.
            top: pictures wanted.
            language: of the query; None: detected.
            reranker: a model of sets (SCAN) that puts the first ones in its own order and gives their scores; None:
                the one that was exported with the gallery's model, if it knows the language.
            first: how many it orders, at least `top`; None: as many as the gallery's own was tested with, else 100. 0:
                nothing is reranked.

        Raises:
            RecipeError: the query is empty, or in a language that the model does not know.
        """
        return self.search_all([Query(query, language, top)], reranker, first)[0]

    def search_all(
        self, queries: Sequence[Query], reranker: ExportedModel | None = None, first: int | None = None
    ) -> list[Found]:
        """`search` for several queries, which are encoded and ranked as one batch; in their order, what each finds.

        Raises:
            RecipeError: as `search`, of any of them.
        """
        if not queries:
            return []
        for query in queries:
            if not isinstance(query.text, str):
                raise RecipeError(f"search: expected a text as query, not {query.text!r:.80}")
            if not query.text.strip():
                raise RecipeError("search: the query is empty; give a few words")
        require_tops("search", [query.top for query in queries], "pictures")
        queries = [query._replace(text=plain_quotes(query.text)) for query in queries]
        readings = [self.exported.reading(query.text, query.language) for query in queries]
        languages = [reading.read_as for reading in readings]
        vectors = self.exported.encode_captions([query.text for query in queries], languages).single()
        seconds = [self._second(language, reranker, first) for language in languages]
        wanted = [max(query.top, count) for query, (_, count) in zip(queries, seconds, strict=True)]
        found = self._near(vectors, wanted)
        fits = [self._fits.of_query(reading, rows[0][1]) if rows else None
                for reading, rows in zip(readings, found, strict=True)]  # fmt: skip
        second = next((model for model, _ in seconds if model is not None), None)
        again = [place for place, (model, _) in enumerate(seconds) if model is not None and found[place]]
        if second is not None and again:
            self.exported.require_alike(second)
            texts, read_as = [queries[place].text for place in again], [languages[place] for place in again]
            asked = second.encode_captions(texts, read_as)
            pictures = [[row for row, _ in found[place]] for place in again]
            ordered = in_new_order(second.encode_regions, second.score, asked, pictures, self._regions_at)
            for place, rows in zip(again, ordered, strict=True):
                found[place] = rows
        return [
            Found(self._hits(rows[: query.top]), reading, fit)
            for rows, query, reading, fit in zip(found, queries, readings, fits, strict=True)
        ]

    def describe(self, picture: str | Path | Image.Image, top: int = 5, first: int | None = None) -> Described:
        """Find the captions nearest to a picture, in every language of the gallery.

        Args:
            picture: a file, or an image.
            top: captions of each language.
            first: how many a reranker orders, as for `search`; at most 100 a language.

        Raises:
            DataError: the picture cannot be read.
            RecipeError: the model reads no pixels, or `top` is below 1.
        """
        return self.captions_near(self.exported.regions_of(picture)[0][None], [top], first)[0]

    def describe_known(self, name: str, top: int = 5, first: int | None = None) -> Described:
        """The same for a picture of the gallery, by its name; its own captions are told apart.

        Raises:
            RecipeError: there is no such picture.
        """
        own = self.own_captions(name)
        return self.captions_near(self._regions([self._record(name)]), [top], first, own)[0]

    def own_captions(self, name: str) -> Own:
        """The captions of a picture of the gallery itself, by language, as far as they are known.

        Raises:
            RecipeError: there is no such picture.
        """
        own, known, digest = Own(), self._own, self._record(name)["digest"]
        for row in [] if known is None else known.filter(pc.equal(known["digest"], digest)).to_pylist():
            own.setdefault(row["language"], []).append(row["text"])
        return own

    def captions_near(
        self, regions: NDArray[Any], tops: Sequence[int], first: int | None = None, own: Own | None = None
    ) -> list[Described]:
        """The same for pictures by their regions (N, R, D), as the model reads them, as one batch; a top for each.

        With `own`, captions by language, they are of the gallery: these are left out, and how well they fit it is no
        question.
        """
        require_tops("describe", tops, "captions")
        if not len(regions):
            return []
        vectors = self.exported.encode_regions(regions).single()
        captions_of: list[dict[str, list[Hit]]] = [{} for _ in tops]
        for language, (texts, index) in self._captions.items():
            second, count = self._second(language, None, first)
            left = {*(own or {}).get(language, ())}
            wanted = [max(top + len(left), min(count, MOST_CAPTIONS)) for top in tops]
            for place, near in enumerate(_nearest(index, vectors, wanted)):
                known = [(texts[row].as_py(), score) for row, score in near]
                hits = [Hit(text, score, None, language) for text, score in known if text not in left]
                if second is not None and hits:
                    captions = second.encode_captions([hit.name for hit in hits], language)
                    scores = second.score(second.encode_regions(regions[place, None]), captions)[0].tolist()
                    hits = [hit._replace(score=score) for hit, score in zip(hits, scores, strict=True)]
                captions_of[place][language] = sorted(hits, key=lambda hit: -hit.score)[: tops[place]]
        nearest = self._near(vectors, [1] * len(tops)) if own is None else [[] for _ in tops]
        fits = [self._fits.of_picture(rows[0][1]) if rows else None for rows in nearest]
        return [Described(*one, own) for one in zip(captions_of, fits, strict=True)]

    def pictures_near(self, vector: torch.Tensor, top: int = 10) -> list[Hit]:
        """The pictures nearest to a vector (1, H)."""
        require_tops("search", [top], "pictures")
        return self._hits(self._near(vector, [top])[0])

    def regions_of(self, hits: Sequence[Hit]) -> tuple[NDArray[Any], NDArray[Any]]:
        """The regions (N, R, D) of pictures of this gallery as the model reads them, and their boxes (N, R, 4)."""
        rows = [self._record(hit.name) for hit in hits]
        return self._regions(rows), self._parts.take([row["digest"] for row in rows], "boxes")

    @property
    def languages(self) -> list[str]:
        """Those of its captions."""
        return list(self._captions)

    def draw_pictures(self, count: int, seed: int) -> list[Hit]:
        """Pictures drawn at random, the same for the same seed; all in another order if there are no more."""
        drawn = random.Random(seed).sample(range(len(self)), min(count, len(self)))
        return self._hits([(place, 0.0) for place in drawn])

    def draw_captions(self, language: str, count: int, seed: int) -> list[str]:
        """The same for captions of one of its languages."""
        texts, _ = self._captions[language]
        return [texts[row].as_py() for row in random.Random(seed).sample(range(len(texts)), min(count, len(texts)))]

    @cached_property
    def _parts(self) -> VectorCache:
        return VectorCache(self.folder / "parts" / self.exported.fingerprint / "pictures")

    def _near(self, vectors: torch.Tensor, tops: Sequence[int]) -> list[list[tuple[int, float]]]:
        """Rows of the pictures nearest to each vector (N, H), with their scores; a top for each."""
        return [[] for _ in tops] if self._index is None else _nearest(self._index, vectors, tops)

    def _hits(self, places: Sequence[tuple[int, float]]) -> list[Hit]:
        rows = self.rows([row for row, _ in places])
        return [
            Hit(row["name"], score, Path(row["path"]) if row["path"] else None)
            for row, (_, score) in zip(rows, places, strict=True)
        ]

    def _record(self, name: str) -> dict[str, Any]:
        """The record of a picture; a RecipeError if it is not in the gallery."""
        if (place := self.place_of(name)) is None:
            raise RecipeError(f"{self.folder}: no picture {name!r} in the gallery")
        return self.rows([place])[0]

    def _regions_at(self, places: Sequence[int]) -> NDArray[Any]:
        """The same as `_regions`, by row number."""
        return self._regions(self.rows(places))

    def _regions(self, rows: Sequence[Mapping[str, Any]]) -> NDArray[Any]:
        """Regions (N, R, D) of pictures, as the model reads them."""
        stores = {row["store"] for row in rows}
        if stores == {None}:
            return self._parts.take([row["digest"] for row in rows], "regions")
        place = Path(next(iter(stores)))
        if not place.is_dir():
            raise GalleryError(f"{self.folder}: its pictures are regions in {place}, which is not there; use the "
                               "gallery where it was made, or index picture files (index --pictures)")  # fmt: skip
        try:
            store = open_images(place)
            return store.take(store.rows([row["name"] for row in rows]))
        except DataError as error:
            raise GalleryError(f"{self.folder}: its pictures are regions: {error}") from None

    def _second(
        self, language: str, reranker: ExportedModel | None, first: int | None
    ) -> tuple[ExportedModel | None, int]:
        """The model that reranks results for a language, and how many; (None, 0) if none does."""
        own = self.exported.reranker
        second = reranker or (own if own is not None and language in own.languages else None)
        count = (self.exported.first_k or FIRST) if first is None else first
        return (second, count) if second is not None and count else (None, 0)


def _nearest(index: ShardedIndex, vectors: torch.Tensor, tops: Sequence[int]) -> list[list[tuple[int, float]]]:
    """Rows of an index nearest to each vector (N, H), with their scores; a top for each."""
    scores, rows = (part.tolist() for part in index.search(vectors, max(tops)))
    found = [zip(*pair, strict=True) for pair in zip(rows, scores, strict=True)]
    return [[(row, score) for row, score in near if row >= 0][:top] for near, top in zip(found, tops, strict=True)]


def gallery_of(recipe: Recipe, workspace: Workspace) -> Path:
    """Where a recipe's gallery lies, unless the command says otherwise."""
    return workspace.of_recipe(recipe.name, recipe.file) / "gallery"
