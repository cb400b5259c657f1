"""Published word vectors: text of fastText and MUSE (`.vec`, `.vec.gz`), models of fastText (`.bin`)."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from data.errors import DataError
from data.lines import WORD_VECTORS, byte_lines, number_of
from data.vectors.word_vectors import model_vectors, other_width

_EXPECTED = f"word vectors ({', '.join(WORD_VECTORS)})"
_MOST_ODD = 1000  # published files have a few rows that are not UTF-8 among millions; files in other codes have many
_LARGEST = float(np.finfo(np.float32).max)
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class WordVectors:
    """What a file has for a vocabulary.

    Attributes:
        numbers: (n,) entries of the vocabulary that have a vector.
        vectors: (n, dim) float32.
        warnings: what is odd about the file but does not keep it from being read, a line each.
    """

    numbers: NDArray[np.int64]
    vectors: NDArray[np.float32]
    warnings: list[str] = field(default_factory=list)


def read_vectors(path: Path, words: Mapping[str, int], dim: int) -> WordVectors:
    """Read the vectors of a vocabulary, the others of the file are not kept.

    A word is looked up as it is, and capitalised only if that is missing (`hund`, `Hund`). Of two rows of a word the
    first counts. A model of fastText also gives vectors of words that it has not seen, by their parts.

    Args:
        path: the file. Text has a word and its numbers in each line, separated by spaces, with or without a first line
            `count width`.
        words: lower-case word → its number in the vocabulary.
        dim: size of a vector (`vse.word_dim`).

    Raises:
        DataError: the file is missing, cut short or of another kind, its vectors are of another size, or a row of the
            vocabulary has something else than finite numbers; more than one row in 1,000 is not UTF-8; fastText, which
            models need, is not installed.
    """
    if path.name.endswith(".bin"):
        table = model_vectors(path, list(words), dim)
        known = table.any(axis=1)
        return WordVectors(np.array(list(words.values()), dtype=np.int64)[known], table[known])
    rows, warnings = _read_text(path, {form.encode() for word in words for form in (word, word.capitalize())}, dim)
    numbers, vectors = [], []
    for word, number in words.items():
        vector = rows.get(word.encode(), rows.get(word.capitalize().encode()))
        if vector is not None:
            numbers.append(number)
            vectors.append(vector)
    table = np.array(vectors, dtype=np.float32).reshape(-1, dim)
    return WordVectors(np.array(numbers, dtype=np.int64), table, warnings)


def _read_text(path: Path, wanted: set[bytes], dim: int) -> tuple[dict[bytes, NDArray[np.float32]], list[str]]:
    """The rows of wanted words, and warnings."""
    vectors: dict[bytes, NDArray[np.float32]] = {}
    repeated, odd, rows = list[int](), list[int](), 0
    for line, word, numbers in _rows(path, dim):
        rows += 1
        if word not in wanted:
            if not _is_utf8(word):
                odd.append(line)
        elif word in vectors:
            repeated.append(line)
        else:
            vectors[word] = _vector(numbers, f"{path}:{line}", dim)
    if len(odd) * _MOST_ODD > rows:
        raise DataError(f"{path}:{odd[0]}: not UTF-8, as {len(odd):,} of {rows:,} rows; convert the file to UTF-8")
    warnings = []
    if odd:
        warnings.append(f"{path}:{odd[0]}: not UTF-8, as {len(odd):,} of {rows:,} rows; they are left out")
    if repeated:
        warnings.append(
            f"{path}:{repeated[0]}: a word that has a row before, as {len(repeated):,} rows of words of the "
            "vocabulary; the first row of a word counts"
        )
    return vectors, warnings


def _rows(path: Path, dim: int) -> Iterator[tuple[int, bytes, bytes]]:
    """Line, word and numbers of each row of a text file, without its header."""
    promised, rows = None, 0
    for number, line in enumerate(byte_lines(path, _EXPECTED), 1):
        row = line.rstrip()
        if number == 1:
            row = row.removeprefix(_BYTE_ORDER_MARK)
            promised = _header(path, row, dim)
        if not row or (number == 1 and promised is not None):
            continue
        word, _, numbers = row.partition(b" ")
        if numbers.count(b" ") + 1 != dim and len(numbers.split()) != dim:
            raise _wrong_width(path, number, len(numbers.split()), dim, first=not rows)
        rows += 1
        yield number, word, numbers
    if promised is not None and rows != promised:
        what = "the file is cut short, it has" if rows < promised else "the file has"
        raise DataError(
            f"{path}:1: {promised:,} rows by the first line, but {what} {rows:,}; get it again, or correct the line"
        )
    if not rows:
        raise DataError(f"{path}: no word vectors in it; expected a word and its numbers in each line")


def _header(path: Path, line: bytes, dim: int) -> int | None:
    """The number of rows that a first line `count width` promises; None: it is none."""
    parts = line.split()
    if len(parts) != 2 or not all(part.isdigit() and len(part) < 19 for part in parts):
        return None
    if int(parts[1]) != dim:
        raise other_width(f"{path}:1", int(parts[1]), dim)
    return int(parts[0])


def _wrong_width(path: Path, line: int, width: int, dim: int, first: bool) -> DataError:
    if first and width:
        return other_width(f"{path}:{line}", width, dim)
    return DataError(
        f"{path}:{line}: {width} numbers behind the word; expected {dim} in each row; if this is the last row, the "
        "file is cut short: get it again"
    )


def _vector(numbers: bytes, where: str, dim: int) -> NDArray[np.float32]:
    values = []
    for part in numbers.split():
        text = part.decode(errors="replace")
        values.append(number_of(text))
        if math.isnan(values[-1]):
            raise DataError(f"{where}: {text!r} is not a number; get the file again")
    if len(values) != dim:
        raise DataError(f"{where}: {len(values)} numbers behind the word; expected {dim}; get the file again")
    if not all(abs(value) <= _LARGEST for value in values):
        raise DataError(f"{where}: a number is too large; get the file again")
    return np.array(values, dtype=np.float32)


def _is_utf8(word: bytes) -> bool:
    try:
        word.decode()
    except UnicodeDecodeError:
        return False
    return True
