"""The job that scores the captions that a trained model retrieves for each test image, as captions of it."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from data.captions.table import references_of
from data.text.tokenisation import plain_words
from modules.metrics.captions import CaptionScores, RetrievedCaptions
from modules.metrics.cider import document_frequencies
from modules.metrics.retrieval import image_folds
from modules.search.encoded_test import EncodedTest
from modules.search.ranking import first_captions
from pipeline.analyses.description import Analysis, Line, read_values
from pipeline.engine.job import Job
from pipeline.recipes.overlays import DEPTH, MEASURES
from pipeline.retrieval.ranks import encode_split, folds_of, open_test
from pipeline.retrieval.rows import Trained
from pipeline.vectors.images import test_inputs

VERSION = 1


def retrieved_job(model: Trained) -> Job | None:
    """Score the captions at ranks 1 … 5 of each test image by BLEU and CIDEr-D (GXN, Table 2).

    Leaves `retrieved-<language>.npz` for each tested language that has training captions, and test images with two
    captions or more: ids of these images (N,), of the captions at their ranks (N, 5), and CIDEr-D × 100 of each. With
    `vse.folds`, figures of folds are means over folds, each with a gallery of its own.

    Returns:
        None without `vse.retrieved_captions`.
    """
    trained, corpus, settings = model.job, model.corpus, model.recipe.vse
    if not settings.retrieved_captions:
        return None

    def run(folder: Path, inputs: dict[str, Path]) -> dict[str, Any]:
        """Encode the test, find the first captions, compare them with those of the image."""
        test = open_test(inputs, settings.test, settings)
        data, encoded = encode_split(test)
        folds = folds_of(data, settings.folds, settings.test)
        texts = dict(zip(test.captions["caption_id"][:], test.captions["text"][:], strict=True))
        figures: dict[str, dict[str, dict[str, float]]] = {"test": {}, "folds": {}}
        for language, encodings in encoded.items():
            if not (training := references_of(test.captions, language, "train")):
                continue
            images, captions = (np.array(ids) for ids in data.ranked("test", language))
            words, links = [plain_words(texts[name], language) for name in captions], encodings.links.cpu()
            scorer = RetrievedCaptions(words, links.tolist(), len(images), document_frequencies(training.values()))
            if not scorer.several.any():
                continue
            rows, first = _first(scorer, encodings, torch.arange(len(images)), torch.arange(len(captions)))
            scores = scorer.score(first, rows)
            cider = np.stack([of_rank.cider for of_rank in scores], axis=1)
            np.savez(folder / f"retrieved-{language}.npz", images=images[rows], captions=captions[first], cider=cider)
            figures["test"][language] = _figures(scores)
            parts = [_first(scorer, encodings, *part[:2]) for part in image_folds(links, len(images), folds)]
            if folds and all(len(rows) for rows, _ in parts):  # each with a gallery of its own
                means = _means([_figures(scorer.score(first, rows)) for rows, first in parts])
                figures["folds"][language] = means | {"images": float(len(folds[0]))}
        return {part: scores for part, scores in figures.items() if scores}

    plain: dict[str, Any] = {"test": settings.test} | ({"folds": settings.folds} if settings.folds > 1 else {})
    name, inputs = trained.name.replace("vse-", "retrieved-", 1), test_inputs(trained, corpus)
    return Job(name, "vse", VERSION, plain, inputs, run, True, asdict(settings.trainer), _headline)


def name_of(measure: str, rank: int) -> str:
    """The name of a figure of the captions at a rank: `retrieved_cider@1`."""
    return f"retrieved_{measure}@{rank}"


def _first(
    scorer: RetrievedCaptions, encoded: EncodedTest, images: Tensor, captions: Tensor
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows (N,) of those of some images that have two captions or more, and for each of the first of some captions."""
    parts = encoded.images.select(images), encoded.captions.select(captions)
    first = captions[first_captions(encoded.similarity, *parts, DEPTH).cpu()]
    several = scorer.several[images.numpy()]
    return images.numpy()[several], first.numpy()[several]


def _figures(scores: Sequence[CaptionScores]) -> dict[str, float]:
    """The figures of the captions at each rank, and how many images they are of."""
    by_rank = {
        name_of(measure, rank): value
        for rank, of_rank in enumerate(scores, 1)
        for measure, value in of_rank.figures().items()
    }
    return {"retrieved_images": float(len(scores[0].cider)), **by_rank}


def _means(folds: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The mean of each figure over folds; of ranks that all of them have, as a fold may have fewer captions."""
    common = [name for name in folds[0] if all(name in fold for fold in folds)]
    return {name: fmean(fold[name] for fold in folds) for name in common}


def _headline(figures: Mapping[str, Any]) -> str:
    """CIDEr-D of the first caption by language, as text."""
    scores = figures.get("test", {})
    return ", ".join(f"CIDEr-D {language} {scores[language][name_of('cider', 1)]:.1f}" for language in scores)


def _cider(folder: Path, language: str, rank: int) -> Tensor:
    """CIDEr-D × 100 (I,) of the captions at a rank."""
    return read_values(folder, language, "retrieved", "cider")[:, rank - 1]


def _lines(job: Job) -> Sequence[Line]:
    """A line for each rank; a gallery with fewer captions has figures of the first ones."""
    lines = []
    for rank in range(1, DEPTH + 1):
        metrics, read = [name_of(measure, rank) for measure in MEASURES], partial(_cider, rank=rank)
        lines.append(Line(str(rank), metrics, "retrieved_images", read, most=1000.0))
    return lines


RETRIEVED = Analysis(
    retrieved_job,
    "Retrieved captions, {system}, {language}{size}, {corpus}: compared with the other captions of the image; "
    "CIDEr-D × 100",
    ["BLEU-1", "2", "3", "4", "CIDEr-D"],
    _lines,
    tested=4,
    label="rank",
    folds=True,
)
