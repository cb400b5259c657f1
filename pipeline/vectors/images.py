"""What a retrieval model reads of images: the corpus's regions, pictures, or vectors of another model."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from data.pictures.pixels import open_images
from data.pictures.regions import RegionStore
from modules.pretrained.dual_network import dual_network_arguments
from modules.pretrained.image_encoder import image_encoder_arguments
from modules.retrieval_models import model_class
from pipeline.corpus.pixels import network_pictures_job, pictures_job, pixels_job
from pipeline.engine.job import Job
from pipeline.recipes.retrieval_settings import VseSettings
from pipeline.recipes.trainer_settings import TrainerSettings
from pipeline.vectors.image_vectors import VECTORS, Digests, network_job, trained_job

IMAGES = "images"
"""Name of the input of a job that holds pictures."""


def images_to_read(
    settings: VseSettings, corpus: Job, pictures: Callable[[], str | None], files: str | None, teacher: Job | None,
    digests: Digests,
) -> dict[str, Job]:  # fmt: skip
    """The jobs that write what a model reads of images, as inputs of its training; none if it reads regions alone.

    `images` are pictures for its image encoder or its image tower, or vectors of a teacher or of its frozen image
    tower; `pixels` are what its generator imitates.

    Args:
        pictures: gives a digest of the corpus's pictures.
        files: a digest of the files of `vse.pretrained`, if it is a folder.
        digests: gives the SHA-256 of files.
    """
    kind = model_class(settings.model)
    if teacher is not None:
        return {IMAGES: _vectors_of(teacher, corpus, settings.trainer)}
    if kind.on_network:
        assert settings.pretrained is not None
        if kind.vectors_with(**settings.options):
            return {IMAGES: network_job(settings.pretrained, files, corpus, pictures(), settings.trainer, digests)}
        return {IMAGES: network_pictures_job(settings.pretrained, corpus, pictures())}
    size = kind.pixels_with(**settings.options)
    if settings.image_encoder is None and size is None:
        return {}
    digest, jobs = pictures(), dict[str, Job]()
    if settings.image_encoder is not None:
        jobs[IMAGES] = pictures_job(corpus, settings.image_encoder_size, digest)
    if size is not None:
        jobs["pixels"] = pixels_job(corpus, size, digest)
    return jobs


def _vectors_of(teacher: Job, corpus: Job, trainer: TrainerSettings) -> Job:
    """The job that leaves a teacher's vectors of images: what it was trained on itself, if it reads vectors."""
    read = teacher.inputs.get(IMAGES)
    if read is not None and read.name.startswith(VECTORS):
        return read
    return trained_job(teacher, test_inputs(teacher, corpus), trainer)


def reads_regions(trained: Job) -> bool:
    """Are a trained model's images, or those of its teacher, encoded from the corpus's regions?"""
    read = trained.inputs.get(IMAGES)
    if read is None:
        return True
    return "model" in read.inputs and reads_regions(read.inputs["model"])


def test_inputs(trained: Job, corpus: Job) -> dict[str, Job]:
    """The inputs of a job that tests a trained model: `corpus`, `model`, and pictures if it reads them."""
    read = {IMAGES: trained.inputs[IMAGES]} if IMAGES in trained.inputs else {}
    return {"corpus": corpus, "model": trained} | read


def images_in(inputs: Mapping[str, Path]) -> RegionStore:
    """Open what a model reads of images, in a job that has them, or a corpus, as input."""
    return open_images(inputs[IMAGES] if IMAGES in inputs else inputs["corpus"] / "regions")


def encoder_arguments(settings: VseSettings) -> dict[str, Any]:
    """The arguments of a model that are its image encoder or its dual encoder; none where it has neither.

    Raises:
        ModelError: there is no such network, it does not read pictures of this size, or it has no two towers.
    """
    kind, arguments = model_class(settings.model), dict[str, Any]()
    if settings.image_encoder is not None:
        arguments["image_encoder"] = image_encoder_arguments(settings.image_encoder, settings.image_encoder_size)
    if kind.on_network:
        assert settings.pretrained is not None
        towers = "text" if kind.vectors_with(**settings.options) else "both"
        arguments["network"] = dual_network_arguments(settings.pretrained) | {"towers": towers}
    return arguments
