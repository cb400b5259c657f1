"""PIVOT: the image as pivot between languages (Gella et al. 2017), in its four forms."""

from itertools import combinations
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from modules.encoders import LanguageEncoders, LastState, masked_mean, region_layer
from modules.losses import sum_of_hinges_loss
from modules.recurrent import widen
from modules.retrieval_models.base import Batch, ByOrder, Encoding, Pairs, RetrievalModel, one_vector, register
from modules.scores import inner_product


@register("pivot-sym")
class Pivot(RetrievalModel):
    """A linear layer of the mean region, a GRU for each language; cosine; hinges between images and each language.

    The languages share one table of word vectors, in which `vse.share_words: false` gives each its own rows.

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
        """Images as one unit vector each."""
        return one_vector(F.normalize(widen(self.image(masked_mean(regions, mask))), dim=-1))

    def encode_captions(self, tokens: Tensor, lengths: Tensor, languages: Tensor) -> Encoding:
        """Captions as one unit vector each, by their language's encoder; ModelError if it has none."""
        return one_vector(F.normalize(widen(self.captions(self.words(tokens), lengths, languages)), dim=-1))


@register("pivot-asym")
class PivotAsymmetric(ByOrder, Pivot):
    """PIVOT with the order violation −‖max(0, t − v)‖² of unit vectors without signs; see `Pivot`."""


class Parallel(RetrievalModel):
    """Adds hinges between the captions of an image in each two languages, both ways (PARALLEL).

    Reading: captions are compared by cosine in both forms. A translation is no more general than what it translates,
    and the mean of both directions' order violations, −½‖max(0, a − b)‖² − ½‖max(0, b − a)‖² = −½‖a − b‖², is the
    cosine of unit vectors less 1.

    Args:
        caption_margin: α between captions.
        common: see `RetrievalModel`.
    """

    def __init__(self, caption_margin: float = 0.2, **common: Any) -> None:
        super().__init__(**common)
        self.caption_margin = caption_margin

    def auxiliary_losses(self, batch: Batch, pairs: Pairs) -> dict[str, Tensor]:
        """`parallel`: the sum of hinges over all pairs of languages.

        A caption is no negative of another if the other's image owns its sentence, or its image the other's.
        """
        vectors, images = pairs.captions[0][:, 0], pairs.caption_image
        matching = images[:, None] == images
        apart = pairs.negatives[images]
        apart = apart & apart.t()
        losses = [0 * vectors.sum()]
        for one, other in combinations(pairs.languages.unique().tolist(), 2):
            rows, columns = pairs.languages == one, pairs.languages == other
            right, wrong = (mask[rows][:, columns] for mask in (matching, apart))
            scores = inner_product(vectors[rows], vectors[columns])
            losses.append(sum_of_hinges_loss(scores, right, wrong, self.caption_margin))
        return {"parallel": torch.stack(losses).sum()}


@register("pivot-parallel-sym")
class PivotParallel(Parallel, Pivot):
    """PIVOT with hinges between captions too, by cosine; see `Pivot` and `Parallel`."""


@register("pivot-parallel-asym")
class PivotParallelAsymmetric(Parallel, PivotAsymmetric):
    """PIVOT with hinges between captions too, by order violation; see `Pivot` and `Parallel`."""
