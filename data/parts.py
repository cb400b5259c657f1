"""A long array on disk, computed part by part, so that a stopped job goes on from the last whole part."""

from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from data.progress import shown

Vectors = NDArray[np.float32]


def write_in_parts(
    path: Path, count: int, size: int, compute: Callable[[int], Iterable[Vectors]], parts: Path, what: str
) -> None:  # fmt: skip
    """Write an array (count, E) float32 as .npy. A part has its name when it is whole; memory holds one part.

    Args:
        path: of the array.
        count: rows, at least one.
        size: rows of a part, but the last.
        compute: gives the parts in order, from the one that begins with a row on.
        parts: folder of the finished parts; it can be deleted afterwards.
        what: a bar in a terminal says.
    """
    parts.mkdir(exist_ok=True)
    starts = range(0, count, size)
    files = [parts / f"{start:09d}.npy" for start in starts]
    done = next((place for place, file in enumerate(files) if not file.is_file()), len(files))
    if done < len(files):
        computed = shown(compute(starts[done]), what, len(files) - done)
        for file, part in zip(files[done:], computed, strict=True):
            temporary = file.with_suffix(".half")
            with temporary.open("wb") as stream:
                np.save(stream, part)
            temporary.replace(file)
    dim = np.load(files[0], mmap_mode="r").shape[1]
    array = np.lib.format.open_memmap(path, "w+", np.float32, (count, dim))
    for start, file in zip(starts, files, strict=True):
        array[start : start + size] = np.load(file)
    array.flush()
