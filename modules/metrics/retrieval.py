"""Retrieval metrics: ranks from explicit caption-image links, recall and median rank.

A rank is 1 + the number of wrong candidates that score at least as high as the right one. Ties count against the
model; otherwise constant embeddings would score 100 %. Recall is a hit rate, as in the papers (not torchmetrics'
`RetrievalRecall`, which gives 0.2 for a perfect ranking of five captions per image).
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from modules.errors import ModelError

CUTS = (1, 5, 10)
RECALLS = tuple(f"{task}_r{k}" for task in ("t2i", "i2t") for k in CUTS)
MEDIANS = ("t2i_medr", "i2t_medr")
NO_QUERY = "no query has a right answer; expected at least one caption of one image"


@dataclass(frozen=True)
class RetrievalRanks:
    """Rank of the right answer for every query of both tasks.

    Attributes:
        text_to_image: (C,) rank of each caption's image among all images, from 1.
        image_to_text: (I,) rank of each image's best caption among all captions, from 1; 0 if it has no caption.
        caption_image: (C,) row of each caption's image.

    """

    text_to_image: Tensor
    image_to_text: Tensor
    caption_image: Tensor


def retrieval_ranks(similarity: Tensor, caption_image: Tensor, tolerance: float = 0.0) -> RetrievalRanks:
    """Rank each caption's image among all images, and each image's best caption among the captions of other images.

    An image without captions is in the gallery but is not a query. An image's other captions do not count as wrong.

    Args:
        similarity: (I, C) scores of images and captions, floating-point, higher means more similar.
        caption_image: (C,) row of each caption's image.
        tolerance: a score lower than the right answer's by at most this share of it (or of 1) counts as a tie.

    Raises:
        ModelError: a score is not finite or an integer, or a link is not the row of an image.

    Examples:
        >>> scores = torch.tensor([[0.9, 0.5, 0.2], [0.3, 0.5, 0.8], [0.4, 0.1, 0.1]])  # 3 images × 3 captions
        >>> ranks = retrieval_ranks(scores, torch.tensor([0, 0, 1]))
        >>> ranks.text_to_image.tolist()  # caption 1 ties with image 1, which counts against it
        [1, 2, 1]
        >>> ranks.image_to_text.tolist()  # image 2 has no caption
        [1, 1, 0]
    """
    require_links(caption_image, *similarity.shape)
    require_finite(similarity)
    positives = similarity[caption_image, torch.arange(len(caption_image), device=similarity.device)]
    best = best_captions(positives, caption_image, len(similarity))
    text_floor, image_floor = (scores - tolerance * scores.abs().clamp(min=1) for scores in (positives, best))
    counts = (similarity >= image_floor[:, None]).sum(dim=1)
    by_image = image_ranks_from_counts(counts, positives, image_floor, caption_image)
    return RetrievalRanks((similarity >= text_floor).sum(dim=0), by_image, caption_image)


def best_captions(positives: Tensor, caption_image: Tensor, num_images: int) -> Tensor:
    """Return each image's best score, (I,), of its captions' scores with it, (C,); -inf if it has no caption."""
    worst = positives.new_full((num_images,), -torch.inf)
    return worst.scatter_reduce(0, caption_image, positives, "amax")


def image_ranks_from_counts(counts: Tensor, positives: Tensor, thresholds: Tensor, caption_image: Tensor) -> Tensor:
    """Convert counts of captions at or above an image's threshold to ranks, without the image's own captions.

    Args:
        counts: (I,) number of captions, including its own, that score at least the threshold.
        positives: (C,) score of each caption with its own image.
        thresholds: (I,) score of the image's best caption.
        caption_image: (C,) row of each caption's image.

    Returns:
        (I,) ranks from 1; 0 for an image without captions.

    """
    own = torch.zeros_like(counts).index_add(0, caption_image, (positives >= thresholds[caption_image]).to(counts))
    return torch.where(own > 0, 1 + counts - own, 0)


def require_finite(similarity: Tensor, images: Tensor | None = None, captions: Tensor | None = None) -> None:
    """Raise a ModelError if a score is an integer or not finite, which comparisons would not report.

    The error names the first such image and caption. If the scores (I, C) are a block of a larger matrix, `images` (I,)
    and `captions` (C,) are the rows and columns in that matrix.
    """
    if not similarity.is_floating_point():
        raise ModelError(f"scores are {similarity.dtype}; expected floating-point numbers: similarity.float()")
    if bool(similarity.isfinite().all()):
        return
    row, column = (~similarity.isfinite()).nonzero()[0].tolist()
    image = row if images is None else int(images[row])
    caption = column if captions is None else int(captions[column])
    score = float(similarity[row, column])
    raise ModelError(f"score of image {image} (row) and caption {caption} (column) is {score}, expected a finite score")


def require_links(caption_image: Tensor, num_images: int, num_captions: int) -> None:
    """Raise a ModelError unless every caption has one link and each link is the row of an image."""
    if caption_image.shape != (num_captions,):
        raise ModelError(f"caption_image has shape {tuple(caption_image.shape)}, expected ({num_captions},)")
    if num_captions and caption_image.dtype not in (torch.int64, torch.int32):  # others would be taken as masks
        raise ModelError(f"caption_image is of {caption_image.dtype}; expected rows of images, int64 or int32")
    wrong = ((caption_image < 0) | (caption_image >= num_images)).nonzero()
    if len(wrong):
        caption = int(wrong[0])
        raise ModelError(f"caption {caption} names image {int(caption_image[caption])}, but there are {num_images}")


def recall_at(ranks: Tensor, k: int) -> float:
    """Return the share of queries whose right answer is among the first k, in %; ranks of 0 are ignored.

    Raises:
        ModelError: k is below 1, or there is no query.

    Examples:
        >>> recall_at(torch.tensor([1, 7, 2, 0, 30]), 5)
        50.0
    """
    if k < 1:
        raise ModelError(f"k is {k}; expected 1 or more")
    return 100 * float((_queries(ranks) <= k).double().mean())


def median_rank(ranks: Tensor) -> float:
    """Return the median rank, for an even number the mean of the middle two; ranks of 0 are ignored.

    Examples:
        >>> median_rank(torch.tensor([1, 3, 0, 8, 2]))
        2.5
    """
    known = _queries(ranks).sort().values  # torch.quantile takes 16 million numbers at most
    return (int(known[(len(known) - 1) // 2]) + int(known[len(known) // 2])) / 2


def retrieval_scores(ranks: RetrievalRanks) -> dict[str, float]:
    """Return recalls and median ranks of both tasks.

    Returns:
        `t2i_r1`, `t2i_r5`, `t2i_r10` (in %), `t2i_medr`, the same as `i2t_…`, their sum `rsum` (of the six recalls,
        at most 600) and their mean `mean_recall`.

    Raises:
        ModelError: there is no query.

    Examples:
        >>> ranks = RetrievalRanks(torch.tensor([1, 6, 2]), torch.tensor([1, 3]), torch.tensor([0, 0, 1]))
        >>> scores = retrieval_scores(ranks)
        >>> {name: round(score, 1) for name, score in scores.items() if name.startswith("t2i")}
        {'t2i_r1': 33.3, 't2i_r5': 66.7, 't2i_r10': 100.0, 't2i_medr': 2.0}
        >>> round(scores["mean_recall"], 1)
        75.0
    """
    scores: dict[str, float] = {}
    for task, values in (("t2i", ranks.text_to_image), ("i2t", ranks.image_to_text)):
        scores |= {f"{task}_r{k}": recall_at(values, k) for k in CUTS}
        scores[f"{task}_medr"] = median_rank(values)
    rsum = sum(scores[name] for name in RECALLS)
    return scores | {"rsum": rsum, "mean_recall": rsum / len(RECALLS)}


def score_range(name: str) -> tuple[float, float]:
    """Return the least and the greatest value that a score of `retrieval_scores` can have.

    Examples:
        >>> score_range("t2i_r5"), score_range("rsum"), score_range("i2t_medr")
        ((0.0, 100.0), (0.0, 600.0), (1.0, inf))
    """
    if name.endswith("_medr"):
        return 1.0, math.inf
    return 0.0, 100.0 * (len(RECALLS) if name == "rsum" else 1)


def image_folds(
    caption_image: Tensor, num_images: int, folds: Sequence[Tensor]
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Split a test set into folds of images, each with its own captions (COCO's 5 x 1K).

    Args:
        caption_image: (C,) row of each caption's image.
        num_images: I.
        folds: (I of the fold,) rows of each fold's images.

    Yields:
        rows of the fold's images as given, rows of its captions, and the links (C of the fold,) within the fold.

    Examples:
        >>> folds = image_folds(torch.tensor([0, 0, 1, 2, 3]), 4, [torch.tensor([0, 1]), torch.tensor([3, 2])])
        >>> [(captions.tolist(), links.tolist()) for _, captions, links in folds]
        [([0, 1, 2], [0, 0, 1]), ([3, 4], [1, 0])]
    """
    for images in folds:
        position = caption_image.new_full((num_images,), -1)
        position[images] = torch.arange(len(images), device=position.device)
        captions = (position[caption_image] >= 0).nonzero()[:, 0]
        yield images, captions, position[caption_image[captions]]


