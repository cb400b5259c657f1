"""The caption table and the parallel table: every sentence of a corpus, one Parquet file each."""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from data.errors import DataError, one_line
from data.text.sentences import sentence_hash
from data.text.tokenisation import plain_words

if TYPE_CHECKING:  # takes a second to import
    from datasets import Dataset

HUMAN = "human"
SPLITS = ("train", "val", "test")
TRAINING_SPLITS = ("train", "translation")  # retrieval trains on the first; translators may read both
ALL_SPLITS = {*SPLITS, *TRAINING_SPLITS, "twins"}  # the last are pairs of pictures of one sentence
_SPLIT = re.compile(r"(?:(?P<train>train|restval)|(?P<val>val|dev)|(?P<test>test))\S*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Caption:
    """One sentence about one image.

    `source` is who wrote it: `human`, the translator and its path (`mmt:en-de`, `mt:en-de-en`), or a model that saw the
    picture alone (`caption:de`). A translated caption names the human caption it came from as `parent` and what the
    search scored it as `score` (length-normalised log-probability, plus a channel's share where there is one).
    """

    image_id: str
    caption_id: str
    language: str
    text: str
    split: str
    source: str = HUMAN
    parent: str | None = None
    score: float | None = None


@dataclass(frozen=True, slots=True)
class Pair:
    """One sentence in several languages, translations of each other; about an image or about none.

    `origin` says where the pair was found (`task1`, `tatoeba`, `scenes`), `texts` maps language to text; a sentence
    without a translation has one text and is used for back-translation only.
    """

    pair_id: str
    image_id: str | None
    split: str
    origin: str
    texts: dict[str, str]


def split_called(name: str) -> str | None:
    """The split that a word stands for in somebody's data; None: it stands for none.

    Examples:
        >>> [split_called(name) for name in ("train", "Validation", "dev", "restval", "test_2016", "a train")]
        ['train', 'val', 'val', 'train', 'test', None]
    """
    match = _SPLIT.fullmatch(name)
    return match and match.lastgroup


_SCHEMA = pa.schema([(field.name, pa.float64() if field.name == "score" else pa.string()) for field in fields(Caption)])
_OF_TEXT = ("tokens", "sentence")
PAIR_COLUMNS = ("pair_id", "image_id", "split", "origin")


def write_captions(captions: Iterable[Caption], path: Path) -> None:
    """Write the caption table to the Parquet file `path`, with what `read_captions` calls tokens.

    Examples:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder) / "captions.parquet"
        ...     write_captions([Caption("1.jpg", "1.jpg#0", "en", "A dog!", "train")], path)
        ...     read_captions(path, tokens=True)["tokens"][:]
        ['a dog !']
    """
    pq.write_table(_with_tokens(_rows(captions)), path)


def table_of(captions: Iterable[Caption], tokens: bool = False) -> "Dataset":
    """A caption table in memory, as `read_captions` gives it."""
    rows = _rows(captions)
    return _dataset(_with_tokens(rows) if tokens else rows)


def read_captions(path: Path, tokens: bool = False) -> "Dataset":
    """Read a caption table; its columns are the fields of `Caption`, and two more if asked for.

    Args:
        path: of the file.
        tokens: with the columns `tokens` (the sentence as `tokenize` gives it) and `sentence` (its `sentence_hash`).

    Raises:
        DataError: the file is missing, is no Parquet file, or has other columns.
    """
    table = _read_table(path)
    missing = [name for name in _SCHEMA.names if name not in table.column_names]
    if missing:
        raise DataError(f"{path}: no column {missing[0]!r}; a caption table has {', '.join(_SCHEMA.names)}")
    if tokens:
        known = set(_OF_TEXT) <= set(table.column_names)
        rows = table.select([*_SCHEMA.names, *(_OF_TEXT if known else ())])
        return _dataset(rows if known else _with_tokens(rows))
    return _dataset(table.select(_SCHEMA.names))


def listed_captions(path: Path) -> list[Caption]:
    """The captions of a table as objects; raises as `read_captions`."""
    captions = read_captions(path)
    return [Caption(*row) for row in zip(*(captions[name][:] for name in _SCHEMA.names), strict=True)]


def training_images(captions: Sequence[Caption]) -> list[str]:
    """The training images that have a caption in any language, in their order.

    Examples:
        >>> splits = {"2.jpg": "train", "1.jpg": "val"}
        >>> training_images([Caption(image, "0", "en", "a dog", split) for image, split in splits.items()])
        ['2.jpg']
    """
    return list(dict.fromkeys(caption.image_id for caption in captions if caption.split == "train"))


def refuse_held_out(source: Iterable[Caption], human: Iterable[Caption]) -> None:
    """Refuse to translate a caption whose image is in any split but train.

    Raises:
        DataError: there is one.
    """
    split_of = {caption.image_id: caption.split for caption in human}
    for caption in source:
        if split_of.get(caption.image_id) != "train":
            raise DataError(
                f"caption {caption.caption_id!r}: its image is in split {split_of.get(caption.image_id)!r}; only "
                "captions of training images are translated"
            )


def choose(captions: "Dataset", split: str, types: Collection[str]) -> "Dataset":
    """The captions of a split that are of some types (`en/human`).

    Examples:
        >>> human = Caption("1.jpg", "0", "en", "a dog", "train")
        >>> translated = Caption("1.jpg", "1", "de", "ein Hund", "train", "mt:en-de", parent="0")
        >>> table = table_of([human, translated])
        >>> choose(table, "train", ["de/mt:en-de"])["text"][:]  # the type is language/source
        ['ein Hund']
    """
    rows = captions.with_format("arrow")[:]
    of_types = pc.is_in(types_of(rows), pa.array(sorted(types), pa.string()))
    return _dataset(rows.filter(pc.and_(pc.equal(rows["split"], split), of_types)))


def human_cells(captions: "Dataset", split: str, *columns: str) -> list[tuple[str, ...]]:
    """The cells of some columns, of each caption of a split that people wrote.

    Examples:
        >>> human = Caption("1.jpg", "0", "en", "a dog", "train")
        >>> translated = Caption("1.jpg", "1", "de", "ein Hund", "train", "mt:en-de", parent="0")
        >>> human_cells(table_of([human, translated]), "train", "image_id", "text")
        [('1.jpg', 'a dog')]
    """
    rows = captions.select_columns(["split", "source", *columns]).with_format("arrow")[:]
    own = rows.filter(pc.and_(pc.equal(rows["split"], split), pc.equal(rows["source"], HUMAN)))
    return list(zip(*(own[name].to_pylist() for name in columns), strict=True))


def references_of(captions: "Dataset", language: str, split: str) -> dict[str, list[list[str]]]:
    """Image id → each of its human captions in a language and split, as words without punctuation; may be empty.

    Examples:
        >>> texts = {"0": "A dog.", "1": "Dogs!"}
        >>> table = table_of(Caption("1.jpg", name, "en", text, "test") for name, text in texts.items())
        >>> references_of(table, "en", "test")
        {'1.jpg': [['a', 'dog'], ['dogs']]}
    """
    rows, references = choose(captions, split, [f"{language}/{HUMAN}"]), dict[str, list[list[str]]]()
    for image_id, text in zip(rows["image_id"][:], rows["text"][:], strict=True):
        references.setdefault(image_id, []).append(plain_words(text, language))
    return references


def types_of(rows: pa.Table) -> pa.ChunkedArray:
    """The type of each caption, `en/human`."""
    return pc.binary_join_element_wise(rows["language"], rows["source"], "/")


def write_pairs(pairs: Sequence[Pair], path: Path) -> None:
    """Write the parallel table to the Parquet file `path`, a column for each language."""
    languages = sorted({language for pair in pairs for language in pair.texts})
    schema = pa.schema([(name, pa.string()) for name in (*PAIR_COLUMNS, *languages)])
    rows = [{name: getattr(pair, name) for name in PAIR_COLUMNS} | pair.texts for pair in pairs]
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), path)


