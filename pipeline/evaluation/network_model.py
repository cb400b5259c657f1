"""A dual encoder of `transformers` as it is, as if it were an exported model: `hub:NAME` of `evaluate`."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

import torch

from data.errors import DataError
from modules.errors import ModelError
from modules.pretrained.hub import revision_of
from pipeline.engine.files import fingerprint
from pipeline.errors import RecipeError
from pipeline.export.exported_model import ExportedModel
from pipeline.vectors.image_vectors import whole_network

HUB = "hub:"
"""What the name of a model begins with where it is such a network."""
_READ = (".json", ".txt", ".model", ".safetensors", ".bin")


def network_model(name: str, languages: Sequence[str]) -> ExportedModel:
    """A network with both towers, untrained here, as a model that reads pictures; on a GPU if there is one.

    Args:
        name: of the network, a folder or a name on the hub.
        languages: that it will be given: nobody knows which ones it knows.

    Raises:
        RecipeError: there is no such network, it lacks a tower, or its files are not whole.
    """
    if not name:
        raise RecipeError(f"{HUB} names no network; expected a folder or a name on the hub behind it, "
                          f"{HUB}google/siglip2-base-patch16-224")  # fmt: skip
    try:
        model, text, reader = whole_network(name, languages)
    except (DataError, ModelError) as error:
        raise RecipeError(_named(name, str(error))) from None
    model.to("cuda" if torch.cuda.is_available() else "cpu")
    digest = _fingerprint(name)
    return ExportedModel(
        folder=Path(f"{HUB}{name}"), name=f"{HUB}{name}", languages=list(languages), model=model, text=text,
        extractor=reader, standard=None, reads=digest, fingerprint=digest, translator_names=[],
    )  # fmt: skip


def _named(name: str, said: str) -> str:
    """An error about `vse.pretrained`, said of the network."""
    told = said.removeprefix("vse.pretrained").removeprefix(f" {name!r}").removeprefix(": ")
    return f"{HUB}{name}: {told}"


def _fingerprint(name: str) -> str:
    """A digest of the files of a folder, or of the revision of a network on the hub that is in the cache."""
    if Path(name).is_dir():
        return fingerprint(sorted(path for path in Path(name).iterdir() if path.suffix in _READ))
    return hashlib.sha256(f"{name}@{revision_of(name)}".encode()).hexdigest()[:16]
