"""The layers of a pre-norm Transformer (Vaswani et al. 2017; Xiong et al. 2020), fast for short sentences on CPUs."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from modules.layers.recurrent import matmul_dtype, widen

KeysValues = tuple[Tensor, Tensor]  # (…, heads, J, E / heads) each
# without cuDNN: it compiles a kernel for each new shape, and most batches and decoding steps have a new shape
KERNELS = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


def drop(tensor: Tensor, share: float, training: bool) -> Tensor:
    """Apply dropout; on a CPU with 16 random bits per element, in a third of the time of `F.dropout`."""
    if not training or not share or tensor.is_cuda:
        return F.dropout(tensor, share, training)
    draws = torch.empty(-(-tensor.numel() // 4), dtype=torch.int64, device=tensor.device).random_(-(2**63), None)
    bits = draws.view(torch.int16)
    kept = bits[: tensor.numel()].view(tensor.shape) >= round(share * 2**16) - 2**15
    return tensor * kept.to(tensor.dtype).mul_(1 / (1 - share))


def narrow(tensor: Tensor) -> Tensor:
    """Return the tensor in the type of matrix products, to cast it once for several products."""
    return tensor.to(matmul_dtype(tensor))


class Dropout(nn.Module):
    """`drop` as a layer.

    Args:
        share: dropout rate.
    """

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    def forward(self, tensor: Tensor) -> Tensor:
        """Apply dropout in training."""
        return drop(tensor, self.share, self.training)


class Attention(nn.Module):
    """Scaled dot-product attention with several heads.

    Args:
        dim: E.
        heads: number of heads.
    """

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key_value, self.out = nn.Linear(dim, dim), nn.Linear(dim, 2 * dim), nn.Linear(dim, dim)
        for layer in (self.query, self.key_value, self.out):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)

    def keys_values(self, states: Tensor) -> KeysValues:
        """Return keys and values (…, heads, J, E / heads) of states (…, J, E)."""
        keys, values = self.key_value(states).chunk(2, -1)
        return self._split(keys), self._split(values)

    def forward(self, states: Tensor, context: KeysValues, mask: Tensor | None = None, causal: bool = False) -> Tensor:
        """Attend from states (B, N, E) to J keys and values where the mask (B, 1 or N, J) is true; return (B, N, E)."""
        query, (keys, values) = self._split(self.query(states)), context
        # on a CPU, the gradient of torch's kernel takes three times as long for sentences of ten words
        output = (fused if query.is_cuda else plain)(query, keys, values, mask, causal)
        return widen(self.out(output.transpose(-2, -3).flatten(-2)))

    def weights(self, states: Tensor, context: KeysValues, mask: Tensor | None = None) -> Tensor:
        """Return the attention weights of states (B, N, E) on J keys and values: (B, N, J), the mean over heads."""
        return attention_weights(self._split(self.query(states)), context[0], mask).mean(1)

    def _split(self, states: Tensor) -> Tensor:
        """Split heads: (…, N, E) → (…, heads, N, E / heads)."""
        return states.unflatten(-1, (self.heads, -1)).transpose(-2, -3)


def attention_weights(query: Tensor, keys: Tensor, mask: Tensor | None = None, causal: bool = False) -> Tensor:
    """Attention weights (B, heads, N, J) in float32; 0 where the mask (B, 1 or N, J) is false, or later if `causal`."""
    scores = widen(query @ keys.transpose(-1, -2)) * query.shape[-1] ** -0.5
    if mask is not None:
        scores = scores.masked_fill(~mask[:, None], -torch.inf)
    if causal:
        later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        scores = scores.masked_fill(later, -torch.inf)
    return softmax(scores)


def plain(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
    """Return attended values (B, heads, N, E / heads), computed from `attention_weights`."""
    return attention_weights(query, keys, mask, causal).to(values.dtype) @ values


def fused(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
    """Return the same as `plain`, computed by torch's fused kernel."""
    visible = None if mask is None else mask[:, None]
    with sdpa_kernel(KERNELS):
        return F.scaled_dot_product_attention(query, keys, values, attn_mask=visible, is_causal=causal)


def softmax(scores: Tensor) -> Tensor:
    """Softmax over the last dimension; pads rows shorter than 16, for which torch has no vectorised code on a CPU."""
    short = 16 - scores.shape[-1]
    return F.pad(scores, (0, short), value=-torch.inf).softmax(-1)[..., :-short] if short > 0 else scores.softmax(-1)


