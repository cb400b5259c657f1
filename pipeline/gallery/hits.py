"""What a gallery is asked, and what it finds."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from data.reading import Reading

ARBITRARY = "none of the words is known, so the pictures are arbitrary"


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
    """

    def __init__(self, hits: Iterable[Hit], reading: Reading) -> None:
        super().__init__(hits)
        self.reading = reading

    @property
    def notes(self) -> list[str]:
        """What a person should know before looking at the pictures, in lines."""
        notes = [self.reading.note] if self.reading.note else []
        return notes if self.reading.known else [*notes, ARBITRARY]

    def record(self, query: str) -> dict[str, Any]:
        """As JSON: the query, how it is read, and the pictures."""
        reading = self.reading
        return {
            "query": query, "language": reading.language, "read_as": reading.read_as, "words": reading.words,
            "unknown": reading.unknown, "notes": self.notes, "hits": [hit.record() for hit in self],
        }  # fmt: skip
