"""How well a query fits a gallery: its best score among those of random queries; and a picture, among the gallery's.

A random query is some words drawn from the model's vocabulary. The best score of a query is compared with those of
random queries of as many words: captions of the gallery's pictures reach a higher one than most of them, captions of
what is not there often do not. Models that read sub-words have no words to draw; nothing is said of their queries.
"""

import json
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from data.languages import in_its_script
from data.reading import Reading
from data.text import CHARACTERS, spaced
from data.text_inputs import WordVocabulary
from modules.search.shards import ShardedIndex
from pipeline.engine.artifacts import read_json
from pipeline.errors import RecipeError
from pipeline.export.exported_model import ExportedModel

FITS = "fits.json"
_LENGTHS, _DRAWS = range(1, 9), 100  # words of a random query, and queries of each length
_WORDS, _PICTURES = 20, 50  # fewer words or pictures tell nothing
_SAMPLE = 1000  # pictures of a gallery whose neighbours are looked for
_MOST_QUERIES, _MOST_PICTURES = 0.8, 0.98  # shares above which a query, or a picture, does not fit
_FORM = {"queries": {str: [[float]]}, "pictures": [float]}


@dataclass(frozen=True)
class Fit:
    """How a best score compares with others of the same gallery.

    Attributes:
        higher: the share (0…1) of random queries of as many words that reach a higher best score; of a picture, the
            share of the gallery's pictures that are nearer to another one.
        picture: it is that of a picture.
    """

    higher: float
    picture: bool = False

    @property
    def poor(self) -> bool:
        """Does nothing in the gallery fit well?"""
        return self.higher > (_MOST_PICTURES if self.picture else _MOST_QUERIES)

    @property
    def note(self) -> str:
        """What a person should know, in one line; empty if it fits."""
        share = f"{math.floor(100 * self.higher + 1e-9)} %"  # 100 % are all
        if not self.poor:
            return ""
        if self.picture:
            return (
                f"unlike the pictures of this gallery: {share} of them are nearer to another of them than this one is"
            )
        return f"nothing fits well: {share} of random queries reach a higher score"


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
            exported: its model.
            index: of its pictures.
            rows: some of its pictures, as `sampled` gives them.
            vectors: (N, H) of these.
        """
        queries = {
            language: _best(exported, index, language, words)
            for language in exported.languages if len(words := _words(exported, language)) >= _WORDS
        }  # fmt: skip
        return cls(queries, _neighbours(index, rows, vectors) if len(index) >= _PICTURES else [])

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
        return Fit(_higher(lengths[min(reading.words, len(lengths)) - 1], score))

    def of_picture(self, score: float) -> Fit | None:
        """The fit of a picture that is not in the gallery, by the score of the nearest one in it; None as above."""
        return Fit(_higher(self.pictures, score), picture=True) if self.pictures else None


def sampled(count: int) -> list[int]:
    """Rows of some of a gallery's pictures, at equal distances."""
    return np.unique(np.linspace(0, count - 1, min(count, _SAMPLE)).astype(int)).tolist() if count else []


def _words(exported: ExportedModel, language: str) -> list[str]:
    """The words that queries are drawn from, in the script of the language; none for a model that reads sub-words.

    Languages may share a vocabulary. Where one is written without spaces, a word of another is no word but letters.
    """
    if not isinstance(text := exported.text, WordVocabulary):
        return []
    words = [word for word in text.words_of(language) if any(map(str.isalnum, word))]
    return [
        word for word in words
        if in_its_script(word, [language]) and (text.by != CHARACTERS or " " not in spaced(word, language))
    ]  # fmt: skip


def _best(exported: ExportedModel, index: ShardedIndex, language: str, words: Sequence[str]) -> list[list[float]]:
    """The sorted best scores of random queries of each length."""
    drawn = random.Random(0)
    queries = [" ".join(drawn.choices(words, k=length)) for length in _LENGTHS for _ in range(_DRAWS)]
    scores, _ = index.search(exported.encode_captions(queries, language).single(), 1)
    return [_sorted(some.numpy()) for some in scores[:, 0].split(_DRAWS)]


def _neighbours(index: ShardedIndex, rows: Sequence[int], vectors: torch.Tensor) -> list[float]:
    """The sorted scores of pictures with the nearest other one."""
    scores, found = index.search(vectors, 2)
    other = torch.where(found[:, 0] == torch.tensor(rows), scores[:, 1], scores[:, 0])
    return _sorted(other[other.isfinite()].numpy())


def _sorted(scores: NDArray[np.floating]) -> list[float]:
    return np.sort(scores.astype(float).round(5)).tolist()


def _higher(scores: Sequence[float], score: float) -> float:
    """The share of sorted scores above one."""
    return 1 - float(np.searchsorted(scores, round(score, 5), side="right")) / max(1, len(scores))
