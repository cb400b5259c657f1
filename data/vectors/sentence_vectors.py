"""Sentence vectors on disk: computed once for every different sentence of a caption table, then looked up."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from datasets import Dataset as Table
from numpy.typing import NDArray
from torch import Tensor

from data.errors import DataError, one_line
from data.parts import write_in_parts
from data.text.padding import pad
from data.text.reading import Words
from data.text.text_inputs import PretrainedTokens
from data.text.tokens import Tokens

_SENTENCES, _VECTORS = "sentences.parquet", "vectors.npy"
_BATCH, _PART = 64, 4096
Encode = Callable[[Tensor], NDArray[np.float32]]
"""A text model's: token numbers (B, L), 0 being padding, to vectors (B, E)."""


def compute_vectors(
    texts: Iterable[str], tokens: Callable[[str], list[int]], encode: Encode, folder: Path, parts: Path
) -> int:  # fmt: skip
    """Write `sentences.parquet` (column `text`) and `vectors.npy` (n, E) float32, a row for each different sentence.

    Sentences are read in the order of their lengths, in batches that are always the same. What is finished is kept in
    files of 4,096 vectors, from which the next call goes on; a file has its name when it is whole.

    Args:
        texts: at least one sentence; equal ones are read once.
        tokens: of a text model: a sentence to token numbers, of which none is 0.
        encode: its vectors.
        folder: to write into.
        parts: folder of the finished parts; it can be deleted afterwards.

    Returns:
        n.
    """
    numbers = {text: tokens(text) for text in set(texts)}
    order = sorted(numbers, key=lambda text: (len(numbers[text]), text))

    def vectors(first: int) -> Iterator[NDArray[np.float32]]:
        """Of the sentences from one on, a part at a time."""
        for start in range(first, len(order), _PART):
            part = [numbers[text] for text in order[start : start + _PART]]
            batches = (part[at : at + _BATCH] for at in range(0, len(part), _BATCH))
            yield np.concatenate([encode(pad(batch)) for batch in batches])

    write_in_parts(folder / _VECTORS, len(order), _PART, vectors, parts, "sentence vectors")
    pq.write_table(pa.table({"text": order}), folder / _SENTENCES)
    return len(order)


class Arrays:
    """Arrays of equal width on disk, one behind the other, of which rows are chosen by their numbers.

    Args:
        arrays: (n, E) each.
    """

    def __init__(self, arrays: Sequence[NDArray[np.float32]]) -> None:
        self._arrays = list(arrays)
        self._starts = np.cumsum([0] + [len(array) for array in arrays])

    def __len__(self) -> int:
        return int(self._starts[-1])

    def __getitem__(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        vectors = np.empty((len(rows), self._arrays[0].shape[1]), np.float32)
        of_array = np.searchsorted(self._starts, rows, side="right") - 1
        for number in np.unique(of_array):
            own = of_array == number
            vectors[own] = self._arrays[number][rows[own] - self._starts[number]]
        return vectors


class KnownSentences:
    """A text input for which a sentence with a known vector is one token, numbered behind the sub-words.

    Other sentences (queries, single words) are sub-words, which a text model reads.

    Args:
        tokens: the sub-words.
        folders: what `compute_vectors` wrote, a folder for each caption table.

    Raises:
        DataError: a folder is damaged.
    """

    by = PretrainedTokens.by

    def __init__(self, tokens: PretrainedTokens, folders: Sequence[Path]) -> None:
        self.tokens, self.folders = tokens, list(folders)
        self._numbers: dict[str, int] = {}
        arrays: list[NDArray[np.float32]] = []
        for folder in folders:
            sentences, vectors = open_vectors(folder)
            start = sum(map(len, arrays))
            self._numbers |= {text: start + number for number, text in enumerate(sentences)}
            arrays.append(vectors)
        self.vectors = Arrays(arrays)

    def __len__(self) -> int:
        return len(self.tokens)

    def encode(self, text: str, language: str) -> list[int]:
        """The number of a sentence with a known vector, else its sub-words."""
        number = self._numbers.get(text)
        return self.tokens.encode(text, language) if number is None else [len(self.tokens) + number]

    def encode_all(self, captions: Table) -> Tokens:
        """`encode` all sentences of a caption table."""
        return Tokens.of(map(self.encode, captions["text"][:], captions["language"][:]))

    def read_words(self, text: str, language: str) -> Words:
        """The words of a sentence, as the text model reads them."""
        return self.tokens.read_words(text, language)

    def save(self, path: Path) -> None:
        """Write the text model's name; trained models read sentences by it."""
        self.tokens.save(path)

    def require(self, captions: Table) -> None:
        """Refuse captions of which one has no vector, by a DataError."""
        for caption_id, text in zip(captions["caption_id"][:], captions["text"][:], strict=True):
            if text not in self._numbers:
                where = ", ".join(map(str, self.folders))
                raise DataError(
                    f"caption {caption_id!r} has no sentence vector in {where}; delete what is there, and run "
                    "the stage vse again"
                )


def open_vectors(folder: Path) -> tuple[list[str], NDArray[np.float32]]:
    """The sentences that `compute_vectors` wrote to a folder, and their vectors (n, E), memory-mapped.

    Raises:
        DataError: they are missing or damaged.
    """
    try:
        sentences = pq.read_table(folder / _SENTENCES, columns=["text"])["text"].to_pylist()
        vectors = np.load(folder / _VECTORS, mmap_mode="r", allow_pickle=False)
        if vectors.dtype != np.float32 or vectors.ndim != 2 or len(vectors) != len(sentences):
            raise ValueError(f"{len(sentences)} sentences, but vectors {vectors.shape} of {vectors.dtype}")
    except (OSError, ValueError, KeyError, pa.ArrowException) as error:
        reason = one_line(error)
        raise DataError(f"{folder}: no sentence vectors ({reason}); delete it and run the stage vse again") from None
    return sentences, vectors
