"""Ranks without the whole score matrix, and search: FAISS for inner products, exact blocks for any other score.

Rounding differs between the kernels of a matrix product: equal vectors may score unequally by the last bit, which would
break ties at random. So ranks by index count close scores again in float64, and ranks by blocks take scores that differ
by no more than rounding as ties.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities import dim_zero_cat

from modules.encodings import Encoding, Encodings, Similarity
from modules.errors import ModelError
from modules.index import VectorIndex
from modules.metrics import (
    NO_QUERY,
    RetrievalRanks,
    best_captions,
    image_folds,
    image_ranks_from_counts,
    require_finite,
    require_links,
    retrieval_scores,
)

CLOSE = 1e-5  # float32 products of unit vectors err by less; nearer scores are compared again in float64


EQUAL = 1e-12  # the same for float64


ROUNDING = 5e-7  # four units in the last place of a float32 score of 1


MAX_CLOSE = 32  # a query with more close calls is counted whole


def ranks_by_index(
    images: Tensor, captions: Tensor, caption_image: Tensor, k: int = 128, block: int = 1024, gpu: int | None = None
) -> RetrievalRanks:
    """Rank by inner product: `modules.metrics.retrieval_ranks` of `images @ captions.T`, which is never built.

    FAISS finds the best k. Where the right answer is surely among them, it is enough to count them; where it may lie
    beyond, or ties at the cut, all candidates are counted, in float64. Ranks are those of exact scores of the
    vectors as given, whatever the kernel or device: they differ from float32 ranks only where scores are closer
    than 1e-5 of |image| |caption|.

    Args:
        images: (I, H).
        captions: (C, H).
        caption_image: (C,) row of each caption's image.
        k: how many FAISS looks for.
        block: how many queries and candidates are taken at a time, which bounds memory by block * (block + H + k).
        gpu: as for `VectorIndex`.

    Raises:
        ModelError: a vector is not finite, or a link names no image.
    """
    require_links(caption_image, len(images), len(captions))
    if not len(captions):
        raise ModelError(NO_QUERY)
    positives = _paired_scores(images, captions, caption_image, torch.arange(len(captions)), block)
    best = best_captions(positives, caption_image, len(images))
    queries = best.isfinite().nonzero()[:, 0]  # images with captions
    counts = torch.zeros(len(images), dtype=torch.long, device=images.device)
    counts[queries] = _count_at_least(images[queries], captions, best[queries], k, block, gpu)
    by_image = image_ranks_from_counts(counts, positives, best - EQUAL * _scale(images, captions), caption_image)
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
    """Rank by any similarity: `modules.metrics.retrieval_ranks` with one block of scores at a time.

    Every block is computed once to be counted; those that hold a right answer (few, as captions are taken in the
    order of their images) once more before that.

    Args:
        similarity: the model's score of encoded images and captions.
        images: of I images.
        captions: of C captions.
        caption_image: (C,) row of each caption's image.
        block: images and captions of one block, which bounds memory beside the encodings' own.
        tolerance: a score this little below the right answer's, as a share of it or of 1, still counts as a tie.

    Raises:
        ModelError: a score is not finite, or a link names no image.
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


