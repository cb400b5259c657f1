"""Baselines of sentence similarity: predictions by words alone, without pictures."""

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from data.evaluation.sts import SentencePairs
from data.text.tokenisation import words_of
from data.vectors.word_vectors import train_vectors
from modules.metrics.sentence_similarity import Scores, mean_vector_similarity, tf_idf_similarity
from pipeline.similarity.sets import Predict

DIM = 300
"""Size of fastText's vectors."""
Pairs = Mapping[str, SentencePairs]


def _words(pairs: Pairs, language: str) -> dict[str, list[list[str]]]:
    """Set → sentences of both sides of its pairs, their words separated by spaces."""
    return {
        name: [[words_of(text, language) for text in side] for side in (of_set.first, of_set.second)]
        for name, of_set in pairs.items()
    }


def _tf_idf(_: Any, pairs: Pairs, training: Sequence[str], language: str) -> dict[str, Scores]:
    """Cosine of TF-IDF vectors of words."""
    known = [words_of(text, language) for text in training]
    return {name: tf_idf_similarity(known, *sides) for name, sides in _words(pairs, language).items()}


def _fasttext(_: Any, pairs: Pairs, training: Sequence[str], language: str) -> dict[str, Scores]:
    """Cosine of means of fastText vectors, which are trained on the training captions."""
    words = _words(pairs, language)
    vocabulary = sorted({word for sides in words.values() for side in sides for text in side for word in text.split()})
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "vectors.npy"
        known = [words_of(text, language) for text in training]
        train_vectors(known, [language] * len(training), vocabulary, DIM, path)
        vectors = np.load(path, allow_pickle=False)
    return {name: mean_vector_similarity(vectors, vocabulary, *sides) for name, sides in words.items()}


FASTTEXT = "fastText"
"""The baseline that needs a package of its own."""
BASELINES: dict[str, Predict] = {"TF-IDF": _tf_idf, FASTTEXT: _fasttext}
"""Title → from training captions of the language of the pairs, a similarity of each pair."""
