"""Losses between captions of one image in two languages, for any retrieval model and any ranking loss."""

from collections.abc import Callable
from itertools import combinations

import torch
from torch import Tensor

from modules.encodings import Similarity
from modules.retrieval_models.base import Pairs

Loss = Callable[[Tensor, Tensor, Tensor], Tensor]
"""A ranking loss of scores (N, M), and of the masks of positive and of negative pairs."""


def between_captions(pairs: Pairs, similarity: Similarity, loss: Loss) -> Tensor:
    """Sum a ranking loss over all pairs of languages; captions of one image in the two languages match.

    Two captions are not negatives of each other if they are of one image, or if one's image also has the other's
    sentence. A pair of languages that the batch lacks adds nothing.

    Args:
        pairs: the encodings of a batch, and which pairs match.
        similarity: of captions of one language (N, T, H) and captions of another one, with their masks: (N, M).
        loss: of the scores.
    """
    (vectors, mask), images = pairs.captions, pairs.caption_image
    matching = images[:, None] == images
    negatives = pairs.negatives[images]
    negatives = negatives & negatives.t()
    losses = [0 * vectors.sum()]
    for one, other in combinations(pairs.languages.unique().tolist(), 2):
        rows, columns = pairs.languages == one, pairs.languages == other
        right, wrong = (side[rows][:, columns] for side in (matching, negatives))
        scores = similarity((vectors[rows], mask[rows]), (vectors[columns], mask[columns]))
        losses.append(loss(scores, right, wrong))
    return torch.stack(losses).sum()
