"""The embedding network, its form with a branch per language, and MULE (Kim et al. 2020)."""

from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from modules.errors import ModelError, require_weights
from modules.layers.batch_norm import GlobalBatchNorm
from modules.layers.encoders import LanguageEncoders, LastState, masked_mean, real_words
from modules.layers.recurrent import widen
from modules.layers.static import is_static
from modules.losses.pairs import Pairs
from modules.pretrained.pretrained_text import read_words
from modules.retrieval_models.base import Batch, Compared, Encoding, RetrievalModel, one_vector, register

Cell = Literal["lstm", "gru"]


@register("embn")
class EmbN(RetrievalModel):
    """A two-branch embedding network (Wang et al. 2019): two layers on the mean region, an LSTM over words; cosine.

    The image branch is linear, batch normalisation, ReLU, linear; the text branch the last state of an LSTM and a
    linear layer. All languages share the text branch.

    Args:
        image_dim: size of the image branch's hidden layer; None: 4H, the paper's 2048 for H = 512.
        state_dim: size of the LSTM's state; None: 2H, the paper's 1024.
        cell: `lstm` (the paper), or `gru` (its published code).
        anchor: weight of Σ‖w − w₀‖² over the word table, which holds word vectors to their start w₀; 0: none.
        image_dropout: dropout rate of the image branch's hidden layer, after the ReLU; 0.5 in the published code.
        common: see `RetrievalModel`.
    """

    loss = "hardest-k"

    def __init__(
        self, image_dim: int | None = None, state_dim: int | None = None, cell: Cell = "lstm", anchor: float = 5e-7,
        image_dropout: float = 0.0, **common: Any,
    ) -> None:  # fmt: skip
        super().__init__(**common)
        if not 0 <= image_dropout < 1:
            raise ModelError(f"image_dropout is {image_dropout:g}; expected 0 or more, and less than 1")
        if cell not in ("lstm", "gru"):
            raise ModelError(f"cell {cell!r}: expected lstm or gru")
        self.state_dim, self.cell, self.anchor = state_dim or 2 * self.dim, cell, anchor
        image_dim = image_dim or 4 * self.dim
        active = nn.Sequential(nn.ReLU(), nn.Dropout(image_dropout)) if image_dropout else nn.ReLU()
        self.image = nn.Sequential(
            nn.Linear(self.region_dim, image_dim, bias=False),  # the normalisation has one
            GlobalBatchNorm(image_dim), active, nn.Linear(image_dim, self.dim),
        )  # fmt: skip
        self.words = self.make_words()
        self.captions = self.make_branch()
        self.start: Tensor
        start = self.words.weight.detach().clone() if isinstance(self.words, nn.Embedding) else None
        self.register_buffer("start", start, persistent=False)

    def make_branch(self) -> nn.Module:
        """Return the text branch over words (B, L, E)."""
        return self._branch(self.words.embedding_dim)

    def _branch(self, word_dim: int) -> nn.Module:
        return _Branch(word_dim, self.state_dim, self.dim, self.dropout, self.cell)

    def set_word_vectors(self, vectors: Tensor, numbers: Tensor | None = None) -> None:
        """Initialise word vectors, as `RetrievalModel` does; the anchor then holds them there."""
        super().set_word_vectors(vectors, numbers)
        self.weights_were_set()

    def weights_were_set(self) -> None:
        """Let the anchor hold the word vectors where they are now."""
        if isinstance(self.words, nn.Embedding):
            self.start.copy_(self.words.weight.detach())

    def encode_images(self, regions: Tensor, mask: Tensor) -> Encoding:
        """Encode images as single unit vectors."""
        return one_vector(F.normalize(widen(self.image(masked_mean(regions, mask))), dim=-1))

    def encode_captions(self, tokens: Tensor, lengths: Tensor, languages: Tensor) -> Encoding:
        """Encode captions as single unit vectors."""
        return self.encode_words(*read_words(self.words, tokens, lengths), languages)

    def encode_words(self, words: Tensor, lengths: Tensor, languages: Tensor) -> Encoding:
        """Encode captions whose word vectors (C, L, E) are known as single unit vectors."""
        return one_vector(F.normalize(widen(self.captions(words, lengths)), dim=-1))

    def auxiliary_losses(self, batch: Batch, pairs: Pairs) -> dict[str, Tensor]:
        """Return `anchor`, the weighted squared distance of word vectors from their start, unless its weight is 0."""
        if not self.anchor or not isinstance(self.words, nn.Embedding):
            return {}
        return {"anchor": self.anchor * (self.words.weight - self.start).square().sum()}


