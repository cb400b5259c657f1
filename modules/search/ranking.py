"""Ranks without the whole score matrix: FAISS for inner products, blocks of scores for any other similarity.

Rounding differs between the kernels of a matrix product, and even between the edge and the middle of one product. So
the scores of equal vectors may differ in the last bit, and so may the vectors of equal captions in different batches;
a tie would be decided at random. Therefore scores that differ by rounding alone count as ties, and ranks by index
compare close scores again in float64.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from modules.errors import ModelError
from modules.metrics.retrieval import (
    NO_QUERY,
    RetrievalRanks,
    best_captions,
    image_ranks_from_counts,
    require_finite,
    require_links,
)
from modules.search.encodings import Encodings, Similarity
from modules.search.index import VectorIndex

CLOSE = 1e-5  # bound of float32 rounding for unit vectors; closer scores are compared again in float64
ROUNDING = 5e-7  # four units in the last place of a float32 score of 1
MAX_CLOSE = 32  # a query with more close scores is compared with all candidates in float64


def ranks_by_index(
    images: Tensor, captions: Tensor, caption_image: Tensor, k: int = 128, block: int = 1024, gpu: int | None = None
) -> RetrievalRanks:
    """Rank by inner product: `modules.metrics.retrieval.retrieval_ranks` of `images @ captions.T`, without this matrix.

    FAISS finds the best k. If the right answer is certainly among them, it is enough to count these; if it may be
    after them, or ties at position k, all candidates are compared in float64. Ranks are those of exact scores of the
    given vectors, on any kernel or device, where a score counts as a tie that is lower than the right answer's by at
    most `ROUNDING` of the query's length times that of the longest candidate: they differ from float32 ranks only where
    scores differ by less than 1e-5 of it.

    Args:
        images: (I, H).
        captions: (C, H).
        caption_image: (C,) row of each caption's image.
        k: number of results that FAISS searches.
        block: number of queries and candidates at a time, which limits memory to block * (block + H + k).
        gpu: as for `VectorIndex`.

    Raises:
        ModelError: a vector is not finite, or a link is not the row of an image.

    Examples:
        >>> images = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
        >>> ranks_by_index(images, images[:1], torch.tensor([0])).text_to_image.tolist()  # image 1 is equal: a tie
        [2]
    """
    require_links(caption_image, len(images), len(captions))
    if not len(captions):
        raise ModelError(NO_QUERY)
    positives = _paired_scores(images, captions, caption_image, torch.arange(len(captions)), block)
    best = best_captions(positives, caption_image, len(images))
    queries = best.isfinite().nonzero()[:, 0]  # images with captions
    counts = torch.zeros(len(images), dtype=torch.long, device=images.device)
    counts[queries] = _count_at_least(images[queries], captions, best[queries], k, block, gpu)
    by_image = image_ranks_from_counts(counts, positives, best - ROUNDING * _scale(images, captions), caption_image)
    by_text = _count_at_least(captions, images, positives, k, block, gpu)
    return RetrievalRanks(by_text, by_image, caption_image)


def exact_ranks(
    similarity: Similarity,
    images: Encodings,
    captions: Encodings,
    caption_image: Tensor,
    block: int = 128,
    tolerance: float = ROUNDING,
) -> RetrievalRanks:
    """Rank by any similarity: `modules.metrics.retrieval.retrieval_ranks` with one block of scores at a time.

    Every block is computed once to count wrong answers. Blocks with right answers (few, as captions are sorted by
    their images) are computed once more before that.

    Args:
        similarity: the model's score of encoded images and captions.
        images: encodings of I images.
        captions: encodings of C captions.
        caption_image: (C,) row of each caption's image.
        block: number of images and of captions in one block, which limits memory in addition to the encodings.
        tolerance: a score lower than the right answer's by at most this share of it (or of 1) counts as a tie.

    Raises:
        ModelError: a score is not finite, or a link is not the row of an image.

    Examples:
        >>> sets = Encodings.of((torch.eye(3)[:, None], torch.ones(3, 1, dtype=torch.bool)))
        >>> dot = lambda one, other: one[0][:, 0] @ other[0][:, 0].t()
        >>> ranks = exact_ranks(dot, sets, sets, torch.tensor([0, 1, 1]))
        >>> ranks.text_to_image.tolist(), ranks.image_to_text.tolist()  # caption 2 ties with image 0
        ([1, 1, 3], [1, 1, 0])
    """
    require_links(caption_image, len(images), len(captions))
    order = caption_image.argsort(stable=True)
    captions, links = captions.select(order), caption_image[order]
    positives = _positive_scores(similarity, images, captions, links, block)
    best = best_captions(positives, links, len(images))
    text_floor, image_floor = (scores - tolerance * scores.abs().clamp(min=1) for scores in (positives, best))
    by_text, by_image = torch.zeros_like(links), links.new_zeros(len(images))
    for rows, columns, scores in block_similarity(similarity, images, captions, block):
        require_finite(scores, torch.arange(len(images))[rows], order[columns])
        by_text[columns] += (scores >= text_floor[columns]).sum(dim=0)
        by_image[rows] += (scores >= image_floor[rows, None]).sum(dim=1)
    by_image = image_ranks_from_counts(by_image, positives, image_floor, links)
    return RetrievalRanks(torch.empty_like(by_text).index_copy(0, order, by_text), by_image, caption_image)


def ranks_by_score(
    score: str, similarity: Similarity, images: Encodings, captions: Encodings, caption_image: Tensor
) -> RetrievalRanks:
    """Rank by what a model's score is: FAISS for `inner product` of single vectors, else exactly by blocks.

    Args:
        score: `RetrievalModel.score`.
        similarity: the model's score of encoded images and captions.
        images: encodings of I images.
        captions: encodings of C captions.
        caption_image: (C,) row of each caption's image.

    Raises:
        ModelError: a score is not finite, or a link is not the row of an image.
    """
    if score == "inner product":
        return ranks_by_index(images.single().float(), captions.single().float(), caption_image)
    return exact_ranks(similarity, images, captions, caption_image)


def first_captions(similarity: Similarity, images: Encodings, captions: Encodings, k: int, block: int = 512) -> Tensor:
    """Return the rows of the captions that score highest with each image, best first, (I, k), or fewer if C < k.

    Of equal scores either may stand first.

    Args:
        similarity: the model's score of encoded images and captions.
        images: encodings of I images.
        captions: encodings of C captions.
        k: how many.
        block: number of images and of captions in one block of scores.

    Raises:
        ModelError: a score is not finite.
    """
    best: dict[int, tuple[Tensor, Tensor]] = {}
    for rows, columns, scores in block_similarity(similarity, images, captions, block):
        require_finite(scores, torch.arange(len(images))[rows], torch.arange(len(captions))[columns])
        values, places = scores.topk(min(k, scores.shape[1]), dim=1)
        places = places + columns.start
        if rows.start in best:
            before = best[rows.start]
            values, places = torch.cat([before[0], values], dim=1), torch.cat([before[1], places], dim=1)
            values, order = values.topk(min(k, values.shape[1]), dim=1)
            places = places.gather(1, order)
        best[rows.start] = values, places
    return torch.cat([places for _, places in best.values()])


def block_similarity(
    similarity: Similarity, images: Encodings, captions: Encodings, block: int, wanted: Tensor | None = None
) -> Iterator[tuple[slice, slice, Tensor]]:
    """Compute scores block by block, without gradients.

    Args:
        similarity: the model's score of encoded images and captions.
        images: encodings of I images.
        captions: encodings of C captions.
        block: number of images and of captions in one block; the last blocks may be smaller.
        wanted: (ceil(I / block), ceil(C / block)) bool, which blocks to compute; None computes all.

    Yields:
        rows, columns and their scores (at most block × block).
    """
    for top in range(0, len(images), block):
        for left in range(0, len(captions), block):
            if wanted is None or wanted[top // block, left // block]:
                rows, columns = slice(top, top + block), slice(left, left + block)
                with torch.no_grad():  # ends before the yield, so that it does not affect the caller
                    scores = similarity(images[rows], captions[columns])
                yield rows, columns, scores


def _scale(queries: Tensor, gallery: Tensor) -> Tensor:
    """Return an upper bound of each query's scores, (Q,) float64: its norm times that of the longest candidate."""
    lengths, longest = (torch.linalg.vector_norm(side, dim=1, dtype=torch.float64) for side in (queries, gallery))
    return lengths * longest.max()


