"""The jobs that encode each image once: by a dual encoder's image tower, or by a trained model."""

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from data.errors import DataError
from data.parts import write_in_parts
from data.pictures.network_pixels import NetworkPixels
from data.pictures.pixels import VectorStore, files_of, open_images
from data.processes import cores
from data.text.text_inputs import PretrainedTokens
from modules.pretrained.dual_network import dual_network_arguments
from modules.pretrained.hub import revision_of
from modules.retrieval_models import RetrievalModel
from modules.retrieval_models.dual_encoder import DualEncoder, pretrained_encoder
from modules.retrieval_models.encoded import all_images
from pipeline.corpus.prepare import captioned_images, pictures_of
from pipeline.engine.artifacts import files_for_later
from pipeline.engine.job import Job
from pipeline.recipes.trainer_settings import TrainerSettings
from pipeline.training.model_files import OF_NETWORK, device_of, load_model, save_model

Vector = NDArray[np.float32]
Digests = Callable[[Iterable[Path]], Mapping[Path, str]]

VERSION = 1
DUAL = "dual-encoder"
REVISION = "revision.txt"
"""File of the revision of the network whose image vectors they are; empty for a folder."""
VECTORS = "image-vectors"
"""What the names of these jobs begin with."""
_PART = 512  # images in a file of finished vectors
_BATCH = 32


def network_job(
    name: str, files: str | None, corpus: Job, pictures: str | None, trainer: TrainerSettings, digests: Digests
) -> Job:  # fmt: skip
    """The job that encodes the pictures of a corpus by the image tower of a dual encoder, and keeps that tower.

    It leaves `vectors.npy` and `ids.txt`, the tower as a retrieval model, and goes on where it was stopped. Where the
    corpus has changed, the vectors of unchanged pictures are taken from what an earlier job left; they differ from new
    ones by rounding, as other pictures were encoded with them.

    Args:
        name: of the network, a folder or a name on the hub.
        files: a digest of the files of a folder; None for a name on the hub.
        pictures: a digest of its pictures (`pictures_digest`).
        digests: gives the SHA-256 of files (`Workspace.digests`).
    """

    def run(folder: Path, inputs: dict[str, Path]) -> dict[str, Any]:
        """Encode; DataError if an image has no picture, or one cannot be read."""
        reader, ids = NetworkPixels(name), captioned_images(inputs["corpus"])
        model, arguments = pretrained_encoder(name, dual_network_arguments(name) | {"towers": "image"}, reader.size)
        model.eval().to(device_of(trainer))
        paths = files_of(pictures_of(inputs["corpus"]), ids, "take a model that reads its regions (vse.model=san)")
        revision, digest_of = revision_of(name) or "", digests(paths)
        content = [digest_of.get(path, "unreadable") for path in paths]
        listed, left = files_for_later(folder, "pictures.txt", files or name, revision, VERSION)
        earlier = {digest: vector for file in left for digest, vector in _read_vectors(file).items()}
        known = {image: earlier[digest] for image, digest in zip(ids, content, strict=True) if digest in earlier}
        write_vectors(folder, model, reader, dict(zip(ids, paths, strict=True)), known)
        save_model(folder, DUAL, arguments, model)
        (folder / REVISION).write_text(revision, encoding="utf-8")
        listed.write_text("".join(f"{digest}\n" for digest in content), encoding="utf-8")
        return {"images": len(ids), "computed": len(ids) - len(known), "dim": model.dim}

    settings = {"pretrained": files or name, "pictures": pictures}
    return Job(VECTORS, "vse", VERSION, settings, {"corpus": corpus}, run, headline=_headline)


