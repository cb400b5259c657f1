"""Square pictures of equal size of a corpus as one memory-mapped array, for models that learn from pixels."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import ClassVar, cast

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from data.errors import DataError
from data.lines import read_lines
from data.pictures.extractor import Extractor
from data.pictures.images import open_picture
from data.pictures.objects import Found
from data.pictures.regions import RegionStore

WHOLE = np.array([0, 0, 1, 1], dtype=np.float32)


class PixelStore(RegionStore):
    """Pictures of equal size: `pixels.npy` (images, 3, S, S) or (images, N) uint8, and `ids.txt`, an image id a line.

    It is read like a region store whose images have one region, the N = 3·S² numbers of the picture; its box is the
    whole picture. The array is mapped, not loaded, and mapped again in each worker process.

    Args:
        folder: where the two files are.

    Raises:
        DataError: a file is missing or damaged, or they do not fit.
    """

    array: ClassVar[str] = "pixels.npy"
    kind: ClassVar[type[np.generic]] = np.uint8

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            self.pixels = np.load(folder / self.array, mmap_mode="r")
        except (OSError, ValueError, EOFError) as error:
            raise DataError(
                f"{folder / self.array}: not readable ({error}); delete {folder} to make it again"
            ) from None
        self.ids = read_lines(folder / "ids.txt", "an image id a line")
        if len(self.ids) != len(self.pixels) or self.pixels.ndim not in (2, 4) or self.pixels.dtype != self.kind:
            raise DataError(
                f"{folder}: {len(self.ids)} ids for an array {self.pixels.shape} of {self.pixels.dtype}; delete the "
                "folder to make it again"
            )
        self._row = {image_id: row for row, image_id in enumerate(self.ids)}
        self.regions = cast(NDArray[np.floating], self.pixels.reshape(len(self.pixels), 1, -1))
        self.boxes = np.broadcast_to(WHOLE, (len(self.pixels), 1, 4))

    def __setstate__(self, state: dict[str, Path]) -> None:
        self.__init__(state["folder"])  # type: ignore[misc]

    def file(self, name: str) -> Path:
        """Where one of the files of a region store would be: the pixels are its regions."""
        return self.folder / name.replace("regions.npy", self.array)

    def pixels_of(self, image_ids: Sequence[str]) -> NDArray[np.uint8]:
        """Pictures (B, 3, S, S) of images.

        Raises:
            DataError: an image has none.
        """
        try:
            return self.pixels[[self._row[name] for name in image_ids]]
        except KeyError as error:
            raise DataError(f"{self.folder}: image {error.args[0]!r} has no picture; leave the image out") from None


class VectorStore(PixelStore):
    """One vector an image, by an image encoder: `vectors.npy` (images, H) float32, and `ids.txt`.

    It is read like a region store whose images have one region. Arguments and errors are a pixel store's.
    """

    array = "vectors.npy"
    kind = np.float32


class PixelExtractor(Extractor):
    """Reads a picture as a pixel store keeps it: one region, the whole picture.

    Args:
        size: S, height and width.
    """

    def __init__(self, size: int) -> None:
        self.size, self._network = size, None
        self._look = partial(_only_region, size=size)


def open_images(folder: Path) -> RegionStore:
    """Open a region store, its values unchecked, or a store of pixels or vectors.

    Raises:
        DataError: it is missing or damaged.
    """
    for store in (PixelStore, VectorStore):
        if (folder / store.array).is_file():
            return store(folder)
    return RegionStore(folder, check_values=False)


def middle_square(picture: Path | Image.Image, size: int) -> NDArray[np.uint8]:
    """The middle square of a picture, resized: (3, S, S).

    Raises:
        DataError: it cannot be read.
    """
    fitted = ImageOps.fit(open_picture(picture), (size, size), Image.Resampling.LANCZOS)
    return np.asarray(fitted).transpose(2, 0, 1)


def write_pixels(
    folder: Path, pictures: Mapping[str, Path], image_ids: Sequence[str], size: int, otherwise: str
) -> None:
    """Write the middle square of each picture, resized, one picture at a time.

    Args:
        folder: made if missing.
        pictures: image id → file.
        image_ids: which images, in the order of rows.
        size: S, height and width.
        otherwise: what to do without pictures, for the error.

    Raises:
        DataError: an image has no picture, or it cannot be read.
    """
    files = files_of(pictures, image_ids, otherwise)
    folder.mkdir(parents=True, exist_ok=True)
    shape = (len(image_ids), 3, size, size)
    pixels = np.lib.format.open_memmap(folder / "pixels.npy", "w+", np.uint8, shape)
    for row, path in enumerate(files):
        pixels[row] = middle_square(path, size)
    pixels.flush()
    (folder / "ids.txt").write_text("".join(f"{name}\n" for name in image_ids), encoding="utf-8")


def files_of(pictures: Mapping[str, Path], image_ids: Sequence[str], otherwise: str) -> list[Path]:
    """The picture file of each image.

    Args:
        pictures: image id → file.
        image_ids: which images.
        otherwise: what to do without pictures, for the error.

    Raises:
        DataError: an image has none.
    """
    if lacking := [name for name in image_ids if name not in pictures]:
        raise DataError(
            f"{len(lacking)} of {len(image_ids)} images have no picture, first {lacking[0]!r}; give the corpus its "
            f"pictures (corpus.pictures), or {otherwise}"
        )
    return [pictures[name] for name in image_ids]


def _only_region(picture: Path | Image.Image, size: int) -> Found:
    return cast(NDArray[np.floating], middle_square(picture, size).reshape(1, -1)), WHOLE[None]
