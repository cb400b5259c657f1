"""The region store: all regions of a corpus as memory-mapped arrays, checked when opened."""

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from data.errors import DataError, one_line
from data.lines import read_lines

_EXPECTED = "a region store: regions.npy, boxes.npy and ids.txt, an image id a line"
_STANDARD = "standard.npz"
_BLOCK = 2048  # images looked at together when values are checked: bounds memory at any corpus size
_LEAST_SPREAD = 0.1  # of the overall spread: a number that is nearly constant is not scaled up to unit variance


class RegionStore:
    """Regions of every image: `regions.npy` (images, R, D) float16, `boxes.npy` (images, R, 4) float32, `ids.txt`.

    The arrays are mapped, not loaded, and mapped again in each worker process.

    Args:
        folder: where the three files are.
        check_values: also read every number once and refuse NaN and infinity.

    Raises:
        DataError: a file is missing or damaged, shapes or types do not fit, ids are doubled, or values are not finite.
    """

    def __init__(self, folder: Path, check_values: bool = True) -> None:
        self.folder = Path(folder)
        self.ids = _read_ids(self.folder / "ids.txt")
        self._row = {image_id: row for row, image_id in enumerate(self.ids)}
        self.regions = _map(self.folder / "regions.npy", np.float16)
        self.boxes = _map(self.folder / "boxes.npy", np.float32)
        self._check_shapes()
        if check_values:
            _check_finite(self.regions, self.ids, self.folder / "regions.npy")
            _check_finite(self.boxes, self.ids, self.folder / "boxes.npy")

    def __len__(self) -> int:
        return len(self.ids)

    def __contains__(self, image_id: object) -> bool:
        return image_id in self._row

    def __getstate__(self) -> dict[str, Path]:
        return {"folder": self.folder}

    def __setstate__(self, state: dict[str, Path]) -> None:
        self.__init__(state["folder"], check_values=False)  # type: ignore[misc]

    def file(self, name: str) -> Path:
        """Where one of the three files is, for messages."""
        return self.folder / name

    @property
    def num_regions(self) -> int:
        """R, regions an image."""
        return int(self.regions.shape[1])

    @property
    def dim(self) -> int:
        """D, numbers a region."""
        return int(self.regions.shape[2])

    def rows(self, image_ids: Sequence[str | None]) -> NDArray[np.int64]:
        """Row numbers of images, in the given order; −1 for None, which is no image.

        Raises:
            DataError: an image has no regions.
        """
        try:
            return np.array([-1 if name is None else self._row[name] for name in image_ids], dtype=np.int64)
        except KeyError as error:
            raise DataError(
                f"{self.folder}: image {error.args[0]!r} has no regions; run prepare again or leave the image out"
            ) from None

    def take(self, rows: NDArray[np.int64]) -> NDArray[np.floating]:
        """Regions (B, R, D) by row number, all zero for −1."""
        taken = self.regions[rows]
        taken[rows < 0] = 0
        return taken

    def _check_shapes(self) -> None:
        regions, boxes, count = self.regions.shape, self.boxes.shape, len(self.ids)
        if len(regions) != 3 or min(regions) < 1:
            raise DataError(f"{self.folder}/regions.npy: shape {regions}, expected (images, regions, features)")
        if boxes != (*regions[:2], 4):
            raise DataError(f"{self.folder}/boxes.npy: shape {boxes}, expected {(*regions[:2], 4)} as in regions.npy")
        if regions[0] != count:
            raise DataError(f"{self.folder}/ids.txt: {count} ids for {regions[0]} rows of regions.npy")


def write_regions(
    folder: Path, ids: Sequence[str], items: Iterable[tuple[NDArray[np.floating], NDArray[np.floating]]]
) -> None:
    """Write a region store, one image at a time, so that any number of images fits in memory.

    Args:
        folder: made if missing.
        ids: the image of each row.
        items: for each id its regions (R, D) and boxes (R, 4), x1, y1, x2, y2 in 0…1.

    Raises:
        DataError: an image has more or fewer regions than the first, another number of features or boxes, or a number
            that float16 cannot hold.
        ValueError: there are more or fewer items than ids.

    Examples:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     regions, boxes = np.ones((36, 8)), np.tile([0.0, 0.0, 1.0, 1.0], (36, 1))
        ...     write_regions(Path(folder), ["1.jpg", "2.jpg"], [(regions, boxes), (0 * regions, boxes)])
        ...     store = RegionStore(Path(folder))
        ...     store.take(store.rows(["2.jpg", "1.jpg"])).shape, str(store.regions.dtype)
        ((2, 36, 8), 'float16')
    """
    folder.mkdir(parents=True, exist_ok=True)
    regions = boxes = None
    for row, (image_id, (vectors, corners)) in enumerate(zip(ids, items, strict=True)):
        if regions is None or boxes is None:
            shape = (len(ids), *vectors.shape)
            regions = np.lib.format.open_memmap(folder / "regions.npy", "w+", np.float16, shape)
            boxes = np.lib.format.open_memmap(folder / "boxes.npy", "w+", np.float32, (*shape[:2], 4))
            _reserve(folder / "regions.npy")
            _reserve(folder / "boxes.npy")
        shapes, expected = (vectors.shape, corners.shape), (regions.shape[1:], boxes.shape[1:])
        if shapes != expected:  # numpy would broadcast one region to R without a warning
            raise DataError(f"{folder}: image {image_id!r} has regions and boxes {shapes}, expected {expected}")
        with np.errstate(over="ignore"):
            regions[row], boxes[row] = vectors, corners
        if not np.isfinite(regions[row]).all():
            raise DataError(f"{folder}: image {image_id!r} has a number that is not finite, or beyond ±65504 (float16)")
    for array in (regions, boxes):
        if array is not None:
            array.flush()
    (folder / "ids.txt").write_text("".join(f"{image_id}\n" for image_id in ids), encoding="utf-8")


