"""Re-ranking: the first k of an indexed model's list, put in the order of a model that is no inner product.

The second model scores only what is on the lists, so it may be slow and its gallery large.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from modules.encodings import Encodings, Similarity
from modules.errors import ModelError
from modules.index import VectorIndex
from modules.metrics import RetrievalRanks, require_finite, require_links
from modules.search import ROUNDING


@dataclass(frozen=True)
class FirstLists:
    """What an indexed model found first, for every query of both tasks; -1 fills a list that is short.

    Attributes:
        images: (C, k) rows of the first images for each caption.
        captions: (I, k) rows of the first captions for each image.
        ranks: where the right answers stood in its whole lists.
    """

    images: Tensor
    captions: Tensor
    ranks: RetrievalRanks


def first_lists(images: VectorIndex, captions: VectorIndex, ranks: RetrievalRanks, k: int) -> FirstLists:
    """Look up the first k images of each caption, and the first k captions of each image.

    Args:
        images: index of the I images' vectors.
        captions: index of the C captions' vectors, by the same model.
        ranks: of that model, `modules.search.ranks_by_index` of the same vectors.
        k: length of a list; cut to the gallery.

    Raises:
        ModelError: the indexes are not of one model, or of other images and captions than the ranks.
    """
    of = len(ranks.image_to_text), len(ranks.text_to_image)
    if (len(images), len(captions)) != of:
        raise ModelError(
            f"indexes hold {len(images)} images and {len(captions)} captions, but the ranks are of {of[0]} and {of[1]}"
        )
    return FirstLists(images.search(captions.vectors(), k)[1], captions.search(images.vectors(), k)[1], ranks)


def reranked(
    similarity: Similarity,
    images: Encodings,
    captions: Encodings,
    first: FirstLists,
    block: int = 512,
    tolerance: float = ROUNDING,
) -> RetrievalRanks:
    """Rank by the second model within the first k of an indexed model's list, and by that model beyond.

    If the right answer is among the first k, its rank is 1 + the number of wrong candidates of these k that the
    second model scores at least as high. If it is not, it stays where the first model had it: its rank is the first
    model's, which is above k. It counts as among the first k if it is on the list and the first model's rank, which
    holds ties against it, is k at the most. For an image the right answer is its best caption on the list; its other
    captions never count against it. Which of several wrong candidates that tie at the cut are on the list is the
    index's choice. With k as large as the gallery these are `modules.search.exact_ranks` of the second model.

    Images are scored one after the other, each once with all captions that need it.

    Args:
        similarity: the second model's score of encoded images and captions.
        images: by it, of I images.
        captions: by it, of C captions.
        first: the lists, of the same images and captions in the same order.
        block: captions that an image is scored with at a time; memory is bounded by that and the lists, (I + C) k.
        tolerance: a score this little below the right answer's, as a share of it or of 1, still counts as a tie.

    Raises:
        ModelError: a score is not finite, or the lists are of other images and captions.
    """
    device, num_images, num_captions = images.parts[0].device, len(images), len(captions)
    links = first.ranks.caption_image.to(device)
    require_links(links, num_images, num_captions)
    if len(first.ranks.image_to_text) != num_images:
        raise ModelError(f"lists are of {len(first.ranks.image_to_text)} images, the encodings of {num_images}")
    of_caption, of_image = first.images.to(device), first.captions.to(device)
    for_caption = of_caption * num_captions + torch.arange(num_captions, device=device)[:, None]
    for_image = torch.arange(num_images, device=device)[:, None] * num_captions + of_image
    listed = torch.cat([(of_caption >= 0).flatten(), (of_image >= 0).flatten()])
    pairs, place = torch.cat([for_caption.flatten(), for_image.flatten()])[listed].unique(return_inverse=True)
    found = _pair_scores(similarity, images, captions, pairs, block)
    scores = found.new_full((len(listed),), -torch.inf)
    scores[listed] = found[place]
    by_caption, by_image = scores[: for_caption.numel()].view_as(for_caption), scores[for_caption.numel() :]
    right_image, own_caption = of_caption == links[:, None], _own(of_image, links)
    return RetrievalRanks(
        _ranks(by_caption, right_image, first.ranks.text_to_image.to(device), tolerance),
        _ranks(by_image.view_as(for_image), own_caption, first.ranks.image_to_text.to(device), tolerance),
        links,
    )


def _pair_scores(similarity: Similarity, images: Encodings, captions: Encodings, pairs: Tensor, block: int) -> Tensor:
    """Score pairs (P,), each image * C + caption, ascending; image by image."""
    rows, columns = pairs // len(captions), pairs % len(captions)
    parts = []
    for row, mine in enumerate(columns.split(rows.bincount(minlength=len(images)).tolist())):
        image = torch.tensor([row], device=pairs.device)
        for some in mine.split(block):
            if not len(some):
                continue
            with torch.no_grad():
                scores = similarity(images[image], captions[some])
            require_finite(scores, image, some)
            parts.append(scores[0])
    return torch.cat(parts)


def _own(listed: Tensor, links: Tensor) -> Tensor:
    """Which captions of the lists (I, k) are the image's own."""
    images = torch.arange(len(listed), device=listed.device)[:, None]
    return (links[listed.clamp(min=0)] == images) & (listed >= 0)


def _ranks(scores: Tensor, right: Tensor, before: Tensor, tolerance: float) -> Tensor:
    """Ranks (Q,) within lists of scores (Q, k) with their right answers (Q, k); `before` (Q,) where it has none.

    A query's first rank is above k where the right answer ties at the cut: it stays there, though it is on the list.
    An image without captions has the rank 0 and keeps it.
    """
    k = scores.shape[1]
    best = scores.masked_fill(~right, -torch.inf).amax(dim=1)
    floor = best - tolerance * best.abs().clamp(min=1)
    within = 1 + ((scores >= floor[:, None]) & ~right).sum(dim=1)
    beyond = torch.where(before > 0, before.clamp(min=k + 1), 0)  # an approximate list may lack what ranked higher
    return torch.where(right.any(dim=1) & (before <= k), within, beyond)
