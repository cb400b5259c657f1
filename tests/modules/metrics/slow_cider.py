"""CIDEr-D written out from its paper: one image, one reference, one length of n-grams at a time."""

import math
from collections import Counter

import numpy as np


def grams(sentence: list, n: int) -> list[tuple]:
    return [tuple(sentence[start : start + n]) for start in range(len(sentence) - n + 1)]


def counted(documents: list[list[list]]) -> Counter:
    """In how many documents each n-gram stands."""
    return Counter(
        gram
        for document in documents
        for gram in {gram for one in document for n in range(1, 5) for gram in grams(one, n)}
    )


def cider_d(
    candidate: list, references: list[list], documents: list[list[list]], having: Counter | None = None,
    sigma: float = 6.0,
) -> float:  # fmt: skip
    """10 / 4 times the sum over n of the mean over references of the clipped cosine and the penalty of length."""
    having, total = counted(documents) if having is None else having, 0.0
    for n in range(1, 5):

        def vector(sentence: list, n: int = n) -> dict[tuple, float]:
            return {
                gram: times * (math.log(len(documents)) - math.log(max(1, having[gram])))
                for gram, times in Counter(grams(sentence, n)).items()
            }

        ours = vector(candidate)
        for reference in references:
            theirs = vector(reference)
            norms = (np.linalg.norm(list(side.values())) if side else 0.0 for side in (ours, theirs))
            below = float(np.prod(list(norms)))
            shared = math.fsum(min(ours[gram], theirs.get(gram, 0.0)) * theirs.get(gram, 0.0) for gram in ours)
            penalty = math.exp(-((len(candidate) - len(reference)) ** 2) / (2 * sigma**2))
            total += penalty * (shared / below if below else 0.0) / len(references)
    return 10 * total / 4


def made_up(seed: int, images: int, words: int = 12) -> tuple[list[list[str]], list[list[list[str]]]]:
    """A caption, and one to five references, for each image; some captions are close to a reference."""
    rng = np.random.default_rng(seed)
    vocabulary = [f"w{number}" for number in range(words)]

    def sentence() -> list[str]:
        return [str(word) for word in rng.choice(vocabulary, rng.integers(1, 12))]

    references = [[sentence() for _ in range(rng.integers(1, 6))] for _ in range(images)]
    captions = []
    for of_image in references:
        near = list(of_image[0])
        near[int(rng.integers(len(near)))] = "w0"
        captions.append(near if rng.random() < 0.7 else sentence())
    return captions, references