def _paired_scores(left: Tensor, right: Tensor, left_rows: Tensor, right_rows: Tensor, block: int) -> Tensor:
    """Return the inner products (P,) of P pairs of rows in float64, equal for equal vectors."""
    pairs = zip(left_rows.split(block), right_rows.split(block), strict=True)
    return torch.cat([(left[a].double() * right[b].double()).sum(dim=1) for a, b in pairs])


def _count_at_least(queries: Tensor, gallery: Tensor, targets: Tensor, k: int, block: int, gpu: int | None) -> Tensor:
    """Count, for each query, the candidates whose exact score is at least its target; targets (Q,) are float64."""
    index, scale = VectorIndex(gallery, gpu=gpu), _scale(queries, gallery)
    floors, slack = targets - ROUNDING * scale, CLOSE * scale
    counts = torch.zeros(len(queries), dtype=torch.long, device=queries.device)
    unsettled = []
    for rows in torch.arange(len(queries), device=queries.device).split(block):
        scores, candidates = (part.to(queries.device) for part in index.search(queries[rows], k))
        gap = scores.double() - targets[rows, None]
        close = gap.abs() <= slack[rows, None]
        settled = (gap[:, -1] < -slack[rows]) | (scores.shape[1] == len(index))
        settled &= close.sum(dim=1) <= MAX_CLOSE
        query, position = (close & settled[:, None]).nonzero(as_tuple=True)
        again = _paired_scores(queries, gallery, rows[query], candidates[query, position], block)
        counts[rows] = (gap > slack[rows, None]).sum(dim=1)
        counts.index_add_(0, rows[query], (again >= floors[rows[query]]).long())
        unsettled.append(rows[~settled])
    rest = torch.cat(unsettled)
    counts[rest] = _count_in_blocks(queries[rest], gallery, floors[rest], block)
    return counts


