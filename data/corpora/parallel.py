"""Parallel text about no image, as Tatoeba's exports have it: lines `english TAB translation`."""

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from data.captions.table import Pair
from data.captions.tables import read_table
from data.errors import DataError

MOST_HELD_OUT = 1000
"""Sentences for validation, and as many for the test, where parallel text is all that translators have."""


def read_parallel(path: Path, language: str, empty: list[str], name: str | None = None) -> Iterator[Pair]:
    """Pairs for training; their origin is the name of the file's folder (`tatoeba/deu-eng.tsv.gz`: `tatoeba`).

    Args:
        path: a TSV (or .tsv.gz).
        language: of the second column.
        empty: where lines that lack a side are added.
        name: what the ids of pairs start with; None: the origin.

    Raises:
        DataError: the file is missing, is not UTF-8, or a line has no TAB.
    """
    origin = path.parent.name
    for number, cells in read_table(path, f"a TSV of sentences, `english TAB {language}`", separators="\t").rows:
        if len(cells) < 2:
            raise DataError(f"{path}:{number}: no TAB, expected `english TAB {language}`")
        english, other = cells[:2]  # newer exports name the authors in a third column
        if english and other:
            yield Pair(f"{name or origin}#{number}", None, "train", origin, {"en": english, language: other})
        else:
            empty.append(f"{path}:{number}")


def held_out(pairs: list[Pair]) -> list[Pair]:
    """The pairs, some of them for validation and test; those of one sentence (each pair's first text) are in one split.

    At most 1,000 sentences are for validation and as many for the test, and at most a tenth each. Which ones depends on
    the sentences alone. What shares a translation with a pair of the test is left out of the other splits, and what
    shares one with validation is left out of training: a short sentence translates many.
    """
    sentences = sorted({*map(_first_text, pairs)}, key=lambda text: hashlib.sha256(text.encode()).digest())
    count = min(MOST_HELD_OUT, len(sentences) // 10)
    split_of = dict.fromkeys(sentences[:count], "val") | dict.fromkeys(sentences[count : 2 * count], "test")
    placed = [replace(pair, split=split_of.get(_first_text(pair), "train")) for pair in pairs]
    taken, kept = set[tuple[str, str]](), set[str]()
    for split in ("test", "val", "train"):
        of_split = [pair for pair in placed if pair.split == split and taken.isdisjoint(pair.texts.items())]
        taken.update(text for pair in of_split for text in pair.texts.items())
        kept.update(pair.pair_id for pair in of_split)
    return [pair for pair in placed if pair.pair_id in kept]


def _first_text(pair: Pair) -> str:
    return next(iter(pair.texts.values()))
