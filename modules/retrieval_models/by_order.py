"""The order score, for any model of single vectors."""

from torch import Tensor

from modules.retrieval_models.base import RetrievalModel
from modules.search.encodings import Encoding
from modules.search.scores import inner_product, order_violation


class ByOrder(RetrievalModel):
    """Mixin for models of single unit vectors: absolute values, and the order violation as score.

    The score −‖max(0, t − v)‖² is 0 if a caption t is above its image v in the order (Vendrov et al. 2016).
    """

    score = "vectors"

    def encode_images(self, regions: Tensor, mask: Tensor) -> Encoding:
        """Encode images as single unit vectors of absolute values."""
        vectors, real = super().encode_images(regions, mask)  # type: ignore[safe-super]
        return vectors.abs(), real

    def encode_captions(self, tokens: Tensor, lengths: Tensor, languages: Tensor) -> Encoding:
        """Encode captions as single unit vectors of absolute values."""
        vectors, real = super().encode_captions(tokens, lengths, languages)  # type: ignore[safe-super]
        return vectors.abs(), real

    def similarity(self, images: Encoding, captions: Encoding) -> Tensor:
        """Return scores (I, C), at most 0."""
        return order_violation(captions[0][:, 0], images[0][:, 0]).t()

    def caption_similarity(self, one: Encoding, other: Encoding) -> Tensor:
        """Return the cosines (N, M) of captions.

        Interpretation: a translation is not more general than its source, so the order violations of both directions
        are averaged: −½‖max(0, a − b)‖² − ½‖max(0, b − a)‖² = −½‖a − b‖², the cosine of unit vectors minus 1.
        """
        return inner_product(one[0][:, 0], other[0][:, 0])
