"""SAN, the simplest attention network (mmt-retrieval, section 3.2, Eq. 7)."""

from typing import Any

from torch import Tensor
from torch.nn import functional as F

from modules.layers.encoders import AttentionPool, CaptionEncoder, region_layer
from modules.layers.recurrent import widen
from modules.retrieval_models.base import Encoding, RetrievalModel, one_vector, register


@register("san")
class SAN(RetrievalModel):
    """A linear layer over regions, a Bi-LSTM over words, each pooled by attention with one context vector; cosine.

    Interpretation: the two directions of the Bi-LSTM are averaged, as those of SCAN's Bi-GRU.

    Args:
        common: see `RetrievalModel`.
    """

    def __init__(self, **common: Any) -> None:
        super().__init__(**common)
        self.regions = region_layer(self.region_dim, self.dim)
        words = self.make_words()
        self.captions = CaptionEncoder(words, words.embedding_dim, self.dim, self.dropout)
        self.pool_regions = AttentionPool(self.dim)
        self.pool_words = AttentionPool(self.dim)

    def encode_images(self, regions: Tensor, mask: Tensor) -> Encoding:
        """Encode images as single unit vectors."""
        return one_vector(F.normalize(self.pool_regions(widen(self.regions(regions)), mask), dim=-1))

    def region_weights(self, regions: Tensor, mask: Tensor) -> Tensor:
        """Return α (B, 1, R) of Eq. 7, the attention of its one context vector."""
        return self.pool_regions.weights(widen(self.regions(regions)), mask)[:, None]

    def encode_captions(self, tokens: Tensor, lengths: Tensor, languages: Tensor) -> Encoding:
        """Encode captions as single unit vectors; one encoder for all languages."""
        return one_vector(F.normalize(self.pool_words(*self.captions(tokens, lengths)), dim=-1))
