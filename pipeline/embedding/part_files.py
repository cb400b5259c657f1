"""Vectors on disk: a Parquet file a part while they are computed, then one file of the form that is asked for."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.csv import WriteOptions, write_csv

from pipeline.embedding.items import Part

ENDINGS = (".parquet", ".csv", ".npy")
"""Of the forms that vectors can be written in."""
_HALF = "half"  # a file that is being written
_LEFT, _ARBITRARY = b"left", b"arbitrary"  # in a part's metadata, as JSON; see `Part`


class Told(NamedTuple):
    """What parts say of themselves.

    Attributes:
        vectors: how many.
        left: items without a vector, with the reason.
        arbitrary: ids of captions of which the model knows no word.
    """

    vectors: int
    left: Mapping[str, str]
    arbitrary: Sequence[str]


def ids_of(output: Path) -> Path:
    """Where the ids of an `.npy` file are: `vectors.npy` → `vectors.ids.txt`."""
    return output.with_suffix(".ids.txt")


def write_part(part: Part, model: str, path: Path) -> None:
    """Write a part to a file, with the name of the model in each row."""
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(part.vectors.ravel(), pa.float32()), part.vectors.shape[1])
    columns = {"id": pa.array(part.ids, pa.string()), "vector": vectors,
               "model": pa.array([model] * len(part.ids), pa.string())}  # fmt: skip
    about = {_LEFT: json.dumps(dict(part.left)), _ARBITRARY: json.dumps(list(part.arbitrary))}
    with _whole(path, path.parent) as file:
        pq.write_table(pa.table(columns).replace_schema_metadata(about), file)


def told_by(files: Sequence[Path]) -> Told:
    """What all parts say together."""
    count, left, arbitrary = 0, dict[str, str](), list[str]()
    for path in files:
        about = pq.read_metadata(path)
        count += about.num_rows
        left |= json.loads(about.metadata[_LEFT])
        arbitrary += json.loads(about.metadata.get(_ARBITRARY, b"[]"))
    return Told(count, left, arbitrary)


def join(files: Sequence[Path], output: Path, count: int) -> None:
    """Join parts, one in memory at a time, to a file of one of `ENDINGS`.

    Args:
        files: the parts, in one folder.
        output: the file; with ids beside it (`ids_of`) if it is NumPy's.
        count: vectors of all parts.
    """
    partial, schema = files[0].parent, pq.read_schema(files[0])
    if output.suffix == ".parquet":
        with _whole(output, partial) as file, pq.ParquetWriter(file, schema.remove_metadata()) as writer:
            for path in files:
                writer.write_table(pq.read_table(path).replace_schema_metadata(None))
    elif output.suffix == ".csv":
        with _whole(output, partial) as file:
            for path in files:
                write_csv(_numbers(pq.read_table(path)), file, WriteOptions(include_header=path == files[0]))
    else:
        _join_arrays(files, output, (count, schema.field("vector").type.list_size))


def _join_arrays(files: Sequence[Path], output: Path, shape: tuple[int, int]) -> None:
    """Join parts to NumPy's form, without a copy of all in memory."""
    partial = files[0].parent
    with _whole(ids_of(output), partial) as file:
        for path in files:
            file.write("".join(f"{name}\n" for name in pq.read_table(path, columns=["id"])["id"].to_pylist()).encode())
    with _whole(output, partial) as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": shape})
        for path in files:
            for vectors in pq.read_table(path, columns=["vector"])["vector"].chunks:
                file.write(vectors.flatten().to_numpy().astype("<f4").tobytes())


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
