"""The test of a retrieval model: encodings that are added in batches, and what is computed from all of them."""

from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities import dim_zero_cat

from modules.errors import ModelError
from modules.metrics.retrieval import RetrievalRanks, image_folds, retrieval_scores
from modules.search.encodings import Encoding, Encodings, Similarity
from modules.search.ranking import block_similarity, ranks_by_score


class EncodedTest:  # no dataclass: torchmetrics would look into it and change the shape of its tensors
    """Images and captions of a test in one language, encoded by a model.

    Args:
        similarity: the model's score of encoded images and captions.
        images: encodings of I images.
        captions: encodings of C captions.
        links: (C,) row of each caption's image.
        score: what the similarity is, as `RetrievalModel.score`; unless `inner product`, ranks are by blocks of scores.

    Examples:
        >>> vectors = Encodings.behind_each_other(torch.eye(3), torch.ones(3, dtype=torch.long))
        >>> dot = lambda one, other: one[0][:, 0] @ other[0][:, 0].t()
        >>> test = EncodedTest(dot, vectors, vectors, torch.tensor([0, 2, 2]), "inner product")
        >>> test.ranks().text_to_image.tolist()  # caption 1 has the vector of image 1, belongs to 2
        [1, 3, 1]
        >>> test.part(torch.tensor([2, 0])).links.tolist()  # without image 1
        [1, 0, 0]
    """

    def __init__(
        self, similarity: Similarity, images: Encodings, captions: Encodings, links: Tensor, score: str = ""
    ) -> None:  # fmt: skip
        self.similarity, self.images, self.captions = similarity, images, captions
        self.links, self.score = links, score

    def ranks(self) -> RetrievalRanks:
        """`ranks_by_score` of all images and captions."""
        return ranks_by_score(self.score, self.similarity, self.images, self.captions, self.links)

    def part(self, rows: Tensor) -> "EncodedTest":
        """The images of some rows (N,), in this order, and their captions."""
        ((rows, captions, links),) = image_folds(self.links, len(self.images), [rows.to(self.links.device)])
        return EncodedTest(self.similarity, self.images.select(rows), self.captions.select(captions), links, self.score)

    def scores(self, block: int = 512) -> Tensor:
        """The scores (I, C) of all images and captions, float32 on the CPU."""
        whole = torch.empty(len(self.images), len(self.captions))
        for rows, columns, scores in block_similarity(self.similarity, self.images, self.captions, block):
            whole[rows, columns] = scores.float().cpu()
        return whole


class GatheredTest(Metric):
    """Encodings that are added in batches, on one or several devices; `compute` returns all of them, an `EncodedTest`.

    Images or captions that are repeated (by DDP's sampler) are removed by id; all are in ascending order of their ids.
    Each process must add at least one batch, as it needs the tensor types to gather.

    Args:
        similarity: the model's score; a bound method, as the metric would register the weights of a module.
        score: as for `EncodedTest`.
    """

    caption_image_ids: list[Tensor]
    full_state_update = False
    is_differentiable = False
    higher_is_better = True

    def __init__(self, similarity: Similarity, score: str = "", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.similarity, self.score = similarity, score
        for kind in ("image", "caption"):
            for state in ("vectors", "lengths", "ids"):
                self.add_state(f"{kind}_{state}", default=[], dist_reduce_fx="cat")
        self.add_state("caption_image_ids", default=[], dist_reduce_fx="cat")

    def update(
        self, images: Encoding, image_ids: Tensor, captions: Encoding, caption_ids: Tensor, caption_image_ids: Tensor
    ) -> None:
        """Add one batch; T may differ between batches.

        Args:
            images: vectors (B, T, H) and mask (B, T) bool.
            image_ids: (B,) integers.
            captions: vectors (C, T, H) and mask (C, T) bool.
            caption_ids: (C,) integers.
            caption_image_ids: (C,) id of each caption's image, in this batch or any other.
        """
        for kind, (vectors, mask), ids in (("image", images, image_ids), ("caption", captions, caption_ids)):
            getattr(self, f"{kind}_vectors").append(vectors[mask])  # without padding, to concatenate batches of any T
            getattr(self, f"{kind}_lengths").append(mask.sum(dim=1))
            getattr(self, f"{kind}_ids").append(ids)
        self.caption_image_ids.append(caption_image_ids)

    def compute(self) -> Any:
        """Return the `EncodedTest` of all batches; ModelError if an image of a caption is missing."""
        images, _, image_ids = self._distinct("image")
        captions, kept, _ = self._distinct("caption")
        wanted = dim_zero_cat(self.caption_image_ids)[kept]
        links = torch.searchsorted(image_ids, wanted).clamp(max=len(image_ids) - 1)
        if len(missing := wanted[image_ids[links] != wanted]):
            raise ModelError(f"{len(missing)} captions belong to images without an encoding, first {int(missing[0])}; "
                             "add all images")  # fmt: skip
        return EncodedTest(self.similarity, images, captions, links, self.score)

    def _distinct(self, kind: str) -> tuple[Encodings, Tensor, Tensor]:
        """Return the first encoding of each id, its row, and the id, all in the order of the ids."""
        if not len(getattr(self, f"{kind}_ids")):
            raise ModelError(f"no {kind} to rank; call update before compute")
        ids = dim_zero_cat(getattr(self, f"{kind}_ids"))
        distinct, inverse = ids.unique(return_inverse=True)
        order = torch.arange(len(ids), device=ids.device)
        kept = torch.full_like(distinct, len(ids)).scatter_reduce(0, inverse, order, "amin")
        names = (f"{kind}_vectors", f"{kind}_lengths")
        vectors, lengths = (dim_zero_cat(getattr(self, name)) for name in names)
        for name, whole in zip(names, (vectors, lengths), strict=True):
            setattr(self, name, [whole])  # the batches are no longer held beside it
        return Encodings.behind_each_other(vectors, lengths).select(kept), kept, distinct


class RetrievalMetric(GatheredTest):
    """`retrieval_scores` of encodings that are added in batches, as `GatheredTest` has it.

    Attributes:
        ranks: of the last `compute`.
    """

    ranks: RetrievalRanks | None = None

    def compute(self) -> dict[str, float]:
        """Return the scores of all batches; raises as `GatheredTest` and `ranks_by_score`."""
        self.ranks = super().compute().ranks()
        return retrieval_scores(self.ranks)
