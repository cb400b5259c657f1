"""Objects of scenes: which stands where, which ones a caption names, how places look, what is recognised there."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from data.corpora.scenes.corpus import ScenesSettings, plan
from data.corpora.scenes.grammar import LANGUAGES, PLACES, SENSES, Thing
from data.corpora.scenes.render import REACH, centre_of

TRAINING = ("train", "translation")
"""Splits of scenes whose pictures something may be learned from."""
AtPlaces = tuple[Thing | None, ...]
"""The object at each place, in the order of `PLACES`; None: nothing is there."""


def objects_of(settings: ScenesSettings, splits: Sequence[str]) -> dict[str, AtPlaces]:
    """Image id → the objects of each image of some splits, `train`, `translation`, `val`, `test` or `twins`.

    Raises:
        DataError: settings contradict each other.
    """
    scenes = [scene for scene in plan(settings).scenes if scene.split in splits]
    return {scene.image_id: _at_places(scene.things) for scene in scenes}


def _at_places(things: Sequence[Thing]) -> AtPlaces:
    by_place = {thing.place: thing for thing in things}
    return tuple(by_place.get(place) for place in PLACES)


def named(objects: AtPlaces, text: str, language: str) -> list[int]:
    """The places, as rows of `PLACES`, of the objects that a whole caption of the image names, each with its place."""
    words = PLACES.values()
    return [row for row, word in enumerate(words) if objects[row] is not None and word[language] in text]


def same_noun(one: Thing, other: Thing, language: str) -> bool:
    """Does a language call two objects by the same noun? English calls both the animal and the club a *bat*."""
    assert language in LANGUAGES
    names = (SENSES[thing.sense].en if language == "en" else getattr(SENSES[thing.sense], language)[0]
             for thing in (one, other))  # fmt: skip
    return next(names) == next(names)


def cells(pictures: NDArray[np.uint8]) -> NDArray[np.float32]:
    """The pixels around each place of pictures (N, 3, S, S), as vectors (N, 5, D) in 0…1, places as in `PLACES`.

    A cell holds an object of any size; what lies outside the picture repeats its edge.
    """
    scale = pictures.shape[-1]
    half = max(1, round(REACH * scale))
    edges = ((0, 0), (0, 0), (half, half), (half, half))
    padded, crops = np.pad(pictures, edges, mode="edge"), []
    for place in PLACES:
        left, top = (round(part * scale) for part in centre_of(place))  # in the padded picture, of the cell
        crops.append(padded[:, :, top : top + 2 * half, left : left + 2 * half].reshape(len(pictures), -1))
    values: NDArray[np.float32] = np.stack(crops, 1).astype(np.float32)
    values /= 255
    return values


class Recogniser:
    """Names what is at each place of a picture of scenes: what is there in the most similar training region.

    The regions are the places of all training pictures, empty ones too; similar is a small squared distance of pixels.

    Args:
        pictures: (N, 3, S, S) training pictures.
        objects: of each.
    """

    def __init__(self, pictures: NDArray[np.uint8], objects: Sequence[AtPlaces]) -> None:
        self._regions = cells(pictures)
        self._regions = self._regions.reshape(-1, self._regions.shape[-1])
        self._things = [thing for at_places in objects for thing in at_places]

    def recognise(self, pictures: NDArray[np.uint8]) -> list[AtPlaces]:
        """What is at each place of pictures (N, 3, S, S)."""
        from sklearn.metrics import pairwise_distances_argmin

        seen = cells(pictures)
        nearest = pairwise_distances_argmin(seen.reshape(-1, seen.shape[-1]), self._regions)
        return [tuple(self._things[row] for row in rows) for rows in nearest.reshape(seen.shape[:2]).tolist()]


def right(seen: AtPlaces, objects: AtPlaces, text: str, language: str) -> list[float]:
    """What is right of the objects that a caption names: shares in percent of noun and colour, the noun, the colour.

    Args:
        seen: what is recognised at each place of a picture; an object is right at its own place only.
        objects: of the image that the caption describes.
        text: the caption.
        language: of the caption; a noun is right that it calls the object by.
    """
    hits = []
    for place in named(objects, text, language):
        recognised, actual = seen[place], objects[place]
        noun = recognised is not None and actual is not None and same_noun(recognised, actual, language)
        colour = recognised is not None and actual is not None and recognised.colour == actual.colour
        hits.append((noun and colour, noun, colour))
    return (100 * np.mean(hits, 0)).tolist()
