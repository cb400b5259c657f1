"""A probe of how much a vector still tells of its sentence's language: a classifier of its own, trained afterwards."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from modules.metrics.sentence_similarity import BLOCK, Tokens
from modules.retrieval_models.base import RetrievalModel

Vectors = NDArray[np.float32]


@torch.no_grad()
def universal_vectors(model: RetrievalModel, sentences: Tokens, language: str) -> Vectors | None:
    """Universal vectors (N, U) of N sentences in one language; None if the model has none.

    Args:
        model: in evaluation mode.
        sentences: token numbers, none of them empty.
        language: of all.
    """
    parts = []
    for start in range(0, len(sentences), BLOCK):
        vectors = model.universal_of(*model.tensors_of(sentences[start : start + BLOCK], language))
        if vectors is None:
            return None
        parts.append(vectors.float().cpu())
    return torch.cat(parts).numpy()


def probe(training: Mapping[str, Vectors], test: Mapping[str, Vectors]) -> float:
    """Share in percent of test sentences whose language a logistic regression finds; chance is 100 / languages.

    Every language counts equally: the mean over languages of the share of its own sentences.

    Args:
        training: language → vectors (N, U) that the regression is trained on, each language weighed equally.
        test: language → vectors that it is tested on; the same languages.

    Examples:
        >>> vectors = np.random.default_rng(0).normal(size=(50, 3))
        >>> alike, apart = {"de": vectors, "en": vectors}, {"de": vectors, "en": vectors + 9}
        >>> round(probe(alike, alike), 1), probe(apart, apart)  # chance, where nothing tells the languages apart
        (50.0, 100.0)
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    names = sorted(training)
    labels = np.repeat(np.arange(len(names)), [len(training[name]) for name in names])
    classifier = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000, class_weight="balanced"))
    classifier.fit(np.concatenate([training[name] for name in names]), labels)
    right: Sequence[float] = [
        float((classifier.predict(test[name]) == place).mean()) for place, name in enumerate(names)
    ]
    return 100 * float(np.mean(right))