def fold_scores(folds: Sequence[RetrievalRanks]) -> dict[str, float]:
    """Return the mean of `retrieval_scores` over folds that were ranked separately (COCO's "1K" results).

    Raises:
        ModelError: there is no fold, or one has no query.

    Examples:
        >>> easy, hard = torch.eye(2), 1 - torch.eye(2)  # scores of two folds: all right, all wrong
        >>> fold_scores([retrieval_ranks(scores, torch.arange(2)) for scores in (easy, hard)])["t2i_r1"]
        50.0
    """
    if not folds:
        raise ModelError("no folds; expected one or more")
    parts = [retrieval_scores(ranks) for ranks in folds]
    return {name: sum(part[name] for part in parts) / len(parts) for name in parts[0]}


def guessed_mean_recall(images: int, captions: int, captioned: int) -> float:
    """Return the mean recall (in %) that is expected of random rankings.

    Args:
        images: of the gallery of text → image.
        captions: of all images, as evenly spread over those that have some as can be.
        captioned: images that have captions, the queries of image → text.

    Examples:
        >>> round(guessed_mean_recall(1000, 5000, 1000), 2), guessed_mean_recall(1, 2, 1)
        (0.53, 100.0)
    """
    each, more = divmod(captions, captioned)
    found = 0.0
    for k in CUTS:
        none = math.comb(captions, min(k, captions))
        missed = [math.comb(max(0, captions - count), min(k, captions)) / none for count in (each, each + 1)]
        found += min(k, images) / images + 1 - (missed[0] * (captioned - more) + missed[1] * more) / captioned
    return 100 * found / len(RECALLS)


def _queries(ranks: Tensor) -> Tensor:
    """Return the ranks of images with captions."""
    if not bool((ranks > 0).any()):
        raise ModelError(NO_QUERY)
    return ranks[ranks > 0]
