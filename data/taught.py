"""Sentences that a student learns from a teacher's vectors: pairs of an original and a sentence, without pictures."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from data.captions import Caption
from data.errors import DataError, one_line
from data.pixels import WHOLE, VectorStore
from data.regions import RegionStore
from data.sentence_vectors import Arrays, open_vectors

TEXT = "text:"
"""What sources of captions begin with that are sentences without pictures: `text:tatoeba`, `text:mt:en-de`."""
_PAIRS = "pairs.parquet"


class TaughtPair(NamedTuple):
    """A sentence, and the one in the teacher's language that it is a translation of."""

    original: str
    language: str
    text: str


def write_pairs(pairs: Sequence[TaughtPair], path: Path) -> None:
    """Write pairs to a folder, beside the teacher's vectors of their originals (`data.sentence_vectors`)."""
    pq.write_table(pa.Table.from_pylist([pair._asdict() for pair in pairs]), path / _PAIRS)


def taught_captions(folder: Path, source: str, languages: Iterable[str]) -> list[Caption]:
    """The sentences of a folder in some languages as captions of "images", which are the originals' vectors.

    Args:
        folder: what `write_pairs` and `compute_vectors` wrote.
        source: of the captions, `text:…`.
        languages: which of them.

    Raises:
        DataError: the folder is damaged.
    """
    wanted, known = set(languages), set(open_vectors(folder)[0])
    rows = _pairs(folder)
    if strange := {row["original"] for row in rows} - known:
        raise _damaged(folder, f"no vector of {min(strange)!r}")
    return [
        Caption(
            TEXT + row["original"], f"{source}|{place}", row["language"], row["text"], "train", source
        ) for place, row in enumerate(rows) if row["language"] in wanted
    ]  # fmt: skip


def taught_texts(folder: Path) -> list[str]:
    """The sentences of a folder that `write_pairs` wrote, without their originals.

    Raises:
        DataError: the folder is damaged.
    """
    return [row["text"] for row in _pairs(folder)]


def _pairs(folder: Path) -> list[dict[str, str]]:
    """The pairs of a folder, with each field of `TaughtPair`."""
    try:
        return [{name: row[name] for name in TaughtPair._fields} for row in pq.read_table(folder / _PAIRS).to_pylist()]
    except (OSError, KeyError, pa.ArrowException) as error:
        raise _damaged(folder, one_line(error)) from None


def _damaged(folder: Path, reason: str) -> DataError:
    return DataError(f"{folder}: no pairs of sentences ({reason}); delete it and run the stage vse again")


class TaughtStore(RegionStore):
    """Vectors of images, and behind them a teacher's vectors of sentences, each of which stands for an image.

    Args:
        images: vectors of images.
        sentences: source `text:…` → folder with the teacher's vectors of its originals; an original of several is one
            "image".

    Raises:
        DataError: a folder is damaged, or its vectors are of another size than those of images.
    """

    def __init__(self, images: VectorStore, sentences: dict[str, Path]) -> None:
        self.folder, self._images, self._sentences = images.folder, images, sentences
        self.ids = list(images.ids)
        arrays: list[NDArray[np.float32]] = [images.pixels]
        for folder in sentences.values():
            originals, vectors = open_vectors(folder)
            if vectors.shape[1] != images.dim:
                raise DataError(
                    f"{folder}: the teacher's vectors of sentences have {vectors.shape[1]} numbers, those of images "
                    f"{images.dim}; take a teacher whose images are read"
                )
            arrays.append(vectors)
            self.ids += [TEXT + original for original in originals]
        self._row = {name: row for row, name in enumerate(self.ids)}
        self.regions = cast(NDArray[np.floating], _OneRegion(arrays))
        self.boxes = np.broadcast_to(WHOLE, (len(self.ids), 1, 4))

    def __getstate__(self) -> dict[str, Any]:
        return {"images": self._images, "sentences": self._sentences}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]


class _OneRegion:
    """Arrays (n, H), one behind the other, as regions (N, 1, H)."""

    def __init__(self, arrays: Sequence[NDArray[np.float32]]) -> None:
        self._arrays = Arrays(arrays)
        self.shape = (len(self._arrays), 1, arrays[0].shape[1])

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        return self._arrays[rows][:, None]
