"""The joint space of images, regions, captions and words: vectors of each, and their places in the plane."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from modules.retrieval_models.base import RetrievalModel
from modules.retrieval_models.encoded import Encode, encoded_captions, encoded_images, one_vector_each

IMAGES, REGIONS, CAPTIONS, WORDS = "images", "regions", "captions", "words"
Groups = dict[tuple[str, str], NDArray[np.floating]]
"""Kind (`images`, `regions`, `captions`, `words`) and language (empty for the first two) -> an array, a row an item."""


def encoded_contents(
    model: RetrievalModel, encode: Encode, images: NDArray[np.floating], regions: NDArray[np.floating],
    captions: Mapping[str, Sequence[str]], words: Mapping[str, Sequence[str]],
) -> Groups:  # fmt: skip
    """Vectors (…, H) of what a picture of the joint space shows, of unit norm.

    Args:
        model: ready to be used.
        encode: the text input's.
        images: (N, R, D) their regions.
        regions: (M, D) some of those, each encoded as an image of one region.
        captions: language -> texts.
        words: language -> words, each encoded as a caption of one word.
    """
    with torch.no_grad():
        encodings = {(IMAGES, ""): encoded_images(model, images)}
        if len(regions):
            encodings[REGIONS, ""] = encoded_images(model, regions[:, None])
        for kind, by_language in ((CAPTIONS, captions), (WORDS, words)):
            for language, texts in by_language.items():
                if texts:
                    encodings[kind, language] = encoded_captions(model, encode, [(text, language) for text in texts])
    vectors = {group: one_vector_each(encoding) for group, encoding in encodings.items()}
    return {group: rows / np.linalg.norm(rows, axis=1, keepdims=True).clip(1e-12) for group, rows in vectors.items()}


def t_sne(vectors: NDArray[np.floating]) -> NDArray[np.floating]:
    """t-SNE (van der Maaten and Hinton 2008): positions (N, 2) of vectors (N, H), with a fixed seed."""
    from sklearn.manifold import TSNE

    reduced = TSNE(init="pca", random_state=0, perplexity=min(30.0, (len(vectors) - 1) / 3)).fit_transform(vectors)
    return np.asarray(reduced)


def farthest(points: NDArray[np.floating], count: int) -> list[int]:
    """Rows of at most `count` of some points (N, 2): the first, then each time the one farthest from those chosen.

    Examples:
        >>> farthest(np.array([[0.0, 0.0], [1.0, 0.0], [5.0, 0.0]]), 2)
        [0, 2]
    """
    chosen: list[int] = []
    distances = np.full(len(points), np.inf)
    while len(chosen) < min(count, len(points)):
        chosen.append(int(distances.argmax()))
        distances = np.minimum(distances, np.linalg.norm(points - points[chosen[-1]], axis=1))
    return chosen
