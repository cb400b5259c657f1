"""The encodings of a batch, which losses read."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from modules.errors import ModelError
from modules.layers.recurrent import widen
from modules.search.encodings import Encoding


@dataclass(frozen=True)
class Pairs:
    """The encodings of a batch on all devices, and which pairs match.

    Attributes:
        images: encodings of I distinct images.
        captions: encodings of C captions.
        caption_image: (C,) row of each caption's image.
        positives: (I, C) bool, the matching pairs.
        negatives: (I, C) bool, the negative pairs.
        types: (C,) type (language and source) of each caption.
        languages: (C,) language of each caption, as an index into the model's languages.
        sentences: (C,) hash of each caption's normalised sentence.
    """

    images: Encoding
    captions: Encoding
    caption_image: Tensor
    positives: Tensor
    negatives: Tensor
    types: Tensor
    languages: Tensor
    sentences: Tensor

    def among(self, chosen: Tensor) -> "Pairs":
        """The same encodings, where only the pairs of some captions (C,) and of their images match or are negative."""
        images = (self.positives & chosen).any(1)
        own = images[:, None] & chosen
        return replace(self, positives=self.positives & own, negatives=self.negatives & own)

    def in_order(self) -> "Pairs":
        """The same, with captions in the order of images, sentences and types, whatever device has encoded them."""
        order = self.types.argsort(stable=True)
        for key in (self.sentences, self.caption_image):
            order = order[key[order].argsort(stable=True)]
        vectors, mask = self.captions
        return replace(
            self, captions=(vectors[order], mask[order]), caption_image=self.caption_image[order],
            positives=self.positives[:, order], negatives=self.negatives[:, order], types=self.types[order],
            languages=self.languages[order], sentences=self.sentences[order],
        )  # fmt: skip


def scores_of(similarity: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
    """Return scores (I, C) for a loss, in float32 at least.

    Raises:
        ModelError: a mask is not bool, or of another shape.

    Examples:
        >>> own = torch.eye(2, dtype=torch.bool)
        >>> scores_of(torch.eye(2, dtype=torch.bfloat16), own, ~own).dtype
        torch.float32
    """
    for name, mask in (("positives", positives), ("negatives", negatives)):
        if mask.dtype != torch.bool or mask.shape != similarity.shape:
            raise ModelError(
                f"{name} are {tuple(mask.shape)} of {str(mask.dtype).removeprefix('torch.')}; expected a mask of bool "
                f"{tuple(similarity.shape)}, as the scores"
            )
    return widen(similarity)
