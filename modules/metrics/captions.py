"""How good captions of images are, generated or retrieved: BLEU-1 to BLEU-4 and CIDEr-D against human captions."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sacrebleu.metrics.bleu import BLEU
from torch import Tensor
from torch.nn import functional as F

from modules.errors import ModelError
from modules.metrics.cider import CiderD, DocumentFrequencies
from modules.search.index import VectorIndex

ORDERS = (1, 2, 3, 4)
Words = Sequence[str]


@dataclass(frozen=True)
class CaptionScores:
    """Scores of captions, in percent as captioning papers print them.

    Attributes:
        bleu: BLEU-1 to BLEU-4 of all captions together (sacreBLEU's), 0 to 100.
        cider: (N,) CIDEr-D of each caption times 100, 0 to 1,000; its mean is the score of all.
    """

    bleu: tuple[float, ...]
    cider: NDArray[np.float64]

    def figures(self) -> dict[str, float]:
        """`bleu1` to `bleu4`, and `cider`, the mean over captions."""
        named = {f"bleu{n}": score for n, score in zip(ORDERS, self.bleu, strict=True)}
        return named | {"cider": float(self.cider.mean())}


def caption_scores(
    captions: Sequence[Words], metric: CiderD, image_rows: Sequence[int], without: Sequence[int] | None = None
) -> CaptionScores:
    """Score captions against the references of their images, all of them words in lower case.

    A generated caption has all captions of its image as references. A retrieved one may be a caption of the image:
    it is then left out of its own references, else it would be compared with itself.

    Args:
        captions: words of each of N captions.
        metric: holds the references of the images, and the document frequencies (of the training captions).
        image_rows: (N,) row in `metric.references` of each caption's image.
        without: (N,) which reference of its image is left out for a caption; -1 or None: none.

    Raises:
        ModelError: there is no caption, or an image has no reference (left).

    Examples:
        >>> texts = [["a dog runs on grass", "a brown dog runs fast"], ["a red ball lies here"]]
        >>> metric = CiderD([[text.split() for text in of_image] for of_image in texts])
        >>> scores = caption_scores(["a dog runs on ice".split(), "a red ball lies here".split()], metric, [0, 1])
        >>> {name: round(score) for name, score in scores.figures().items()}
        {'bleu1': 90, 'bleu2': 89, 'bleu3': 87, 'bleu4': 84, 'cider': 714}
    """
    if not len(captions):
        raise ModelError("no caption to score; expected the captions of one image or more")
    cider = metric.score(captions, image_rows, without)
    left_out = [-1] * len(captions) if without is None else without
    compared = [
        [" ".join(map(str, reference)) for place, reference in enumerate(metric.references[row]) if place != left]
        for row, left in zip(image_rows, left_out, strict=True)
    ]
    most = max(map(len, compared))
    streams = [[group[place] if place < len(group) else None for group in compared] for place in range(most)]
    texts = [" ".join(caption) for caption in captions]
    score = BLEU(tokenize="none", force=True).corpus_score(texts, streams)  # type: ignore[arg-type]
    parts = (score.counts, score.totals, score.sys_len, score.ref_len)
    bleu = tuple(BLEU.compute_bleu(*parts, smooth_method="exp", max_ngram_order=n).score for n in ORDERS)
    return CaptionScores(bleu, 100 * cider)


class RetrievedCaptions:
    """Scores captions that are retrieved for images, each against the captions of the image but itself.

    Args:
        words: of each of C captions.
        links: (C,) row of each caption's image.
        images: how many there are, I.
        frequencies: of the training captions.

    Attributes:
        several: (I,) which images have two captions or more, so that one can be left out.

    Examples:
        >>> words = [text.split() for text in ("a dog runs", "a brown dog runs", "a cat")]
        >>> scorer = RetrievedCaptions(words, [0, 0, 1], 2, DocumentFrequencies(9, {}))
        >>> scorer.several.tolist()
        [True, False]
        >>> ranks = scorer.score(np.array([[1, 2]]), np.array([0]))  # the image's second caption first, then the cat
        >>> [round(of_rank.figures()["bleu1"]) for of_rank in ranks]
        [75, 30]
    """

    def __init__(
        self, words: Sequence[Words], links: Sequence[int], images: int, frequencies: DocumentFrequencies
    ) -> None:  # fmt: skip
        self._words, self._links, self._places = words, links, list[int]()
        references: list[list[Words]] = [[] for _ in range(images)]
        for caption, row in zip(words, links, strict=True):
            self._places.append(len(references[row]))
            references[row].append(caption)
        self.several = np.array([len(of_image) > 1 for of_image in references])
        self._metric = CiderD(references, frequencies)

    def score(self, captions: NDArray[np.int64], images: NDArray[np.int64]) -> list[CaptionScores]:
        """Score the captions at each rank.

        Args:
            captions: (N, K) rows of the captions at ranks 1 … K of N images.
            images: (N,) rows of the images, which have two captions or more.
        """
        ranks = []
        for column in captions.T:
            left_out = [
                self._places[caption] if self._links[caption] == image else -1
                for caption, image in zip(column, images, strict=True)
            ]
            words = [self._words[caption] for caption in column]
            ranks.append(caption_scores(words, self._metric, images.tolist(), left_out))
        return ranks


def most_frequent_caption(captions: Iterable[Words]) -> list[str]:
    """Return the caption that stands most often among training captions, the first of several: a baseline.

    Raises:
        ModelError: there is none.

    Examples:
        >>> most_frequent_caption([["a", "cat"], ["a", "dog"], ["a", "dog"], ["a", "cat"]])
        ['a', 'cat']
    """
    counts = Counter(tuple(caption) for caption in captions)
    if not counts:
        raise ModelError("no caption to count; expected training captions")
    return list(counts.most_common(1)[0][0])


def nearest_images(images: Tensor, training: Tensor) -> Tensor:
    """Return, for each image, the row of the training image that is most like it, whose caption is a baseline.

    Args:
        images: features (I, D), such as the mean of the regions.
        training: features (N, D) of training images.

    Returns:
        (I,) rows of the highest cosine.

    Raises:
        ModelError: there is no training image.

    Examples:
        >>> import torch
        >>> training = torch.tensor([[0.0, 5.0], [0.1, 0.0]])
        >>> nearest_images(torch.tensor([[2.0, 0.3]]), training).tolist()  # length does not count
        [1]
    """
    if not len(training):
        raise ModelError("no training image to be near to; expected one or more")
    index = VectorIndex(F.normalize(training.float(), dim=1))
    return index.search(F.normalize(images.float(), dim=1), 1)[1][:, 0]
