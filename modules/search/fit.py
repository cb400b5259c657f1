"""How well a query fits a gallery: its best score among those of random queries; and a picture, among the gallery's."""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from modules.search.shards import ShardedIndex

_LENGTHS, _DRAWS = range(1, 9), 100  # words of a random query, and queries of each length
_SAMPLE = 1000  # pictures of a gallery whose neighbours are looked for
_MOST_QUERIES, _MOST_PICTURES = 0.8, 0.98  # shares above which a query, or a picture, does not fit


@dataclass(frozen=True)
class Fit:
    """How a best score compares with others of the same gallery.

    Attributes:
        higher: the share (0…1) of random queries of as many words that reach a higher best score; of a picture, the
            share of the gallery's pictures that are nearer to another one.
        picture: it is that of a picture.

    Examples:
        >>> Fit(0.97).note, Fit(0.5).note
        ('nothing fits well: 97 % of random queries reach a higher score', '')
    """

    higher: float
    picture: bool = False

    @classmethod
    def among(cls, scores: Sequence[float], score: float, picture: bool = False) -> "Fit":
        """That of a score among others, which `best_of_random` or `nearest_others` gave.

        Examples:
            >>> Fit.among([0.1, 0.2, 0.3, 0.4], 0.2).higher
            0.5
        """
        above = 1 - float(np.searchsorted(scores, round(score, 5), side="right")) / max(1, len(scores))
        return cls(above, picture)

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


def random_queries(words: Sequence[str]) -> list[str]:
    """Some queries of each length from one word up, drawn from words; the same ones for the same words.

    Examples:
        >>> queries = random_queries(["a", "red", "dog"])
        >>> len(queries), {len(query.split()) for query in queries[:100]}, len(queries[-1].split())
        (800, {1}, 8)
    """
    drawn = random.Random(0)
    return [" ".join(drawn.choices(words, k=length)) for length in _LENGTHS for _ in range(_DRAWS)]


def best_of_random(index: ShardedIndex, vectors: Tensor) -> list[list[float]]:
    """The sorted best scores of `random_queries`, for each length.

    Args:
        index: of a gallery's pictures.
        vectors: (N, H) of the queries.
    """
    scores, _ = index.search(vectors, 1)
    return [_sorted(some) for some in scores[:, 0].split(_DRAWS)]


def nearest_others(index: ShardedIndex, rows: Sequence[int], vectors: Tensor) -> list[float]:
    """The sorted scores of pictures of a gallery with the nearest other one.

    Args:
        index: of the gallery's pictures.
        rows: of the pictures in it.
        vectors: (N, H) of them.
    """
    scores, found = index.search(vectors, 2)
    other = torch.where(found[:, 0] == torch.tensor(rows), scores[:, 1], scores[:, 0])
    return _sorted(other[other.isfinite()])


def sampled(count: int) -> list[int]:
    """Rows of some of a gallery's pictures, at equal distances.

    Examples:
        >>> sampled(3), len(sampled(100_000)), sampled(100_000)[-1]
        ([0, 1, 2], 1000, 99999)
    """
    return np.unique(np.linspace(0, count - 1, min(count, _SAMPLE)).astype(int)).tolist() if count else []


def _sorted(scores: Tensor) -> list[float]:
    return np.sort(scores.numpy().astype(float).round(5)).tolist()
