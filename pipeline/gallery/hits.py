"""What a gallery is asked, and what it finds."""

from pathlib import Path
from typing import Any, NamedTuple


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
