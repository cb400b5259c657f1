"""Figures of an exported model on other data, and how much of that data it has seen."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from data.errors import DataError
from data.evaluation.evaluation_set import EvaluationSet
from data.evaluation.seen import TRAIN, VAL, Overlap, TrainingHashes, picture_hash
from data.pictures.regions import RegionStore, read_standard
from modules.metrics.intervals import Difference, bootstrap_interval, paired_difference
from modules.metrics.retrieval import RetrievalRanks
from modules.search.encodings import Encodings
from modules.search.ranking import ranks_by_score
from pipeline.engine.files import digests
from pipeline.errors import RecipeError
from pipeline.export.exported_model import ExportedModel
from pipeline.export.training_hashes import exported_hashes

_ENDS = ("value", "low", "high")
_PICTURES = 256  # regions of so many are in memory at once


@dataclass(frozen=True)
class Measured:
    """Figures in one language.

    Attributes:
        split: that they are of.
        gallery: how many images are ranked for each caption.
        images: how many of them have a caption in this language.
        figures: name → value in percent (median ranks: ranks), low and high; None, None without an interval.
        seen: `TRAIN`, `VAL` → what the model has seen of these images and captions; None: not known.
        ranks: of the captions and images; None of a task of mteb, which keeps none.
    """

    language: str
    split: str
    gallery: int
    images: int
    captions: int
    figures: Mapping[str, tuple[float, float | None, float | None]]
    seen: Mapping[str, Overlap] | None
    ranks: RetrievalRanks | None = None

    def as_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        figures = {
            name: {end: None if value is None else round(value, 4) for end, value in zip(_ENDS, values, strict=True)}
            for name, values in self.figures.items()
        }
        seen = None if self.seen is None else {split: overlap._asdict() for split, overlap in self.seen.items()}
        plain = {name: value for name, value in vars(self).items() if name != "ranks"}
        return plain | {"figures": figures, "seen": seen}


def known_languages(exported: ExportedModel, languages: Collection[str], where: str) -> list[str]:
    """Those of some languages that a model was trained on.

    Args:
        where: what a message begins with.

    Raises:
        RecipeError: it was trained on none of them.
    """
    if known := sorted({*languages} & {*exported.languages}):
        return known
    raise RecipeError(
        f"{where}: has captions in {', '.join(sorted(languages))}; the model {exported.folder} was trained on "
        f"{', '.join(exported.languages)}: measure it where there are captions in one of those"
    )


def shared_languages(models: Sequence[ExportedModel], on: EvaluationSet) -> list[str]:
    """The languages of a set that all of some models read, which read its images too.

    Raises:
        RecipeError: there are none, or a model does not read such images.
    """
    where, languages = f"{on.label}, {on.split}", {caption.language for caption in on.captions}
    for exported in models:
        known_languages(exported, languages, where)
    shared = [language for language in sorted(languages) if all(language in model.languages for model in models)]
    if not shared:
        read = "; ".join(f"{model.name}: {', '.join(sorted(languages & {*model.languages}))}" for model in models)
        raise RecipeError(f"{where}: no language that both models read ({read}); compare models of one language, or "
                          "on other data")  # fmt: skip
    images = dict.fromkeys(caption.image_id for caption in on.captions if caption.language in shared)
    for exported in models:
        _require_images(exported, on, list(images))
    return shared


def compare(first: Sequence[Measured], second: Sequence[Measured], resamples: int) -> dict[str, dict[str, Difference]]:
    """Language → name of a figure → one model's less another's, on the same set, which was measured in the same order.

    Args:
        resamples: of the bootstrap over images, which draws the same ones for both.
    """
    compared = {}
    for ours, theirs in zip(first, second, strict=True):
        assert ours.ranks is not None
        assert theirs.ranks is not None
        compared[ours.language] = paired_difference(ours.ranks, theirs.ranks, resamples)
    return compared


def measure(
    exported: ExportedModel, on: EvaluationSet, resamples: int, workers: int, among: Sequence[str] | None = None
) -> list[Measured]:
    """Rank the captions and images of a set in each language that the model was trained on.

    The gallery of each language is all images with a caption in one of these languages (in the report: in one of the
    tested languages).

    Args:
        exported: the model; what reranks its results takes no part.
        resamples: of the bootstrap over images.
        among: what `shared_languages` gives for it and others; None: for it alone.

    Raises:
        DataError: a picture cannot be read.
        RecipeError: it was trained on none of the languages, or does not read such images.
    """
    languages = shared_languages([exported], on) if among is None else among
    seen = exported_hashes(exported.folder)  # before hours of reading pictures
    captions = [caption for caption in on.captions if caption.language in languages]
    place = {name: row for row, name in enumerate(dict.fromkeys(caption.image_id for caption in captions))}
    images = _encode_images(exported, on, list(place), workers)
    results = []
    digest_of = digests(on.pictures[name] for name in place if name in on.pictures) if seen is not None else {}
    hashes = {name: picture_hash(digest_of[path]) for name, path in on.pictures.items() if path in digest_of}
    for language in languages:
        own = [caption for caption in captions if caption.language == language]
        links = torch.tensor([place[caption.image_id] for caption in own])
        texts = exported.encode_captions([caption.text for caption in own], language)
        with torch.inference_mode():
            ranks = ranks_by_score(exported.model.score, exported.model.similarity, images, texts, links)
        figures = bootstrap_interval(ranks, resamples)
        names = list(dict.fromkeys(caption.image_id for caption in own))
        pictures = [hashes[name] for name in names if name in hashes] or None
        overlaps = overlaps_of(seen, names, pictures, [caption.text for caption in own])
        results.append(Measured(language, on.split, len(place), len(names), len(own), figures, overlaps, ranks))
    return results


def overlaps_of(
    seen: TrainingHashes | None, names: Sequence[str] | None, pictures: Sequence[int] | None, texts: Sequence[str]
) -> dict[str, Overlap] | None:
    """What of images and captions training and validation have seen (`TrainingHashes.overlap`); None: not known."""
    return None if seen is None else {split: seen.overlap(split, names, pictures, texts) for split in (TRAIN, VAL)}


def _require_images(exported: ExportedModel, on: EvaluationSet, ids: Sequence[str]) -> None:
    """Refuse a set whose images a model does not read: it lacks their pictures, or regions made elsewhere."""
    if exported.extractor is None:
        if on.regions is None or read_standard(on.regions) is not None:
            raise RecipeError(
                f"{exported.folder}: this model reads regions that were made elsewhere, and {on.label} has none; "
                "measure it on the corpus of a recipe that brings the same kind (--on recipe:NAME)"
            )
    elif missing := [image_id for image_id in ids if image_id not in on.pictures]:
        raise RecipeError(
            f"{on.label}: {len(missing)} of {len(ids)} images have no picture here, first {missing[0]!r}, but the "
            f"model {exported.folder} reads pictures; put them where the recipe expects them"
        )


def _encode_images(exported: ExportedModel, on: EvaluationSet, ids: Sequence[str], workers: int) -> Encodings:
    """Encode the images of a set: from their pictures or, by a model that reads regions made elsewhere, from those."""
    parts: list[Encodings] = []
    read = _stored(on, ids) if exported.extractor is None else _from_pixels(exported, on, ids, workers)
    while some := list(islice(read, _PICTURES)):
        parts.append(exported.encode_regions(np.stack(some)))
    return Encodings.joined(parts)


def _stored(on: EvaluationSet, ids: Sequence[str]) -> Iterator[NDArray[np.floating]]:
    assert on.regions is not None
    store = RegionStore(on.regions)
    for row in store.rows(ids):
        yield store.regions[row]


def _from_pixels(
    exported: ExportedModel, on: EvaluationSet, ids: Sequence[str], workers: int
) -> Iterator[NDArray[np.floating]]:
    for extracted in exported.require_pixels().extract_readable([on.pictures[image_id] for image_id in ids], workers):
        if isinstance(extracted, str):
            raise DataError(extracted)
        yield exported.standardised(extracted[0])
