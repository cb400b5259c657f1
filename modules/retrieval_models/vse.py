"""VSE (Kiros et al. 2014), VSE++ (Faghri et al. 2018) and OE (Vendrov et al. 2016): one image layer, one GRU."""

from typing import Any

from torch import Tensor
from torch.nn import functional as F

from modules.encoders import LastState, masked_mean, region_layer
from modules.recurrent import widen
from modules.retrieval_models.base import ByOrder, Encoding, RetrievalModel, one_vector, register


@register("vse")
class VSE(RetrievalModel):
    """A linear layer of the mean region, the last state of a GRU, cosine; hinges over all negatives.

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
        """Images as one unit vector each."""
        return one_vector(F.normalize(widen(self.image(masked_mean(regions, mask))), dim=-1))

    def encode_captions(self, tokens: Tensor, lengths: Tensor, languages: Tensor) -> Encoding:
        """Captions as one unit vector each; one encoder for all languages."""
        return one_vector(F.normalize(widen(self.caption(tokens, lengths)), dim=-1))


@register("vse++")
class VSEPlusPlus(VSE):
    """VSE that learns from the hardest negatives."""

    loss = "hardest"


@register("oe")
class OrderEmbeddings(ByOrder, VSE):
    """Captions lie above their images in an order: vectors without signs, −‖max(0, t − v)‖²; hinges over all negatives.

    Vectors are of unit norm and then lose their signs.
    """
