"""VSE (Kiros et al. 2014), VSE++ (Faghri et al. 2018) and OE (Vendrov et al. 2016): one image layer, one GRU."""

from typing import Any

from torch import Tensor
from torch.nn import functional as F

from modules.layers.encoders import LastState, masked_mean, region_layer
from modules.layers.recurrent import widen
from modules.retrieval_models.base import Encoding, RetrievalModel, one_vector, register
from modules.retrieval_models.by_order import ByOrder


@register("vse")
class VSE(RetrievalModel):
    """A linear layer on the mean region, the last state of a GRU, cosine; sum of hinges over all negatives.

    Args:
        common: see `RetrievalModel`.
    """

    loss = "sum"

    def __init__(self, **common: Any) -> None:
        super().__init__(**common)
        self.image = region_layer(self.region_dim, self.dim)
        words = self.make_words()
        self.caption = LastState(words, words.embedding_dim, self.dim, self.dropout)

    def encode_images(self, regions: Tensor, mask: Tensor) -> Encoding:
        """Encode images as single unit vectors."""
        return one_vector(F.normalize(widen(self.image(masked_mean(regions, mask))), dim=-1))

    def encode_captions(self, tokens: Tensor, lengths: Tensor, languages: Tensor) -> Encoding:
        """Encode captions as single unit vectors; one encoder for all languages."""
        return one_vector(F.normalize(widen(self.caption(tokens, lengths)), dim=-1))


@register("vse++")
class VSEPlusPlus(VSE):
    """VSE trained with the hardest negatives."""

    loss = "hardest"


@register("oe")
class OrderEmbeddings(ByOrder, VSE):
    """VSE with the order violation −‖max(0, t − v)‖² as score; sum of hinges over all negatives.

    Vectors are the absolute values of unit vectors; captions are above their images in the order.
    """
