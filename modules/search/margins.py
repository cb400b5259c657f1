"""How much better a caption fits its own image than other images: what tells translated captions that went wrong."""

import torch
from torch import Tensor

from modules.errors import ModelError
from modules.search.encodings import Encodings, Similarity
from modules.search.ranking import block_similarity

BLOCK = 512


def own_image_margins(
    similarity: Similarity, images: Encodings, captions: Encodings, own: Tensor, neighbours: int = 10,
    block: int = BLOCK,
) -> Tensor:  # fmt: skip
    """The score of each caption with its own image, less its mean score with the nearest other images.

    A plain score would prefer captions that are near to any image; the difference does not. It is the distance margin
    that mined translations are filtered by (Artetxe and Schwenk 2019, Eq. 2), from the caption's side alone.

    Args:
        similarity: the model's score of encoded images and captions.
        images: I, two or more.
        captions: C.
        own: (C,) row of each caption's image.
        neighbours: other images whose scores are averaged, at most I − 1.
        block: images and captions of one block of scores.

    Returns:
        (C,) margins, higher for captions that fit.

    Raises:
        ModelError: there are fewer than two images, or no neighbours.

    Examples:
        >>> images = Encodings.behind_each_other(torch.eye(3), torch.ones(3, dtype=torch.long))
        >>> vectors = torch.tensor([[0.9, 0.1, 0.1], [0.5, 0.5, 0.5]])
        >>> captions = Encodings.behind_each_other(vectors, torch.tensor([1, 1]))
        >>> dot = lambda one, other: one[0][:, 0] @ other[0][:, 0].t()
        >>> margins = own_image_margins(dot, images, captions, own=torch.tensor([0, 1]))
        >>> [round(margin, 1) for margin in margins.tolist()]  # caption 1 is as near to any image
        [0.8, 0.0]
    """
    count = min(neighbours, len(images) - 1)
    if count < 1:
        raise ModelError(f"margins: {len(images)} images, {neighbours} neighbours; expected two images and a neighbour")
    fits = torch.zeros(len(captions))
    nearest = torch.full((count, len(captions)), -torch.inf)
    for rows, columns, scores in block_similarity(similarity, images, captions, block):
        scores = scores.float().cpu()
        link = own[columns] - rows.start  # rows of this block, or outside it
        here = ((link >= 0) & (link < len(scores))).nonzero()[:, 0]
        fits[here + columns.start] = scores[link[here], here]
        scores = scores.index_put((link[here], here), torch.tensor(-torch.inf))
        nearest[:, columns] = torch.cat([nearest[:, columns], scores]).topk(count, dim=0).values
    return fits - nearest.mean(0)
