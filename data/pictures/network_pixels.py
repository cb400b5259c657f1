"""Pictures as a dual encoder of `transformers` reads them, by its own image processor."""

import json
import math
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from data.errors import DataError, lacks_processor, one_line
from data.pictures.extractor import Extractor
from data.pictures.images import open_picture
from data.pictures.objects import Found
from data.pictures.pixels import WHOLE
from data.progress import shown

_MANY = 500
_NARROWEST = 32  # a picture with a larger aspect ratio is widened: a processor would make a picture of gigabytes of it
_MOST = 255**2 // _NARROWEST  # patches, so that a byte holds how many there are in a row or column


class NetworkPixels(Extractor):
    """Reads a picture into the numbers of a network's input before they are scaled: one row, the whole picture.

    A picture is (1, N), uint8: 3·S² numbers of the square that the network reads, resized and cut as its authors did;
    or, for a network that reads patches in the picture's own shape (SigLIP 2's NaFlex), the numbers of its patches,
    padded to as many as it reads at most, then how many patches it has from top to bottom and from left to right.

    Args:
        name: of the network, a folder or a name on the hub.

    Raises:
        DataError: it has no image processor, or one that reads too many patches.
    """

    def __init__(self, name: str) -> None:
        processor = _processor(name)
        if (patches := getattr(processor, "max_num_patches", None) or 0) > _MOST:
            raise DataError(
                f"vse.pretrained {name!r}: reads {patches:,} patches of a picture; expected {_MOST:,} or fewer "
                "(max_num_patches in its preprocessor_config.json)"
            )
        self._network = None
        self._look = partial(_numbers_of, processor=processor)

    def read(self, pictures: Sequence[Path], workers: int) -> Iterator[NDArray[np.floating]]:
        """The numbers (1, N) of each picture, in processes of their own where there are many.

        Raises:
            DataError: one cannot be read.
        """
        for found in self.extract_readable(pictures, workers):
            if isinstance(found, str):
                raise DataError(found)
            yield found[0]

    def extract_readable(self, pictures: Sequence[Path], workers: int) -> Iterator[Found | str]:
        """As every extractor does it, but a few hundred pictures in this process: others take seconds to begin."""
        return super().extract_readable(pictures, workers if len(pictures) >= _MANY else 1)

    @property
    def size(self) -> int:
        """N."""
        return int(self.extract(Image.new("RGB", (8, 8)))[0].shape[1])


def write_network_pixels(
    folder: Path, reader: NetworkPixels, ids: Sequence[str], files: Sequence[Path], workers: int
) -> None:  # fmt: skip
    """Write a pixel store of pictures as a network reads them, one chunk of pictures at a time.

    Args:
        folder: made if missing.
        reader: of the network.
        ids: the image of each row.
        files: their pictures.
        workers: processes that read, if there are many.

    Raises:
        DataError: a picture cannot be read.
    """
    folder.mkdir(parents=True, exist_ok=True)
    pixels = np.lib.format.open_memmap(folder / "pixels.npy", "w+", np.uint8, (len(ids), reader.size))
    for row, numbers in enumerate(shown(reader.read(files, workers), "reading pictures", len(ids))):
        pixels[row] = numbers[0]
    pixels.flush()
    (folder / "ids.txt").write_text("".join(f"{name}\n" for name in ids), encoding="utf-8")


def reader_settings(name: str) -> dict[str, Any]:
    """How a network reads pictures, as plain values: what decides the numbers that `NetworkPixels` gives.

    Raises:
        DataError: it has no image processor.
    """
    plain: dict[str, Any] = json.loads(_processor(name).to_json_string())
    return plain


def _processor(name: str) -> Any:
    """The network's image processor, by Pillow, so that vectors do not depend on whether torchvision is there."""
    from transformers import AutoImageProcessor  # takes seconds to import

    try:
        return AutoImageProcessor.from_pretrained(name, backend="pil", trust_remote_code=False)
    except Exception as error:  # a damaged file can raise anything
        reason = f"({one_line(error)}){lacks_processor(name)}"
        raise DataError(f"vse.pretrained {name!r}: no image processor of transformers there {reason}") from None


def _numbers_of(picture: Path | Image.Image, processor: Any) -> Found:
    image = open_picture(picture)
    least = math.ceil(max(image.size) / _NARROWEST)
    if min(image.size) < least:
        image = image.resize((max(image.width, least), max(image.height, least)))
    read = processor(
        np.asarray(image), input_data_format="channels_last", do_rescale=False, do_normalize=False, return_tensors="np"
    )
    numbers = read["pixel_values"].reshape(1, -1).round().astype(np.uint8)
    if "spatial_shapes" in read:
        numbers = np.concatenate([numbers, read["spatial_shapes"].astype(np.uint8)], axis=1)
    return cast(NDArray[np.floating], numbers), WHOLE[None]
