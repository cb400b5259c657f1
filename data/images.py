"""Picture files of any format, mode and size, opened as RGB."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import numpy as np
from PIL import Image, ImageOps

from data.errors import DataError

T = TypeVar("T")


def require_picture(path: Path, whole: bool = False) -> None:
    """Check the first bytes of a picture file, or all of it.

    Args:
        path: of the file.
        whole: decode it too, in the smallest size that its format can be read in.

    Raises:
        DataError: it is missing, is no picture, has too many pixels, or (`whole`) is cut or damaged.
    """

    def look(image: Image.Image) -> None:
        """Opening checks it; decode it if requested."""
        if whole:
            image.draft("RGB", (1, 1))
            image.load()

    _read(path, look)


def open_picture(picture: Path | Image.Image, size: int | None = None) -> Image.Image:
    """Any picture as RGB, turned as its EXIF says, what is transparent white.

    Args:
        picture: a file or an image, of any mode and size.
        size: fit it into a square of this size; formats that can are read smaller at once.

    Raises:
        DataError: the file cannot be read as a picture.
    """

    def fit(image: Image.Image) -> Image.Image:
        """As RGB, in its own size or the requested one."""
        if size is None:
            return _to_rgb(image)
        image.draft("RGB", (size, size))
        return ImageOps.contain(_to_rgb(image), (size, size))

    return fit(picture) if isinstance(picture, Image.Image) else _read(picture, fit)


def _read(path: Path, use: Callable[[Image.Image], T]) -> T:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)  # Pillow itself refuses twice as many pixels
            with Image.open(path) as image:
                return use(image)
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except Exception as error:  # a damaged file can raise anything, from any of Pillow's decoders
        reason = " ".join(str(error).split())
        raise DataError(f"{path}: not a readable picture ({reason}); replace it or leave it out") from None


def _to_rgb(image: Image.Image) -> Image.Image:
    image = ImageOps.exif_transpose(image)
    if image.mode[0] in "IF":  # more than 8 bits a pixel: convert() would cut off all above 255
        values = np.nan_to_num(np.asarray(image, dtype=np.float64))
        most = 1.0 if image.mode[0] == "F" and values.max() <= 1 else max(values.max(), 255.0)
        image = Image.fromarray((255 * values / most).clip(0, 255).astype(np.uint8))
    if image.has_transparency_data:  # transparent pixels hold arbitrary colours
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return image.convert("RGB")
