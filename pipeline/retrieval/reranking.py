"""Jobs that index the test by a trained model, and rerank the first results by another model."""

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from data.captions import read_captions
from modules.encodings import Encodings, Similarity
from modules.errors import ModelError
from modules.index import VectorIndex
from modules.metrics import RetrievalRanks
from modules.reranking import FirstLists, first_lists, reranked
from modules.retrieval_models import model_class
from pipeline.errors import RecipeError
from pipeline.jobs.artifact_files import read_json
from pipeline.jobs.job import Job
from pipeline.jobs.model_files import model_fingerprint
from pipeline.recipes.settings import VseSettings
from pipeline.retrieval.images import images_in, images_of
from pipeline.retrieval.ranks import load_module, rank_split, read_ranks, write_ranks
from pipeline.retrieval.rows import Row, Training, recall_headline

VERSION = 1
_IDS = "ids.json"
_Rank = Callable[[Similarity, Encodings, Encodings, Tensor], RetrievalRanks]


def on_first_lists(training: Training) -> Row:
    """`vse.model` reranks the first `vse.first_k` results of `vse.first`."""
    settings = training.recipe.vse
    assert settings.first is not None
    trained, first = training.train(settings.model), training.train(settings.first)
    index = index_job(first, training.corpus, settings)
    name = f"rerank-{settings.first}-{settings.model}-{training.name}-{training.seed}"
    job = rerank_job(name, index, trained, training.corpus, settings)
    system = f"{settings.model} on the first {settings.first_k} of {settings.first}"
    return training.row(job, [trained, first], system)


def can_rerank(settings: VseSettings) -> bool:
    """Is there a `vse.reranker` whose row is trained, beside a `vse.model` whose results it can rerank?"""
    model, name = settings.reranker.get("model"), settings.reranker.get("row")
    indexed = model_class(settings.model).score_with(**settings.options) == "inner product"
    return indexed and model not in (None, settings.model) and name in [*(settings.only or settings.rows)]


def reranked_row(row: Row, first: Row, corpus: Job, of_first: VseSettings, settings: VseSettings) -> Row:
    """A model tested on the first results of another one.

    Args:
        row: of the model that reranks.
        first: of the one that is indexed.
        corpus: the job that prepares their data.
        of_first: settings of the one that is indexed.
        settings: of the one that reranks.
    """
    index = index_job(first.job, corpus, of_first)
    name = f"rerank-{of_first.model}-{settings.model}-{row.name}-{row.seed}"
    job = rerank_job(name, index, row.job, corpus, settings)
    system = f"{settings.model} on the first {settings.first_k} of {of_first.model}"
    analyses = {name: job for name, job in row.analyses.items() if name == "retrieved"}
    return replace(row, job=job, trained=(row.job, first.job), system=system, analyses=analyses)


def index_job(trained: Job, corpus: Job, settings: VseSettings) -> Job:
    """Index all test images and the test captions of each language by a trained model of an inner product.

    Leaves `images/` and `captions-<language>/`, each an index with the ids of its rows, and the ranks by them.
    """

    def run(folder: Path, inputs: dict[str, Path]) -> dict[str, Any]:
        """Leave the indexes, and the ranks by them."""
        module, text = load_module(inputs["model"], settings.test, settings.pretrained)
        captions = read_captions(inputs["corpus"] / "captions.parquet")
        store = images_in(inputs)
        vectors: dict[str, Tensor] = {}
        for language, metric in module.metrics.items():
            metric.rank = partial(_keep, vectors, language, metric.rank)
        data = rank_split(module, text, captions, store, settings.trainer)
        made_of = model_fingerprint(inputs["model"])
        for name, kept in vectors.items():
            images, caption_ids = data.ranked("test", name.removeprefix("captions-"))
            VectorIndex(kept, gpu=-1).save(folder / name, made_of)
            (folder / name / _IDS).write_text(json.dumps(images if name == "images" else caption_ids), encoding="utf-8")
        return {"test": write_ranks(folder, module.ranks)}

    inputs = {"corpus": corpus, "model": trained} | images_of(trained)
    name = trained.name.replace("vse-", "index-", 1)
    return Job(
        name, "vse", VERSION, {"test": settings.test}, inputs, run, True, asdict(settings.trainer), recall_headline
    )


def rerank_job(name: str, index: Job, trained: Job, corpus: Job, settings: VseSettings) -> Job:
    """Rerank the first `vse.first_k` results of the indexed model by a trained model's score.

    Raises:
        RecipeError: an index is damaged, of another checkpoint than the indexed model's, or of another test.
    """
    first = index.inputs["model"]

    def run(folder: Path, inputs: dict[str, Path]) -> dict[str, Any]:
        """Leave the ranks."""
        made_of = model_fingerprint(inputs["first"])
        lists = {language: _lists(inputs["index"], made_of, language, settings.first_k) for language in settings.test}
        module, text = load_module(inputs["model"], settings.test, settings.pretrained)
        captions = read_captions(inputs["corpus"] / "captions.parquet")
        store = images_in(inputs)
        for language, metric in module.metrics.items():
            metric.rank = partial(_rerank, lists[language])
        data = rank_split(module, text, captions, store, settings.trainer)
        for language in module.ranks:
            for part, ids in zip(("images", f"captions-{language}"), data.ranked("test", language), strict=True):
                _require_ids(inputs["index"], part, ids)
        return {"test": write_ranks(folder, module.ranks)}

    inputs = {"corpus": corpus, "first": first, "index": index, "model": trained} | images_of(trained)
    plain = {"test": settings.test, "first_k": settings.first_k}
    return Job(name, "vse", VERSION, plain, inputs, run, True, asdict(settings.trainer), recall_headline)


def _keep(
    vectors: dict[str, Tensor], language: str, rank: _Rank,
    similarity: Similarity, images: Encodings, captions: Encodings, links: Tensor,
) -> RetrievalRanks:  # fmt: skip
    """Rank as the model does, and keep the vectors that were ranked."""
    vectors["images"], vectors[f"captions-{language}"] = images.single(), captions.single()
    return rank(similarity, images, captions, links)


def _rerank(
    first: FirstLists, similarity: Similarity, images: Encodings, captions: Encodings, links: Tensor
) -> RetrievalRanks:
    """`reranked`, as a metric calls it: the links are those of the lists."""
    return reranked(similarity, images, captions, first)


def _lists(folder: Path, made_of: str, language: str, k: int) -> FirstLists:
    """The first k of each query of one language, by the indexes in an index job's folder."""
    try:
        images, captions = (
            VectorIndex.load(folder / part, made_of, gpu=-1) for part in ("images", f"captions-{language}")
        )
        return first_lists(images, captions, read_ranks(folder, language), k)
    except ModelError as error:
        raise RecipeError(f"{error}: delete {folder} and run `make stage-vse`") from None


def _require_ids(folder: Path, part: str, ids: list[str]) -> None:
    """Refuse an index whose rows are not these images or captions, in this order."""
    path = folder / part / _IDS
    if read_json(path) != ids:
        raise RecipeError(f"{path}: not the {part} of this test; delete {folder} and run `make stage-vse`")
