"""Encoders for retrieval models: recurrent networks over words, and attention pooling."""

from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from modules.errors import ModelError
from modules.layers.gru import both_ways, packed_states
from modules.layers.onnx_recurrent import onnx_states
from modules.layers.recurrent import BiLSTM, Packing, input_gates, padded_states, recurrent_matrix, scan, widen
from modules.layers.static import beside, is_static
from modules.pretrained.pretrained_text import read_words


class CaptionEncoder(nn.Module):
    """A bidirectional recurrent network over word vectors; the two directions are averaged.

    Args:
        words: maps token ids (B, L) to word vectors (B, L, word_dim), such as `nn.Embedding` or `PretrainedWords`, or
            to one vector a caption (`SentenceVectors`).
        word_dim: size of a word vector.
        dim: H, size of a state.
        dropout: dropout rate of word vectors.
        cell: `lstm`, or `gru` as in SCAN.
    """

    def __init__(
        self, words: nn.Module, word_dim: int, dim: int, dropout: float, cell: Literal["lstm", "gru"] = "lstm"
    ) -> None:
        super().__init__()
        self.words = words
        self.dropout = dropout
        if cell == "lstm":
            self.lstm = BiLSTM(word_dim, dim)
        else:
            self.gru = nn.GRU(word_dim, dim, batch_first=True, bidirectional=True)

    def forward(self, tokens: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Return states (B, L, H), zero after the end of a caption, and their mask (B, L); L as `read_words` has it."""
        words, lengths = read_words(self.words, tokens, lengths)
        words = F.dropout(words, self.dropout, self.training)
        states = self.lstm(words, lengths) if hasattr(self, "lstm") else both_ways(self.gru, words, lengths)
        return (states[0] + states[1]) / 2, real_words(words[..., 0], lengths)


class LastState(nn.Module):
    """A GRU or LSTM over word vectors; its last state represents the caption (VSE, OE, PIVOT, MULE).

    Args:
        words: maps token ids (B, L) to word vectors (B, L, word_dim).
        word_dim: size of a word vector.
        dim: H, size of a state.
        dropout: dropout rate of word vectors.
        cell: `gru` or `lstm`.
    """

    def __init__(
        self, words: nn.Module, word_dim: int, dim: int, dropout: float, cell: Literal["lstm", "gru"] = "gru"
    ) -> None:
        super().__init__()
        self.words = words
        self.dropout = dropout
        if cell == "lstm":
            self.lstm = nn.LSTM(word_dim, dim, batch_first=True)
        else:
            self.gru = nn.GRU(word_dim, dim, batch_first=True)

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """Return the last state of each caption (B, H)."""
        words, lengths = read_words(self.words, tokens, lengths)
        words = F.dropout(words, self.dropout, self.training)
        if is_static(words):
            states = padded_states(self.lstm if hasattr(self, "lstm") else self.gru, words)
            ends = beside(lengths, words) - 1
            return states.gather(1, ends[:, None, None].expand(-1, 1, states.shape[2]))[:, 0]
        if torch.compiler.is_exporting():
            return onnx_states(self.lstm if hasattr(self, "lstm") else self.gru, words, lengths)[1][0]
        packing = Packing.of(lengths, words.shape[1])
        inputs = words.flatten(0, 1).index_select(0, packing.forward)
        if hasattr(self, "lstm"):
            start = inputs.new_zeros(len(words), self.lstm.hidden_size)
            gates = input_gates(self.lstm, inputs)
            return packing.last(scan(gates, recurrent_matrix(self.lstm), start, start, packing.sizes)[0])
        return packing.last(packed_states(self.gru, inputs, packing.sizes))


class LanguageEncoders(nn.Module):
    """One encoder for each language, over given word vectors.

    Args:
        languages: names of the languages.
        make: builds an encoder of word vectors (B, L, E) and lengths (B,) into captions (B, …).
    """

    def __init__(self, languages: Sequence[str], make: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.of = nn.ModuleDict({language: make() for language in languages})

    def forward(self, words: Tensor, lengths: Tensor, languages: Tensor) -> Tensor:
        """Encode word vectors (B, L, E), lengths (B,) and language indexes (B,) into captions (B, …).

        Raises:
            ModelError: a caption's language is unknown.
        """
        if torch.compiler.is_exporting() or (self.training and is_static(words)):  # all encoders read all captions
            return torch.stack([encoder(words, lengths) for encoder in self.of.values()])[
                languages, torch.arange(languages.shape[0], device=languages.device)
            ]
        rows = [(languages == index).nonzero()[:, 0] for index in range(len(self.of))]
        order = torch.cat(rows)
        if len(order) < len(languages):
            known = ", ".join(self.of)
            raise ModelError(
                f"{len(languages) - len(order)} of {len(languages)} captions are in a language that the model was not "
                f"built for; it has encoders for {known}"
            )
        pairs = [(encoder, own) for encoder, own in zip(self.of.values(), rows, strict=True) if len(own)]
        return torch.cat([encoder(words[own], lengths[own.cpu()]) for encoder, own in pairs])[order.argsort()]


def region_layer(region_dim: int, dim: int) -> nn.Linear:
    """Return a linear layer for regions, with Xavier initialisation as in VSE++ and SCAN."""
    layer = nn.Linear(region_dim, dim)
    nn.init.xavier_uniform_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


def masked_mean(vectors: Tensor, mask: Tensor) -> Tensor:
    """Return the mean (B, H) of vectors (B, T, H) whose mask (B, T) is true, at least one per item."""
    shares = mask.to(vectors.dtype) / mask.sum(1, keepdim=True)
    return (widen(vectors) * shares[..., None]).sum(1)


def word_table(vocabulary_size: int, word_dim: int) -> nn.Embedding:
    """Return a table of word vectors, initialised uniformly in ±0.1 as in VSE++ and SCAN."""
    words = nn.Embedding(vocabulary_size, word_dim, padding_idx=0)
    nn.init.uniform_(words.weight, -0.1, 0.1)
    return words


def real_words(tokens: Tensor, lengths: Tensor) -> Tensor:
    """Return the mask (B, L) of the tokens (B, L) that are not padding."""
    places = torch.arange(tokens.shape[1], device=tokens.device)
    return places < beside(lengths, tokens)[:, None]


def places_of_words(tokens: Tensor, lengths: Tensor) -> Tensor:
    """Return the places (T,) of the tokens that are not padding in the flattened batch (B · L).

    They are found on the CPU, where lengths are: `nonzero` on a GPU waits for all that was launched before.
    """
    real = torch.arange(tokens.shape[1])[None] < lengths.cpu()[:, None]
    return real.flatten().nonzero()[:, 0].to(tokens.device)


class AttentionPool(nn.Module):
    """Pool vectors by attention with one learned context vector: α = softmax_i( f_c(c)ᵀ f_z(z_i) ), z' = Σ α_i z_i.

    f are one-layer perceptrons (mmt-retrieval, Eq. 7).

    Args:
        dim: H, size of the vectors and of the context.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.context = nn.Parameter(torch.randn(dim) * dim**-0.5)
        self.of_context = nn.Linear(dim, dim)
        self.of_vectors = nn.Linear(dim, dim)

    def weights(self, vectors: Tensor, mask: Tensor) -> Tensor:
        """Return α (B, T) of vectors (B, T, H), zero where the mask (B, T) is false."""
        context = torch.tanh(self.of_context(self.context))
        scores = widen(torch.tanh(self.of_vectors(vectors)) @ context)
        return scores.masked_fill(~mask, -torch.inf).softmax(-1)

    def forward(self, vectors: Tensor, mask: Tensor) -> Tensor:
        """Return z' (B, H) of vectors (B, T, H) with their mask (B, T)."""
        return (self.weights(vectors, mask)[..., None] * widen(vectors)).sum(1)  # in float32, unlike a product


class HeadsPool(nn.Module):
    """Pool vectors by K attention heads, each with its own context vector (diverse attention, Eq. 1-2).

    a^k_i = softmax_i( tanh(W_c^k c^k)ᵀ tanh(W_g^k g_i) ), g^k = Σ_i a^k_i g_i. W_g of all heads is one matrix.

    Args:
        dim: H, size of the vectors and of the contexts.
        heads: K.
    """

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.contexts = nn.Parameter(torch.randn(heads, dim) * dim**-0.5)
        self.of_contexts = nn.Parameter(torch.empty(heads, dim, dim).uniform_(-(dim**-0.5), dim**-0.5))
        self.of_vectors = nn.Linear(dim, heads * dim, bias=False)

    def weights(self, vectors: Tensor, mask: Tensor) -> Tensor:
        """Return a (B, K, T) of vectors (B, T, H), zero where the mask (B, T) is false."""
        contexts = torch.tanh(torch.einsum("khc,kc->kh", self.of_contexts, self.contexts))
        keys = torch.tanh(self.of_vectors(vectors))  # (B, T, KH)
        with torch.autocast(vectors.device.type, enabled=False):
            scores = F.linear(widen(keys), widen(torch.block_diag(*contexts)))  # each head's keys with its own context
        return scores.transpose(1, 2).masked_fill(~mask[:, None], -torch.inf).softmax(-1)

    def forward(self, vectors: Tensor, mask: Tensor) -> Tensor:
        """Return g (B, K, H) of vectors (B, T, H) with their mask (B, T)."""
        weights = self.weights(vectors, mask)
        with torch.autocast(vectors.device.type, enabled=False):
            return weights @ widen(vectors)
