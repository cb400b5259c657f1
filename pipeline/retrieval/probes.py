"""Scenes' twin pictures: how often a caption scores its own picture above the one that differs in one sense."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from datasets import Dataset as Table
from torch import Tensor

from data.batches.captions import CaptionBatches
from data.captions.table import HUMAN
from data.text.text_inputs import TextInput
from modules.metrics.language_probe import probe, universal_vectors
from modules.retrieval_models import RetrievalModel
from modules.search.encodings import Encoding
from modules.training.ranked import RankedModule
from pipeline.retrieval.ranks import ModelTest

BOTH = "both"
"""What the vectors of all branches together are called."""


class Twins(NamedTuple):
    """The captions of twin pictures in one language, encoded.

    Attributes:
        rows: of the caption table.
        images: encodings of I pictures.
        captions: encodings of C captions.
        own: (C,) row of each caption's picture.
        twin: (C,) row of the other one.
    """

    rows: list[dict[str, str]]
    images: Encoding
    captions: Encoding
    own: Tensor
    twin: Tensor


def twin_scores(test: ModelTest, twins: list[dict[str, str]], folder: Path) -> dict[str, dict[str, float]]:
    """How often a caption scores its own picture above the twin picture that differs in one sense only, in percent.

    Ties count against the model. The outcome of each caption is left in `twins-<language>.npy`.
    """
    scores = {}
    for language in test.module.test_languages if twins else ():
        right = own_above_twin(test.module, encoded_twins(test, other_twins(twins), language), BOTH)
        np.save(folder / f"twins-{language}.npy", right.numpy())
        scores[language] = {"own_above_twin": 100 * right.float().mean().item()}
    return scores


def other_twins(twins: list[dict[str, str]]) -> dict[str, str]:
    """Image id → its twin's."""
    return {row["image_id"]: row["twin_id"] for row in twins}


def encoded_twins(test: ModelTest, other: Mapping[str, str], language: str) -> Twins:
    """The human captions of the twins in a language, with their pictures."""
    module, text, captions, store, _ = test
    rows = [
        row for row in captions.to_list()
        if row["split"] == "twins" and row["language"] == language and row["source"] == HUMAN
    ]  # fmt: skip
    batches = CaptionBatches(Table.from_list(rows), store, text, module.model.languages, [])
    ids = [row["image_id"] for row in rows]
    module.eval()
    with torch.no_grad():
        images, encoded_captions = module.encode(batches[[(number,) for number in range(len(rows))]])
    place = {int(row): number for number, row in enumerate(np.unique(store.rows(ids)))}
    own, twin = ([place[int(row)] for row in store.rows(names)] for names in (ids, [other[name] for name in ids]))
    return Twins(rows, images, encoded_captions, torch.tensor(own), torch.tensor(twin))


def own_above_twin(module: RankedModule, twins: Twins, part: str) -> Tensor:
    """Whether each caption (C,) scores its own picture above its twin, by a branch or by `BOTH`; ties are wrong."""
    images, captions = twins.images, twins.captions
    if part != BOTH:
        images, captions = (module.model.of_branch(encoding, part) for encoding in (images, captions))
    scores, columns = module.model.similarity(images, captions), torch.arange(len(twins.own))
    return scores[twins.own, columns] > scores[twins.twin, columns]


MOST = 1000
"""Captions of a language and split that are read: one of each image, the first images of the table."""


def language_probe(
    model: RetrievalModel, captions: Table, text: TextInput, languages: Collection[str]
) -> dict[str, float]:
    """`language_probe`: how often a separate classifier finds the language of human test captions, in percent.

    The classifier is trained on training captions. Nothing for a model without universal vectors, and for languages
    that do not have captions in both splits where fewer than two remain.

    Args:
        languages: that it was trained on.
    """
    sentences: dict[tuple[str, str], list[list[int]]] = {}
    seen = set[tuple[str, str]]()
    columns = (captions[name][:] for name in ("split", "language", "source", "image_id", "text"))
    for split, language, source, image, words in zip(*columns, strict=True):
        wanted = split in ("train", "test") and source == HUMAN and language in languages
        if wanted and (image, language) not in seen and len(sentences.get((split, language), ())) < MOST:
            seen.add((image, language))
            sentences.setdefault((split, language), []).append(text.encode(words, language))
    both = [
        language
        for language in sorted(languages)
        if ("train", language) in sentences and ("test", language) in sentences
    ]
    model.eval()
    vectors_of = {place: universal_vectors(model, sentences[place], place[1])
                  for language in both for place in (("train", language), ("test", language))}  # fmt: skip
    if len(both) < 2 or any(vectors is None for vectors in vectors_of.values()):
        return {}
    sides = ({language: vectors_of[split, language] for language in both} for split in ("train", "test"))
    return {"language_probe": probe(*sides)}  # type: ignore[arg-type]