def _reserve(path: Path) -> None:
    """Take a file's space now: on a full disk, a write into a map that has none kills the process (SIGBUS)."""
    if hasattr(os, "posix_fallocate"):  # Linux
        with path.open("r+b") as file:
            os.posix_fallocate(file.fileno(), 0, path.stat().st_size)


def standardise(folder: Path, training: Sequence[str]) -> None:
    """Centre a store's regions and bring each number to unit scale, in place, by the regions of training images alone.

    Descriptors from pixels share a large mean, and their parts differ tenfold in scale: a translator that reads them
    raw does not learn to use them. Mean (D,) and scale (D,) are left in `standard.npz`, for pictures that come later.

    Args:
        folder: a store that `write_regions` has written.
        training: ids of training images.

    Raises:
        DataError: there are none.
    """
    store = RegionStore(folder, check_values=False)
    rows, numbers = store.rows(training), len(training) * store.regions.shape[1]

    def total(of: Callable[[NDArray[np.float64]], NDArray[np.float64]]) -> NDArray[np.float64]:
        """Over all training regions, some images at a time."""
        blocks = (store.regions[rows[start : start + _BLOCK]] for start in range(0, len(rows), _BLOCK))
        return sum((of(block.astype(np.float64)).sum((0, 1)) for block in blocks), np.zeros(store.dim))

    if not numbers:
        raise DataError(f"{folder}: no training image to standardise the regions by")
    centre = total(lambda block: block) / numbers
    spread = np.sqrt(total(lambda block: (block - centre) ** 2) / numbers)
    overall = float(np.sqrt((spread**2).mean())) or 1.0
    scale = np.maximum(spread, _LEAST_SPREAD * overall).astype(np.float32)
    mean = centre.astype(np.float32)
    regions = np.lib.format.open_memmap(folder / "regions.npy", "r+")
    for start in range(0, len(regions), _BLOCK):
        regions[start : start + _BLOCK] = standardised(regions[start : start + _BLOCK], mean, scale)
    regions.flush()
    np.savez(folder / _STANDARD, mean=mean, scale=scale)


def standardised(
    regions: NDArray[np.floating], mean: NDArray[np.floating], scale: NDArray[np.floating]
) -> NDArray[np.float16]:
    """Regions (…, D) centred by a mean (D,) and brought to a scale (D,), as a store keeps them."""
    return ((regions.astype(np.float32) - mean) / scale).astype(np.float16)


def read_standard(folder: Path) -> tuple[NDArray[np.floating], NDArray[np.floating]] | None:
    """Mean and scale (D,) that `standardise` left in a store's folder; None for regions that are as they came.

    Raises:
        DataError: they are damaged.
    """
    if not (folder / _STANDARD).is_file():
        return None
    try:
        with np.load(folder / _STANDARD, allow_pickle=False) as arrays:
            return arrays["mean"].astype(np.float32), arrays["scale"].astype(np.float32)
    except Exception as error:  # a damaged archive can raise anything
        reason = one_line(error)
        raise DataError(f"{folder / _STANDARD}: not readable ({reason}); run prepare again with --force") from None


def _read_ids(path: Path) -> list[str]:
    ids = [line.strip() for line in read_lines(path, _EXPECTED)]
    seen: dict[str, int] = {}
    for line, image_id in enumerate(ids, 1):
        if not image_id:
            raise DataError(f"{path}:{line}: empty line, expected an image id")
        if image_id in seen:
            raise DataError(f"{path}:{line}: {image_id!r} stands on line {seen[image_id]} already; ids are unique")
        seen[image_id] = line
    return ids


def open_array(path: Path, expected: str) -> NDArray[np.floating]:
    """Map a .npy file, read-only.

    Args:
        path: the file.
        expected: what it should be, for the error.

    Raises:
        DataError: it is missing, or no whole .npy file.
    """
    if not path.is_file():
        raise DataError(f"{path}: no such file; expected {expected}")
    try:
        return np.lib.format.open_memmap(path, mode="r")  # unlike np.load it refuses .npz, pickles and empty files
    except Exception as error:  # the header is parsed as Python: a damaged one can raise anything
        raise DataError(f"{path}: not a readable .npy file, perhaps cut short ({one_line(error)})") from None


def _map(path: Path, dtype: type[np.floating]) -> NDArray[np.floating]:
    array = open_array(path, _EXPECTED)
    if array.dtype != dtype:
        raise DataError(f"{path}: type {array.dtype}, expected {np.dtype(dtype)}; convert it with .astype")
    return array


def _check_finite(array: NDArray[np.floating], ids: Sequence[str], path: Path) -> None:
    for start in range(0, len(array), _BLOCK):
        bad = ~np.isfinite(array[start : start + _BLOCK]).reshape(len(array[start : start + _BLOCK]), -1).all(1)
        if bad.any():
            row = start + int(bad.argmax())
            raise DataError(f"{path}: NaN or infinity in row {row} (image {ids[row]!r}); extract that image again")
