"""What the service answers, a batch of requests at a time: the same as `search`, `describe`, `embed`, `translate`."""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from data.pictures.images import picture_in
from data.text.reading import Reading
from pipeline.errors import RecipeError
from pipeline.export.exported_model import ExportedModel
from pipeline.gallery.gallery import Gallery
from pipeline.gallery.generation import POINTER, read_pointer
from pipeline.gallery.hits import GalleryError, Query, no_gallery

_ARBITRARY = "none of the words is known, so the vector is arbitrary"
_NO_WORD = "there is no word to translate"
Record = dict[str, Any]
"""An answer, as JSON."""


class Upload(NamedTuple):
    """A picture that was uploaded: the file's content and name, and how many captions a language are requested."""

    content: bytes
    name: str
    top: int = 0


class Sentences(NamedTuple):
    """Sentences, and their language if it is given."""

    texts: list[str]
    language: str | None


class Translating(NamedTuple):
    """A sentence to translate, by a system (`mt`) in a direction (`en-de`)."""

    sentence: str
    system: str
    direction: str


class Answers:
    """One gallery and its one model; all but `health` is called in one thread.

    Args:
        folder: of the gallery. When it has been updated, the new generation is opened with the next request.

    Raises:
        GalleryError: there is no gallery, or it is damaged; here and from each method.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._failed = folder, (-1, "")
        self._changed, self._opened = self._stamp(), Gallery.open(folder)
        self.search([Query("a", None, 1)])  # the first one takes longer

    def health(self) -> Record:
        """What is served; of a gallery that was updated just now, it is what was served before."""
        if (changed := self._stamp()) == self._failed[0]:
            raise GalleryError(self._failed[1])
        if changed != self._changed and read_pointer(self._folder) is None:
            raise GalleryError(no_gallery(self._folder))
        gallery = self._opened
        exported = gallery.exported
        return {"status": "ok", "model": exported.name, "languages": exported.languages, "pictures": len(gallery),
                "captions": gallery.languages, "translators": exported.translator_names}  # fmt: skip

    def search(self, queries: Sequence[Query]) -> list[Record]:
        """The pictures nearest to each query.

        Raises:
            RecipeError: one is empty, or in a language that the model does not know.
        """
        all_found = self._gallery().search_all(queries)
        return [found.record(query.text) for query, found in zip(queries, all_found, strict=True)]

    def describe(self, pictures: Sequence[Upload]) -> list[list[Record]]:
        """For each picture, similar captions in the gallery, in each language.

        Raises:
            DataError: one cannot be read.
            RecipeError: the model reads no pixels, or the gallery has no captions.
        """
        gallery = self._gallery()
        if not gallery.languages:
            raise RecipeError("describe: the gallery has no captions")
        found = gallery.captions_near(_regions(gallery.exported, pictures), [picture.top for picture in pictures])
        return [captions.records(picture.name) for picture, captions in zip(pictures, found, strict=True)]

    def embed_sentences(self, requests: Sequence[Sentences]) -> list[Record]:
        """The vectors of sentences.

        Raises:
            RecipeError: one is in a language that the model does not know, or the model has no single vectors.
        """
        exported = self._gallery().exported
        exported.require_single()
        readings = [[exported.reading(text, request.language) for text in request.texts] for request in requests]
        texts = [text for request in requests for text in request.texts]
        languages = [reading.read_as for some in readings for reading in some]
        vectors = exported.encode_captions(texts, languages).single().numpy()
        ends = np.cumsum([len(request.texts) for request in requests])[:-1]
        return [
            _vectors(exported, part, _notes(some)) for part, some in zip(np.split(vectors, ends), readings, strict=True)
        ]

    def embed_pictures(self, pictures: Sequence[Upload]) -> list[Record]:
        """The vector of each picture.

        Raises:
            DataError: one cannot be read.
            RecipeError: the model reads no pixels, or has no single vectors.
        """
        exported = self._gallery().exported
        exported.require_single()
        vectors = exported.encode_regions(_regions(exported, pictures)).single().numpy()
        return [_vectors(exported, vector[None], []) for vector in vectors]

    def translate(self, requests: Sequence[Translating]) -> list[Record]:
        """The best translation of each sentence; empty where none of its words is known.

        Raises:
            RecipeError: there is no such translator, or it reads a picture.
        """
        translators = self._gallery().exported.translators
        places = defaultdict[tuple[str, str], list[int]](list)
        for place, request in enumerate(requests):
            places[request.system, request.direction].append(place)
        for system, direction in places:
            translators.load(system, direction)
            if translators.looks(system, *direction.split("-")):
                raise RecipeError(f"translate: {system}-{direction} reads a picture, which no request gives; choose mt")
        answers: list[Record] = [{}] * len(requests)
        for (system, direction), some in places.items():
            source, _, target = direction.partition("-")
            texts = [requests[place].sentence for place in some]
            translated = translators.translate_all(texts, system, source, target)
            for place, text in zip(some, translated, strict=True):
                reading = text.reading
                notes = [note] if (note := reading.note or ("" if text else _NO_WORD)) else []
                answers[place] = requests[place]._asdict() | {
                    "translation": text, "unknown": reading.unknown, "notes": notes,
                }  # fmt: skip
        return answers

    def _gallery(self) -> Gallery:
        """The present generation, with the model at hand if that made it."""
        if (changed := self._stamp()) != self._changed:
            try:
                about, known = read_pointer(self._folder), self._opened.exported
                same = about is not None and about["copy"] == known.folder.name
                self._opened = Gallery.open(self._folder, known if same else None)
            except GalleryError as error:
                self._failed = changed, str(error)
                raise
            self._changed, self._failed = changed, (-1, "")
        return self._opened

    def _stamp(self) -> int:
        try:
            return (self._folder / POINTER).stat().st_mtime_ns
        except (FileNotFoundError, NotADirectoryError):
            raise GalleryError(no_gallery(self._folder)) from None


def _regions(exported: ExportedModel, pictures: Sequence[Upload]) -> NDArray[np.floating]:
    """Regions (N, R, D) of pictures as the model reads them."""
    return np.stack([exported.regions_of(picture_in(content, name))[0] for content, name, _ in pictures])


def _vectors(exported: ExportedModel, vectors: NDArray[np.float32], notes: list[str]) -> Record:
    return {"model": f"{exported.name} {exported.fingerprint}", "vectors": vectors.tolist(), "notes": notes}


def _notes(readings: Sequence[Reading]) -> list[str]:
    """What a person should know of the vectors of sentences, a line for each that there is something to say of."""
    said = [[reading.note, "" if reading.known else _ARBITRARY] for reading in readings]
    return [f"sentence {number}: {'; '.join(filter(None, some))}" for number, some in enumerate(said, 1) if any(some)]
