"""Triplet losses on a similarity matrix of images and captions; see `modules.losses.registry` for the masks."""

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from modules.errors import ModelError
from modules.layers.static import is_static
from modules.losses.pairs import scores_of

_PART = 2**24  # hinges at a time in the static form


def hard_negative_loss(
    similarity: Tensor,
    positives: Tensor,
    negatives: Tensor,
    types: Tensor,
    margin: float = 0.2,
    weights: Tensor | None = None,
    hardest: bool = True,
    links: Tensor | None = None,
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
        links: (C,) the row of each caption's image, its one positive; None: a column may have several.

    Returns:
        The loss, a scalar with a gradient in every case.

    Raises:
        ModelError: a caption has no type, or its type no weight; or a mask is not of the form of the scores.

    Examples:
        >>> scores, right = torch.tensor([[0.9, 0.8], [0.1, 0.7]]), torch.eye(2, dtype=torch.bool)
        >>> loss = hard_negative_loss(scores, right, ~right, types=torch.tensor([0, 0]), margin=0.2)
        >>> round(float(loss), 2)  # image 0: 0.2 − 0.9 + 0.8; caption 1: 0.2 − 0.7 + 0.8
        0.4
    """
    scores = scores_of(similarity, positives, negatives)
    if not scores.numel():
        return scores.sum()
    if len(types) != scores.shape[1]:
        raise ModelError(f"there are {len(types)} caption types of {scores.shape[1]} captions; give one for each")
    members, beta = _caption_types(types, weights)
    valid = negatives & members[:, None, :]  # (T, I, C)
    beta = _renormalised(beta.to(scores)[:, None] * valid.any(dim=2))  # (T, I)
    if not hardest:
        caption_weights = (_renormalised(valid.to(scores), dim=2) * beta[:, :, None]).sum(dim=0)
        image_weights = _renormalised(negatives.to(scores))
        return _weighted_hinges(scores, positives, caption_weights, image_weights, margin, links)
    hard_captions = (beta * _hardest(scores, valid, dim=2)).sum(dim=0)[:, None]  # (I, 1), Eq. 10
    hard_images = _hardest(scores, negatives, dim=0)  # (C,)
    by_image = (margin - scores + hard_captions).relu() * (positives & (beta.sum(dim=0) > 0)[:, None])
    by_caption = (margin - scores + hard_images).relu() * (positives & negatives.any(dim=0))
    return by_image.sum() + by_caption.sum()


def sum_of_hinges_loss(
    similarity: Tensor, positives: Tensor, negatives: Tensor, margin: float = 0.2, links: Tensor | None = None
) -> Tensor:
    """VSE's triplet loss over *all* negatives (mmt-retrieval, Eq. 8), summed over the positive pairs (v, t).

    Σ_t̂ [α - s(v,t) + s(v,t̂)]₊ + Σ_v̂ [α - s(v,t) + s(v̂,t)]₊

    Args:
        similarity: (I, C) scores of images and captions, higher means more similar.
        positives: (I, C) bool, the matching pairs.
        negatives: (I, C) bool, the negative pairs.
        margin: α.
        links: as in `hard_negative_loss`.

    Returns:
        The loss, a scalar with a gradient in every case.

    Examples:
        >>> scores = torch.tensor([[0.9, 0.8, 0.8], [0.1, 0.9, 0.1], [0.1, 0.1, 0.9]])
        >>> right, types = torch.eye(3, dtype=torch.bool), torch.zeros(3, dtype=torch.long)
        >>> round(float(sum_of_hinges_loss(scores, right, ~right)), 2)  # 0.1 for each of two captions and of two images
        0.4
        >>> round(float(hard_negative_loss(scores, right, ~right, types)), 2)  # the hardest caption of image 0 alone
        0.3
    """
    scores = scores_of(similarity, positives, negatives)
    return _weighted_hinges(scores, positives, negatives.to(scores), negatives.to(scores), margin, links)


def random_hinges_loss(
    similarity: Tensor, positives: Tensor, negatives: Tensor, margin: float = 0.2, draw: tuple[int, int] = (0, 0),
    links: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Triplet loss with one contrastive example drawn at random for each anchor (MLMME, Eq. 1-2), summed over pairs.

    [α - s(v,t) + s(v,t_r)]₊ + [α - s(v,t) + s(v_r,t)]₊ with a random negative caption t_r of v, and image v_r of t.
    Batches are drawn at random, so a random place in the batch is a random example of the training set, drawn anew in
    every epoch. The draw depends on `draw` and on the places in the batch alone, so it is equal on all processes.

    Args:
        similarity: (I, C) scores of images and captions, higher means more similar.
        positives: (I, C) bool, the matching pairs.
        negatives: (I, C) bool, the negative pairs.
        margin: α.
        draw: number of the step, and of the loss in it.
        links: as in `hard_negative_loss`.

    Returns:
        The loss, a scalar with a gradient in every case.

    Examples:
        >>> scores, right = torch.arange(64).view(8, 8).sin(), torch.eye(8, dtype=torch.bool)
        >>> one, again, other = (random_hinges_loss(scores, right, ~right, draw=(step, 0)) for step in (1, 1, 2))
        >>> bool(one == again), bool(one == other)  # drawn by the number of the step
        (True, False)
    """
    scores = scores_of(similarity, positives, negatives)
    if not scores.numel():
        return scores.sum()
    generator = torch.Generator().manual_seed(draw[0] * 1_000 + draw[1])
    weights = []
    for valid in (negatives, negatives.t()):
        anchors, candidates = valid.shape
        shift = torch.randint(candidates, (anchors, 1), generator=generator)
        place = (
            ((torch.randperm(candidates, generator=generator) + shift) % candidates)
            .to(scores.device, non_blocking=scores.is_cuda)
            .masked_fill(~valid, candidates)
        )
        drawn = F.one_hot(place.argmin(1), candidates).to(scores) * valid
        weights.append(drawn)
    return _weighted_hinges(scores, positives, weights[0], weights[1].t(), margin, links)


def most_violated_loss(
    similarity: Tensor, positives: Tensor, negatives: Tensor, margin: float = 0.05, count: int = 10,
    links: Tensor | None = None,
) -> Tensor:  # fmt: skip
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
        links: as in `hard_negative_loss`.

    Returns:
        The loss, a scalar with a gradient in every case.

    Examples:
        >>> scores = torch.tensor([[0.9, 0.8, 0.6], [0.1, 0.9, 0.1], [0.1, 0.1, 0.9]])
        >>> right = torch.eye(3, dtype=torch.bool)
        >>> [round(3 * float(most_violated_loss(scores, right, ~right, margin=0.2, count=k)), 2) for k in (1, 2)]
        [0.2, 0.1]
    """
    scores = scores_of(similarity, positives, negatives)
    terms = [0 * scores.sum()]
    for side, right, valid in ((scores, positives, negatives), (scores.t(), positives.t(), negatives.t())):
        highest = side.masked_fill(~valid, -torch.inf).topk(min(count, side.shape[1]), dim=1).values
        kept = highest.isfinite().sum(1, keepdim=True).clamp(min=1)
        shares = highest.isfinite() / kept
        terms.append(_hinges(side, right, highest, shares, margin, _pairs(links, side is scores)))
    return torch.stack(terms).sum() / positives.sum().clamp(min=1)


def _caption_types(types: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return the mask of the captions of each type, (T, C) bool, and the weights of the types, (T,)."""
    if weights is None:
        present = types.unique()
        return types == present[:, None], torch.ones_like(present)
    if not is_static(types) and types.numel() and not 0 <= int(types.min()) <= int(types.max()) < len(weights):
        span = f"{int(types.min())} to {int(types.max())}"
        raise ModelError(f"caption types run from {span}, but there are {len(weights)} weights; give one for each")
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
    scores: Tensor, positives: Tensor, caption_weights: Tensor, image_weights: Tensor, margin: float,
    links: Tensor | None,
) -> Tensor:  # fmt: skip
    """Sum the hinges of every positive pair against every negative, weighted by (I, C) for each kind of negative."""
    by_image = _hinges(scores, positives, scores, caption_weights, margin, _pairs(links, True))
    turned = scores.t()
    return by_image + _hinges(turned, positives.t(), turned, image_weights.t(), margin, _pairs(links, False))


