"""The job that reranks a model's first results by log p(caption | image) of its own decoder."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset as Table
from torch import Tensor

from data.captions import HUMAN, read_captions
from data.regions import RegionStore
from modules.likelihood import CaptionLikelihood, likelihood_ranks
from modules.reranking import exact_lists
from modules.retrieval_models import model_class
from pipeline.errors import RecipeError
from pipeline.jobs.job import Job
from pipeline.recipes.settings import VseSettings
from pipeline.retrieval.captioning import on_device
from pipeline.retrieval.images import images_in, images_of
from pipeline.retrieval.ranks import encode_test, load_module, write_ranks
from pipeline.retrieval.rows import Row, Training, recall_headline

VERSION = 1
SAMPLE = 32
"""Training images, evenly spaced, by which p(caption) is estimated."""


def by_likelihood(training: Training) -> Row:
    """`vse.model` reranks its own first `vse.first_k` results by its decoder, in the languages that it was trained on.

    Raises:
        RecipeError: it has no decoder, or was trained on none of the tested languages.
    """
    settings = training.recipe.vse
    if not model_class(settings.model).writes_with(**settings.options):
        raise RecipeError(f"vse.by_likelihood is set, but {settings.model} has no decoder; set vse.model=gxn and "
                          "vse.options.generate=[i2t]")  # fmt: skip
    languages = [language for language in settings.test if language in training.languages]
    if not languages:
        raise RecipeError(
            f"vse.by_likelihood: vse.rows.{training.name} has no captions in {', '.join(settings.test)}, so that its "
            f"decoder never learned them; name one of {', '.join(sorted(training.languages))} in vse.test"
        )
    trained = training.train(settings.model)
    job = likelihood_job(trained, training.corpus, settings, languages)
    system = f"{settings.model}, its first {settings.first_k} by log p(caption | image)"
    return training.row(job, [trained], system, languages)


def likelihood_job(trained: Job, corpus: Job, settings: VseSettings, languages: Sequence[str]) -> Job:
    """Rerank the first `vse.first_k` results of each query of the test by the trained model's decoder."""

    def run(folder: Path, inputs: dict[str, Path]) -> dict[str, Any]:
        """Leave the ranks."""
        module, text = load_module(inputs["model"], languages, settings.pretrained)
        captions = read_captions(inputs["corpus"] / "captions.parquet")
        store = images_in(inputs)
        data, encoded = encode_test(module, text, captions, store, settings.trainer)
        model, texts = on_device(module.model, settings.trainer), _texts(captions)
        sample, ranks = _sample(captions, store), {}
        for language, one in encoded.items():
            images, ids = data.ranked("test", language)
            first = exact_lists(one.similarity, one.images, one.captions, one.links, settings.first_k)
            sentences = [text.encode(texts[caption], language) for caption in ids]
            likelihood = CaptionLikelihood(model, lambda rows: _regions(store, rows), sentences, language)
            ranks[language] = likelihood_ranks(likelihood, first, _rows(store, images), sample)
        return {"test": write_ranks(folder, ranks)}

    name = trained.name.replace("vse-", "likelihood-", 1)
    inputs = {"corpus": corpus, "model": trained} | images_of(trained)
    plain = {"test": languages, "first_k": settings.first_k}
    return Job(name, "vse", VERSION, plain, inputs, run, True, asdict(settings.trainer), recall_headline)


def _texts(captions: Table) -> dict[str, str]:
    """Caption id → sentence."""
    return dict(zip(captions["caption_id"][:], captions["text"][:], strict=True))


def _rows(store: RegionStore, images: Sequence[str]) -> Tensor:
    """Rows (N,) of images in the store."""
    return torch.from_numpy(store.rows(list(images)))


def _regions(store: RegionStore, rows: Tensor) -> Tensor:
    """What the model is given of images (B,), (B, R, D)."""
    return torch.from_numpy(store.take(rows.numpy()).astype(np.float32))


def _sample(captions: Table, store: RegionStore) -> Tensor:
    """Rows (`SAMPLE`,) of training images with human captions, or fewer."""
    columns = zip(*(captions[name][:] for name in ("image_id", "split", "source")), strict=True)
    human = dict.fromkeys(image for image, *about in columns if about == ["train", HUMAN])
    images = [image for image in human if image in store]
    chosen = np.linspace(0, len(images) - 1, min(SAMPLE, len(images))).round().astype(int)
    return _rows(store, [images[place] for place in chosen])
