"""Multi-head attention with diversity (diverse attention, Huang et al. 2019)."""

from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from modules.errors import ModelError
from modules.layers.encoders import CaptionEncoder, HeadsPool, LanguageEncoders, region_layer
from modules.layers.recurrent import widen
from modules.losses.diversity import Reading, diversity, instances, require_reading
from modules.losses.pairs import Pairs
from modules.pretrained.pretrained_text import read_words
from modules.retrieval_models.base import Batch, Encoding, RetrievalModel, Score, one_vector, register
from modules.search.scores import best_assignment

MOST_HEADS = 5
"""Of a set: all assignments of heads are compared, 120 for 5."""
Match = Literal["concatenated", "set"]


@register("diverse-attention")
class DiverseAttention(RetrievalModel):
    """A perceptron over regions, a Bi-LSTM for each language, each pooled by K attention heads that a loss keeps apart.

    Interpretation: the perceptron is a linear layer and tanh; the two directions of a Bi-LSTM are averaged; the losses
    of the languages' captions are apart (Eq. 3-4). The languages share one table of word vectors; with
    `vse.share_words: false` each language has its own rows in it. The term between captions (γ) is `vse.caption_loss`.

    Args:
        heads: K.
        match: `concatenated`, the cosine of an image's and a caption's concatenated heads; or `set`, the mean cosine of
            heads under their best assignment.
        diversity: β, the weight of the diversity loss (Eq. 7).
        diversity_margin: α_D.
        diversity_reading: of Eq. 5: `apart`, `printed` or `distance`, see `modules.losses.diversity.diversity`.
        common: see `RetrievalModel`.

    Raises:
        ModelError: an option has no such value.
    """

    languages_apart = True

    def __init__(
        self, heads: int = 3, match: Match = "concatenated", diversity: float = 1.0, diversity_margin: float = 0.1,
        diversity_reading: Reading = "apart", **common: Any,
    ) -> None:  # fmt: skip
        super().__init__(**common)
        _require_options(heads, match, diversity)
        require_reading(diversity_reading)
        self.heads, self.match, self.score = heads, match, self.score_with(match=match)
        self.has_graphs = match != "set"  # assignments are made on the host
        self.diversity, self.diversity_margin, self.diversity_reading = diversity, diversity_margin, diversity_reading
        self.regions = region_layer(self.region_dim, self.dim)
        self.pool_regions = HeadsPool(self.dim, heads)
        self.words = self.make_words()
        sizes = (self.words.embedding_dim, self.dim, self.dropout, heads)
        self.captions = LanguageEncoders(self.languages, lambda: _CaptionHeads(*sizes))

    @classmethod
    def score_with(cls, **options: Any) -> Score:
        """Return `sets` for `match: set`, else `inner product`."""
        return "sets" if options.get("match") == "set" else "inner product"

    def encode_images(self, regions: Tensor, mask: Tensor) -> Encoding:
        """Encode images as single unit vectors, or as sets of K of them."""
        return self._encoding(self.pool_regions(self._perceptron(regions), mask))

    def region_weights(self, regions: Tensor, mask: Tensor) -> Tensor:
        """Return a (B, K, R) of Eq. 1."""
        return self.pool_regions.weights(self._perceptron(regions), mask)

    def encode_captions(self, tokens: Tensor, lengths: Tensor, languages: Tensor) -> Encoding:
        """Encode captions, by the encoder of their language; ModelError if there is none."""
        return self._encoding(self.captions(*read_words(self.words, tokens, lengths), languages))

    def similarity(self, images: Encoding, captions: Encoding) -> Tensor:
        """Return cosines (I, C) of concatenated heads, or mean cosines of the best assigned ones."""
        return best_assignment(images[0], captions[0]) if self.match == "set" else super().similarity(images, captions)

    def auxiliary_losses(self, batch: Batch, pairs: Pairs) -> dict[str, Tensor]:
        """Return `diversity`, β times Eq. 6, unless β is 0 or K is 1; measure active terms and cosines of heads."""
        if self.heads == 1:
            return {}
        with torch.set_grad_enabled(self.diversity > 0 and torch.is_grad_enabled()):
            images, captions = self._heads(pairs.images), self._heads(pairs.captions)
            joined = instances(images, captions, pairs.caption_image, pairs.languages, pairs.sentences,
                               len(self.languages))  # fmt: skip
            terms = diversity(*joined, self.diversity_margin, self.diversity_reading)
        self.figures = {"diversity_active": terms.active, "head_cosine": terms.cosine}
        return {"diversity": self.diversity * terms.loss} if self.diversity else {}

    def _perceptron(self, regions: Tensor) -> Tensor:
        return torch.tanh(widen(self.regions(regions)))

    def _heads(self, encoding: Encoding) -> Tensor:
        return encoding[0].reshape(len(encoding[0]), self.heads, self.dim)

    def _encoding(self, heads: Tensor) -> Encoding:
        if self.match == "set":
            return F.normalize(heads, dim=-1), heads.new_ones(heads.shape[:2]).bool()
        return one_vector(F.normalize(heads.flatten(1), dim=-1))


class _CaptionHeads(nn.Module):
    """A Bi-LSTM over word vectors, pooled by attention heads."""

    def __init__(self, word_dim: int, dim: int, dropout: float, heads: int) -> None:
        super().__init__()
        self.states = CaptionEncoder(nn.Identity(), word_dim, dim, dropout)
        self.pool = HeadsPool(dim, heads)

    def forward(self, words: Tensor, lengths: Tensor) -> Tensor:
        """Return heads (B, K, H) of word vectors (B, L, E)."""
        pooled: Tensor = self.pool(*self.states(words, lengths))
        return pooled


def _require_options(heads: int, match: str, weight: float) -> None:
    if heads < 1:
        raise ModelError(f"heads is {heads}; expected 1 or more")
    if match not in get_args(Match):
        raise ModelError(f"match {match!r}: expected one of {', '.join(get_args(Match))}")
    if match == "set" and heads > MOST_HEADS:
        raise ModelError(f"heads is {heads}; with match: set expected at most {MOST_HEADS}")
    if weight < 0:
        raise ModelError(f"diversity is {weight}; expected 0 or more")