def feed_forward(dim: int, hidden: int, dropout: float) -> nn.Sequential:
    """Return a feed-forward layer E → hidden → E, with dropout inside."""
    return nn.Sequential(nn.Linear(dim, hidden), nn.ReLU(), Dropout(dropout), nn.Linear(hidden, dim))


class EncoderLayer(nn.Module):
    """Self-attention, then a feed-forward layer, each with layer normalisation before it and a residual connection.

    Args:
        dim: E.
        hidden: width of the feed-forward layer.
        heads: number of attention heads.
        dropout: dropout rate of the output of each sub-layer.
    """

    def __init__(self, dim: int, hidden: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.within = Attention(dim, heads)
        self.norm_within, self.norm_forward = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.feed_forward = feed_forward(dim, hidden, dropout)
        self.drop = Dropout(dropout)

    def forward(self, states: Tensor, mask: Tensor) -> Tensor:
        """Transform states (B, N, E) with their mask (B, N)."""
        normed = narrow(self.norm_within(states))
        states = states + self.drop(self.within(normed, self.within.keys_values(normed), mask[:, None]))
        return states + self.drop(widen(self.feed_forward(self.norm_forward(states))))


class DecoderLayer(nn.Module):
    """Self-attention to previous words, attention to the source, then a feed-forward layer.

    Args:
        dim: E.
        hidden: width of the feed-forward layer.
        heads: number of attention heads.
        dropout: dropout rate of the output of each sub-layer.
    """

    def __init__(self, dim: int, hidden: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.within, self.across = Attention(dim, heads), Attention(dim, heads)
        self.norm_within, self.norm_across, self.norm_forward = (nn.LayerNorm(dim) for _ in range(3))
        self.feed_forward = feed_forward(dim, hidden, dropout)
        self.drop = Dropout(dropout)

    def source(self, states: Tensor) -> KeysValues:
        """Return keys and values of encoder states (B, J, E), contiguous in memory for the decoding steps."""
        keys, values = self.across.keys_values(states)
        return keys.contiguous(), values.contiguous()

    def forward(self, states: Tensor, source: KeysValues, mask: Tensor) -> Tensor:
        """Transform states (B, M, E), given keys and values of the source and its mask (B, J)."""
        normed = narrow(self.norm_within(states))
        states = states + self.drop(self.within(normed, self.within.keys_values(normed), causal=True))
        return self._rest(states, source, mask)

    def step(
        self, states: Tensor, source: KeysValues, mask: Tensor, before: KeysValues, own: Tensor
    ) -> tuple[Tensor, KeysValues]:
        """Transform the states of one word of S hypotheses (B, S, E).

        Args:
            states: states of the new words.
            source: keys and values of the source.
            mask: (B, J) mask of the source.
            before: keys and values (B, heads, W, E / heads) of the previous words.
            own: (B, S, W + S) bool, which previous and new words belong to each hypothesis.

        Returns:
            the new states, and the keys and values including the new words.
        """
        normed = narrow(self.norm_within(states))
        fresh = self.within.keys_values(normed)
        keys, values = (torch.cat([old, new.to(old.dtype)], dim=2) for old, new in zip(before, fresh, strict=True))
        states = states + self.drop(self.within(normed, (keys, values), own))
        return self._rest(states, source, mask), (keys, values)

    def across_weights(self, states: Tensor, source: KeysValues, mask: Tensor) -> Tensor:
        """Return the attention weights (B, M, J) of states (B, M, E), as for `forward`, on the source."""
        normed = narrow(self.norm_within(states))
        states = states + self.within(normed, self.within.keys_values(normed), causal=True)
        return self.across.weights(self.norm_across(states), source, mask[:, None])

    def _rest(self, states: Tensor, source: KeysValues, mask: Tensor) -> Tensor:
        states = states + self.drop(self.across(self.norm_across(states), source, mask[:, None]))
        return states + self.drop(widen(self.feed_forward(self.norm_forward(states))))


def positions(first: int, count: int, like: Tensor) -> Tensor:
    """Sinusoidal encodings (count, E) of positions from `first` (Vaswani et al. 2017, 3.5), in the type of `like`."""
    dim = like.shape[-1]
    position = torch.arange(first, first + count, device=like.device, dtype=torch.float32)[:, None]
    rate = torch.exp(torch.arange(0, dim, 2, device=like.device) * (-math.log(10000.0) / dim))
    return torch.cat([torch.sin(position * rate), torch.cos(position * rate)], dim=-1).to(like.dtype)
