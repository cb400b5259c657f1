"""Picture files of the formats that we claim, of any mode and size, opened as RGB. Everything here opens them so."""

import math
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from io import BytesIO
from pathlib import Path
from statistics import median
from typing import TypeVar

import numpy as np
from PIL import Image, UnidentifiedImageError

from data.errors import DataError, one_line
from data.processes import in_parallel

T = TypeVar("T")

FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF")
"""Formats that are read, by Pillow's names; cameras' MPO is opened as JPEG. Others of its plug-ins start programs."""
_CHUNK = 256  # pictures that a process checks at a time
_SAMPLE = 500  # pictures whose sizes are looked at
_LARGEST = 2**25  # pixels; a larger picture is reduced before anything else is done with it
_MOST, _MOST_OF_JPEG = 2**28 // 3, 2**28  # pixels that are read; a JPEG is decoded in a smaller size at once
Image.MAX_IMAGE_PIXELS = _MOST_OF_JPEG  # Pillow's own limit refuses pictures of phones
_MARKER = re.compile(rb"\xff[\xc0-\xcf\xd9-\xfe]")  # begins a segment of a JPEG; coded pixels hold no such bytes
_SCAN, _END = 0xDA, 0xD9  # the second bytes of two of them
_MOST_OF_SCANS = 2**30  # pixels of all scans of a JPEG that has several
_ORIENTATION = 0x0112
_UPRIGHT = dict(enumerate((0, 3, 1, 5, 4, 6, 2), 2))  # orientation → its transposition


def require_picture(path: Path, whole: bool = False) -> None:
    """Check the first bytes of a picture file, or all of it, as `open_picture` reads it.

    Args:
        path: of the file.
        whole: decode it too, in the smallest size that its format can be read in.

    Raises:
        DataError: it is missing, is no picture, has too many pixels, or (`whole`) is cut or damaged.
    """
    _read(path, (lambda image: _as_rgb(image, 1)) if whole else (lambda image: image))


def unreadable(pictures: Mapping[str, Path], whole: bool) -> dict[str, str]:
    """Pictures that `require_picture` refuses, by name, and why; many whole ones are decoded by all cores.

    Examples:
        >>> unreadable({"1.jpg": Path("gone.jpg")}, whole=True)
        {'1.jpg': 'gone.jpg: no such file'}
    """
    paths = list(pictures.values())
    reasons = in_parallel(_refused, paths, _CHUNK) if whole else (_reason(path, whole) for path in paths)
    return {name: reason for name, reason in zip(pictures, reasons, strict=True) if reason}


def _refused(paths: Sequence[Path]) -> list[str]:
    """Why each picture cannot be read to its end; empty where it can."""
    return [_reason(path, whole=True) for path in paths]


def _reason(path: Path, whole: bool) -> str:
    try:
        require_picture(path, whole)
    except DataError as error:
        return str(error)
    return ""


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
        seen = _as_rgb(image, size)
        return seen if size is None else _fitted(seen, size)

    return fit(picture) if isinstance(picture, Image.Image) else _read(picture, fit)


def picture_in(content: bytes, name: str) -> Image.Image:
    """The picture in a file's contents, as `open_picture` opens it.

    Args:
        content: of the file.
        name: as errors name it. No file is opened by it.

    Raises:
        DataError: it cannot be read as a picture.
    """
    return _read(BytesIO(content), lambda image: _as_rgb(image, None), name)


def size_of(path: Path) -> tuple[int, int]:
    """Width and height of a picture file, from its first bytes.

    Raises:
        DataError: as `require_picture`.
    """
    return _read(path, lambda image: image.size)


