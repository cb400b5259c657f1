"""Sentence pairs with gold scores of similarity: SemEval's shared tasks on semantic textual similarity (STS).

A set is two files: the pairs, two sentences and a TAB between them, `STS2014.input.images.txt`, and the gold scores of
the same lines, `STS2014.gs.images.txt`. A pair without a gold score does not count.
"""

from dataclasses import dataclass, field
from pathlib import Path

from data.errors import DataError
from data.lines import number_of, read_lines

HIGHEST = 5.0
"""Gold score of two sentences that mean the same; 0 is that of two that have nothing in common."""
INPUT, GOLD = ".input.", ".gs."


@dataclass
class StsSettings:
    """Sets of sentence pairs by which trained retrieval models are tested (`make sts`)."""

    sets: dict[str, str] = field(default_factory=dict)
    """Name → the file of the pairs, relative to the data root, `sts/STS2014.input.images.txt`; the file of the gold
    scores lies beside it, with `gs` for `input`."""
    language: str = "en"
    """Of the sentences."""
    published: dict[str, dict[str, float]] = field(default_factory=dict)
    """System of others → set → its published r × 100, shown below ours."""


@dataclass(frozen=True)
class SentencePairs:
    """The pairs of a set that have a gold score.

    Attributes:
        first: sentences.
        second: sentences, each compared with the one in the same place.
        gold: how similar people find them, 0 … 5.
    """

    first: list[str]
    second: list[str]
    gold: list[float]

    def __len__(self) -> int:
        return len(self.gold)


def gold_file(path: Path) -> Path:
    """The file of the gold scores beside a file of pairs.

    Examples:
        >>> gold_file(Path("sts/STS.input.MSRvid.txt")).as_posix()
        'sts/STS.gs.MSRvid.txt'
    """
    return path.with_name(path.name.replace(INPUT, GOLD))


def read_sts(path: Path) -> SentencePairs:
    """Read a set.

    Args:
        path: the file of the pairs.

    Raises:
        DataError: a file is missing or not UTF-8, they differ in length, a line is not two sentences or no score from 0
            to 5, or no pair has a score.
    """
    lines = read_lines(path, "two sentences a line, with a TAB between them")
    scores = read_lines(gold_file(path), f"a gold score for each line of {path.name}")
    if len(lines) != len(scores):
        raise DataError(f"{gold_file(path)}: {len(scores)} lines, but {path.name} has {len(lines)}; expected as many")
    pairs = [_sentences(line, f"{path}:{number}") for number, line in enumerate(lines, 1)]
    gold = [_score(line, f"{gold_file(path)}:{number}") for number, line in enumerate(scores, 1)]
    kept = [(*pair, score) for pair, score in zip(pairs, gold, strict=True) if score is not None]
    if not kept:
        raise DataError(f"{gold_file(path)}: no line has a gold score; get the file again")
    return SentencePairs(*(list(column) for column in zip(*kept, strict=True)))


def _sentences(line: str, where: str) -> tuple[str, str]:
    cells = [cell.strip() for cell in line.split("\t")]
    if len(cells) != 2:
        raise DataError(f"{where}: {len(cells)} columns; expected two sentences with a TAB between them")
    if not all(cells):
        raise DataError(f"{where}: a sentence is empty; expected two sentences with a TAB between them")
    return cells[0], cells[1]


def _score(line: str, where: str) -> float | None:
    text = line.strip()
    if not text:
        return None
    score = number_of(text)
    if not 0 <= score <= HIGHEST:  # NaN neither
        raise DataError(f"{where}: gold score {text!r}; expected a number from 0 to 5, or nothing")
    return score
