"""Jobs that rerank the first results of a trained model by another model or its own decoder."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset as Table
from torch import Tensor

from data.captions.table import human_cells
from data.pictures.regions import RegionStore
from modules.retrieval_models import model_class
from modules.search.encoded_test import EncodedTest
from modules.search.index import VectorIndex
from modules.search.likelihood import CaptionLikelihood, likelihood_ranks
from modules.search.reranking import FirstLists, exact_lists, first_lists, reranked
from pipeline.engine.job import Job
from pipeline.engine.workspace import Workspace
from pipeline.errors import RecipeError
from pipeline.recipes.retrieval_settings import VseSettings
from pipeline.retrieval.ranks import encode_split, inputs_of, inputs_of_several, open_test, ranking_job, write_ranks
from pipeline.retrieval.rows import Row
from pipeline.retrieval.training import Training
from pipeline.training.model_files import device_of
from pipeline.vectors.images import test_inputs


def on_first_lists(training: Training) -> Row:
    """`vse.model` reranks the first `vse.first_k` results of `vse.first`."""
    settings = training.settings
    assert settings.first is not None
    row, first = (training.tested(model) for model in (settings.model, settings.first))
    return reranked_row(row, first, training.corpus, replace(settings, model=settings.first), settings)


def can_rerank(settings: VseSettings) -> bool:
    """Is there a `vse.reranker` whose row is trained, beside a `vse.model` whose results it can rerank?"""
    model, name = settings.reranker.get("model"), settings.reranker.get("row")
    if model is None or name not in [*(settings.only or settings.rows)]:
        return False
    first = settings.of_row(str(name))
    return model_class(first.model).score_with(**first.options) == "inner product" and model != first.model


def reranked_row(row: Row, first: Row, corpus: Job, of_first: VseSettings, settings: VseSettings) -> Row:
    """A model tested on the first `vse.first_k` results of another one, whose score is an inner product.

    Args:
        row: of the model that reranks, with `settings`.
        first: of the one that is indexed, with `of_first`.
    """

    def run(folder: Path, inputs: dict[str, Path]) -> dict[str, Any]:
        """Leave the ranks."""
        _, indexed = encode_split(open_test(inputs_of(inputs, 0), settings.test, of_first))
        lists = {language: _lists(gallery, settings.first_k) for language, gallery in indexed.items()}
        _, encoded = encode_split(open_test(inputs_of(inputs, 1), settings.test, settings))
        ranks = {
            language: reranked(gallery.similarity, gallery.images, gallery.captions, lists[language])
            for language, gallery in encoded.items()
        }
        return {"test": write_ranks(folder, ranks)}

    name = f"rerank-{of_first.model}-{settings.model}-{row.name}-{row.seed}"
    plain = {"test": settings.test, "first_k": settings.first_k}
    job = ranking_job(name, inputs_of_several([first.job, row.job], corpus), plain, run, settings, version=2)
    system = f"{settings.model} on the first {settings.first_k} of {of_first.model}"
    analyses = {name: job for name, job in row.analyses.items() if name == "retrieved"}
    return replace(row, job=job, trained=(row.job, first.job), system=system, analyses=analyses)


def is_better(row: Row, workspace: Workspace, exported: Row | None) -> bool:
    """Is a reranker, a row that `reranked_row` gives, better on validation than the model whose results it orders?

    That is the exported one, of this row or of another. Where it is not known, the reranker is taken to be better; so
    is one that writes captions or draws, for which it is exported too.
    """
    second = row.trained[0]
    model, options = (second.settings[name] for name in ("model", "options"))
    kind = model_class(model)
    if kind.writes_with(**options) or kind.draws_with(**options):
        return True
    if exported is None or not all(map(workspace.done, (second, exported.job))):
        return True
    own, other = (workspace.manifest(job)["metrics"].get("val", {}) for job in (second, exported.job))
    both = own.keys() & other.keys()
    return not both or sum(own[one]["rsum"] - other[one]["rsum"] for one in both) > 0


def is_tested_on(row: Row, exported: Row | None) -> bool:
    """Are the figures of a reranker, a row that `reranked_row` gives, those of what the exported model finds first?

    They are not where another seed, or another row, is the best on validation and so is exported.
    """
    return exported is None or row.trained[1].key == exported.job.key


def trained_reranker(row: Row | None, workspace: Workspace, exported: Row | None) -> Row | None:
    """A recipe's reranker, if it has been trained and tested, and is better on validation than the exported model."""
    done = row is not None and all(map(workspace.done, (row.job, row.trained[0])))
    return row if row is not None and done and is_better(row, workspace, exported) else None


def _lists(gallery: EncodedTest, k: int) -> FirstLists:
    """The first k of each query of one language, by indexes of the test."""
    images, captions = (VectorIndex(side.single(), gpu=-1) for side in (gallery.images, gallery.captions))
    return first_lists(images, captions, gallery.ranks(), k)


SAMPLE = 32
"""Training images, evenly spaced, by which p(caption) is estimated."""


def by_likelihood(training: Training) -> Row:
    """`vse.model` reranks its own first `vse.first_k` results by its decoder, in the languages that it was trained on.

    Raises:
        RecipeError: it has no decoder, or was trained on none of the tested languages.
    """
    settings = training.settings
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

    def run(folder: Path, inputs: dict[str, Path]) -> dict[str, Any]:
        """Leave the ranks."""
        module, text, captions, store, trainer = test = open_test(inputs, settings.test, settings)
        data, encoded = encode_split(test)
        model, sample, ranks = module.model.to(device_of(trainer)), _sample(captions, store), {}
        texts = dict(zip(captions["caption_id"][:], captions["text"][:], strict=True))
        for language in languages:
            gallery, (images, ids) = encoded[language], data.ranked("test", language)
            first = exact_lists(gallery.similarity, gallery.images, gallery.captions, gallery.links, settings.first_k)
            sentences = [text.encode(texts[caption], language) for caption in ids]
            likelihood = CaptionLikelihood(model, lambda rows: _regions(store, rows), sentences, language)
            ranks[language] = likelihood_ranks(likelihood, first, _rows(store, images), sample)
        return {"test": write_ranks(folder, ranks)}

    name, plain = trained.name.replace("vse-", "likelihood-", 1), {"test": languages, "first_k": settings.first_k}
    job = ranking_job(name, test_inputs(trained, training.corpus), plain, run, settings, version=2)
    system = f"{settings.model}, its first {settings.first_k} by log p(caption | image)"
    return training.row(job, [trained], system, languages)


def _rows(store: RegionStore, images: Sequence[str]) -> Tensor:
    """Rows (N,) of images in the store."""
    return torch.from_numpy(store.rows(list(images)))


def _regions(store: RegionStore, rows: Tensor) -> Tensor:
    """What the model is given of images (B,), (B, R, D)."""
    return torch.from_numpy(store.take(rows.numpy()).astype(np.float32))


def _sample(captions: Table, store: RegionStore) -> Tensor:
    """Rows (`SAMPLE`,) of training images with human captions, or fewer."""
    human = dict.fromkeys(image for (image,) in human_cells(captions, "train", "image_id"))
    images = [image for image in human if image in store]
    chosen = np.linspace(0, len(images) - 1, min(SAMPLE, len(images))).round().astype(int)
    return _rows(store, [images[place] for place in chosen])
