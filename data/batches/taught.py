"""Sentences that a student learns from a teacher's vectors: pairs of an original and a sentence, without pictures."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from data.captions.table import HUMAN, PAIR_COLUMNS, Caption, read_captions
from data.errors import DataError, one_line
from data.pictures.pixels import WHOLE, VectorStore
from data.pictures.regions import RegionStore
from data.vectors.sentence_vectors import Arrays, open_vectors

if TYPE_CHECKING:  # takes a second to import
    from datasets import Dataset

TEXT = "text:"
"""What sources of captions begin with that are sentences without pictures: `text:tatoeba`, `text:mt:en-de`."""
_PAIRS = "pairs.parquet"


class TaughtPair(NamedTuple):
    """A sentence, and the one in the teacher's language that it is a translation of."""

    original: str
    language: str
    text: str


def pairs_of_captions(human: "Dataset", language: str, translated: "Dataset | None" = None) -> list[TaughtPair]:
    """Training captions with the human captions that they were made from.

    Args:
        human: caption table of the corpus.
        language: of the human captions.
        translated: captions that were made from them; None: each human caption is paired with itself.
    """
    texts = {
        row["caption_id"]: row["text"] for row in human.to_list()
        if row["split"] == "train" and row["source"] == HUMAN and row["language"] == language
    }  # fmt: skip
    if translated is None:
        return [TaughtPair(text, language, text) for text in texts.values()]
    return [
        TaughtPair(texts[row["parent"]], row["language"], row["text"])
        for row in translated.to_list() if row["parent"] in texts
    ]  # fmt: skip


def pairs_of_parallel(table: "Dataset", captions: "Dataset", origin: str, language: str) -> list[TaughtPair]:
    """Training pairs of parallel text about no image of a corpus, and their originals themselves.

    Args:
        table: parallel table of the corpus.
        captions: its caption table.
        origin: of the text, as the parallel table names it.
        language: of the originals.

    Raises:
        DataError: there is no such text.
    """
    images = set(captions["image_id"][:])
    rows = [row for row in table.to_list() if row["image_id"] not in images]
    languages = [name for name in table.column_names if name not in PAIR_COLUMNS]
    pairs = [
        TaughtPair(row[language], name, row[name])
        for row in rows if row["origin"] == origin and row["split"] == "train" and row.get(language)
        for name in languages if row[name]
    ]  # fmt: skip
    if not pairs:
        known = sorted({f"{TEXT}{row['origin']}" for row in rows})
        raise DataError(
            f"{TEXT}{origin}: no parallel text of this origin about no image of the corpus, and no path of "
            f"augment.paths; there is {', '.join(known) or 'none'}"
        )
    return pairs


def write_pairs(pairs: Sequence[TaughtPair], path: Path) -> None:
    """Write pairs to a folder, beside the teacher's vectors of their originals (`data.vectors.sentence_vectors`)."""
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


def rows_of(folders: Mapping[str, Path], types: Collection[str]) -> list[dict[str, Any]]:
    """The rows of the caption tables, and of the sentences without pictures, that a training reads.

    Args:
        folders: source → folder with what is of it; `corpus` of the human captions, whose rows of all types are given.
        types: of its training captions, `de/text:tatoeba`.

    Raises:
        DataError: a folder is damaged.
    """
    rows: list[dict[str, Any]] = []
    for source, folder in folders.items():
        if source.startswith(TEXT):
            languages = {kind.partition("/")[0] for kind in types if kind.partition("/")[2] == source}
            rows += [asdict(caption) for caption in taught_captions(folder, source, languages)]
        else:
            rows += read_captions(folder / "captions.parquet").to_list()
    return rows


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
