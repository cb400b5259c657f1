"""Scenes' twin pictures: how often a caption scores its own picture above the one that differs in one sense."""

from collections.abc import Collection, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from datasets import Dataset as Table
from torch import Tensor

from data.caption_batches import CaptionBatches
from data.captions import HUMAN
from data.text import TextInput
from modules.metrics.language_probe import probe, universal_vectors
from modules.retrieval_models import RetrievalModel, model_class
from modules.search.encodings import Encoding
from modules.training.retrieval import Retrieval
from pipeline.corpus.prepare import twins_of
from pipeline.engine.artifacts import read_arrays
from pipeline.engine.job import Job
from pipeline.retrieval.images import test_inputs
from pipeline.retrieval.ranks import ModelTest, open_test
from pipeline.retrieval.rows import Trained

VERSION = 1
BOTH = "both"
"""What the vectors of all branches together are called."""


class _Twins(NamedTuple):
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
    found = {}
    for language in test.module.test_languages if twins else ():
        right = _right(test.module, _encoded(test, _others(twins), language), BOTH)
        np.save(folder / f"twins-{language}.npy", right.numpy())
        found[language] = {"own_above_twin": 100 * right.float().mean().item()}
    return found


def senses_job(tested: Trained) -> Job | None:
    """Test each branch of a model alone: how often it scores a twin's caption with its own picture above the other's.

    Leaves `senses-<language>.npz` for each tested language whose captions of two twins differ (in the language that has
    one word for both senses, one of the two captions is always wrong): for each branch, and for `BOTH`, the share in
    percent of each pair of twins (P,), in the order of the corpus.

    Args:
        tested: a model of any kind.

    Returns:
        None for a model without branches, or a corpus without twins.
    """
    trained, corpus, settings = tested.job, tested.corpus, tested.recipe.vse
    branches = model_class(settings.model).branches_with(**settings.options)
    if not branches or tested.scenes is None or not tested.scenes.twins:
        return None
    parts = [*branches, *([BOTH] if len(branches) > 1 else [])]

    def run(folder: Path, inputs: dict[str, Path]) -> dict[str, Any]:
        """Encode the twins, compare their scores."""
        test, figures = open_test(inputs, settings.test, settings), dict[str, dict[str, float]]()
        other = _others(twins_of(inputs["corpus"]))
        for language in settings.test:
            twins = _encoded(test, other, language)
            shares: dict[str, Any] = {part: _by_pair(twins, _right(test.module, twins, part), other) for part in parts}
            if not len(shares[parts[0]]):
                continue
            np.savez(folder / f"senses-{language}.npz", **shares)
            figures[language] = {f"senses_{part}": float(found.mean()) for part, found in shares.items()}
            figures[language]["senses_pairs"] = float(len(shares[parts[0]]))
        return {"test": figures}

    name, inputs = trained.name.replace("vse-", "senses-", 1), test_inputs(trained, corpus)
    plain: dict[str, Any] = {"test": settings.test, "parts": parts}
    return Job(name, "vse", VERSION, plain, inputs, run, False, asdict(settings.trainer), _headline)


def read_senses(folder: Path, language: str, part: str) -> Tensor:
    """Shares in percent (P,) by pair of twins that a finished job left of a branch, or of `BOTH`.

    Raises:
        RecipeError: the file is missing or damaged.
    """
    return torch.from_numpy(read_arrays(folder / f"senses-{language}.npz", [part])[0])


def _others(twins: list[dict[str, str]]) -> dict[str, str]:
    """Image id → its twin's."""
    return {row["image_id"]: row["twin_id"] for row in twins}


def _encoded(test: ModelTest, other: Mapping[str, str], language: str) -> _Twins:
    """The human captions of the twins in a language, with their pictures."""
    module, text, captions, store, _ = test
    rows = [
        row for row in captions.to_list()
        if row["split"] == "twins" and row["language"] == language and row["source"] == HUMAN
    ]  # fmt: skip
    batches = CaptionBatches(Table.from_list(rows), store, text.encode, module.model.languages, [])
    ids = [row["image_id"] for row in rows]
    module.eval()
    with torch.no_grad():
        images, encoded_captions = module.encode(batches[[(number,) for number in range(len(rows))]])
    place = {int(row): number for number, row in enumerate(np.unique(store.rows(ids)))}
    own, twin = ([place[int(row)] for row in store.rows(names)] for names in (ids, [other[name] for name in ids]))
    return _Twins(rows, images, encoded_captions, torch.tensor(own), torch.tensor(twin))


def _right(module: Retrieval, twins: _Twins, part: str) -> Tensor:
    """Whether each caption (C,) scores its own picture above its twin, by a branch or by `BOTH`; ties are wrong."""
    images, captions = twins.images, twins.captions
    if part != BOTH:
        images, captions = (module.model.of_branch(one, part) for one in (images, captions))
    scores, columns = module.model.similarity(images, captions), torch.arange(len(twins.own))
    return scores[twins.own, columns] > scores[twins.twin, columns]


def _by_pair(twins: _Twins, right: Tensor, other: Mapping[str, str]) -> np.ndarray:
    """Shares in percent (P,) of the pairs of twins whose captions differ."""
    texts: dict[str, set[str]] = {}
    for row in twins.rows:
        texts.setdefault(row["image_id"], set()).add(row["text"])
    found: dict[frozenset[str], list[bool]] = {}
    for row, one in zip(twins.rows, right.tolist(), strict=True):
        image, twin = row["image_id"], other[row["image_id"]]
        if row["text"] not in texts[twin]:
            found.setdefault(frozenset((image, twin)), []).append(one)
    return np.array([100 * np.mean(one) for one in found.values()])


def _headline(figures: Mapping[str, Any]) -> str:
    """The figures of each branch by language, as text."""
    shown = [
        f"{language} " + ", ".join(f"{name.removeprefix('senses_')} {value:.1f} %"
                                   for name, value in scores.items() if name != "senses_pairs")
        for language, scores in figures["test"].items()
    ]  # fmt: skip
    return "twins told apart: " + ("; ".join(shown) or "captions of twins are equal in these languages")


MOST = 1000
"""Captions of a language and split that are read: one of each image, the first images of the table."""


def language_probe(
    model: RetrievalModel, captions: Table, text: TextInput, languages: Collection[str]
) -> dict[str, float]:
    """`language_probe`: how often a separate classifier finds the language of human test captions, in percent.

    The classifier is trained on training captions. Nothing for a model without universal vectors, and for languages
    that do not have captions in both splits where fewer than two remain.

    Args:
        model: trained.
        captions: the caption table.
        text: the model's text input.
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
    both = [one for one in sorted(languages) if ("train", one) in sentences and ("test", one) in sentences]
    model.eval()
    found = {place: universal_vectors(model, sentences[place], place[1])
             for language in both for place in (("train", language), ("test", language))}  # fmt: skip
    if len(both) < 2 or any(vectors is None for vectors in found.values()):
        return {}
    sides = ({one: found[split, one] for one in both} for split in ("train", "test"))
    return {"language_probe": probe(*sides)}  # type: ignore[arg-type]
