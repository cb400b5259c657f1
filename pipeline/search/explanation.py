"""Why a picture was found: what each word of a query adds to the score, and the region that it depends on most.

Both are measured by leaving out: a word of the query, a region of the picture, or both.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from data.segmentation import PACKAGES, segment
from data.text import UNSPACED, WORDS
from modules.encodings import Encodings
from pipeline.search.exported_model import ExportedModel


class Word(NamedTuple):
    """A word of a query, seen next to a picture.

    Attributes:
        text: as it is typed; in languages that are written without spaces, a character, or a word where the model
            reads words.
        effect: how much the score falls without it; below 0 if it rises.
        region: the region without which the word adds least to the score; None if the word raises no score, or
            depends on no region.
    """

    text: str
    effect: float
    region: int | None


def explain(exported: ExportedModel, query: str, language: str, regions: NDArray[np.floating]) -> list[list[Word]]:
    """The words of a query next to each of some pictures.

    Args:
        exported: the model whose score is explained.
        query: the sentence.
        language: of it, one that the model reads.
        regions: (N, R, D) of the pictures.

    Raises:
        RecipeError: the model does not know the language, or reads regions of another width.
    """
    space = "" if language in UNSPACED else " "
    words = _parts(exported, query, language)
    without = [space.join(words[:place] + words[place + 1 :]) for place in range(len(words))]
    captions = exported.encode_captions([query, *without], language)  # 1 + W
    return [_words_of(words, exported.score(_encode_without(exported, one), captions).numpy()) for one in regions]


def _parts(exported: ExportedModel, query: str, language: str) -> list[str]:
    """What the model reads a query by: words, or characters."""
    if language in PACKAGES and getattr(exported.text, "by", None) == WORDS:
        return segment(query, language)
    return [one for one in query if not one.isspace()] if language in UNSPACED else query.split()


def _encode_without(exported: ExportedModel, regions: NDArray[np.floating]) -> Encodings:
    """A picture encoded 1 + R times: whole, then without each of its regions (R, D)."""
    count = len(regions)
    seen = np.concatenate([np.ones((1, count)), 1 - np.eye(count)]).astype(bool)
    if count == 1:
        seen = seen[:1]  # without its only region there is no picture
    return exported.encode_regions(np.broadcast_to(regions, (len(seen), *regions.shape)), seen)


def _words_of(words: list[str], scores: NDArray[np.floating]) -> list[Word]:
    """What scores (1 + R, 1 + W), whole and without each region and word, say of the words."""
    effects = scores[:, :1] - scores[:, 1:]  # (1 + R, W), for the whole picture and without each region
    lost = effects[0] - effects[1:]  # (R, W), what of it goes with a region
    found = []
    for place, (text, effect) in enumerate(zip(words, effects[0].tolist(), strict=True)):
        region = int(lost[:, place].argmax()) if len(lost) and effect > 0 else None
        depends = region is not None and lost[region, place] > 0
        found.append(Word(text, effect, region if depends else None))
    return found
