"""Small square pictures of a corpus as one memory-mapped array, for models that learn from pixels."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from data.errors import DataError
from data.images import open_picture
from data.lines import read_lines


class PixelStore:
    """Pictures of equal size: `pixels.npy` (images, 3, S, S) uint8, and `ids.txt`, an image id a line.

    The array is mapped, not loaded, and mapped again in each worker process.

    Args:
        folder: where the two files are.

    Raises:
        DataError: a file is missing or damaged, or they do not fit.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            self.pixels: NDArray[np.uint8] = np.load(folder / "pixels.npy", mmap_mode="r")
        except (OSError, ValueError, EOFError) as error:
            raise DataError(
                f"{folder / 'pixels.npy'}: not readable ({error}); delete {folder} to make it again"
            ) from None
        ids = read_lines(folder / "ids.txt", "an image id a line")
        if len(ids) != len(self.pixels) or self.pixels.ndim != 4 or self.pixels.dtype != np.uint8:
            raise DataError(
                f"{folder}: {len(ids)} ids for an array {self.pixels.shape}; delete the folder to make it again"
            )
        self._row = {image_id: row for row, image_id in enumerate(ids)}

    def __getstate__(self) -> dict[str, Path]:
        return {"folder": self.folder}

    def __setstate__(self, state: dict[str, Path]) -> None:
        self.__init__(state["folder"])  # type: ignore[misc]

    def take(self, image_ids: Sequence[str]) -> NDArray[np.uint8]:
        """Pictures (B, 3, S, S) of images.

        Raises:
            DataError: an image has none.
        """
        try:
            return self.pixels[[self._row[name] for name in image_ids]]
        except KeyError as error:
            raise DataError(f"{self.folder}: image {error.args[0]!r} has no picture; leave the image out") from None


def pixels_of(path: Path, size: int) -> NDArray[np.uint8]:
    """The middle square of a picture, resized: (3, S, S).

    Raises:
        DataError: it cannot be read.
    """
    picture = ImageOps.fit(open_picture(path), (size, size), Image.Resampling.LANCZOS)
    return np.asarray(picture).transpose(2, 0, 1)


def write_pixels(folder: Path, pictures: Mapping[str, Path], image_ids: Sequence[str], size: int) -> None:
    """Write the middle square of each picture, resized, one picture at a time.

    Args:
        folder: made if missing.
        pictures: image id → file.
        image_ids: which images, in the order of rows.
        size: S, height and width.

    Raises:
        DataError: an image has no picture, or it cannot be read.
    """
    if lacking := [name for name in image_ids if name not in pictures]:
        raise DataError(
            f"{len(lacking)} of {len(image_ids)} images have no picture, first {lacking[0]!r}; give the corpus its "
            "pictures (corpus.pictures), or generate regions (vse.options.target=regions)"
        )
    folder.mkdir(parents=True, exist_ok=True)
    shape = (len(image_ids), 3, size, size)
    pixels = np.lib.format.open_memmap(folder / "pixels.npy", "w+", np.uint8, shape)
    for row, name in enumerate(image_ids):
        pixels[row] = pixels_of(pictures[name], size)
    pixels.flush()
    (folder / "ids.txt").write_text("".join(f"{name}\n" for name in image_ids), encoding="utf-8")
