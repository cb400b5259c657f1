"""Similarity of two sentences by a retrieval model or by words alone, and its correlation with gold scores."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import pearsonr
from torch.nn import functional as F

from modules.errors import ModelError
from modules.metrics.intervals import Interval, percentiles, seed_shifts
from modules.retrieval_models.base import RetrievalModel

BLOCK = 64  # pairs encoded at once; a model of sets scores 64 × 64 and uses the diagonal
SPREAD = 1e-6
"""Predictions that differ by less are rounding errors of equal ones: r is undefined."""
_LEAST_DEFINED = 0.95  # share of resamples without which an interval would tell of few pairs alone
Tokens = Sequence[Sequence[int]]
Scores = NDArray[np.float64]


@torch.no_grad()
def pair_similarity(model: RetrievalModel, first: Tokens, second: Tokens, language: str) -> Scores:
    """Similarity (N,) of each first sentence to the second one in its place.

    For a model of single vectors it is their cosine. For a model of sets (SCAN) it is the model's own similarity, with
    one sentence's words in place of an image's regions: the mean of both directions, since people's judgement of two
    sentences has none.

    Args:
        model: in evaluation mode.
        first: token numbers of N sentences, none of them empty.
        second: the same of the others.
        language: of all.

    Raises:
        ModelError: a similarity is not finite.
    """
    parts = []
    for start in range(0, len(first), BLOCK):
        left, right = (model.encode_sentences(side[start : start + BLOCK], language) for side in (first, second))
        if model.score == "sets":
            parts.append((model.similarity(left, right) + model.similarity(right, left)).diagonal() / 2)
        else:
            parts.append(F.cosine_similarity(left[0][:, 0].double(), right[0][:, 0].double(), dim=-1))
    similarities = torch.cat(parts).double().cpu().numpy()
    if not np.isfinite(similarities).all():
        place = int((~np.isfinite(similarities)).argmax())
        raise ModelError(f"similarity of sentence pair {place} is {similarities[place]}, expected a finite number")
    return similarities


def tf_idf_similarity(training: Sequence[str], first: Sequence[str], second: Sequence[str]) -> Scores:
    """Cosine (N,) of TF-IDF vectors, 0 where two sentences share no word of the training sentences.

    Args:
        training: sentences whose words and document frequencies are used; words are separated by spaces.
        first: N sentences, likewise.
        second: the others.

    Examples:
        >>> training = ["a dog", "a cat", "a red ball"]
        >>> tf_idf_similarity(training, ["a dog", "a dog", "dog"], ["dog", "a cat", "wolf"]).round(2).tolist()
        [0.86, 0.26, 0.0]
    """
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectorizer = TfidfVectorizer(analyzer=str.split).fit(training)
    left, right = (vectorizer.transform(side) for side in (first, second))  # rows of unit length, or of zeros
    return np.asarray(left.multiply(right).sum(axis=1), dtype=np.float64).ravel()


def mean_vector_similarity(
    vectors: NDArray[np.floating], words: Sequence[str], first: Sequence[str], second: Sequence[str]
) -> Scores:
    """Cosine (N,) of the means of word vectors.

    Args:
        vectors: (V, D), one for each word.
        words: those of the sentences.
        first: N sentences, words separated by spaces.
        second: the others.

    Examples:
        >>> vectors = np.array([[1.0, 0.0], [0.0, 1.0]])
        >>> cosines = mean_vector_similarity(vectors, ["dog", "runs"], ["dog", "runs dog"], ["dog runs", "dog runs"])
        >>> cosines.round(2).tolist()  # the order of words does not count
        [0.71, 1.0]
    """
    place = {word: number for number, word in enumerate(words)}
    left, right = (
        torch.from_numpy(np.stack([vectors[[place[word] for word in text.split()]].mean(0) for text in side])).double()
        for side in (first, second)
    )
    return F.cosine_similarity(left, right, dim=-1).numpy()


def pearson(predictions: Scores, gold: Scores) -> float | None:
    """Pearson's r × 100; None where it is undefined: of one pair, or if predictions or gold scores are all equal.

    Examples:
        >>> gold = np.array([0.0, 2.5, 5.0])
        >>> round(pearson(np.array([0.1, 0.2, 0.3]), gold), 1), pearson(np.array([0.2, 0.2, 0.2]), gold)
        (100.0, None)
    """
    if len(gold) < 2 or np.ptp(predictions) < SPREAD or np.ptp(gold) < SPREAD:
        return None
    return 100 * float(pearsonr(predictions, gold).statistic)


def pearson_interval(
    predictions: Sequence[Scores], gold: Scores, resamples: int = 1000, level: float = 0.95, seed: int = 0
) -> Interval | None:
    """Mean of Pearson's r × 100 over runs, and its interval by bootstrap over pairs.

    Several runs (seeds of one system) are resampled alike, and treated as
    `modules.metrics.intervals.bootstrap_interval` does. A resample in which r is undefined (few pairs, all drawn equal)
    is left out.

    Args:
        predictions: of each run, (N,).
        gold: (N,).
        resamples: number of resamples.
        level: share of the resamples inside the interval.
        seed: random seed of the resampling.

    Returns:
        None where r of a run is undefined, or one resample in twenty is (two or three pairs).

    Examples:
        >>> gold = np.arange(50) / 10
        >>> r, low, high = pearson_interval([gold + np.sin(np.arange(50)), gold - np.sin(np.arange(50))], gold)
        >>> round(r), low < r < high <= 100
        (90, True)
    """
    by_run = [pearson(run, gold) for run in predictions]
    values = [value for value in by_run if value is not None]
    if len(values) < len(by_run):
        return None
    drawn = np.random.default_rng(seed).multinomial(len(gold), np.full(len(gold), 1 / len(gold)), resamples)
    resampled = np.mean([_weighted_pearson(run, gold, drawn) for run in predictions], axis=0)
    shifted = torch.from_numpy(resampled) + seed_shifts(torch.tensor(values, dtype=torch.float64), resamples, seed)
    possible = shifted[shifted.isfinite()].clamp(-100, 100)
    if len(possible) < _LEAST_DEFINED * resamples:
        return None
    return Interval(float(np.mean(values)), *percentiles(possible, level))


def _weighted_pearson(predictions: Scores, gold: Scores, weights: NDArray[np.integer]) -> Scores:
    """Pearson's r × 100 with pair n repeated weights[s, n] times: (S,); NaN where it is undefined."""
    shares = weights / weights.sum(1, keepdims=True)
    x, y = predictions - predictions.mean(), gold - gold.mean()
    mean_x, mean_y = shares @ x, shares @ y
    covariance = shares @ (x * y) - mean_x * mean_y
    variances = [np.maximum(shares @ side**2 - mean**2, 0) for side, mean in ((x, mean_x), (y, mean_y))]
    spread = np.sqrt(variances[0] * variances[1])
    defined = spread > SPREAD**2
    return np.where(defined, 100 * covariance / np.where(defined, spread, 1), np.nan)
