"""Losses on a similarity matrix of images and captions; masks mark the positive and negative pairs.

`positives` and `negatives` come from `negative_mask`. A pair that is neither (the same sentence under another
image) is ignored. Half-precision scores are converted to float32; float64 scores stay float64.
"""

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from modules.errors import ModelError

LOSSES = ("hardest", "hardest-k", "sum", "infonce", "one-to-k", "sigmoid")
Distance = Literal["cosine", "euclidean"]
_SMALLEST = 1e-6  # squared distance, so that the gradient of its root is finite


def negative_mask(
    image_keys: Tensor, caption_image: Tensor, sentence_hash: Tensor, image_sentences: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return the masks of positive and of negative pairs of a batch.

    A caption is a negative of an image unless the image has a caption with the same normalised sentence, in this batch
    or in `image_sentences`. So neither its own captions nor the same sentence under another image are negatives.

    Args:
        image_keys: (I,) integer ids of the images; two rows with the same key are the same image.
        caption_image: (C,) row of each caption's image.
        sentence_hash: (C,) hash of each caption's normalised sentence.
        image_sentences: (P, 2) image id and hash of sentences that images have outside this batch; None: no others.

    Returns:
        `positives` and `negatives`, each (I, C) bool; no pair is both.

    """
    positives = image_keys[:, None] == image_keys[caption_image][None, :]
    owners, owned = image_keys[caption_image], sentence_hash
    if image_sentences is not None:
        owners, owned = torch.cat([owners, image_sentences[:, 0]]), torch.cat([owned, image_sentences[:, 1]])
    sentences, sentence = owned.unique(return_inverse=True)
    has = positives.new_zeros(len(image_keys), len(sentences))
    image, place = (image_keys[:, None] == owners[None, :]).nonzero(as_tuple=True)
    has[image, sentence[place]] = True
    return positives, ~has[:, sentence[: len(sentence_hash)]]


def hard_negative_loss(
    similarity: Tensor,
    positives: Tensor,
    negatives: Tensor,
    types: Tensor,
    margin: float = 0.2,
    weights: Tensor | None = None,
    hardest: bool = True,
) -> Tensor:
    """Multilingual hard-negative triplet loss (mmt-retrieval, Eq. 9-10), summed over the positive pairs (v, t).

    [α - s(v,t) + Σ_l β_l s(v, t̂_l)]₊ + [α - s(v,t) + s(v̂, t)]₊, with t̂_l the hardest negative caption of type l
    for image v, and v̂ the hardest negative image for caption t. β is renormalised, per image, over the types for
    which the image has a negative in the batch. If an anchor has no negative at all, its term is 0.

    With `hardest=False` (warm-up), the mean hinge over all negatives replaces the hinge of the hardest negative:
    Σ_l β_l mean_{t̂ of type l} [α - s(v,t) + s(v,t̂)]₊ + mean_{v̂} [α - s(v,t) + s(v̂,t)]₊.

    Args:
        similarity: (I, C) scores of images and captions, higher means more similar.
        positives: (I, C) bool, the matching pairs.
        negatives: (I, C) bool, the negative pairs.
        types: (C,) integer type (language and source) of each caption; an index into `weights` if given.
        margin: α.
        weights: (T,) non-negative β before renormalisation; None gives the types in the batch equal weights.
        hardest: use the hardest negative (True) or the mean over negatives (False).

    Returns:
        The loss, a scalar with a gradient in every case.

    Raises:
        ModelError: a caption's type has no weight.

    """
    scores = _full_precision(similarity)
    if not scores.numel():
        return scores.sum()
    members, beta = _caption_types(types, weights)
    valid = negatives & members[:, None, :]  # (T, I, C)
    beta = _renormalised(beta.to(scores)[:, None] * valid.any(dim=2))  # (T, I)
    if not hardest:
        caption_weights = (_renormalised(valid.to(scores), dim=2) * beta[:, :, None]).sum(dim=0)
        image_weights = _renormalised(negatives.to(scores))
        return _weighted_hinges(scores, positives, caption_weights, image_weights, margin)
    hard_captions = (beta * _hardest(scores, valid, dim=2)).sum(dim=0)[:, None]  # (I, 1), Eq. 10
    hard_images = _hardest(scores, negatives, dim=0)  # (C,)
    by_image = (margin - scores + hard_captions).relu() * (positives & (beta.sum(dim=0) > 0)[:, None])
    by_caption = (margin - scores + hard_images).relu() * (positives & negatives.any(dim=0))
    return by_image.sum() + by_caption.sum()


def sum_of_hinges_loss(similarity: Tensor, positives: Tensor, negatives: Tensor, margin: float = 0.2) -> Tensor:
    """VSE's triplet loss over *all* negatives (mmt-retrieval, Eq. 8), summed over the positive pairs (v, t).

    Σ_t̂ [α - s(v,t) + s(v,t̂)]₊ + Σ_v̂ [α - s(v,t) + s(v̂,t)]₊

    Args:
        similarity: (I, C) scores of images and captions, higher means more similar.
        positives: (I, C) bool, the matching pairs.
        negatives: (I, C) bool, the negative pairs.
        margin: α.

    Returns:
        The loss, a scalar with a gradient in every case.

    """
    scores = _full_precision(similarity)
    return _weighted_hinges(scores, positives, negatives.to(scores), negatives.to(scores), margin)


def most_violated_loss(
    similarity: Tensor, positives: Tensor, negatives: Tensor, margin: float = 0.05, count: int = 10
) -> Tensor:
    """Triplet loss over the K most violated negatives of each anchor (MULE, Eq. 1 and 3), the mean over positive pairs.

    mean_{(v,t)} mean_{t̂} [α - s(v,t) + s(v,t̂)]₊ over the K captions t̂ that v scores highest, and the same over the K
    images v̂ that t scores highest. An anchor with fewer than K negatives averages over those that it has; the term of
    an anchor without negatives is 0.

    Args:
        similarity: (I, C) scores of images and captions, higher means more similar.
        positives: (I, C) bool, the matching pairs.
        negatives: (I, C) bool, the negative pairs.
        margin: α.
        count: K.

    Returns:
        The loss, a scalar with a gradient in every case.

    """
    scores = _full_precision(similarity)
    image, caption = positives.nonzero(as_tuple=True)  # P pairs
    slack = (margin - scores[image, caption])[:, None]
    terms = [0 * scores.sum()]
    for side, valid, anchors in ((scores, negatives, image), (scores.t(), negatives.t(), caption)):
        highest = side.masked_fill(~valid, -torch.inf).topk(min(count, side.shape[1]), dim=1).values
        hinges = (slack + highest[anchors]).relu()  # 0 where there is no negative
        kept = highest.isfinite().sum(1)[anchors].clamp(min=1)
        terms.append((hinges.sum(1) / kept).sum() / max(len(anchors), 1))
    return torch.stack(terms).sum()


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

    """
    scores = scale * _full_precision(similarity)
    image, caption = positives.nonzero(as_tuple=True)
    right = scores[image, caption]
    wrong = scores.masked_fill(~negatives, -torch.inf)
    over_captions, over_images = wrong.logsumexp(dim=1)[image], wrong.logsumexp(dim=0)[caption]
    terms = torch.stack([torch.logaddexp(right, over_captions), torch.logaddexp(right, over_images)])
    return (terms - right).sum() / max(terms.numel(), 1)


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

    """
    scores = scale * _full_precision(similarity)
    valid = scores.masked_fill(~(positives | negatives), -torch.inf)
    terms = [0 * scores.sum()]
    for side, right, own in ((valid, positives, scores), (valid.t(), positives.t(), scores.t())):
        anchors = right.any(1)
        mean = (own * right).sum(1)[anchors] / right.sum(1)[anchors]
        terms.append((side[anchors].logsumexp(1) - mean).sum() / max(int(anchors.sum()), 1) / 2)
    return torch.stack(terms).sum()


def sigmoid_loss(similarity: Tensor, positives: Tensor, negatives: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    """Pairwise sigmoid loss (SigLIP, Zhai et al. 2023): a binary classification of every pair.

    −Σ log σ(±(τ s + b)) over positive (+) and negative (−) pairs, divided by the number of captions.

    Args:
        similarity: (I, C) scores of images and captions, higher means more similar.
        positives: (I, C) bool, the matching pairs.
        negatives: (I, C) bool, the negative pairs.
        scale: τ.
        bias: b.

    Returns:
        The loss, a scalar with a gradient in every case.

    """
    scores = scale * _full_precision(similarity) + bias
    signs = positives.to(scores) - negatives.to(scores)
    return -(F.logsigmoid(signs * scores) * (positives | negatives)).sum() / max(scores.shape[1], 1)


class RankingLoss(nn.Module):
    """One of `LOSSES` by name, with its learned parameters (the scale of InfoNCE, scale and bias of the sigmoid loss).

    Args:
        kind: `hardest` (Eq. 9-10), `hardest-k` (the K most violated), `sum` (Eq. 8), `infonce`, `one-to-k` or
            `sigmoid`.
        margin: α of the first three.
        type_weights: β of `hardest`, one for each type; None: equal.
        warmup_epochs: first epochs, in which the mean hinge replaces the hardest.
        count: K of `hardest-k`.
        distance: what is compared: `cosine`, the scores as they are, or `euclidean`, −√(2 − 2s), minus the distance of
            unit vectors with the inner product s.

    Raises:
        ModelError: `kind` is unknown.
    """

    def __init__(
        self, kind: str, margin: float, type_weights: Sequence[float] | None = None, warmup_epochs: int = 0,
        count: int = 10, distance: Distance = "cosine",
    ) -> None:  # fmt: skip
        super().__init__()
        if kind not in LOSSES:
            raise ModelError(f"loss {kind!r}: expected one of {', '.join(LOSSES)}")
        self.kind, self.margin, self.warmup_epochs, self.count = kind, margin, warmup_epochs, count
        self.distance = distance
        self.type_weights = None if type_weights is None else torch.tensor(type_weights)
        if kind in ("infonce", "one-to-k", "sigmoid"):  # initial values of CLIP and of SigLIP
            self.log_scale = nn.Parameter(torch.tensor(10.0 if kind == "sigmoid" else 1 / 0.07).log())
        if kind == "sigmoid":
            self.bias = nn.Parameter(torch.tensor(-10.0))

    def warms_up(self, epoch: int) -> bool:
        """Does the mean hinge replace the hardest in this epoch?"""
        return self.kind == "hardest" and epoch < self.warmup_epochs

    def forward(
        self, similarity: Tensor, positives: Tensor, negatives: Tensor, types: Tensor, epoch: int = 0
    ) -> Tensor:
        """The loss of scores (I, C), with masks (I, C) and caption types (C,); `epoch` counts from 0."""
        if self.distance == "euclidean":
            similarity = -(2 - 2 * _full_precision(similarity)).clamp(min=_SMALLEST).sqrt()
        if self.kind == "hardest":
            weights = None if self.type_weights is None else self.type_weights.to(similarity.device)
            return hard_negative_loss(
                similarity, positives, negatives, types, self.margin, weights, hardest=not self.warms_up(epoch)
            )
        if self.kind == "hardest-k":
            return most_violated_loss(similarity, positives, negatives, self.margin, self.count)
        if self.kind == "sum":
            return sum_of_hinges_loss(similarity, positives, negatives, self.margin)
        scale = self.log_scale.clamp(max=math.log(100)).exp()  # CLIP's upper bound
        if self.kind == "infonce":
            return contrastive_loss(similarity, positives, negatives, scale)
        if self.kind == "one-to-k":
            return one_to_k_loss(similarity, positives, negatives, scale)
        return sigmoid_loss(similarity, positives, negatives, scale, self.bias)


def _full_precision(similarity: Tensor) -> Tensor:
    """Convert half precision to float32: bfloat16 is too coarse for differences of scores and the margin."""
    return similarity.float() if similarity.dtype in (torch.float16, torch.bfloat16) else similarity


def _caption_types(types: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return the mask of the captions of each type, (T, C) bool, and the weights of the types, (T,)."""
    if weights is None:
        present = types.unique()
        return types == present[:, None], torch.ones_like(present)
    if types.numel() and not 0 <= int(types.min()) <= int(types.max()) < len(weights):
        found = f"{int(types.min())} to {int(types.max())}"
        raise ModelError(f"caption types run from {found}, but there are {len(weights)} weights; give one for each")
    return types == torch.arange(len(weights), device=types.device)[:, None], weights.to(types.device)


def _renormalised(weights: Tensor, dim: int = 0) -> Tensor:
    """Scale non-negative weights to a sum of 1 along a dimension; if all are 0 they stay 0."""
    total = weights.sum(dim=dim, keepdim=True)
    return weights / total.masked_fill(total == 0, 1)


def _hardest(scores: Tensor, valid: Tensor, dim: int) -> Tensor:
    """Return the highest valid score along a dimension; 0, without gradient, if none is valid."""
    highest = scores.masked_fill(~valid, -torch.inf).amax(dim=dim)
    return highest.masked_fill(~valid.any(dim=dim), 0)


def _weighted_hinges(
    scores: Tensor, positives: Tensor, caption_weights: Tensor, image_weights: Tensor, margin: float
) -> Tensor:
    """Sum the hinges of every positive pair against every negative, weighted by (I, C) for each kind of negative."""
    image, caption = positives.nonzero(as_tuple=True)  # P pairs
    slack = (margin - scores[image, caption])[:, None]
    by_image = (slack + scores[image]).relu() * caption_weights[image]  # (P, C)
    by_caption = (slack + scores.T[caption]).relu() * image_weights.T[caption]  # (P, I)
    return by_image.sum() + by_caption.sum()