def _count_in_blocks(queries: Tensor, gallery: Tensor, floors: Tensor, block: int) -> Tensor:
    """Count, for each query, the candidates that score at least its floor, by float64 products with all candidates."""
    counts = torch.zeros(len(queries), dtype=torch.long, device=queries.device)
    for candidates in gallery.split(block):
        wide = candidates.double().T
        for rows in torch.arange(len(queries), device=queries.device).split(block):
            counts[rows] += (queries[rows].double() @ wide >= floors[rows, None]).sum(dim=1)
    return counts


def _positive_scores(
    similarity: Similarity, images: Encodings, captions: Encodings, links: Tensor, block: int
) -> Tensor:
    """Return each caption's score with its own image, (C,), from the same blocks that are counted later."""
    shape = [-(-len(side) // block) for side in (images, captions)]
    position = torch.arange(len(links), device=links.device)
    wanted = torch.zeros(*shape, dtype=torch.bool, device=links.device)
    wanted[links // block, position // block] = True
    positives: Tensor | None = None
    for rows, columns, scores in block_similarity(similarity, images, captions, block, wanted.cpu()):
        if positives is None:
            positives = scores.new_zeros(len(links))
        inside = position[columns][(links[columns] >= rows.start) & (links[columns] < rows.stop)]
        positives[inside] = scores[links[inside] - rows.start, inside - columns.start]
    if positives is None:
        raise ModelError(NO_QUERY)
    return positives