def block_similarity(
    similarity: Similarity, images: Encodings, captions: Encodings, block: int, wanted: Tensor | None = None
) -> Iterator[tuple[slice, slice, Tensor]]:
    """Compute scores block by block, without gradients.

    Args:
        similarity: the model's score of encoded images and captions.
        images: of I images.
        captions: of C captions.
        block: images and captions of one block; the last ones may be smaller.
        wanted: (ceil(I / block), ceil(C / block)) bool, which blocks to compute; None computes all.

    Yields:
        rows, columns and their scores (at most block, at most block).
    """
    for top in range(0, len(images), block):
        for left in range(0, len(captions), block):
            if wanted is None or wanted[top // block, left // block]:
                rows, columns = slice(top, top + block), slice(left, left + block)
                with torch.no_grad():  # left before the yield, or it would reach into the caller's code
                    scores = similarity(images[rows], captions[columns])
                yield rows, columns, scores


class RetrievalMetric(Metric):
    """Retrieval scores of encodings that come in batches, on one device or many.

    Padding that repeats images or captions (as DDP's sampler adds) is removed by id. Each process must take in at
    least one batch: one without would not know the types to gather.

    Args:
        similarity: the model's score; a bound method, not a module, or its weights become the metric's.
        rank: how to rank, from (similarity, images, captions, caption_image (C,)); `exact_ranks` by default.

    Attributes:
        ranks: those of the last `compute`, images and captions in ascending order of their ids.
        folds: ids of the images of each fold, set before `compute`; `fold_ranks` then has each one's, in that order.
    """

    caption_image_ids: list[Tensor]
    full_state_update = False
    is_differentiable = False
    higher_is_better = True

    def __init__(
        self,
        similarity: Similarity,
        rank: Callable[[Similarity, Encodings, Encodings, Tensor], RetrievalRanks] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.similarity, self.rank = similarity, rank or exact_ranks
        self.ranks: RetrievalRanks | None = None
        self.folds: Sequence[Tensor] = ()
        self.fold_ranks: list[RetrievalRanks] = []
        for kind in ("image", "caption"):
            for state in ("vectors", "lengths", "ids"):
                self.add_state(f"{kind}_{state}", default=[], dist_reduce_fx="cat")
        self.add_state("caption_image_ids", default=[], dist_reduce_fx="cat")

    def update(
        self, images: Encoding, image_ids: Tensor, captions: Encoding, caption_ids: Tensor, caption_image_ids: Tensor
    ) -> None:
        """Take in one batch; T may differ from batch to batch.

        Args:
            images: vectors (B, T, H) and mask (B, T) bool.
            image_ids: (B,) whole numbers.
            captions: vectors (C, T, H) and mask (C, T) bool.
            caption_ids: (C,) whole numbers.
            caption_image_ids: (C,) id of each caption's image, in this batch or any other.
        """
        for kind, (vectors, mask), ids in (("image", images, image_ids), ("caption", captions, caption_ids)):
            getattr(self, f"{kind}_vectors").append(vectors[mask])  # without padding: batches of any T concatenate
            getattr(self, f"{kind}_lengths").append(mask.sum(dim=1))
            getattr(self, f"{kind}_ids").append(ids)
        self.caption_image_ids.append(caption_image_ids)

    def compute(self) -> dict[str, float]:
        """Give `retrieval_scores` of all that was taken in; ModelError if an image of a caption or fold never came."""
        images, _, image_ids = self._distinct("image")
        captions, kept, _ = self._distinct("caption")
        links = _places(image_ids, dim_zero_cat(self.caption_image_ids)[kept], "captions belong to")
        self.ranks = self.rank(self.similarity, images, captions, links)
        cut = [_places(image_ids, fold.to(image_ids), "places in a fold are of") for fold in self.folds]
        parts = image_folds(links, len(image_ids), cut)
        self.fold_ranks = [self.rank(self.similarity, images.select(i), captions.select(c), at) for i, c, at in parts]
        return retrieval_scores(self.ranks)

    def _distinct(self, kind: str) -> tuple[Encodings, Tensor, Tensor]:
        """Keep the first encoding of each id; give encodings, rows kept, and ids, all in the order of the ids."""
        if not len(getattr(self, f"{kind}_ids")):
            raise ModelError(f"no {kind} to rank; update the metric before it computes")
        ids = dim_zero_cat(getattr(self, f"{kind}_ids"))
        distinct, inverse = ids.unique(return_inverse=True)
        order = torch.arange(len(ids), device=ids.device)
        kept = torch.full_like(distinct, len(ids)).scatter_reduce(0, inverse, order, "amin")
        taken = (_listed(getattr(self, f"{kind}_{state}")) for state in ("vectors", "lengths"))
        parts = [part for vectors, lengths in zip(*taken, strict=True) for part in vectors.split(lengths.tolist())]
        return Encodings(parts).select(kept), kept, distinct


def _places(ids: Tensor, wanted: Tensor, what: str) -> Tensor:
    """Find ids (N,) among ascending ones; ModelError if one is not there."""
    places = torch.searchsorted(ids, wanted).clamp(max=len(ids) - 1)
    if len(missing := wanted[ids[places] != wanted]):
        raise ModelError(f"{len(missing)} {what} images that were not given, first {int(missing[0])}")
    return places


def _listed(state: list[Tensor] | Tensor) -> list[Tensor]:
    """What a metric has taken in, batch by batch, or as one where it comes from several processes."""
    return [state] if isinstance(state, Tensor) else state


def _scale(queries: Tensor, gallery: Tensor) -> Tensor:
    """Bound each query's scores, (Q,) float64: its length times that of the longest candidate."""
    lengths, longest = (torch.linalg.vector_norm(side, dim=1, dtype=torch.float64) for side in (queries, gallery))
    return lengths * longest.max()


def _paired_scores(left: Tensor, right: Tensor, left_rows: Tensor, right_rows: Tensor, block: int) -> Tensor:
    """Give the inner products (P,) of P pairs of rows in float64: equal vectors have equal scores."""
    pairs = zip(left_rows.split(block), right_rows.split(block), strict=True)
    return torch.cat([(left[a].double() * right[b].double()).sum(dim=1) for a, b in pairs])


def _count_at_least(queries: Tensor, gallery: Tensor, targets: Tensor, k: int, block: int, gpu: int | None) -> Tensor:
    """Count, for each query, the candidates whose exact score is at least its target, (Q,) float64."""
    index, scale = VectorIndex(gallery, gpu=gpu), _scale(queries, gallery)
    floors, slack = targets - EQUAL * scale, CLOSE * scale
    counts = torch.zeros(len(queries), dtype=torch.long, device=queries.device)
    whole = []
    for rows in torch.arange(len(queries), device=queries.device).split(block):
        scores, found = (part.to(queries.device) for part in index.search(queries[rows], k))
        gap = scores.double() - targets[rows, None]
        close = gap.abs() <= slack[rows, None]
        settled = (gap[:, -1] < -slack[rows]) | (scores.shape[1] == len(index))
        settled &= close.sum(dim=1) <= MAX_CLOSE
        query, place = (close & settled[:, None]).nonzero(as_tuple=True)
        again = _paired_scores(queries, gallery, rows[query], found[query, place], block)
        counts[rows] = (gap > slack[rows, None]).sum(dim=1)
        counts.index_add_(0, rows[query], (again >= floors[rows[query]]).long())
        whole.append(rows[~settled])
    rest = torch.cat(whole)
    counts[rest] = _count_in_blocks(queries[rest], gallery, floors[rest], block)
    return counts


def _count_in_blocks(queries: Tensor, gallery: Tensor, floors: Tensor, block: int) -> Tensor:
    """Count, for each query, the candidates that score at least its floor, (Q,) float64, by all products."""
    counts = torch.zeros(len(queries), dtype=torch.long, device=queries.device)
    for candidates in gallery.split(block):
        wide = candidates.double().T
        for rows in torch.arange(len(queries), device=queries.device).split(block):
            counts[rows] += (queries[rows].double() @ wide >= floors[rows, None]).sum(dim=1)
    return counts


def _positive_scores(
    similarity: Similarity, images: Encodings, captions: Encodings, links: Tensor, block: int
) -> Tensor:
    """Give each caption's score with its own image, (C,), out of the very blocks that are counted later."""
    shape = [-(-len(side) // block) for side in (images, captions)]
    place = torch.arange(len(links), device=links.device)
    wanted = torch.zeros(*shape, dtype=torch.bool, device=links.device)
    wanted[links // block, place // block] = True
    positives: Tensor | None = None
    for rows, columns, scores in block_similarity(similarity, images, captions, block, wanted.cpu()):
        if positives is None:
            positives = scores.new_zeros(len(links))
        inside = place[columns][(links[columns] >= rows.start) & (links[columns] < rows.stop)]
        positives[inside] = scores[links[inside] - rows.start, inside - columns.start]
    if positives is None:
        raise ModelError(NO_QUERY)
    return positives