def _pairs(links: Tensor | None, rows_first: bool) -> tuple[Tensor, Tensor] | None:
    """Row and column of each column's one positive, or column and row; None where columns may have several."""
    if links is None:
        return None
    columns = torch.arange(len(links), device=links.device)
    return (links, columns) if rows_first else (columns, links)


def _hinges(
    scores: Tensor, positives: Tensor, others: Tensor, weights: Tensor, margin: float,
    pairs: tuple[Tensor, Tensor] | None,
) -> Tensor:  # fmt: skip
    """Sum Σ_k w_ak [α − s(a,b) + o_ak]₊ over the positive pairs of anchors a and items b.

    Args:
        scores: s (A, B).
        positives: (A, B) bool.
        others: o (A, K), what each anchor is compared with.
        weights: w (A, K).
        margin: α.
        pairs: anchors and items (P,) of pairs, among them all positive ones; None: they are not known.
    """
    if not is_static(scores):
        pairs = positives.nonzero(as_tuple=True)  # type: ignore[assignment]
    if pairs is not None:
        anchor, item = pairs
        slack = (margin - scores[anchor, item])[:, None]
        return ((slack + others[anchor]).relu() * weights[anchor] * positives[anchor, item, None]).sum()

    def of_some(own: Tensor, right: Tensor, compared: Tensor, share: Tensor) -> Tensor:
        """Of all pairs of some anchors."""
        hinges = (margin - own[:, :, None] + compared[:, None]).relu() * share[:, None]
        return (hinges.sum(2) * right).sum()

    some = max(1, _PART // max(scores.shape[1] * others.shape[1], 1))
    parts = zip(*(side.split(some) for side in (scores, positives, others, weights)), strict=True)
    terms = [0 * scores.sum()]
    for part in parts:  # whose hinges are computed again for the gradient
        terms.append(checkpoint(of_some, *part, use_reentrant=False, preserve_rng_state=False))
    return torch.stack(terms).sum()
