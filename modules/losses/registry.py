"""Losses on a similarity matrix of images and captions; masks mark the positive and negative pairs.

`positives` and `negatives` come from `negative_mask`. A pair that is neither (the same sentence under another
image) is ignored. Half-precision scores are converted to float32; float64 scores stay float64.
"""

import math
from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from modules.errors import ModelError
from modules.layers.recurrent import widen
from modules.layers.static import is_static
from modules.losses.contrastive import contrastive_loss, one_to_k_loss, sigmoid_loss
from modules.losses.triplet import (
    hard_negative_loss,
    most_violated_loss,
    random_hinges_loss,
    sum_of_hinges_loss,
)
from modules.plugins import import_plugins, registers

LOSSES = ("hardest", "hardest-k", "sum", "random", "infonce", "one-to-k", "sigmoid")
OWN: dict[str, type[nn.Module]] = {}
register_loss = registers(OWN, "loss")
"""Registers a loss of one's own as `vse.loss`, `@register_loss("name")`: an `nn.Module` that is made with the margin
and called with scores (I, C) and the masks of positive and of negative pairs (I, C); its parameters are learned."""
CONTRASTIVE = ("infonce", "one-to-k", "sigmoid")
Distance = Literal["cosine", "euclidean"]
_SMALLEST = 1e-6  # squared distance, so that the gradient of its root is finite