def trained_job(trained: Job, inputs: Mapping[str, Job], trainer: TrainerSettings) -> Job:
    """The job that encodes the images of a corpus by a trained model, and keeps a copy of it.

    Args:
        inputs: `corpus`, `model`, and what it reads of images (`test_inputs`).
    """

    def run(folder: Path, inputs: dict[str, Path]) -> dict[str, Any]:
        """Encode."""
        model, _ = load_model(inputs["model"])
        model.to(device_of(trainer))
        store = open_images(inputs.get("images", inputs["corpus"] / "regions"))
        ids = captioned_images(inputs["corpus"])
        rows = store.rows(ids)
        starts = range(0, len(rows), _PART)
        _write(folder, ids, lambda first: (
            _encoded(model, store.regions[rows[start : start + _PART]]) for start in starts if start >= first
        ))  # fmt: skip
        for name in OF_NETWORK:
            shutil.copyfile(inputs["model"] / name, folder / name)
        return {"images": len(ids), "dim": VectorStore(folder).dim}

    return Job(f"{VECTORS}-{trained.name}", "vse", VERSION, {}, dict(inputs), run, headline=_headline)


def whole_network(name: str, languages: Sequence[str]) -> tuple[DualEncoder, PretrainedTokens, NetworkPixels]:
    """A dual encoder as it is, with both towers; what it reads words with, and pictures.

    Args:
        name: of the network, a folder or a name on the hub.
        languages: of the captions that it will read: nobody knows which ones it knows.

    Raises:
        DataError, ModelError: there is no such network.
    """
    network = dual_network_arguments(name)
    reader = NetworkPixels(name)
    text = PretrainedTokens(name, network["text"]["longest"], network["text"]["lower"])
    model, _ = pretrained_encoder(name, network | {"towers": "both"}, reader.size, len(text), languages)
    return model.eval(), text, reader


def _read_vectors(digests: Path) -> dict[str, Vector]:
    """SHA-256 of a picture → its vector (H), of those that a job left; none where it is damaged."""
    with suppress(DataError, OSError, ValueError):
        vectors = VectorStore(digests.parent).regions[:, 0]
        return dict(zip(digests.read_text(encoding="utf-8").split(), vectors, strict=True))
    return {}


def write_vectors(
    folder: Path, model: RetrievalModel, reader: NetworkPixels, pictures: Mapping[str, Path],
    known: Mapping[str, Vector],
) -> None:  # fmt: skip
    """Write `vectors.npy` and `ids.txt` of pictures; goes on where it was stopped.

    Args:
        pictures: image id → file.
        known: image id → vector (H), of those that are not encoded again.

    Raises:
        DataError: a picture cannot be read.
    """
    ids = list(pictures)

    def parts(start: int) -> Iterator[NDArray[np.float32]]:
        """Vectors (n, H) of the pictures from one on, a part at a time."""
        read = reader.read([pictures[image] for image in ids[start:] if image not in known], cores())
        for first in range(start, len(ids), _PART):
            some = ids[first : first + _PART]
            pixels = list(islice(read, sum(image not in known for image in some)))
            new = iter(_encoded(model, np.stack(pixels)) if pixels else ())
            yield np.stack([known[image] if image in known else next(new) for image in some])

    _write(folder, ids, parts)


def _encoded(model: RetrievalModel, images: NDArray[Any]) -> NDArray[np.float32]:
    """Vectors (N, H) of what a model is given of images (N, R, D)."""
    return all_images(model, images, _BATCH).single().float().numpy()


def _write(folder: Path, ids: list[str], encode: Callable[[int], Iterable[NDArray[np.float32]]]) -> None:
    """Write `vectors.npy` and `ids.txt`; `encode` gives the parts from the one that begins with an image on."""
    array = folder / VectorStore.array
    write_in_parts(array, len(ids), _PART, encode, folder / "checkpoints", "image vectors")
    (folder / "ids.txt").write_text("".join(f"{name}\n" for name in ids), encoding="utf-8")


def _headline(figures: Mapping[str, Any]) -> str:
    new = figures.get("computed", figures["images"])
    return f"vectors of {figures['images']:,} images" + (f", {new:,} of them new" if new < figures["images"] else "")