def read_pairs(path: Path) -> "Dataset":
    """Read a parallel table: `pair_id, image_id, split, origin` and a column for each language.

    Raises:
        DataError: the file is missing, is no Parquet file, or lacks one of the first four columns.
    """
    table = _read_table(path)
    missing = [name for name in PAIR_COLUMNS if name not in table.column_names]
    if missing:
        raise DataError(f"{path}: no column {missing[0]!r}; a parallel table has {', '.join(PAIR_COLUMNS)}")
    return _dataset(table)


def _dataset(rows: pa.Table) -> "Dataset":
    """A table as `datasets` has it, with a random fingerprint: no result is cached by it, and to hash all rows takes
    longer than to choose some."""
    from datasets import Dataset
    from datasets.fingerprint import generate_random_fingerprint

    return Dataset(rows, fingerprint=generate_random_fingerprint())


def _rows(captions: Iterable[Caption]) -> pa.Table:
    listed = list(captions)
    columns = [pa.array([getattr(caption, field.name) for caption in listed], field.type) for field in _SCHEMA]
    return pa.Table.from_arrays(columns, schema=_SCHEMA)


def sentences_of(captions: "Dataset") -> NDArray[np.int64]:
    """The `sentence_hash` of each caption; they are in the table, or computed."""
    if "sentence" in captions.column_names:
        hashes = captions.with_format("arrow")[:]["sentence"].to_numpy()
        return hashes.astype(np.int64, copy=False)
    return np.fromiter(map(sentence_hash, captions["text"][:]), np.int64, len(captions))


def _with_tokens(rows: pa.Table) -> pa.Table:
    """A caption table with `_OF_TEXT`."""
    from data.text.tokenisation import tokenize_all

    texts = rows["text"].to_pylist()
    tokens = tokenize_all(texts, rows["language"].to_pylist())
    columns = pa.array(tokens, pa.string()), pa.array(map(sentence_hash, texts), pa.int64())
    for name, column in zip(_OF_TEXT, columns, strict=True):
        rows = rows.append_column(name, column)
    return rows


def _read_table(path: Path) -> pa.Table:
    if not path.is_file():
        raise DataError(f"{path}: no such file; delete {path.parent} and run its stage again (prepare or augment)")
    try:
        return pq.read_table(path)
    except (pa.ArrowInvalid, OSError) as error:  # OSError: damaged inside, or not readable
        raise DataError(f"{path}: not a readable Parquet file ({one_line(error)}); delete {path.parent} and "
                        "run its stage again (prepare or augment)") from None  # fmt: skip
