"""The layers of a pre-norm Transformer (Vaswani et al. 2017; Xiong et al. 2020), quick for short sentences on CPUs."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from modules.recurrent import widen


def drop(tensor: Tensor, share: float, training: bool) -> Tensor:
    """Dropout; on a CPU by comparing random numbers, which takes less than half the time of torch's own."""
    if not training or not share or tensor.is_cuda:
        return F.dropout(tensor, share, training)
    return tensor * (torch.rand_like(tensor, dtype=torch.float32) >= share) * (1 / (1 - share))


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

    def keys_values(self, states: Tensor) -> Tensor:
        """What is attended to: (…, J, E) → (…, J, 2E)."""
        kept: Tensor = self.key_value(states)
        return kept

    def forward(self, states: Tensor, kept: Tensor, mask: Tensor | None = None, causal: bool = False) -> Tensor:
        """What each state (B, N, E) sees of the keys and values (B, J, 2E), where the mask (B, J) is true."""
        query, keys, values = self._parts(states, kept)
        # torch's own takes three times as long on a CPU, in its gradient, for sentences of ten words
        seen = (fused if query.is_cuda else plain)(query, keys, values, mask, causal)
        return widen(self.out(seen.transpose(-2, -3).flatten(-2)))

    def weights(self, states: Tensor, kept: Tensor, mask: Tensor | None = None) -> Tensor:
        """How each state (B, N, E) shares its attention out among J keys and values: (B, N, J), the heads' mean."""
        query, keys, _ = self._parts(states, kept)
        return shares(query, keys, mask).mean(1)

    def _parts(self, states: Tensor, kept: Tensor) -> list[Tensor]:
        """Queries (B, heads, N, E / heads), and keys and values (B, heads, J, E / heads)."""
        parts = (self.query(states), *kept.chunk(2, -1))
        return [part.unflatten(-1, (self.heads, -1)).transpose(-2, -3) for part in parts]


def shares(query: Tensor, keys: Tensor, mask: Tensor | None = None, causal: bool = False) -> Tensor:
    """Attention weights (B, heads, N, J) in float32, 0 where the mask (B, J) is false or, if `causal`, j > n."""
    scores = widen(query @ keys.transpose(-1, -2)) * query.shape[-1] ** -0.5
    if mask is not None:
        scores = scores.masked_fill(~mask[:, None, None, :], -torch.inf)
    if causal:
        later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        scores = scores.masked_fill(later, -torch.inf)
    return scores.softmax(-1)


def plain(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
    """What is seen, (B, heads, N, E / heads), by `shares`."""
    return shares(query, keys, mask, causal).to(values.dtype) @ values


def fused(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
    """The same by torch's own kernel."""
    shown = None if mask is None else mask[:, None, None, :]
    return F.scaled_dot_product_attention(query, keys, values, attn_mask=shown, is_causal=causal)


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
        normed = self.norm_within(states)
        states = states + self.drop(self.within(normed, self.within.keys_values(normed), mask))
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

    def source(self, states: Tensor) -> Tensor:
        """Keys and values (B, J, 2E) of the encoder's states (B, J, E)."""
        return self.across.keys_values(states)

    def forward(self, states: Tensor, source: Tensor, mask: Tensor) -> Tensor:
        """States (B, M, E); keys and values of the source (B, J, 2E) and its mask (B, J)."""
        normed = self.norm_within(states)
        states = states + self.drop(self.within(normed, self.within.keys_values(normed), causal=True))
        return self._rest(states, source, mask)

    def step(self, states: Tensor, source: Tensor, mask: Tensor, before: Tensor) -> tuple[Tensor, Tensor]:
        """One word of S hypotheses (B, S, E), after t whose keys and values (B, S, t, 2E) are known; those t + 1."""
        normed = self.norm_within(states)[:, :, None]  # (B, S, 1, E)
        known = torch.cat([before, self.within.keys_values(normed).to(before.dtype)], dim=2)
        seen = self.within(normed.flatten(0, 1), known.flatten(0, 1)).view(states.shape)
        return self._rest(states + self.drop(seen), source, mask), known

    def across_weights(self, states: Tensor, source: Tensor, mask: Tensor) -> Tensor:
        """Attention (B, M, J) of states (B, M, E), as `forward` takes them, to the source."""
        normed = self.norm_within(states)
        states = states + self.within(normed, self.within.keys_values(normed), causal=True)
        return self.across.weights(self.norm_across(states), source, mask)

    def _rest(self, states: Tensor, source: Tensor, mask: Tensor) -> Tensor:
        states = states + self.drop(self.across(self.norm_across(states), source, mask))
        return states + self.drop(widen(self.feed_forward(self.norm_forward(states))))


def positions(first: int, count: int, like: Tensor) -> Tensor:
    """Sines and cosines (count, E) of positions from `first` (Vaswani et al. 2017, 3.5), of the type of `like`."""
    dim = like.shape[-1]
    place = torch.arange(first, first + count, device=like.device, dtype=torch.float32)[:, None]
    rate = torch.exp(torch.arange(0, dim, 2, device=like.device) * (-math.log(10000.0) / dim))
    return torch.cat([torch.sin(place * rate), torch.cos(place * rate)], dim=-1).to(like.dtype)
