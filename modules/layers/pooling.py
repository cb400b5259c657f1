"""The generalised pooling operator (VSE∞, Chen et al. 2021)."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from modules.layers.onnx_recurrent import onnx_states
from modules.layers.recurrent import both_ways_padded, widen
from modules.layers.static import is_static


class GeneralisedPool(nn.Module):
    """Pool vectors dimension by dimension: Σ_k θ_k max_k, with max_k the k-th largest value of a dimension (Eq. 3).

    The coefficients θ, which sum to 1, depend only on the number of vectors: a small Bi-GRU reads the positional
    encodings of 1 … n, its directions are averaged, and a linear layer scores each position (Eq. 5-6).

    Interpretation: the softmax over positions has a temperature of 0.1, as in the published code.

    Args:
        position_dim: size of a positional encoding.
        hidden_dim: size of a Bi-GRU state.
        temperature: temperature of the softmax over positions.
    """

    def __init__(self, position_dim: int = 32, hidden_dim: int = 32, temperature: float = 0.1) -> None:
        super().__init__()
        self.position_dim, self.temperature = position_dim, temperature
        self.gru = nn.GRU(position_dim, hidden_dim, batch_first=True, bidirectional=True)
        self.score = nn.Linear(hidden_dim, 1, bias=False)

    def coefficients(self, lengths: Tensor) -> Tensor:
        """Return θ (B, longest) for the numbers of vectors (B,) on the CPU; 0 after the last vector."""
        lengths = lengths.cpu()
        distinct, which = lengths.unique(return_inverse=True)
        steps = self._positions(int(distinct.max()), len(distinct))
        packed = pack_padded_sequence(steps, distinct, batch_first=True, enforce_sorted=False)
        outputs, _ = self.gru(packed)
        states = pad_packed_sequence(outputs, batch_first=True)[0].chunk(2, -1)
        return self._shares(states, distinct)[which.to(steps.device)]

    def _positions(self, longest: int, count: int) -> Tensor:
        """The encodings (count, longest, P) of positions."""
        weight = self.score.weight
        return positional_encodings(longest, self.position_dim, weight.device).to(weight.dtype).expand(count, -1, -1)

    def _shares(self, states: Sequence[Tensor], lengths: Tensor) -> Tensor:
        """θ (B, N) of both directions' states, each (B, N, hidden)."""
        scores = widen(self.score((states[0] + states[1]) / 2)[..., 0]) / self.temperature
        beyond = torch.arange(scores.shape[1], device=scores.device) >= lengths.to(scores.device)[:, None]
        return scores.masked_fill(beyond, -torch.inf).softmax(-1)

    def forward(self, vectors: Tensor, mask: Tensor) -> Tensor:
        """Pool vectors (B, T, H) with their mask (B, T) to (B, H); each item needs at least one real vector."""
        lengths = mask.sum(1)
        if is_static(mask):  # θ of every number of vectors that there can be
            counts = torch.arange(1, mask.shape[1] + 1, device=mask.device)
            steps = self._positions(len(counts), len(counts))
            weights = self._shares(both_ways_padded(self.gru, steps, counts), counts)[lengths - 1]
        elif torch.compiler.is_exporting():
            steps = self._positions(mask.shape[1], lengths.shape[0])
            weights = self._shares(onnx_states(self.gru, steps, lengths)[0].unbind(0), lengths)
        else:
            weights = self.coefficients(lengths)
        lowest = widen(vectors).masked_fill(~mask[..., None], -torch.inf)
        ordered = lowest.sort(dim=1, descending=True).values[:, : weights.shape[1]]
        return (ordered.masked_fill(ordered == -torch.inf, 0) * weights[..., None]).sum(1)


def positional_encodings(count: int, dim: int, device: torch.device | None = None) -> Tensor:
    """Sinusoidal encodings (count, dim) of positions 0 … count − 1 (Vaswani et al. 2017, 3.5); `dim` is even."""
    dtype = torch.float32 if device is not None and device.type == "mps" else torch.float64  # Apple's GPUs lack it
    rates = torch.exp(torch.arange(0, dim, 2, device=device, dtype=dtype) * (-math.log(10_000) / dim))
    angles = torch.arange(count, device=device)[:, None] * rates
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)
