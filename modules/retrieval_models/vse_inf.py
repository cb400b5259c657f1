"""VSE∞: regions and words pooled by a learned pooling operator (Chen et al. 2021)."""

from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from modules.layers.encoders import CaptionEncoder, region_layer
from modules.layers.pooling import GeneralisedPool
from modules.layers.recurrent import widen
from modules.retrieval_models.base import Encoding, RetrievalModel, one_vector, register


@register("vse-inf")
class VSEInfinity(RetrievalModel):
    """A linear layer plus a perceptron over regions, a Bi-GRU over words, each with its own pooling operator; cosine.

    Interpretation: the perceptron has one hidden layer of H / 2, without the batch normalisation of the published code,
    so that a vector does not depend on the rest of the batch or on the number of devices. The paper's size
    augmentation is `vse.drop_regions` and `vse.drop_words`, 0.2 each.

    Args:
        common: see `RetrievalModel`.
    """

    def __init__(self, **common: Any) -> None:
        super().__init__(**common)
        self.regions = region_layer(self.region_dim, self.dim)
        hidden = max(self.dim // 2, 1)
        self.perceptron = nn.Sequential(nn.Linear(self.region_dim, hidden), nn.ReLU(), nn.Linear(hidden, self.dim))
        words = self.make_words()
        self.captions = CaptionEncoder(words, words.embedding_dim, self.dim, self.dropout, cell="gru")
        self.pool_regions, self.pool_words = GeneralisedPool(), GeneralisedPool()

    def encode_images(self, regions: Tensor, mask: Tensor) -> Encoding:
        """Encode images as single unit vectors."""
        vectors = widen(self.regions(regions)) + widen(self.perceptron(regions))
        return one_vector(F.normalize(self.pool_regions(vectors, mask), dim=-1))

    def encode_captions(self, tokens: Tensor, lengths: Tensor, languages: Tensor) -> Encoding:
        """Encode captions as single unit vectors; one encoder for all languages."""
        return one_vector(F.normalize(self.pool_words(*self.captions(tokens, lengths)), dim=-1))
