"""Contrastive and sigmoid losses on a similarity matrix; see `modules.losses.registry` for the masks."""

import torch
from torch import Tensor
from torch.nn import functional as F

from modules.losses.pairs import scores_of


def contrastive_loss(similarity: Tensor, positives: Tensor, negatives: Tensor, scale: Tensor) -> Tensor:
    """Symmetric InfoNCE (van den Oord et al. 2018; both directions as in CLIP), the mean over pairs and directions.

    For each positive pair (v, t): −log e^{τs(v,t)} / (e^{τs(v,t)} + Σ_t̂ e^{τs(v,t̂)}), and the same over images v̂;
    other positives of the anchor are not negatives.

    Args:
        similarity: (I, C) scores of images and captions, higher means more similar.
        positives: (I, C) bool, the matching pairs.
        negatives: (I, C) bool, the negative pairs.
        scale: τ, the inverse temperature.

    Returns:
        The loss, a scalar with a gradient in every case.

    Examples:
        >>> right = torch.eye(4, dtype=torch.bool)
        >>> loss = contrastive_loss(torch.zeros(4, 4), right, ~right, scale=torch.tensor(14.3))
        >>> round(float(loss), 3)  # scores that tell nothing: log of the four candidates
        1.386
    """
    scores = scale * scores_of(similarity, positives, negatives)
    wrong = scores.masked_fill(~negatives, -torch.inf)
    over_captions, over_images = wrong.logsumexp(dim=1, keepdim=True), wrong.logsumexp(dim=0)
    terms = torch.logaddexp(scores, over_captions) + torch.logaddexp(scores, over_images) - 2 * scores
    return torch.where(positives, terms, 0).sum() / (2 * positives.sum()).clamp(min=1)


def one_to_k_loss(similarity: Tensor, positives: Tensor, negatives: Tensor, scale: Tensor) -> Tensor:
    """1-to-K contrastive loss (CCRK, Nie et al. 2024): one softmax of an image against its K captions of all languages.

    −(1/K) Σ_k log e^{τs(v,t_k)} / Σ_t e^{τs(v,t)}, where t runs over the image's K captions and its negatives, so that
    the K captions of an image share its probability equally at the optimum; and InfoNCE of each caption over the
    images. The mean over images plus the mean over captions, halved.

    Args:
        similarity: (I, C) scores of images and captions, higher means more similar.
        positives: (I, C) bool, the matching pairs.
        negatives: (I, C) bool, the negative pairs.
        scale: τ, the inverse temperature.

    Returns:
        The loss, a scalar with a gradient in every case.

    Examples:
        >>> right = torch.tensor([[True, True, False, False], [False, False, True, True]])  # two captions an image
        >>> scale = torch.tensor(20.0)
        >>> [round(float(one_to_k_loss(scores, right, ~right, scale)), 3) for scores in (0.0 * right, 1.0 * right)]
        [1.04, 0.347]
    """
    scores = scale * scores_of(similarity, positives, negatives)
    valid = scores.masked_fill(~(positives | negatives), -torch.inf)
    terms = [0 * scores.sum()]
    for side, right, own in ((valid, positives, scores), (valid.t(), positives.t(), scores.t())):
        anchors, count = right.any(1), right.sum(1)
        mean = (own * right).sum(1) / count.clamp(min=1)
        summed = torch.where(anchors, side.logsumexp(1) - mean, 0).sum()
        terms.append(summed / anchors.sum().clamp(min=1) / 2)
    return torch.stack(terms).sum()


def sigmoid_loss(similarity: Tensor, positives: Tensor, negatives: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    """Pairwise sigmoid loss (SigLIP, Zhai et al. 2023): a binary classification of every pair.

    −Σ log σ(±(τ s + b)) over positive (+) and negative (−) pairs, divided by the number of captions with a positive.

    Args:
        similarity: (I, C) scores of images and captions, higher means more similar.
        positives: (I, C) bool, the matching pairs.
        negatives: (I, C) bool, the negative pairs.
        scale: τ.
        bias: b.

    Returns:
        The loss, a scalar with a gradient in every case.

    Examples:
        >>> right = torch.eye(3, dtype=torch.bool)
        >>> loss = sigmoid_loss(torch.zeros(3, 3), right, ~right, torch.tensor(10.0), torch.tensor(0.0))
        >>> round(float(loss), 3)  # three pairs of each caption, each log 2
        2.079
    """
    scores = scale * scores_of(similarity, positives, negatives) + bias
    signs = positives.to(scores) - negatives.to(scores)
    return -(F.logsigmoid(signs * scores) * (positives | negatives)).sum() / positives.any(0).sum().clamp(min=1)