def loss_names() -> list[str]:
    """Return the names of all losses, those of other packages last.

    Raises:
        ModelError: a package that lists a module for this cannot be imported.

    Examples:
        >>> loss_names()[:3]
        ['hardest', 'hardest-k', 'sum']
    """
    import_plugins()
    return [*LOSSES, *sorted(OWN)]


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

    Examples:
        >>> images, links, sentences = torch.tensor([7, 8]), torch.tensor([0, 0, 1]), torch.tensor([11, 12, 11])
        >>> positives, negatives = negative_mask(images, links, sentences)
        >>> positives.int().tolist()
        [[1, 1, 0], [0, 0, 1]]
        >>> negatives.int().tolist()  # image 7 has the sentence of caption 2 too, and image 8 that of caption 0
        [[0, 0, 0], [0, 1, 0]]
    """
    positives = image_keys[:, None] == image_keys[caption_image][None, :]
    owners, owned = image_keys[caption_image], sentence_hash
    if image_sentences is not None:
        owners, owned = torch.cat([owners, image_sentences[:, 0]]), torch.cat([owned, image_sentences[:, 1]])
    if is_static(owned):  # float32 counts exactly
        has_owned = (image_keys[:, None] == owners).float()
        return positives, has_owned @ (owned[:, None] == sentence_hash).float() == 0
    sentences, sentence = owned.unique(return_inverse=True)
    has = positives.new_zeros(len(image_keys), len(sentences))
    image, place = (image_keys[:, None] == owners[None, :]).nonzero(as_tuple=True)
    has[image, sentence[place]] = True
    return positives, ~has[:, sentence[: len(sentence_hash)]]


class RankingLoss(nn.Module):
    """A loss by name, with its learned parameters (the scale of InfoNCE, scale and bias of the sigmoid loss).

    Args:
        kind: `hardest` (Eq. 9-10), `hardest-k` (the K most violated), `sum` (Eq. 8), `random` (one drawn),
            `infonce`, `one-to-k` or `sigmoid`; or the name of a registered loss.
        margin: α of the first four, and of registered losses.
        type_weights: β of `hardest`, one for each type; None: equal.
        warmup_epochs: first epochs, in which `hardest` and `hardest-k` take the mean hinge over all negatives, as in
            pre-training before them; 0: none, nor in pre-training.
        count: K of `hardest-k`.
        distance: what is compared: `cosine`, the scores as they are, or `euclidean`, −√(2 − 2s), minus the distance of
            unit vectors with the inner product s.

    Raises:
        ModelError: `kind` is unknown.

    Examples:
        >>> scores = torch.tensor([[0.9, 0.8, 0.6], [0.1, 0.9, 0.1], [0.1, 0.1, 0.9]])
        >>> right, types = torch.eye(3, dtype=torch.bool), torch.zeros(3, dtype=torch.long)
        >>> loss = RankingLoss("hardest", margin=0.2, warmup_epochs=1)
        >>> [round(float(loss(scores, right, ~right, types, epoch)), 2) for epoch in (0, 1)]  # the mean, the hardest
        [0.1, 0.2]
    """

    def __init__(
        self, kind: str, margin: float, type_weights: Sequence[float] | None = None, warmup_epochs: int = 0,
        count: int = 10, distance: Distance = "cosine",
    ) -> None:  # fmt: skip
        super().__init__()
        if kind not in LOSSES and kind not in loss_names():
            raise ModelError(f"loss {kind!r}: expected one of {', '.join(loss_names())}")
        self.kind, self.margin, self.warmup_epochs, self.count = kind, margin, warmup_epochs, count
        self.distance = distance
        weights = None if type_weights is None else torch.tensor(type_weights)
        self.type_weights: Tensor | None
        self.register_buffer("type_weights", weights, persistent=False)
        self.own = OWN[kind](margin) if kind in OWN else None
        if kind in CONTRASTIVE:  # initial values of CLIP and of SigLIP
            self.log_scale = nn.Parameter(torch.tensor(10.0 if kind == "sigmoid" else 1 / 0.07).log())
        if kind == "sigmoid":
            self.bias = nn.Parameter(torch.tensor(-10.0))

    def bounded_scale(self) -> Tensor:
        """The logarithm of the scale; of InfoNCE and one-to-K at most CLIP's, from which it can come back."""
        if self.kind != "sigmoid":
            self.log_scale.data.clamp_(max=math.log(100))
        return self.log_scale

    @property
    def by_host(self) -> bool:
        """May a step read or draw values on the host, and so be no CUDA graph? A loss of one's own may."""
        return self.kind == "random" or (self.kind == "hardest" and self.type_weights is None) or self.own is not None

    def warms_up(self, epoch: int) -> bool:
        """Does the mean hinge over all negatives replace the hardest in this epoch?"""
        return self.kind in ("hardest", "hardest-k") and self.warmup_epochs > 0 and epoch < self.warmup_epochs

    def forward(
        self, similarity: Tensor, positives: Tensor, negatives: Tensor, types: Tensor | None, epoch: int = 0,
        draw: tuple[int, int] = (0, 0), links: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        """The loss of scores (I, C), with masks (I, C) and caption types (C,); None: all captions weigh the same.

        `epoch` counts from 0 and is below 0 in pre-training; `draw` is the number of the step and of the loss in it, by
        which `random` draws. `links` (C,) is the row of each column's one positive; None: it may have several.

        Raises:
            ModelError: a registered loss returns no tensor of one number.
        """
        if self.distance == "euclidean":
            similarity = -(2 - 2 * widen(similarity)).clamp(min=_SMALLEST).sqrt()
        if self.own is not None:
            return self._of_own(similarity, positives, negatives)
        if self.kind == "hardest":
            weights = self.type_weights
            if types is None:
                types, weights = positives.new_zeros(len(positives[0]), dtype=torch.long), similarity.new_ones(1)
            return hard_negative_loss(
                similarity, positives, negatives, types, self.margin, weights,
                hardest=not self.warms_up(epoch), links=links,
            )  # fmt: skip
        if self.kind == "hardest-k":
            count = max(similarity.shape) if self.warms_up(epoch) else self.count
            return most_violated_loss(similarity, positives, negatives, self.margin, count, links)
        if self.kind == "random":
            return random_hinges_loss(similarity, positives, negatives, self.margin, draw, links)
        if self.kind == "sum":
            return sum_of_hinges_loss(similarity, positives, negatives, self.margin, links)
        if self.kind == "sigmoid":
            return sigmoid_loss(similarity, positives, negatives, self.log_scale.exp(), self.bias)
        scale = self.bounded_scale().exp() if self.kind in CONTRASTIVE else similarity.new_ones(())
        if self.kind == "infonce":
            return contrastive_loss(similarity, positives, negatives, scale)
        if self.kind == "one-to-k":
            return one_to_k_loss(similarity, positives, negatives, scale)
        raise ModelError(f"loss {self.kind!r} is in LOSSES, but RankingLoss.forward does not compute it")

    def _of_own(self, *arguments: Tensor) -> Tensor:
        """What a registered loss gives, which must be one number."""
        assert self.own is not None
        loss: Any = self.own(*arguments)
        if not isinstance(loss, Tensor) or loss.dim():
            what = f"{tuple(loss.shape)}" if isinstance(loss, Tensor) else f"a {type(loss).__name__}"
            raise ModelError(f"loss {self.kind!r} returns {what}; expected a tensor of one number, shape ()")
        return loss
