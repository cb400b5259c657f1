"""The corpus of captions that were found, with pictures drawn for validation and test where these bring no splits."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from data.captions.table import SPLITS
from data.corpora import Corpus
from data.corpora.registry import CORPORA
from data.own_captions.detection import FoundCaptions

_SHARES = (0.1, 0.15, 0.2, 0.3)  # of the pictures for validation, and for the test
_MOST_DRAWN = 5000
_OF_MANY = 0.3  # share of the pictures that have captions in a language
_ENOUGH = 3  # pictures of the validation, and of the test


def read_found(found: FoundCaptions) -> tuple[FoundCaptions, Corpus]:
    """What was found, with its label and the sizes of drawn splits; and its corpus.

    Raises:
        DataError: the captions cannot be read.
    """
    count, choices = len({*found.names}), list[dict[str, Any]]([{}])
    if found.drawn and found.corpus["name"] == "folder":
        shares = [min(share, round(_MOST_DRAWN / count, 4)) for share in _SHARES]
        choices = [{"validation": share, "test": share} for share in shares]
    elif found.drawn:
        choices = [{"task": "drawn", "drawn": min(_MOST_DRAWN, max(1, round(_SHARES[0] * count)))}]
    for choice in choices:
        settings = found.corpus | {"label": found.root.name or "pictures"} | choice
        corpus = _corpus(settings, found.root)
        if _can_be_tested(corpus):
            break
    return replace(found, corpus=settings), corpus


def _corpus(settings: dict[str, Any], root: Path) -> Corpus:
    """The corpus of these settings."""
    reader = CORPORA[settings["name"]]
    options = reader.settings(**{key: value for key, value in settings.items() if key != "name"})
    return reader.read(options, root, root)


def _can_be_tested(corpus: Corpus) -> bool:
    """Have validation and test `_ENOUGH` pictures, and captions in each language of many, and is there training?"""
    splits = split_of_images(corpus)
    sizes, pairs = Counter(splits.values()), {(one.split, one.language, one.image_id) for one in corpus.captions}
    captioned = Counter(language for _, language, _ in pairs)
    languages = {language for language, count in captioned.items() if count >= _OF_MANY * len(splits)}
    held_out = {(split, language) for split, language, _ in pairs}
    return sizes.keys() >= {*SPLITS} and all(
        sizes[split] >= _ENOUGH and {(split, language) for language in languages} <= held_out for split in SPLITS[1:]
    )


def split_of_images(corpus: Corpus) -> dict[str, str]:
    """Image → its split."""
    return {caption.image_id: caption.split for caption in corpus.captions}
