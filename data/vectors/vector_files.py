"""Vectors for other programs: a Parquet file a part while they are computed, then one file of the form asked for."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyarrow.csv import WriteOptions, write_csv

ENDINGS = (".parquet", ".csv", ".npy")
"""Of the forms that vectors can be written in."""
_HALF = "half"  # a file that is being written
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


def told_by(files: Sequence[Path]) -> tuple[int, dict[str, str], list[str]]:
    """How many vectors all parts have, and what is `left` and `arbitrary` of them."""
    count, left, arbitrary = 0, dict[str, str](), list[str]()
    for path in files:
        about = pq.read_metadata(path)
        count += about.num_rows
        left |= json.loads(about.metadata[_LEFT])
        arbitrary += json.loads(about.metadata.get(_ARBITRARY, b"[]"))
    return count, left, arbitrary


def join(files: Sequence[Path], output: Path, count: int) -> None:
    """Join parts, one in memory at a time, to a file of one of `ENDINGS`.

    Args:
        files: the parts, in one folder.
        output: the file; with ids beside it (`ids_of`) if it is NumPy's.
        count: vectors of all parts.
    """
    partial, schema = files[0].parent, pq.read_schema(files[0]).remove_metadata()
    if output.suffix == ".npy":
        with _whole(ids_of(output), partial) as file:
            for path in files:
                file.write("".join(f"{name}\n" for name in pq.read_table(path)["id"].to_pylist()).encode())
    with _whole(output, partial) as file:
        if output.suffix == ".parquet":
            with pq.ParquetWriter(file, schema) as writer:
                for path in files:
                    writer.write_table(pq.read_table(path).replace_schema_metadata(None))
        elif output.suffix == ".csv":
            for path in files:
                part = pq.read_table(path)
                columns = {f"v{number}": column for number, column in enumerate(_vectors(part).T, 1)}
                table = pa.table({"id": part["id"], "model": part["model"], **columns})
                write_csv(table, file, WriteOptions(include_header=path == files[0]))
        else:
            shape = (count, schema.field("vector").type.list_size)
            np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": shape})
            for path in files:
                file.write(_vectors(pq.read_table(path)).astype("<f4").tobytes())


def _vectors(part: pa.Table) -> NDArray[Any]:
    """The vectors (N, H) of a part."""
    vectors = part["vector"].combine_chunks().flatten().to_numpy()
    return vectors.reshape(-1, part.schema.field("vector").type.list_size)  # of a part without a vector too


@contextmanager
def _whole(path: Path, partial: Path) -> Iterator[IO[bytes]]:
    """A file that is written whole or not at all: as `half` in the folder of parts, then renamed."""
    half = partial / _HALF
    with half.open("wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())
    half.replace(path)
