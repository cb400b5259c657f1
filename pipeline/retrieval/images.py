"""What a retrieval model reads of images: the corpus's regions, or pictures, by an image encoder of its own."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from data.pixels import open_images
from data.regions import RegionStore
from modules.layers.image_encoder import image_encoder_arguments
from modules.retrieval_models import RetrievalModel, model_class
from pipeline.corpus.pixels import pictures_job, pixels_job
from pipeline.engine.job import Job
from pipeline.recipes.retrieval_settings import VseSettings

IMAGES = "images"
"""Name of the input of a job that holds pictures."""


def pictures_to_read(settings: VseSettings, corpus: Job, pictures: Callable[[], str | None]) -> dict[str, Job]:
    """The jobs that write the pictures that a model reads, as inputs of its training; none if it reads regions alone.

    `images` are read by its image encoder, `pixels` are what its generator imitates.
    """
    size = model_class(settings.model).pixels_with(**settings.options)
    if settings.image_encoder is None and size is None:
        return {}
    digest, jobs = pictures(), dict[str, Job]()
    if settings.image_encoder is not None:
        jobs[IMAGES] = pictures_job(corpus, settings.image_encoder_size, digest)
    if size is not None:
        jobs["pixels"] = pixels_job(corpus, size, digest)
    return jobs


def images_of(trained: Job) -> dict[str, Job]:
    """The same of a model that a job has trained, for a job that tests it."""
    return {name: job for name, job in trained.inputs.items() if name == IMAGES}


def test_inputs(trained: Job, corpus: Job) -> dict[str, Job]:
    """The inputs of a job that tests a trained model: `corpus`, `model`, and pictures if it reads them."""
    return {"corpus": corpus, "model": trained} | images_of(trained)


def images_in(inputs: Mapping[str, Path]) -> RegionStore:
    """Open what a model reads of images, in a job that has them, or a corpus, as input."""
    return open_images(inputs[IMAGES] if IMAGES in inputs else inputs["corpus"] / "regions")


def image_arguments(settings: VseSettings) -> dict[str, Any]:
    """The argument of a model that is its image encoder; none where it has none.

    Raises:
        ModelError: there is no such network, or it does not read pictures of this size.
    """
    if settings.image_encoder is None:
        return {}
    return {"image_encoder": image_encoder_arguments(settings.image_encoder, settings.image_encoder_size)}


def start_images(model: RetrievalModel, settings: VseSettings) -> None:
    """Load the pretrained weights of a new model's image encoder, if it has one.

    Raises:
        ModelError: they are not there, or not whole.
    """
    if settings.image_encoder is not None:
        assert model.image_encoder is not None
        model.image_encoder.load(settings.image_encoder)
