"""`embed`: vectors of pictures or captions as a file for a vector database; streamed, and resumed after any stop.

While it works, `FILE.partial/` holds the vectors of a fixed number of items a file. At the end they are joined.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import IO, Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyarrow.csv import WriteOptions, write_csv

from data.errors import DataError
from data.lines import byte_lines
from data.progress import shown
from pipeline.engine.artifacts import read_json
from pipeline.engine.console import info
from pipeline.engine.files import lock, require_output, write_atomically
from pipeline.errors import RecipeError
from pipeline.export.exported_model import ExportedModel
from pipeline.gallery.picture_sources import PictureFolder

ENDINGS = (".parquet", ".csv", ".npy")
ABOUT = "about.json"
_HALF, _NAMED = "half", 5  # a file that is being written; captions without a known word that are named
_LEFT, _ARBITRARY = b"left", b"arbitrary"  # in a part's metadata, as JSON; see `Part`


class Part(NamedTuple):
    """Vectors of some items.

    Attributes:
        ids: of N items.
        vectors: (N, H) float32.
        left: items without a vector, with the reason.
        arbitrary: ids of captions of which the model knows no word.
    """

    ids: list[str]
    vectors: NDArray[np.float32]
    left: Mapping[str, str]
    arbitrary: Sequence[str] = ()


class Items(Protocol):
    """What gets vectors: pictures, or captions.

    Attributes:
        size: items of a part.
        count: of all items, once `state` was asked for.
    """

    size: int
    count: int

    def require(self, exported: ExportedModel) -> None:
        """Refuse a model that does not read them, by a RecipeError."""

    def state(self) -> str:
        """What changes when the items do."""

    def parts(self, exported: ExportedModel, done: int) -> Iterator[Part]:
        """The parts, but for the first `done`."""


class CaptionLines:
    """The captions of a text file, one a line; the id of a caption is the number of its line, from 1.

    Args:
        path: UTF-8, may be packed (`.gz`). Read line by line, never as a whole.
        language: of all captions; None: detected, each by itself.
    """

    size = 4096

    def __init__(self, path: Path, language: str | None) -> None:
        self.path, self.language, self.count = path, language, 0

    def require(self, exported: ExportedModel) -> None:
        """Refuse a language that the model was not trained on."""
        if self.language is not None:
            exported.require_language(self.language)

    def state(self) -> str:
        """A digest of language and captions; each line is checked, and counted.

        Raises:
            DataError: the file cannot be read, or is not UTF-8.
            RecipeError: it has no line, or an empty one.
        """
        digest, self.count = hashlib.sha256(f"{self.language}\n".encode()), 0
        for text in self._captions():
            digest.update(f"{text}\n".encode())
            self.count += 1
        if not self.count:
            raise RecipeError(f"{self.path}: no captions; expected a caption a line")
        return digest.hexdigest()

    def parts(self, exported: ExportedModel, done: int) -> Iterator[Part]:
        """Captions encoded in the order of their lines."""
        captions, first = islice(self._captions(), done * self.size, None), done * self.size + 1
        while texts := list(islice(captions, self.size)):
            ids = [str(number) for number in range(first, first + len(texts))]
            arbitrary = [number for number, text in zip(ids, texts, strict=True)
                         if not exported.reading(text, self.language).known]  # fmt: skip
            yield Part(ids, exported.encode(texts, self.language), {}, arbitrary)
            first += len(texts)

    def _captions(self) -> Iterator[str]:
        for number, line in enumerate(byte_lines(self.path, "a caption a line"), 1):
            try:
                text = line.decode("utf-8").removeprefix("\ufeff" if number == 1 else "").strip()
            except UnicodeDecodeError as error:
                raise DataError(f"{self.path}:{number}: not UTF-8 ({error.reason}); convert the file") from None
            if not text:
                raise RecipeError(f"{self.path}:{number}: the caption is empty; leave the line out")
            yield text


class Pictures:
    """The pictures of a folder and of those in it; the id of a picture is its path from the folder.

    What cannot be read is left out.

    Args:
        folder: with pictures.
        workers: processes that read them.

    Raises:
        DataError: there is no such folder.
        RecipeError: it has no picture.
    """

    size = 256

    def __init__(self, folder: Path, workers: int) -> None:
        self.folder, self._found = folder, PictureFolder(folder, workers)
        self._names, self.count = list(self._found.paths), len(self._found.paths)
        if not self._names:
            raise RecipeError(f"{folder}: no picture in it; expected files such as .jpg or .png")

    def require(self, exported: ExportedModel) -> None:
        """Refuse a model that reads regions made elsewhere."""
        exported.require_pixels()

    def state(self) -> str:
        """A digest of the folder, and of name, size and date of each picture."""
        digest = hashlib.sha256(f"{self.folder.resolve()}\n".encode())
        for name in self._names:
            digest.update(f"{name}\n{self._found.state(name)}\n".encode())
        return digest.hexdigest()

    def parts(self, exported: ExportedModel, done: int) -> Iterator[Part]:
        """Pictures encoded in the order of their names."""
        names, beside = self._names[done * self.size :], {} if done else self._found.left
        read = zip(names, self._found.arrays(exported, names), strict=True)
        while some := list(islice(read, self.size)):
            left = {name: arrays for name, arrays in some if isinstance(arrays, str)}
            regions = [arrays["regions"] for _, arrays in some if not isinstance(arrays, str)]
            vectors = exported.encode_regions(np.stack(regions)).single().numpy() if regions else exported.encode([])
            yield Part([name for name, _ in some if name not in left], vectors, {**beside, **left})
            beside = {}


def items_of(pictures: Path | None, captions: Path | None, language: str | None, workers: int) -> Items:
    """The items that a command names.

    Raises:
        DataError: they cannot be read.
        RecipeError: none or both are named, or a language of pictures.
    """
    if pictures is not None and captions is None:
        if language is not None:
            raise RecipeError(f"embed: --language {language} is for captions; leave it out with --pictures")
        return Pictures(pictures, workers)
    if captions is None or pictures is not None:
        raise RecipeError("embed: give --pictures FOLDER or --captions FILE, one of the two")
    return CaptionLines(captions, language)


def check_output(output: Path) -> None:
    """Refuse a file of another ending or that cannot be written, by a RecipeError."""
    if output.suffix not in ENDINGS:
        raise RecipeError(f"--output {output}: expected a name that ends in {', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}")
    require_output(output, "embed: --output", force=True)  # `_is_finished` says what may be replaced


def embed(exported: ExportedModel, items: Items, output: Path, force: bool = False) -> None:
    """Write the vectors of items to a file; after a stop, the same call continues.

    Args:
        exported: the model; of one vector an item.
        items: pictures or captions.
        output: a file in Parquet (columns `id`, `vector` of H numbers, `model`), a CSV (`id`, `model`, `v1` … `vH`), or
            NumPy's `.npy` (N, H) with the ids beside it (`ids_of`), one a line; float32.
        force: replace it if it exists.

    Raises:
        DataError: the items cannot be read.
        RecipeError: the model has no single vectors or does not know the language, the output exists or cannot be
            written, an unfinished one is of something else, no picture can be read, or the items change.
    """
    check_output(output)
    exported.require_single()
    items.require(exported)
    output.parent.mkdir(parents=True, exist_ok=True)
    with lock(output.with_name(f"{output.name}.lock"), f"embed {output}"):
        partial, state = output.with_name(f"{output.name}.partial"), items.state()
        files = [partial / f"{number:08d}.parquet" for number in range(-(-items.count // items.size))]
        if _is_finished(output, partial, {"model": exported.fingerprint, "items": state}, force):
            _clear(partial)
            info(f"{output}: it is complete")
            return
        _write_parts(exported, items, files, partial)
        if items.state() != state:
            raise RecipeError(f"{partial}: its input changed while it was read; delete this folder and start again")
        kept = [pq.read_schema(path).metadata for path in files]
        arbitrary = [number for about in kept for number in json.loads(about.get(_ARBITRARY, b"[]"))]
        count, left = _join(files, output, partial)
        _clear(partial)
    if arbitrary:
        named = ", ".join(arbitrary[:_NAMED]) + (" …" if len(arbitrary) > _NAMED else "")
        info(f"the model knows no word of {len(arbitrary):,} captions, so their vectors are arbitrary: {named}",
             colour="yellow")  # fmt: skip
    for name, reason in left.items():
        info(f"{name}: {reason}", "left out:", "yellow")
    info(f"{output}: {count:,} vectors, {len(left):,} left out")


def ids_of(output: Path) -> Path:
    """Where the ids of an `.npy` file are: `vectors.npy` → `vectors.ids.txt`."""
    return output.with_suffix(".ids.txt")


def _is_finished(output: Path, partial: Path, about: Mapping[str, Any], force: bool) -> bool:
    """Was the output finished by a run that was killed before it had cleared up? Else begin or continue.

    Raises:
        RecipeError: the output exists, or an unfinished one is of another model or input.
    """
    begun: dict[str, Any] = {}
    with suppress(RecipeError):
        begun = read_json(partial / ABOUT, dict)
    same = {name: begun.get(name) for name in about} == about
    outputs = [output, ids_of(output)] if output.suffix == ".npy" else [output]
    existing = next((path for path in outputs if path.exists()), None)
    if existing is not None and not force:
        if not same or begun["replaces"]:
            raise RecipeError(f"{existing}: exists; choose another --output, or replace it with --force")
        if output.exists():
            return True
    if partial.exists() and not same and not _is_bare(partial):
        raise RecipeError(f"{partial}: an unfinished output of another model or input; continue it with those, or "
                          "delete this folder")  # fmt: skip
    if not same:
        partial.mkdir(exist_ok=True)
        write_atomically(partial / ABOUT, json.dumps({**about, "replaces": existing is not None}))
    return False


def _is_bare(partial: Path) -> bool:
    """Has a run been killed before it wrote anything?"""
    return partial.is_dir() and all(path.suffix == ".tmp" for path in partial.iterdir())


def _write_parts(exported: ExportedModel, items: Items, files: Sequence[Path], partial: Path) -> None:
    """Write the parts that are not there."""
    done = next((number for number, file in enumerate(files) if not file.exists()), len(files))
    if done < len(files):
        model = f"{exported.name} {exported.fingerprint}"
        todo = shown(items.parts(exported, done), "encoding", len(files) - done)
        for part, path in zip(todo, files[done:], strict=False):  # input that changes is found out afterwards
            with _whole(path, partial) as file:
                pq.write_table(_table(part, model), file)


def _table(part: Part, model: str) -> pa.Table:
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(part.vectors.ravel(), pa.float32()), part.vectors.shape[1])
    columns = {"id": pa.array(part.ids, pa.string()), "vector": vectors,
               "model": pa.array([model] * len(part.ids), pa.string())}  # fmt: skip
    about = {_LEFT: json.dumps(dict(part.left)), _ARBITRARY: json.dumps(list(part.arbitrary))}
    return pa.table(columns).replace_schema_metadata(about)


def _join(files: Sequence[Path], output: Path, partial: Path) -> tuple[int, dict[str, str]]:
    """Join parts, one in memory at a time; the number of vectors, and what is left out of all."""
    count, schema, left = 0, pq.read_schema(files[0]), dict[str, str]()
    for path in files:
        about = pq.read_metadata(path)
        count += about.num_rows
        left |= json.loads(about.metadata[_LEFT])
    if not count:
        _clear(partial)
        first = ": ".join(next(iter(left.items())))
        raise RecipeError(f"embed: none of {len(left)} pictures can be read ({first}); give others")
    if output.suffix == ".parquet":
        with _whole(output, partial) as file, pq.ParquetWriter(file, schema.remove_metadata()) as writer:
            for path in files:
                writer.write_table(pq.read_table(path).replace_schema_metadata(None))
        return count, left
    if output.suffix == ".csv":
        with _whole(output, partial) as file:
            for path in files:
                write_csv(_numbers(pq.read_table(path)), file, WriteOptions(include_header=path == files[0]))
        return count, left
    with _whole(ids_of(output), partial) as file:
        for path in files:
            file.write("".join(f"{name}\n" for name in pq.read_table(path, columns=["id"])["id"].to_pylist()).encode())
    with _whole(output, partial) as file:
        shape = (count, schema.field("vector").type.list_size)
        np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": shape})
        for path in files:
            for vectors in pq.read_table(path, columns=["vector"])["vector"].chunks:
                file.write(vectors.flatten().to_numpy().astype("<f4").tobytes())
    return count, left


def _numbers(part: pa.Table) -> pa.Table:
    """A part with a column for each number of its vectors."""
    size = part.schema.field("vector").type.list_size
    vectors = part["vector"].combine_chunks().flatten().to_numpy()
    columns = {f"v{number}": column for number, column in enumerate(vectors.reshape(-1, size).T, 1)}
    return pa.table({"id": part["id"], "model": part["model"], **columns})


@contextmanager
def _whole(path: Path, partial: Path) -> Iterator[IO[bytes]]:
    """A file that is written whole or not at all: as `half` in the folder of parts, then renamed."""
    half = partial / _HALF
    with half.open("wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())
    half.replace(path)


def _clear(partial: Path) -> None:
    """Delete the parts, what they are of last."""
    for path in sorted(partial.iterdir(), key=lambda path: path.name == ABOUT):
        path.unlink()
    partial.rmdir()
