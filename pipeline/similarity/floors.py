"""Floors of sentence similarity: predictions by words alone, without pictures."""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from data.sts import SentencePairs
from data.text import words_of
from data.vectors import INSTALL, installed, train_vectors
from modules.metrics.sentence_similarity import Scores, mean_vector_similarity, tf_idf_similarity
from pipeline.engine.job import Job
from pipeline.recipes.settings import Recipe
from pipeline.similarity.sets import headline, read_sets, training_text, write_sets

VERSION = 1
DIM = 300
"""Size of fastText's vectors."""
Words = tuple[list[str], list[str]]
"""Sentences of both sides of the pairs, their words separated by spaces."""


@dataclass(frozen=True)
class Floor:
    """A floor.

    Attributes:
        title: what tables call it.
        predict: from training captions and their language, and the sentences of each set, a similarity of each pair.
        lacks: how to get what it needs; empty where that is installed.
    """

    title: str
    predict: Callable[[Sequence[str], str, Mapping[str, Words]], dict[str, Scores]]
    lacks: Callable[[], str]


def floor_job(
    floor: Floor, recipe: Recipe, sets: dict[str, str | None], types: Sequence[str], inputs: dict[str, Job]
) -> Job:
    """Predict the similarity of each pair by a floor.

    Args:
        floor: which.
        recipe: whose sets.
        sets: digests of their files.
        types: of the training captions that it is fitted on, all of the language of the pairs.
        inputs: the corpus, and what wrote the synthetic captions among them.
    """
    language = recipe.sts.language

    def run(folder: Path, inputs: dict[str, Path]) -> dict[str, Any]:
        """Leave the predictions for each set."""
        training, pairs = training_text(inputs.values(), types), read_sets(recipe)
        words = {name: _words(one, language) for name, one in pairs.items()}
        return write_sets(folder, pairs, floor.predict(training, language, words), training, language)

    plain = {"language": language, "sets": sets, "types": list(types)}
    return Job(f"sts-{floor.title.lower()}", "sts", VERSION, plain, inputs, run, headline=headline)


def _words(pairs: SentencePairs, language: str) -> Words:
    first, second = ([words_of(text, language) for text in side] for side in (pairs.first, pairs.second))
    return first, second


def _tf_idf(training: Sequence[str], language: str, words: Mapping[str, Words]) -> dict[str, Scores]:
    """Cosine of TF-IDF vectors of words."""
    known = [words_of(text, language) for text in training]
    return {name: tf_idf_similarity(known, *sides) for name, sides in words.items()}


def _fasttext(training: Sequence[str], language: str, words: Mapping[str, Words]) -> dict[str, Scores]:
    """Cosine of means of fastText vectors, which are trained on the training captions."""
    vocabulary = sorted({word for sides in words.values() for side in sides for text in side for word in text.split()})
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "vectors.npy"
        train_vectors(training, [language] * len(training), vocabulary, DIM, path)
        vectors = np.load(path, allow_pickle=False)
    return {name: mean_vector_similarity(vectors, vocabulary, *sides) for name, sides in words.items()}


FLOORS = (Floor("TF-IDF", _tf_idf, lambda: ""), Floor("fastText", _fasttext, lambda: "" if installed() else INSTALL))
