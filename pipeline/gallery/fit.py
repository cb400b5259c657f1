"""How well queries and pictures fit a gallery: the scores that are measured when it is indexed, beside it on disk.

The best score of a query is compared with those of random queries of as many words: captions of the gallery's pictures
reach a higher one than most of them, captions of what is not there often do not. Models that read sub-words have no
words to draw; nothing is said of their queries.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from data.text.reading import Reading
from data.text.text_inputs import WordVocabulary
from modules.search.fit import Fit, best_of_random, nearest_others, random_queries
from modules.search.shards import ShardedIndex
from pipeline.engine.artifacts import read_json
from pipeline.errors import RecipeError
from pipeline.export.exported_model import ExportedModel

FITS = "fits.json"
_WORDS, _PICTURES = 20, 50  # fewer words or pictures tell nothing
_FORM = {"queries": {str: [[float]]}, "pictures": [float]}


@dataclass(frozen=True)
class Fits:
    """Scores of a gallery that others are compared with.

    Attributes:
        queries: language → for each number of words, from 1, the sorted best scores of random queries.
        pictures: sorted scores of pictures and their nearest neighbours in the gallery.
    """

    queries: Mapping[str, Sequence[Sequence[float]]]
    pictures: Sequence[float]

    @classmethod
    def measure(
        cls, exported: ExportedModel, index: ShardedIndex, rows: Sequence[int], vectors: torch.Tensor
    ) -> "Fits":
        """Those of a gallery; the same ones for the same gallery.

        Args:
            rows: some of its pictures, as `sampled` gives them.
            vectors: (N, H) of these.
        """
        text, words = exported.text, dict[str, list[str]]()
        if isinstance(text, WordVocabulary):
            words = {language: text.words_in_script(language) for language in exported.languages}
        queries = {
            language: best_of_random(index, exported.encode_captions(random_queries(own), language).single())
            for language, own in words.items() if len(own) >= _WORDS
        }  # fmt: skip
        return cls(queries, nearest_others(index, rows, vectors) if len(index) >= _PICTURES else [])

    @classmethod
    def load(cls, folder: Path) -> "Fits":
        """Those of a generation; none if it has been written without.

        Raises:
            RecipeError: they are damaged.
        """
        if not (folder / FITS).is_file():
            return cls({}, [])
        try:
            about = read_json(folder / FITS, _FORM)
        except RecipeError:  # whose advice is that of a job
            raise RecipeError(f"{folder / FITS}: damaged") from None
        return cls(about["queries"], about["pictures"])

    def save(self, folder: Path) -> None:
        """Write them."""
        (folder / FITS).write_text(json.dumps({"queries": self.queries, "pictures": self.pictures}), encoding="utf-8")

    def of_query(self, reading: Reading, score: float) -> Fit | None:
        """The fit of a query by its best score; None if it cannot be told."""
        lengths = self.queries.get(reading.read_as)
        if not lengths or not reading.known:
            return None
        return Fit.among(lengths[min(reading.words, len(lengths)) - 1], score)

    def of_picture(self, score: float) -> Fit | None:
        """The fit of a picture that is not in the gallery, by the score of the nearest one in it; None as above."""
        return Fit.among(self.pictures, score, picture=True) if self.pictures else None
