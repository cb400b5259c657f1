"""A small Transformer translator, with text alone or with regions: the same training, search and reports.

Pre-norm layers (Vaswani et al. 2017; Xiong et al. 2020), one matrix for source, target and output words. Where it
looks, the regions enter in one of two ways (after Wu et al. 2021, "Good for Misconceived Reasons", who have one vector
an image):

- `gate`: each word's state attends to the regions, and a gate decides number by number how much of what it saw is
  added: h + σ(W [h; c]) ⊙ c;
- `tokens`: the regions stand before the words in the encoder.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from modules.beam import follow
from modules.encoders import real_words
from modules.errors import ModelError
from modules.recurrent import matmul_dtype, widen
from modules.translator import require_regions

State = tuple[Tensor, ...]
KeysValues = tuple[Tensor, Tensor]  # (…, heads, J, E / heads) each


@dataclass
class TransformerMemory:
    """What the encoder leaves for the decoder.

    Attributes:
        mask: (B, J) bool, true where a state is real.
        parts: keys and values of each decoder layer, (B, heads, J, E / heads) each.
    """

    mask: Tensor
    parts: list[KeysValues]

    def select(self, sentences: Tensor) -> "TransformerMemory":
        """The memory of some of the sentences, by index."""
        parts = [(keys[sentences], values[sentences]) for keys, values in self.parts]
        return TransformerMemory(self.mask[sentences], parts)


class TransformerTranslator(nn.Module):
    """Translate a sentence, looking at regions of its picture or at none.

    Args:
        vocabulary_size: V, entries of the joint BPE vocabulary.
        region_dim: D, size of a region; None builds a text-only translator.
        embedding_dim: E, size of all states.
        hidden_dim: width of the feed-forward layers.
        dropout: share of numbers dropped from embeddings and from what each layer adds, while training.
        padding: the padding token's number.
        layers: of the encoder, and of the decoder.
        heads: of each attention; E must be divisible by twice as many.
        look: how regions enter, `gate` or `tokens`.

    Raises:
        ModelError: these do not fit together, or `look` is something else.
    """

    def __init__(
        self, vocabulary_size: int, region_dim: int | None = None, embedding_dim: int = 128, hidden_dim: int = 256,
        dropout: float = 0.3, padding: int = 0, layers: int = 4, heads: int = 4,
        look: Literal["gate", "tokens"] = "gate",
    ) -> None:  # fmt: skip
        super().__init__()
        if look not in ("gate", "tokens"):
            raise ModelError(f"look is {look!r}; expected gate or tokens")
        if layers < 1 or heads < 1:
            raise ModelError(f"layers is {layers} and heads {heads}; expected 1 or more of each")
        if embedding_dim % (2 * heads):
            raise ModelError(f"embedding_dim is {embedding_dim}, not divisible by twice the heads ({heads})")
        self.dropout, self.look = dropout, look
        self.words = nn.Embedding(vocabulary_size, embedding_dim, padding_idx=padding)
        nn.init.normal_(self.words.weight, std=embedding_dim**-0.5)
        self.word_scale = embedding_dim**0.5
        self.regions = None if region_dim is None else nn.Linear(region_dim, embedding_dim)
        size = (embedding_dim, hidden_dim, heads, dropout)
        self.encoder = nn.ModuleList(EncoderLayer(*size) for _ in range(layers))
        self.decoder = nn.ModuleList(DecoderLayer(*size) for _ in range(layers))
        self.encoded, self.decoded = nn.LayerNorm(embedding_dim), nn.LayerNorm(embedding_dim)
        if region_dim is not None:
            self.region_norm = nn.LayerNorm(embedding_dim)
            if look == "gate":
                self.glance, self.gate = Attention(embedding_dim, heads), nn.Linear(2 * embedding_dim, embedding_dim)
        self.output_bias = nn.Parameter(torch.zeros(vocabulary_size))

    def encode(self, source: Tensor, lengths: Tensor, regions: Tensor | None = None) -> TransformerMemory:
        """Encode sentences with their regions.

        Args:
            source: (B, N) token numbers.
            lengths: (B,) on the CPU, each at least 1.
            regions: (B, K, D); left out by a text-only translator.

        Raises:
            ModelError: regions are given to a text-only translator, or missing for one that looks.
        """
        require_regions(regions, self.regions)
        mask = real_words(source, lengths)
        states, objects = self._embed(source), None
        if regions is not None and self.regions is not None:
            objects = self._drop(self.region_norm(widen(self.regions(regions.to(self.regions.weight.dtype)))))
            if self.look == "tokens":
                states = torch.cat([objects, states], dim=1)
                mask = torch.cat([mask.new_ones(objects.shape[:2]), mask], dim=1)
        for layer in self.encoder:
            states = layer(states, mask)
        states = self.encoded(states)
        if objects is not None and self.look == "gate":
            seen = self.glance(states, self.glance.keys_values(objects))
            states = states + torch.sigmoid(self.gate(torch.cat([states, seen], -1))) * seen
        return TransformerMemory(mask, [layer.source(states) for layer in self.decoder])  # type: ignore[operator]

    def forward(self, memory: TransformerMemory, target: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Logits (T, V) of what `read` gives the states of, and their positions."""
        states, where = self.read(memory, target, lengths)
        return F.linear(states, self.words.weight, self.output_bias), where

    def read(self, memory: TransformerMemory, target: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Go through target sentences, all words at once (teacher forcing).

        Args:
            memory: of the B source sentences.
            target: (B, M + 1) begin-of-sentence and the words before each prediction.
            lengths: (B,) on the CPU, predictions a sentence.

        Returns:
            states (T, E) before the output matrix (`words.weight`, `output_bias`) of all predictions, and their (T,)
            positions in the flattened (B · (M + 1)) batch.
        """
        states = self._embed(target)
        for layer, part in zip(self.decoder, memory.parts, strict=True):
            states = layer(states, part, memory.mask)
        where = real_words(target, lengths).flatten().nonzero()[:, 0]
        return self.decoded(states.flatten(0, 1)[where]), where

    def start(self, memory: TransformerMemory) -> State:
        """The state before the first word: nothing is kept yet."""
        none = memory.mask.new_empty(len(memory.mask), 1, 0)
        return none, *(kept[:, :, :0] for part in memory.parts for kept in part)

    def step(self, memory: TransformerMemory, token: Tensor, state: State) -> tuple[Tensor, State]:
        """One decoding step for S hypotheses a sentence; the memory is shared by them, never copied.

        What any hypothesis has read is kept once for the whole sentence, and each attends to its own words among it:
        when hypotheses are dropped and doubled, no keys and values move.

        Args:
            memory: of the B source sentences.
            token: (B, S) the last word of each hypothesis.
            state: (B, S, W) bool, which of the W words that any hypothesis has read are its own; then of each layer
                their keys and values, (B, heads, W, E / heads) each.

        Returns:
            states (B, S, E) before the output matrix, and the new state.
        """
        count, width = token.shape
        itself = torch.eye(width, dtype=torch.bool, device=token.device).expand(count, -1, -1)
        own = torch.cat([state[0].expand(-1, width, -1), itself], dim=2)
        states = self._embed(token[..., None], first=int(state[0][0, 0].sum()))[:, :, 0]
        kept: State = (own,)
        for number, (layer, part) in enumerate(zip(self.decoder, memory.parts, strict=True)):
            before = state[2 * number + 1], state[2 * number + 2]
            states, known = layer.step(states, part, memory.mask, before, own)  # type: ignore[operator]
            kept += known
        return self.decoded(states), kept

    def follow(self, state: State, beam: Tensor) -> State:
        """The state of the hypotheses (B, S) that go on, by the number of the one that each continues."""
        return follow(state[0], beam), *state[1:]

    def _embed(self, tokens: Tensor, first: int = 0) -> Tensor:
        """Words (…, N) with their positions, counted from `first`."""
        words = self.words(tokens) * self.word_scale
        return self._drop(words + positions(first, tokens.shape[-1], words))

    def _drop(self, tensor: Tensor) -> Tensor:
        return drop(tensor, self.dropout, self.training)


def drop(tensor: Tensor, share: float, training: bool) -> Tensor:
    """Dropout; on a CPU from 16 random bits a number, which takes a third of the time of torch's own."""
    if not training or not share or tensor.is_cuda:
        return F.dropout(tensor, share, training)
    draws = torch.empty(-(-tensor.numel() // 4), dtype=torch.int64, device=tensor.device).random_(-(2**63), None)
    bits = draws.view(torch.int16)
    kept = bits[: tensor.numel()].view(tensor.shape) >= round(share * 2**16) - 2**15
    return tensor * kept.to(tensor.dtype).mul_(1 / (1 - share))


def narrow(tensor: Tensor) -> Tensor:
    """The tensor in the type of matrix products; cast once where several of them read it."""
    return tensor.to(matmul_dtype(tensor))


class Dropout(nn.Module):
    """`drop` as a layer.

    Args:
        share: of the numbers.
    """

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    def forward(self, tensor: Tensor) -> Tensor:
        """The tensor without some of its numbers, while training."""
        return drop(tensor, self.share, self.training)


class Attention(nn.Module):
    """Scaled dot-product attention with several heads.

    Args:
        dim: E.
        heads: how many.
    """

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key_value, self.out = nn.Linear(dim, dim), nn.Linear(dim, 2 * dim), nn.Linear(dim, dim)
        for layer in (self.query, self.key_value, self.out):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)

    def keys_values(self, states: Tensor) -> KeysValues:
        """What is attended to: (…, J, E) → keys and values (…, heads, J, E / heads)."""
        keys, values = self.key_value(states).chunk(2, -1)
        return self._split(keys), self._split(values)

    def forward(self, states: Tensor, kept: KeysValues, mask: Tensor | None = None, causal: bool = False) -> Tensor:
        """What each state (B, N, E) sees of the J keys and values, where the mask (B, 1 or N, J) is true."""
        query, (keys, values) = self._split(self.query(states)), kept
        if query.is_cuda:
            shown = None if mask is None else mask[:, None]
            seen = F.scaled_dot_product_attention(query, keys, values, attn_mask=shown, is_causal=causal)
        else:  # torch's own takes three times as long on a CPU, in its gradient, for sentences of ten words
            scores = widen(query @ keys.transpose(-1, -2)) * query.shape[-1] ** -0.5
            if mask is not None:
                scores = scores.masked_fill(~mask[:, None], -torch.inf)
            if causal:
                later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
                scores = scores.masked_fill(later, -torch.inf)
            seen = softmax(scores).to(values.dtype) @ values
        return widen(self.out(seen.transpose(-2, -3).flatten(-2)))

    def _split(self, states: Tensor) -> Tensor:
        """(…, N, E) → (…, heads, N, E / heads)."""
        return states.unflatten(-1, (self.heads, -1)).transpose(-2, -3)


def softmax(scores: Tensor) -> Tensor:
    """Softmax over the last dimension; on a CPU torch goes number by number through rows of less than 16."""
    short = 16 - scores.shape[-1]
    return F.pad(scores, (0, short), value=-torch.inf).softmax(-1)[..., :-short] if short > 0 else scores.softmax(-1)


def feed_forward(dim: int, hidden: int, dropout: float) -> nn.Sequential:
    """A feed-forward layer E → hidden → E, with dropout inside."""
    return nn.Sequential(nn.Linear(dim, hidden), nn.ReLU(), Dropout(dropout), nn.Linear(hidden, dim))


class EncoderLayer(nn.Module):
    """Self-attention, then a feed-forward layer, each on normed states and added to them.

    Args:
        dim: E.
        hidden: width of the feed-forward layer.
        heads: of the attention.
        dropout: of what is added.
    """

    def __init__(self, dim: int, hidden: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.within = Attention(dim, heads)
        self.norm_within, self.norm_forward = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.feed_forward = feed_forward(dim, hidden, dropout)
        self.drop = Dropout(dropout)

    def forward(self, states: Tensor, mask: Tensor) -> Tensor:
        """States (B, N, E) with their mask (B, N)."""
        normed = narrow(self.norm_within(states))
        states = states + self.drop(self.within(normed, self.within.keys_values(normed), mask[:, None]))
        return states + self.drop(widen(self.feed_forward(self.norm_forward(states))))


class DecoderLayer(nn.Module):
    """Self-attention to the words before, attention to the source, then a feed-forward layer.

    Args:
        dim: E.
        hidden: width of the feed-forward layer.
        heads: of the attentions.
        dropout: of what is added.
    """

    def __init__(self, dim: int, hidden: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.within, self.across = Attention(dim, heads), Attention(dim, heads)
        self.norm_within, self.norm_across, self.norm_forward = (nn.LayerNorm(dim) for _ in range(3))
        self.feed_forward = feed_forward(dim, hidden, dropout)
        self.drop = Dropout(dropout)

    def source(self, states: Tensor) -> KeysValues:
        """Keys and values of the encoder's states (B, J, E), laid out as every step reads them."""
        keys, values = self.across.keys_values(states)
        return keys.contiguous(), values.contiguous()

    def forward(self, states: Tensor, source: KeysValues, mask: Tensor) -> Tensor:
        """States (B, M, E); keys and values of the source and its mask (B, J)."""
        normed = narrow(self.norm_within(states))
        states = states + self.drop(self.within(normed, self.within.keys_values(normed), causal=True))
        return self._rest(states, source, mask)

    def step(
        self, states: Tensor, source: KeysValues, mask: Tensor, before: KeysValues, own: Tensor
    ) -> tuple[Tensor, KeysValues]:
        """One word of S hypotheses (B, S, E).

        Args:
            states: of the words.
            source: keys and values of the source.
            mask: (B, J) the source's.
            before: keys and values (B, heads, W, E / heads) of the words before these.
            own: (B, S, W + S) bool, which words each hypothesis consists of, these being the last.

        Returns:
            the new states, and the keys and values with those of these words.
        """
        normed = narrow(self.norm_within(states))
        fresh = self.within.keys_values(normed)
        keys, values = (torch.cat([old, new.to(old.dtype)], dim=2) for old, new in zip(before, fresh, strict=True))
        states = states + self.drop(self.within(normed, (keys, values), own))
        return self._rest(states, source, mask), (keys, values)

    def _rest(self, states: Tensor, source: KeysValues, mask: Tensor) -> Tensor:
        states = states + self.drop(self.across(self.norm_across(states), source, mask[:, None]))
        return states + self.drop(widen(self.feed_forward(self.norm_forward(states))))


def positions(first: int, count: int, like: Tensor) -> Tensor:
    """Sines and cosines (count, E) of positions from `first` (Vaswani et al. 2017, 3.5), of the type of `like`."""
    dim = like.shape[-1]
    place = torch.arange(first, first + count, device=like.device, dtype=torch.float32)[:, None]
    rate = torch.exp(torch.arange(0, dim, 2, device=like.device) * (-math.log(10000.0) / dim))
    return torch.cat([torch.sin(place * rate), torch.cos(place * rate)], dim=-1).to(like.dtype)
