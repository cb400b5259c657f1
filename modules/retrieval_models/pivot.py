"""PIVOT: the image as pivot between languages (Gella et al. 2017), in its four forms."""

from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from modules.layers.encoders import LanguageEncoders, LastState, masked_mean, region_layer
from modules.layers.recurrent import widen
from modules.losses.captions import between_captions
from modules.losses.pairs import Pairs
from modules.losses.triplet import sum_of_hinges_loss
from modules.pretrained.pretrained_text import read_words
from modules.retrieval_models.base import Batch, Compared, Encoding, RetrievalModel, one_vector, register
from modules.retrieval_models.by_order import ByOrder


@register("pivot-sym")
class Pivot(RetrievalModel):
    """A linear layer on the mean region, a GRU for each language, cosine; sum of hinges for each language.

    The languages share one table of word vectors; with `vse.share_words: false` each language has its own rows in it.

    Args:
        common: see `RetrievalModel`.
    """

    loss = "sum"
    languages_apart = True

    def __init__(self, **common: Any) -> None:
        super().__init__(**common)
        self.image = region_layer(self.region_dim, self.dim)
        self.words = self.make_words()
        sizes = (self.words.embedding_dim, self.dim, self.dropout)
        self.captions = LanguageEncoders(self.languages, lambda: LastState(nn.Identity(), *sizes))

    def encode_images(self, regions: Tensor, mask: Tensor) -> Encoding:
        """Encode images as single unit vectors."""
        return one_vector(F.normalize(widen(self.image(masked_mean(regions, mask))), dim=-1))

    def encode_captions(self, tokens: Tensor, lengths: Tensor, languages: Tensor) -> Encoding:
        """Encode captions as single unit vectors by the encoder of their language; ModelError if there is none."""
        words, lengths = read_words(self.words, tokens, lengths)
        return one_vector(F.normalize(widen(self.captions(words, lengths, languages)), dim=-1))


@register("pivot-asym")
class PivotAsymmetric(ByOrder, Pivot):
    """PIVOT with the order violation −‖max(0, t − v)‖² of absolute unit vectors as score; see `Pivot`."""


class Parallel(RetrievalModel):
    """Mixin that adds hinges between the captions of an image in every two languages, in both directions (PARALLEL).

    Interpretation: captions are compared by cosine in both forms (`ByOrder.caption_similarity`).

    Args:
        caption_margin: α of the hinges between captions.
        common: see `RetrievalModel`.
    """

    def __init__(self, caption_margin: float = 0.2, **common: Any) -> None:
        super().__init__(**common)
        self.caption_margin = caption_margin

    @classmethod
    def needs_pairs(cls, **options: Any) -> Compared | None:
        """Captions in two languages."""
        return "languages"

    def auxiliary_losses(self, batch: Batch, pairs: Pairs) -> dict[str, Tensor]:
        """Return `parallel`, the sum of hinges over all pairs of languages."""
        hinges = partial(sum_of_hinges_loss, margin=self.caption_margin)
        return {"parallel": between_captions(pairs, self.caption_similarity, hinges, len(self.languages))}


@register("pivot-parallel-sym")
class PivotParallel(Parallel, Pivot):
    """PIVOT with cosine and with hinges between captions; see `Pivot` and `Parallel`."""


@register("pivot-parallel-asym")
class PivotParallelAsymmetric(Parallel, PivotAsymmetric):
    """PIVOT with order violation and with hinges between captions; see `Pivot` and `Parallel`."""