def sizes_in_words(pictures: Sequence[Path]) -> str:
    """The usual width and height of pictures, and those of the smallest and the largest, of a sample of many."""
    sizes = []
    for path in pictures[:: max(1, len(pictures) // _SAMPLE)]:
        with suppress(DataError):  # the stage prepare names it
            sizes.append(size_of(path))
    if not sizes:
        return "none readable"
    usual = [int(median(side)) for side in zip(*sizes, strict=True)]
    shown = (usual, min(sizes, key=math.prod), max(sizes, key=math.prod))
    usually, least, most = ("×".join(map(str, size)) for size in shown)
    return f"{usually} pixels" + (f" ({least} to {most})" if least != most else "")


def format_of(content: bytes) -> str | None:
    """Pillow's name of the format of a file's contents, `MPO` among them; None if it is none of `FORMATS`."""
    with suppress(Exception), _opened(BytesIO(content)) as image:
        return str(image.format)
    return None


@contextmanager
def formats_restricted() -> Iterator[None]:
    """Let other libraries, which open pictures themselves, open those of `FORMATS` alone."""
    Image.init()
    before = [*Image.ID]
    Image.ID[:] = [name for name in before if name in FORMATS]
    try:
        yield
    finally:
        Image.ID[:] = before


@contextmanager
def _opened(file: Path | BytesIO) -> Iterator[Image.Image]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what Pillow says of a damaged file, it says again in its error
        with Image.open(file, formats=FORMATS) as image:
            progressive, pixels = "progressive" in image.info, image.width * image.height
            jpeg = image.format in ("JPEG", "MPO")
            scans = _scans(file) if jpeg and (progressive or pixels > _LARGEST) else 1
            most = _MOST_OF_JPEG if jpeg and not progressive and scans == 1 else _MOST  # in parts as it is read
            if pixels > most:
                raise ValueError(f"{image.width}×{image.height} pixels; at most {most // 10**6} million are read")
            if scans > 1 and pixels * scans > _MOST_OF_SCANS:  # each is read into all pixels
                raise ValueError(f"{scans:,} scans of {image.width}×{image.height} pixels, which take too long")
            yield image


def _scans(file: Path | BytesIO) -> int:
    """How many scans a JPEG has, to its end: what stands behind it is none of it."""
    content = file.getvalue() if isinstance(file, BytesIO) else file.read_bytes()
    place, scans = 2, 0
    while (found := _MARKER.search(content, place)) is not None and (marker := content[found.end() - 1]) != _END:
        scans += marker == _SCAN
        place = found.end() + int.from_bytes(content[found.end() : found.end() + 2])  # a segment begins with its length
    return scans


def _read(file: Path | BytesIO, use: Callable[[Image.Image], T], name: str = "") -> T:
    name = name or str(file)
    try:
        if isinstance(file, Path) and file.exists() and not file.is_file():  # a pipe would be waited for
            raise ValueError("it is not a file")
        with _opened(file) as image:
            return use(image)
    except FileNotFoundError:
        raise DataError(f"{name}: no such file") from None
    except UnidentifiedImageError:
        *most, last = FORMATS
        raise DataError(
            f"{name}: not a readable picture (it is none of {', '.join(most)} and {last}); replace it or leave it out"
        ) from None
    except MemoryError:
        raise DataError(f"{name}: too little memory to read this picture; make it smaller, or leave it out") from None
    except Exception as error:  # a damaged file can raise anything, from any of Pillow's decoders
        raise DataError(f"{name}: not a readable picture ({one_line(error)}); replace it or leave it out") from None


def _as_rgb(image: Image.Image, size: int | None) -> Image.Image:
    """As RGB, upright; read smaller if `size`, the side of a square that it is to fit into, allows it."""
    if size is None and image.width * image.height > _MOST:
        size = int(_LARGEST**0.5)
    if size is not None:
        image.draft("RGB", (size, size))
    image.load()  # of a TIFF Pillow turns the pixels here, and forgets the orientation
    orientation = _orientation_of(image)
    full = 65535.0 if image.mode.startswith("I;16") else 255.0
    image = _reduced(image)
    if orientation in _UPRIGHT:
        image = image.transpose(Image.Transpose(_UPRIGHT[orientation]))
    if image.mode[0] in "IF":  # more than 8 bits a pixel: convert() would cut off all above 255
        values = np.nan_to_num(np.asarray(image, dtype=np.float64))
        most = 1.0 if image.mode[0] == "F" and values.max() <= 1 else max(values.max(), full)
        image = Image.fromarray((255 * values / most).clip(0, 255).astype(np.uint8))
    if image.has_transparency_data:  # transparent pixels hold arbitrary colours
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    seen = image.convert("RGB")
    seen.info.clear()  # else what is opened once more is turned once more
    return seen


def _orientation_of(image: Image.Image) -> int | None:
    """What its EXIF says; None where there is none that can be read: pixels are good without tags."""
    with suppress(Exception):
        return int(image.getexif().get(_ORIENTATION, 1))
    return None


def _reduced(image: Image.Image) -> Image.Image:
    """A picture of more than `_LARGEST` pixels reduced by a whole factor: all that follows would take many copies."""
    factor = math.ceil(math.sqrt(image.width * image.height / _LARGEST))
    if factor <= 1:
        return image
    if image.mode in ("1", "P", "PA"):  # numbers of colours have no mean
        image = image.convert("RGBA" if image.has_transparency_data else "RGB")
    elif image.mode.startswith("I;"):
        image = image.convert("I")
    return image.reduce((min(factor, image.width), min(factor, image.height)))


def _fitted(image: Image.Image, size: int) -> Image.Image:
    """Its longer side of `size` pixels, the shorter one of at least one."""
    longer = max(image.size)
    width, height = (max(1, round(side / longer * size)) for side in image.size)
    return image.resize((width, height), Image.Resampling.BICUBIC)