@register("parallel-embn")
class ParallelEmbN(EmbN):
    """EmbN with a text branch for each language, and one image branch (PARALLEL-EmbN, after Gella et al. 2017)."""

    def make_branch(self) -> nn.Module:
        """Return a text branch for each language."""
        return LanguageEncoders(self.languages, lambda: self._branch(self.words.embedding_dim))

    def encode_words(self, words: Tensor, lengths: Tensor, languages: Tensor) -> Encoding:
        """Encode captions as single unit vectors, by the branch of their language; ModelError if there is none."""
        return one_vector(F.normalize(widen(self.captions(words, lengths, languages)), dim=-1))


@register("mule")
class Mule(EmbN):
    """EmbN over a universal embedding: a linear layer per language takes word vectors to a space that all share.

    Losses (Eq. 1-4): λ1 · neighbourhood constraints, on the mean universal vector u of a sentence and on its joint
    vector s; a language classifier of u behind a gradient reversal of weight λ2; λ3 · triplets of images and sentences.
    Before that, for `pretrain_epochs` epochs, only u learns, by neighbourhood constraints, with fixed word vectors.
    Arguments that are not listed are those of `EmbN` and `RetrievalModel`.

    Args:
        universal_dim: U, size of the universal embedding; None: H, the paper's 512.
        neighbours: λ1; 0 leaves the neighbourhood constraints out (NC).
        same_language: weight of neighbours in one language apart from those in two; None: they compete together.
            Here it is of u and s; the published code has 0.05, of s alone.
        classifier: λ2, of the reversed gradient; 0 leaves the language classifier out (LC).
        classifier_weight: of the classifier's own loss.
        matching: λ3.
        pretrain_epochs: epochs of pre-training u (LP); 0 leaves it out.
    """

    takes_caption_loss = False
    changes = 1  # a neighbourhood constraint counts once

    def __init__(
        self, universal_dim: int | None = None, neighbours: float = 1.0, same_language: float | None = None,
        classifier: float = 1e-6, classifier_weight: float = 1.0, matching: float = 1.0, pretrain_epochs: int = 5,
        image_dim: int | None = None, state_dim: int | None = None, cell: Cell = "lstm", anchor: float = 5e-7,
        image_dropout: float = 0.0, **common: Any,
    ) -> None:  # fmt: skip
        self.universal_dim = universal_dim or common.get("dim", 512)
        sizes = {"image_dim": image_dim, "state_dim": state_dim}
        super().__init__(**sizes, cell=cell, anchor=anchor, image_dropout=image_dropout, **common)
        require_weights(
            neighbours=neighbours, classifier=classifier, classifier_weight=classifier_weight, matching=matching,
            pretrain_epochs=pretrain_epochs, same_language=same_language or 0.0,
        )  # fmt: skip
        self.neighbours, self.same_language, self.matching = neighbours, same_language, matching
        self.classifier, self.classifier_weight = classifier, classifier_weight
        self.pretrain_epochs = pretrain_epochs
        self.to_universal = LanguageEncoders(
            self.languages, lambda: _Linear(self.words.embedding_dim, self.universal_dim)
        )
        self.language_of = nn.Linear(self.universal_dim, len(self.languages))

    @classmethod
    def module(cls) -> type:
        """Return `MuleTraining`."""
        from modules.training.mule import MuleTraining

        return MuleTraining

    @classmethod
    def needs_pairs(cls, **options: Any) -> Compared | None:
        """Captions, unless both losses that compare them are left out by `options`."""
        return "captions" if options.get("neighbours", 1.0) or options.get("pretrain_epochs", 5) else None

    def make_branch(self) -> nn.Module:
        """Return the text branch over universal vectors (B, L, U)."""
        return self._branch(self.universal_dim)

    def encode_captions(self, tokens: Tensor, lengths: Tensor, languages: Tensor) -> Encoding:
        """Encode captions as single unit vectors; ModelError if a language has no layer."""
        return self.encode_universal(*self.universal_words(tokens, lengths, languages))

    def universal_words(self, tokens: Tensor, lengths: Tensor, languages: Tensor) -> tuple[Tensor, Tensor]:
        """Return the universal vectors (C, L, U) of the words of captions with tokens (C, L), and lengths (C,).

        A word that occurs several times in one language is taken to the universal space once. Contextual word vectors
        (`vse.pretrained`) differ at each place; of sentence vectors there is one a caption.
        """
        if not isinstance(self.words, nn.Embedding) or torch.compiler.is_exporting() or is_static(tokens):
            words, lengths = read_words(self.words, tokens, lengths)
            return self.to_universal(words, lengths, languages), lengths
        used, place = (tokens + self.vocabulary_size * languages[:, None]).unique(return_inverse=True)
        ones = torch.ones(len(used), dtype=torch.long)
        table = self.to_universal(self.words(used % self.vocabulary_size), ones, used // self.vocabulary_size)
        return F.embedding(place, widen(table)), lengths  # in float32: the gradient of a frequent word is a long sum

    def encode_universal(self, words: Tensor, lengths: Tensor) -> Encoding:
        """Encode captions with universal word vectors (C, L, U) as single unit vectors."""
        return one_vector(F.normalize(widen(self.captions(words, lengths)), dim=-1))

    def mean_words(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """Return the mean word vectors (C, E) of captions with tokens (C, L)."""
        if not isinstance(self.words, nn.Embedding) or is_static(tokens):
            words, lengths = read_words(self.words, tokens, lengths)
            return masked_mean(words, real_words(words[..., 0], lengths))
        real = real_words(tokens, lengths)
        starts = F.pad(lengths.cumsum(0)[:-1], (1, 0)).to(tokens.device)
        return F.embedding_bag(tokens[real], self.words.weight, starts, mode="mean")

    def universal_of(self, tokens: Tensor, lengths: Tensor, languages: Tensor) -> Tensor:
        """Return u (C, U) of captions with tokens (C, L): the mean over their universal words.

        The layers are linear, so the mean word is taken to the universal space, one row a sentence.
        """
        vectors: Tensor = widen(self.to_universal(self.mean_words(tokens, lengths), lengths, languages))
        return vectors

    def name_languages(self, universal: Tensor) -> Tensor:
        """Return logits (C, languages) of the classifier from u (C, U); the gradient of u is −λ2 times it."""
        logits: Tensor = widen(self.language_of(_Reversal.apply(universal, self.classifier)))
        return logits


class _Branch(nn.Module):
    """The last state of an LSTM or GRU over vectors (B, L, E), and a linear layer."""

    def __init__(self, word_dim: int, state_dim: int, dim: int, dropout: float, cell: Cell) -> None:
        super().__init__()
        self.states = LastState(nn.Identity(), word_dim, state_dim, dropout, cell)
        self.out = nn.Linear(state_dim, dim)

    def forward(self, words: Tensor, lengths: Tensor) -> Tensor:
        """Return vectors (B, H)."""
        vectors: Tensor = self.out(self.states(words, lengths))
        return vectors


class _Linear(nn.Linear):
    """A linear layer as an encoder of `LanguageEncoders`."""

    def forward(self, words: Tensor, lengths: Tensor) -> Tensor:  # type: ignore[override]
        """Map vectors (…, E) to (…, U)."""
        return super().forward(words)


class _Reversal(torch.autograd.Function):
    """The identity, whose gradient is multiplied by −λ (Ganin and Lempitsky 2015)."""

    @staticmethod
    def forward(ctx: Any, vectors: Tensor, weight: float) -> Tensor:
        """Return the vectors."""
        ctx.weight = weight
        return vectors.view_as(vectors)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        """Return −λ times the gradient."""
        return -ctx.weight * grads[0], None
