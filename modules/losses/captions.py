"""Losses between captions of one image, for any retrieval model and any ranking loss."""

from collections.abc import Callable
from itertools import combinations

import torch
from torch import Tensor

from modules.layers.static import is_static
from modules.losses.pairs import Pairs
from modules.search.encodings import Similarity

Loss = Callable[[Tensor, Tensor, Tensor], Tensor]
"""A ranking loss of scores (N, M), and of the masks of positive and of negative pairs."""


def between_captions(pairs: Pairs, similarity: Similarity, loss: Loss, languages: int) -> Tensor:
    """Sum a ranking loss over all pairs of languages; captions of one image in the two languages match.

    Two captions are not negatives of each other if they are of one image, or if one's image also has the other's
    sentence. A pair of languages that the batch lacks adds nothing.

    Args:
        pairs: the encodings of a batch, and which pairs match.
        similarity: of captions of one language (N, T, H) and captions of another one, with their masks: (N, M).
        loss: of the scores.
        languages: how many the model has.

    Examples:
        >>> mask, links, languages = torch.ones(4, 1).bool(), torch.tensor([0, 1, 0, 1]), torch.tensor([0, 0, 1, 1])
        >>> vectors, right = torch.eye(2)[[0, 1, 1, 0], None], torch.arange(2)[:, None] == links  # de: exchanged
        >>> pairs = Pairs((vectors[:2], mask[:2]), (vectors, mask), links, right, ~right, languages, languages, links)
        >>> dot = lambda one, other: one[0][:, 0] @ other[0][:, 0].t()
        >>> float(between_captions(pairs, dot, lambda scores, right, wrong: (scores * wrong).sum(), languages=2))
        2.0
    """
    (vectors, mask), (matching, negatives) = pairs.captions, _masks(pairs)
    losses = [0 * vectors.sum()]
    if is_static(vectors):
        scores = similarity(pairs.captions, pairs.captions)
        for first, second in combinations(range(languages), 2):
            across = (pairs.languages == first)[:, None] & (pairs.languages == second)
            losses.append(loss(scores, matching & across, negatives & across))
        return torch.stack(losses).sum()
    for first, second in combinations(pairs.languages.unique().tolist(), 2):
        rows, columns = pairs.languages == first, pairs.languages == second
        right, wrong = (side[rows][:, columns] for side in (matching, negatives))
        scores = similarity((vectors[rows], mask[rows]), (vectors[columns], mask[columns]))
        losses.append(loss(scores, right, wrong))
    return torch.stack(losses).sum()


def among_captions(pairs: Pairs, similarity: Similarity, loss: Loss, same_language: float | None = None) -> Tensor:
    """Return one ranking loss of all captions of a batch, in whatever languages: MULE's neighbourhood constraints.

    Captions of one image match, a caption and itself do not. Negatives are as in `between_captions`. Scores and masks
    are symmetric, so both directions of a ranking loss are the same: one of them is MULE's Eq. 1.

    Args:
        pairs: the encodings of a batch, and which pairs match.
        similarity: of captions (N, T, H) and captions, with their masks: (N, N), symmetric.
        loss: of the scores, the sum of two directions.
        same_language: weight of a loss of their own for pairs of one language, beside that of pairs of two languages;
            None: pairs of all languages compete in one loss (the paper).

    Examples:
        >>> mask, links, languages = torch.ones(4, 1).bool(), torch.tensor([0, 1, 0, 1]), torch.tensor([0, 0, 1, 1])
        >>> vectors, right = torch.eye(2)[[0, 1, 1, 0], None], torch.arange(2)[:, None] == links
        >>> pairs = Pairs((vectors[:2], mask[:2]), (vectors, mask), links, right, ~right, languages, languages, links)
        >>> dot = lambda one, other: one[0][:, 0] @ other[0][:, 0].t()
        >>> float(among_captions(pairs, dot, lambda scores, right, wrong: right.sum()))  # none matches itself
        2.0
    """
    scores, (matching, negatives) = similarity(pairs.captions, pairs.captions), _masks(pairs)
    matching = matching & ~torch.eye(len(scores), dtype=torch.bool, device=scores.device)
    if same_language is None:
        return loss(scores, matching, negatives) / 2
    same = pairs.languages[:, None] == pairs.languages
    within, across = (loss(scores, matching & kind, negatives & kind) for kind in (same, ~same))
    return (same_language * within + across) / 2


def _masks(pairs: Pairs) -> tuple[Tensor, Tensor]:
    """Which captions (C, C) match, as they do their image, and which are negatives of each other."""
    negatives, positives = (side[pairs.caption_image] for side in (pairs.negatives, pairs.positives))
    return positives & positives.t(), negatives & negatives.t()
