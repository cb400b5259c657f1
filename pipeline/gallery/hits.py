"""What a gallery is asked, and what it finds."""

import shlex
from collections.abc import Iterable, Mapping
from numbers import Integral
from pathlib import Path
from typing import Any, NamedTuple

from data.text.reading import Reading
from modules.search.fit import Fit
from pipeline.engine.console import command
from pipeline.errors import RecipeError

Own = dict[str, list[str]]
"""The captions of one picture, by language."""
SIMILAR = "similar captions in the gallery"
ARBITRARY = "none of the words is known, so the pictures are arbitrary"


class GalleryError(RecipeError):
    """A gallery, or what its pictures are read from, is missing or damaged: no fault of what is asked."""


def index_command(gallery: Path | None = None) -> str:
    """The command that makes a gallery, within a sentence; None: that of a recipe."""
    words = [] if gallery is None else ["--gallery", str(gallery)]
    of_make = [f"ARGS={shlex.join(words)}"] if words else []
    return f"`{command('index', *words, target=['index', *of_make])}`"


def to_index(gallery: Path | None = None) -> str:
    """How to make a gallery, or one again, within a sentence."""
    return f"{index_command(gallery)} with the recipe or pictures"


def no_gallery(folder: Path) -> str:
    """What is said of a folder without a gallery."""
    return (f"{folder.absolute()}: no gallery here; run {to_index()}, or go to the "
            "folder where that was run: its results are in `artifacts` there, or in BILDWORT_ARTIFACTS")  # fmt: skip


def require_tops(name: str, tops: Iterable[int], what: str) -> None:
    """Refuse to look for less than one of something, or for a part of one, by a RecipeError."""
    for top in tops:
        if not isinstance(top, Integral) or isinstance(top, bool):
            raise RecipeError(f"{name}: {top} {what} are wanted; expected a whole number")
        if top < 1:
            raise RecipeError(f"{name}: {top} {what} are wanted; expected 1 or more")


class Query(NamedTuple):
    """A query: a sentence, its language if it is given, and how many pictures are requested."""

    text: str
    language: str | None
    top: int


class Hit(NamedTuple):
    """Something that was found.

    Attributes:
        name: of a picture, or the text of a caption.
        score: the model's, higher is nearer.
        path: the picture's file, None where it is not at hand or for a caption.
        language: of a caption, None for a picture.
    """

    name: str
    score: float
    path: Path | None = None
    language: str | None = None

    def record(self) -> dict[str, Any]:
        """As JSON: name, score, and where it lies if it is a picture at hand."""
        return {"name": self.name, "score": round(self.score, 5)} | ({"path": str(self.path)} if self.path else {})


class Found(list[Hit]):
    """The pictures that were found for a query, best first.

    Attributes:
        reading: how the model reads the query: its unknown words, and its language.
        fit: how the best score of the indexed model, before any reranking, compares with those of random queries; None
            if no word is known, or the gallery does not tell.
    """

    def __init__(self, hits: Iterable[Hit], reading: Reading, fit: Fit | None = None) -> None:
        super().__init__(hits)
        self.reading, self.fit = reading, fit

    @property
    def notes(self) -> list[str]:
        """What a person should know before looking at the pictures, in lines."""
        arbitrary = "" if self.reading.known else ARBITRARY
        poor = "" if self.fit is None else self.fit.note
        return [note for note in (self.reading.note, arbitrary, poor, self._gone) if note]

    @property
    def _gone(self) -> str:
        """Which of the pictures have been deleted or moved since they were indexed; empty: none."""
        gone = [hit.path for hit in self if hit.path is not None and not hit.path.exists()]
        if not gone:
            return ""
        return (f"no longer there: {len(gone)} of these {len(self)} pictures, first {gone[0]}; run "
                f"{to_index()} of this gallery")  # fmt: skip

    def record(self, query: str) -> dict[str, Any]:
        """As JSON: the query, how it is read, how well it fits, and the pictures."""
        reading = self.reading
        return {
            "query": query, "language": reading.language, "read_as": reading.read_as, "words": reading.words,
            "unknown": reading.unknown, "higher": None if self.fit is None else round(self.fit.higher, 4),
            "notes": self.notes, "hits": [hit.record() for hit in self],
        }  # fmt: skip


class Described(dict[str, list[Hit]]):
    """Captions in the gallery that are similar to what a picture shows, best first, by language; of a picture of the
    gallery itself, not its own.

    Attributes:
        fit: how near the picture is to those of the gallery, as they are to each other; None for one of them, or if
            the gallery does not tell.
        own: the captions of the picture itself, by language; None for a picture that was not taken from the gallery.
    """

    def __init__(self, captions: Mapping[str, list[Hit]], fit: Fit | None = None, own: Own | None = None) -> None:
        super().__init__(captions)
        self.fit, self.own = fit, own

    @property
    def title(self) -> str:
        """What the captions that were found are called; one may be the picture's where its own are not known."""
        return "similar captions of other pictures" if self.own else SIMILAR

    def own_in(self, language: str) -> list[str]:
        """The captions of the picture itself in a language; none where they are not known."""
        return (self.own or {}).get(language, [])

    @property
    def notes(self) -> list[str]:
        """What a person should know before reading the captions, in lines."""
        return [self.fit.note] if self.fit is not None and self.fit.note else []

    def records(self, picture: str) -> list[dict[str, Any]]:
        """As JSON, for each language: the picture, how well it fits, its own captions, and similar ones."""
        higher = None if self.fit is None else round(self.fit.higher, 4)
        return [
            {"picture": picture, "language": language, "higher": higher, "notes": self.notes,
             "captions": self.own_in(language), "hits": [hit.record() for hit in hits]}
            for language, hits in self.items()
        ]  # fmt: skip
