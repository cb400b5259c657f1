"""Reranking: other scores reorder the first k results of a model.

Only the listed results get these scores, so they may be slow and the gallery large.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from numpy.typing import NDArray
from torch import Tensor

from modules.errors import ModelError
from modules.metrics.retrieval import RetrievalRanks, require_finite, require_links
from modules.search.encodings import Encodings, Similarity
from modules.search.index import VectorIndex
from modules.search.ranking import ROUNDING, exact_ranks, first_captions

_AT_ONCE = 8192  # pictures that are encoded and in memory at a time, or those of one query


def in_new_order(
    encode: Callable[[NDArray], Encodings], similarity: Callable[[Encodings, Encodings], Tensor], captions: Encodings,
    found: Sequence[Sequence[int]], regions_at: Callable[[Sequence[int]], NDArray],
) -> list[list[tuple[int, float]]]:  # fmt: skip
    """What was found for each query, best first, with the scores of a second model; each picture is read once.

    Args:
        encode: regions (N, R, D) by the second model.
        similarity: of its images and captions.
        captions: the queries, by it.
        found: for each query the row numbers of pictures.
        regions_at: regions of pictures by row number.
    """
    ordered: list[list[tuple[int, float]]] = []
    together = max(1, _AT_ONCE // max(map(len, found)))
    for start in range(0, len(found), together):
        group = found[start : start + together]
        rows = list(dict.fromkeys(row for some in group for row in some))
        place_of = {row: place for place, row in enumerate(rows)}
        images = encode(regions_at(rows))
        for place, some in enumerate(group, start):
            own = images.select(torch.tensor([place_of[row] for row in some], dtype=torch.long))
            scores = similarity(own, captions.select(slice(place, place + 1)))[:, 0]
            order = scores.argsort(descending=True, stable=True).tolist()
            ordered.append([(some[one], float(scores[one])) for one in order])
    return ordered


@dataclass(frozen=True)
class FirstLists:
    """The first k results of a model for every query of both tasks; short lists are padded with -1.

    Attributes:
        images: (C, k) rows of the first k images for each caption.
        captions: (I, k) rows of the first k captions for each image.
        ranks: ranks of the right answers in the whole gallery.
    """

    images: Tensor
    captions: Tensor
    ranks: RetrievalRanks


def first_lists(images: VectorIndex, captions: VectorIndex, ranks: RetrievalRanks, k: int) -> FirstLists:
    """Search the first k images for each caption, and the first k captions for each image.

    Args:
        images: index of the I images' vectors.
        captions: index of the C captions' vectors, by the same model.
        ranks: ranks by that model, from `modules.search.ranking.ranks_by_index` of the same vectors.
        k: length of a list; at most the size of the gallery.

    Raises:
        ModelError: the indexes are from different models, or hold other images and captions than the ranks.
    """
    num_images, num_captions = len(ranks.image_to_text), len(ranks.text_to_image)
    if (len(images), len(captions)) != (num_images, num_captions):
        raise ModelError(
            f"indexes hold {len(images)} images and {len(captions)} captions, but the ranks are of {num_images} and "
            f"{num_captions}; build them from the same encodings"
        )
    return FirstLists(images.search(captions.vectors(), k)[1], captions.search(images.vectors(), k)[1], ranks)


def exact_lists(
    similarity: Similarity, images: Encodings, captions: Encodings, caption_image: Tensor, k: int
) -> FirstLists:
    """Find the first k images for each caption, and the first k captions for each image, by any similarity.

    Args:
        similarity: the model's score of encoded images and captions.
        images: encodings of I images.
        captions: encodings of C captions.
        caption_image: (C,) row of each caption's image, on any device.
        k: length of a list, or the size of the gallery if that is smaller.

    Raises:
        ModelError: a score is not finite, or a link is not the row of an image.
    """
    ranks = exact_ranks(similarity, images, captions, caption_image.to(images.vectors.device))
    of_captions = first_captions(lambda texts, pictures: similarity(pictures, texts).T, captions, images, k)
    return FirstLists(of_captions, first_captions(similarity, images, captions, k), ranks)


def reranked(
    similarity: Similarity,
    images: Encodings,
    captions: Encodings,
    first: FirstLists,
    block: int = 512,
) -> RetrievalRanks:
    """Rank by the second model among the first k results of the first model, and by the first model after them.

    If the right answer is among the first k, its rank is 1 + the number of wrong candidates of these k that the
    second model scores at least as high. Otherwise it keeps its rank by the first model, which is above k. It is
    among the first k if it is on the list and its rank by the first model, with ties counted against it, is at most k.
    For an image the right answer is its best caption on the list; its other captions do not count as wrong. If several
    wrong candidates tie at position k, the index decides which of them are on the list. With k as large as the gallery
    the result equals `modules.search.ranking.exact_ranks` of the second model.

    Images are scored one after the other, each once with all captions that need it.

    Args:
        similarity: the second model's score of encoded images and captions.
        images: encodings of I images by the second model.
        captions: encodings of C captions by the second model.
        first: the lists for the same images and captions in the same order.
        block: number of captions scored with an image at a time; memory is limited by it and the lists, (I + C) k.

    Raises:
        ModelError: a score is not finite, or the lists are for other images and captions.

    Examples:
        >>> dot = lambda one, other: one[0][:, 0] @ other[0][:, 0].t()
        >>> items = Encodings.behind_each_other(torch.tensor([[1.0, 0.8], [0.8, 1.0]]), torch.tensor([1, 1]))
        >>> wrong = lambda one, other: -dot(one, other)  # the first model
        >>> lists = [exact_lists(wrong, items, items, torch.arange(2), k) for k in (1, 2)]
        >>> [reranked(dot, items, items, first).text_to_image.tolist() for first in lists]  # k = 1 lacks the right one
        [[2, 2], [1, 1]]
    """
    device, num_images, num_captions = images.vectors.device, len(images), len(captions)
    require_links(first.ranks.caption_image.to(device), num_images, num_captions)
    if len(first.ranks.image_to_text) != num_images:
        raise ModelError(f"lists are of {len(first.ranks.image_to_text)} images, the encodings of {num_images}")
    score = partial(_pair_scores, similarity, images, captions, block)
    return ranks_in_lists(first, *listed_scores(score, first, device))


def listed_scores(
    score: Callable[[Tensor, Tensor], Tensor], first: FirstLists, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Score each listed pair once, in the order of images.

    Args:
        score: rows of images (P,) and captions (P,) → their scores (P,).
        first: the lists.
        device: of the rows that `score` gets, and of the scores.

    Returns:
        scores of the images listed for each caption (C, k), and of the captions listed for each image (I, k); −∞ where
        a list is padded.
    """
    of_caption, of_image = first.images.to(device), first.captions.to(device)
    num_captions = len(of_caption)
    for_caption = of_caption * num_captions + torch.arange(num_captions, device=device)[:, None]
    for_image = torch.arange(len(of_image), device=device)[:, None] * num_captions + of_image
    listed = torch.cat([(of_caption >= 0).flatten(), (of_image >= 0).flatten()])
    pairs, position = torch.cat([for_caption.flatten(), for_image.flatten()])[listed].unique(return_inverse=True)
    pair_scores = score(pairs // num_captions, pairs % num_captions)
    scores = pair_scores.new_full((len(listed),), -torch.inf)
    scores[listed] = pair_scores[position]
    by_caption, by_image = scores.split([for_caption.numel(), for_image.numel()])
    return by_caption.view_as(for_caption), by_image.view_as(for_image)


def ranks_in_lists(
    first: FirstLists, by_caption: Tensor, by_image: Tensor, tolerance: float = ROUNDING
) -> RetrievalRanks:
    """Rank by new scores among the first k results, as `reranked` says, and by the first model after them.

    Args:
        first: the lists.
        by_caption: (C, k) scores of the images listed for each caption.
        by_image: (I, k) scores of the captions listed for each image.
        tolerance: a score lower than the right answer's by at most this share of it (or of 1) counts as a tie.
    """
    device = by_caption.device
    links, of_caption, of_image = (
        tensor.to(device) for tensor in (first.ranks.caption_image, first.images, first.captions)
    )  # fmt: skip
    right_image, own_caption = of_caption == links[:, None], _own(of_image, links)
    return RetrievalRanks(
        _ranks(by_caption, right_image, first.ranks.text_to_image.to(device), tolerance),
        _ranks(by_image, own_caption, first.ranks.image_to_text.to(device), tolerance),
        links,
    )


def _pair_scores(
    similarity: Similarity, images: Encodings, captions: Encodings, block: int, rows: Tensor, columns: Tensor
) -> Tensor:
    """Score pairs (P,) of images in ascending order and captions, image by image."""
    parts = []
    for row, image_captions in enumerate(columns.split(rows.bincount(minlength=len(images)).tolist())):
        image = torch.tensor([row], device=rows.device)
        for some in image_captions.split(block):
            if not len(some):
                continue
            with torch.no_grad():
                scores = similarity(images[image], captions[some])
            require_finite(scores, image, some)
            parts.append(scores[0])
    return torch.cat(parts)


def _own(listed: Tensor, links: Tensor) -> Tensor:
    """Return the mask (I, k) of listed captions that belong to the image."""
    images = torch.arange(len(listed), device=listed.device)[:, None]
    return (links[listed.clamp(min=0)] == images) & (listed >= 0)


def _ranks(scores: Tensor, right: Tensor, before: Tensor, tolerance: float) -> Tensor:
    """Return ranks (Q,) by the scores (Q, k) of listed results, with the mask (Q, k) of right answers.

    Without a listed right answer the rank is `before` (Q,), the rank by the first model. That rank may be above k
    although the right answer is on the list, as it ties at position k; it is kept. An image without captions keeps its
    rank of 0.
    """
    k = scores.shape[1]
    best = scores.masked_fill(~right, -torch.inf).amax(dim=1)
    floor = best - tolerance * best.abs().clamp(min=1)
    within = 1 + ((scores >= floor[:, None]) & ~right).sum(dim=1)
    # an approximate list may lack a right answer of rank k or less
    beyond = torch.where(before > 0, before.clamp(min=k + 1), 0)
    return torch.where(right.any(dim=1) & (before <= k), within, beyond)
