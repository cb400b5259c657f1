"""How an exported model reads pictures: regions that an extractor finds, or pixels, for an image encoder of its own."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

from data.pictures.extractor import EXTRACTOR_VERSION, Extractor, ExtractorSettings
from data.pictures.network_pixels import NetworkPixels
from data.pictures.pixels import PixelExtractor
from pipeline.engine.machine_errors import of_machine
from pipeline.errors import RecipeError

STANDARD, VISION = "regions.safetensors", "vision"
PIXELS, BY_NETWORK = "pixels", "by_network"
"""Keys of `regions` in `model.json` of a model with an image encoder, and of one on a dual encoder."""
Regions = tuple[NDArray[np.floating], NDArray[np.floating]]


def picture_reader(folder: Path, about: Mapping[str, Any], dim: int) -> tuple[Extractor, Regions | None, str]:
    """What reads pictures as it did for training; mean and scale of its regions; a digest of both.

    Args:
        about: the contents of its `model.json`, with `regions`.
        dim: numbers of a region, or of a picture, that the model is given.

    Raises:
        RecipeError: something is missing, or of another version or width.
    """
    settings = about["regions"]
    if settings.get(PIXELS):
        if 3 * settings["size"] ** 2 != dim:
            raise RecipeError(f"{folder}: its image encoder reads {dim} numbers, not pictures of {settings['size']} "
                              "pixels; get the model folder again")  # fmt: skip
        return PixelExtractor(settings["size"]), None, _digest(f"{PIXELS} {settings['size']}")
    if settings.get(BY_NETWORK):
        reader = NetworkPixels(str(folder / VISION))
        if reader.size != dim:
            raise RecipeError(f"{folder}: its image tower reads {dim} numbers, not pictures of {reader.size}; get the "
                              "model folder again")  # fmt: skip
        files = [f"{name} {digest}" for name, digest in sorted(about["files"].items()) if name.startswith(f"{VISION}/")]
        return reader, None, _digest(" ".join([BY_NETWORK, *files]))
    if settings["version"] != EXTRACTOR_VERSION:
        raise RecipeError(f"{folder}: its regions were found by another version of the extractor; train again")
    vision = {name: digest for name, digest in sorted(about["files"].items()) if name.startswith(f"{VISION}/")}
    network = None if settings.get("model") is None else str(folder / VISION)
    if network is not None and f"{VISION}/config.json" not in vision:
        raise RecipeError(f"{folder}: its vision network ({VISION}/) is missing; get the model folder again")
    extractor = Extractor(ExtractorSettings(settings["regions"], settings["size"], network))
    standard = _read_standard(folder / STANDARD, dim)
    numbers = b"".join(array.astype(np.float32).tobytes() for array in standard)
    made = [f"{EXTRACTOR_VERSION} {settings['regions']} {settings['size']}", *map(" ".join, vision.items())]
    return extractor, standard, _digest(" ".join(made), numbers)


def _read_standard(path: Path, dim: int) -> Regions:
    """Mean and scale (D,) of regions.

    Raises:
        RecipeError: they are missing, damaged or of another width.
    """
    try:
        arrays = load_file(path)
        mean, scale = arrays["mean"], arrays["scale"]
        if mean.shape != (dim,) or scale.shape != (dim,) or not (np.isfinite(mean).all() and (scale > 0).all()):
            raise ValueError(f"expected mean and scale of {dim} numbers")
    except Exception as error:  # safetensors raises its own error
        damaged = RecipeError(f"{path}: not readable ({error!r}); get the model folder again")
        raise of_machine(error, path) or damaged from None
    return mean, scale


def _digest(text: str, numbers: bytes = b"") -> str:
    return hashlib.sha256(text.encode() + numbers).hexdigest()[:16]
