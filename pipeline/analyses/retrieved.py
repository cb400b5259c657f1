"""The job that scores the captions that a trained model retrieves for each test image, as captions of it."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from datasets import Dataset as Table
from numpy.typing import NDArray
from torch import Tensor

from data.captions import references_of
from data.retrieval import RetrievalData
from data.text import plain_words
from modules.metrics.captions import caption_scores
from modules.metrics.cider import CiderD, DocumentFrequencies, document_frequencies
from modules.metrics.retrieval import image_folds
from modules.search.encoded_test import EncodedTest
from modules.search.ranking import first_captions
from pipeline.analyses.description import Analysis, Line, read_values
from pipeline.engine.job import Job
from pipeline.recipes.overlays import DEPTH, MEASURES
from pipeline.retrieval.ranks import encode_split, folds_of, open_test
from pipeline.retrieval.rows import Trained
from pipeline.vectors.images import images_of

VERSION = 1


class Retrieved(NamedTuple):
    """What was retrieved in one language, for the N images with two captions or more.

    Attributes:
        images: (N,) their ids.
        captions: (N, 5) ids of the captions at ranks 1 … 5.
        cider: (N, 5) CIDEr-D × 100 of each.
    """

    images: NDArray[np.str_]
    captions: NDArray[np.str_]
    cider: NDArray[np.float64]


def retrieved_job(model: Trained) -> Job | None:
    """Score the captions at ranks 1 … 5 of each test image by BLEU and CIDEr-D (GXN, Table 2).

    Leaves `retrieved-<language>.npz` for each tested language that has training captions, and test images with two
    captions or more. With `vse.folds`, figures of folds are means over folds, each with a gallery of its own.

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
        figures: dict[str, dict[str, dict[str, float]]] = {"test": {}, "folds": {}}
        for language, encodings in encoded.items():
            scorer = _scorer(test.captions, data, encodings.links, language)
            first = _first(encodings, torch.arange(len(encodings.images)), torch.arange(len(encodings.captions)))
            if scorer is None or (result := scorer.score(first, np.arange(len(encodings.images)))) is None:
                continue
            np.savez(folder / f"retrieved-{language}.npz", **result[0]._asdict())
            figures["test"][language] = result[1]
            if folds and (means := _in_folds(scorer, encodings, folds)):
                figures["folds"][language] = means
        return {part: scores for part, scores in figures.items() if scores}

    plain: dict[str, Any] = {"test": settings.test} | ({"folds": settings.folds} if settings.folds > 1 else {})
    name = trained.name.replace("vse-", "retrieved-", 1)
    inputs = {"corpus": corpus, "model": trained} | images_of(trained)
    return Job(name, "vse", VERSION, plain, inputs, run, True, asdict(settings.trainer), _headline)


def name_of(measure: str, rank: int) -> str:
    """The name of a figure of the captions at a rank: `retrieved_cider@1`."""
    return f"retrieved_{measure}@{rank}"


class _Scorer:
    """Scores the first captions of a model's lists in one language.

    Args:
        frequencies: of the training captions.
        ids: of images and captions, in the order of their encodings.
        words: of each caption.
        links: (C,) row of each caption's image.
    """

    def __init__(
        self, frequencies: DocumentFrequencies, ids: tuple[list[str], list[str]], words: Sequence[list[str]],
        links: Sequence[int],
    ) -> None:  # fmt: skip
        self.images, self.captions = (np.array(side) for side in ids)
        self.words, self.links, self.place = words, links, list[int]()
        references: list[list[list[str]]] = [[] for _ in ids[0]]
        for caption, row in zip(words, links, strict=True):
            self.place.append(len(references[row]))
            references[row].append(caption)
        self.metric = CiderD(references, frequencies)

    def score(self, first: NDArray[np.int64], rows: NDArray[np.int64]) -> tuple[Retrieved, dict[str, float]] | None:
        """Score the captions at ranks 1 … k of images; those with fewer than two captions of their own are left out.

        Args:
            first: (I, k) rows of the captions.
            rows: (I,) rows of the images.

        Returns:
            what was retrieved, and its figures; None where no image has two captions.
        """
        kept = np.array([len(self.metric.references[row]) > 1 for row in rows])
        if not kept.any():
            return None
        first, rows = first[kept], rows[kept]
        figures, cider = {"retrieved_images": float(len(rows))}, []
        for rank, column in enumerate(first.T, 1):
            left_out = [
                self.place[caption] if self.links[caption] == row else -1
                for caption, row in zip(column, rows, strict=True)
            ]
            scores = caption_scores([self.words[caption] for caption in column], self.metric, rows.tolist(), left_out)
            figures |= {name_of(measure, rank): value for measure, value in scores.figures().items()}
            cider.append(scores.cider)
        return Retrieved(self.images[rows], self.captions[first], np.stack(cider, axis=1)), figures


def _scorer(captions: Table, data: RetrievalData, links: Tensor, language: str) -> _Scorer | None:
    """What scores the first captions of a language; None where it has no training captions."""
    frequencies = training_frequencies(captions, language)
    if frequencies is None:
        return None
    ids = data.ranked("test", language)
    words = dict(zip(captions["caption_id"][:], captions["text"][:], strict=True))
    return _Scorer(
        frequencies, ids, [plain_words(words[caption_id], language) for caption_id in ids[1]], links.tolist()
    )


def training_frequencies(captions: Table, language: str) -> DocumentFrequencies | None:
    """Document frequencies of the human training captions in a language, a document an image; None: it has none."""
    documents = references_of(captions, language, "train")
    return document_frequencies(documents.values()) if documents else None


def _first(encoded: EncodedTest, images: Tensor, captions: Tensor) -> NDArray[np.int64]:
    """Rows of the first captions of some images among some captions, (I, k)."""
    parts = encoded.images.select(images), encoded.captions.select(captions)
    return captions[first_captions(encoded.similarity, *parts, DEPTH).cpu()].numpy()


def _in_folds(scorer: _Scorer, encoded: EncodedTest, folds: Sequence[Tensor]) -> dict[str, float]:
    """Means of the figures over folds, each with a gallery of its own; none where a fold has none."""
    parts = [
        scorer.score(_first(encoded, images, captions), images.numpy())
        for images, captions, _ in image_folds(encoded.links.cpu(), len(encoded.images), folds)
    ]
    known = [part[1] for part in parts if part is not None]
    return {key: sum(fold[key] for fold in known) / len(known) for key in known[0]} if len(known) == len(folds) else {}


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
