"""Why a picture was found: what each word of a query adds to the score, and the region that it depends on most."""

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from data.text.tokenisation import without_each_word
from modules.search.grounding import Grounding, ground
from pipeline.export.exported_model import ExportedModel


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
        language: of it, one that the model reads.
        regions: (N, R, D) of the pictures.

    Raises:
        RecipeError: the model does not know the language, or reads regions of another width.
    """
    exported.require_width(regions)
    words, without = without_each_word(query, language, exported.text.by)
    captions = exported.encode_captions([query, *without], language)[:]  # 1 + W
    pictures = torch.from_numpy(regions.astype(np.float32))
    seen = torch.ones(regions.shape[1], dtype=torch.bool)
    return [_words_of(words, ground(exported.model, picture, seen, captions)) for picture in pictures]


def _words_of(words: list[str], grounding: Grounding) -> list[Word]:
    """The words with what was found of them."""
    explained = []
    for text, effect, parts in zip(words, grounding.effects.tolist(), grounding.regions, strict=True):
        region = int(parts.argmax())
        explained.append(Word(text, effect, region if effect > 0 and parts[region] > 0 else None))
    return explained
