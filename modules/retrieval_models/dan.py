"""DAN, dual attention network in its matching form (Nam et al. 2017)."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from modules.errors import ModelError
from modules.layers.encoders import CaptionEncoder, masked_mean
from modules.layers.recurrent import widen
from modules.retrieval_models.base import Encoding, RetrievalModel, one_vector, register


class MemoryAttention(nn.Module):
    """Pool vectors by attention with a memory: h_i = tanh(W z_i) ⊙ tanh(W_m m), α = softmax_i(w_hᵀ h_i), Σ α_i z_i.

    Args:
        vector_dim: size of the vectors z.
        dim: H, size of the memory m and of h.
    """

    def __init__(self, vector_dim: int, dim: int) -> None:
        super().__init__()
        self.of_vectors = nn.Linear(vector_dim, dim, bias=False)
        self.of_memory = nn.Linear(dim, dim, bias=False)
        self.of_hidden = nn.Linear(dim, 1, bias=False)

    def weights(self, vectors: Tensor, mask: Tensor, memory: Tensor) -> Tensor:
        """Return α (B, T) of vectors (B, T, Z) and the memory (B, H), zero where the mask (B, T) is false."""
        hidden = torch.tanh(self.of_vectors(vectors)) * torch.tanh(self.of_memory(memory))[:, None]
        return widen(self.of_hidden(hidden))[..., 0].masked_fill(~mask, -torch.inf).softmax(1)

    def forward(self, vectors: Tensor, mask: Tensor, memory: Tensor) -> Tensor:
        """Return attended vectors (B, Z) of vectors (B, T, Z), their mask (B, T) and the memory (B, H)."""
        return (self.weights(vectors, mask, memory)[..., None] * widen(vectors)).sum(1)


@register("dan")
class DAN(RetrievalModel):
    """Each modality attends to its own items several times, with a memory of the previous steps.

    u⁽⁰⁾ = mean of words, v⁽⁰⁾ = tanh(P⁽⁰⁾ mean of regions); at step k, with weights of its own, u⁽ᵏ⁾ = Σ α z,
    v⁽ᵏ⁾ = tanh(P⁽ᵏ⁾ Σ α z), and m ← m + the attended vector. Similarity: Σ_k v⁽ᵏ⁾·u⁽ᵏ⁾ (Nam et al. 2017, section 3.4).

    Interpretation: the original has no normalisation and a margin of 100; here, for a margin of 0.2, the concatenated
    vectors are normalised, so the similarity is one inner product. The directions of the Bi-LSTM are averaged. Region
    features are not transformed before attention.

    Args:
        steps: number of attention steps of each modality, after the mean; 0 or more.
        common: see `RetrievalModel`.
    """

    def __init__(self, steps: int = 2, **common: Any) -> None:
        if steps < 0:
            raise ModelError(f"dan: steps is {steps}; expected 0 or more")
        super().__init__(**common)
        words = self.make_words()
        self.captions = CaptionEncoder(words, words.embedding_dim, self.dim, self.dropout)
        self.project = nn.ModuleList(nn.Linear(self.region_dim, self.dim, bias=False) for _ in range(steps + 1))
        self.attend_regions = nn.ModuleList(MemoryAttention(self.region_dim, self.dim) for _ in range(steps))
        self.attend_words = nn.ModuleList(MemoryAttention(self.dim, self.dim) for _ in range(steps))

    def encode_images(self, regions: Tensor, mask: Tensor) -> Encoding:
        """Encode images as single unit vectors (B, 1, (steps + 1) · H)."""
        return one_vector(F.normalize(widen(torch.cat(self._look(regions, mask)[0], dim=-1)), dim=-1))

    def region_weights(self, regions: Tensor, mask: Tensor) -> Tensor | None:
        """Return α (B, steps, R): each step of attention counts as a head; None without steps."""
        weights = self._look(regions, mask)[1]
        return torch.stack(weights, dim=1) if weights else None

    def _look(self, regions: Tensor, mask: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        """The mean and the output of each step (B, H), and the weights of each step (B, R)."""
        outputs, weights = [torch.tanh(self.project[0](masked_mean(regions, mask)))], []
        for attend, project in zip(self.attend_regions, self.project[1:], strict=True):
            assert isinstance(attend, MemoryAttention)
            weights.append(attend.weights(regions, mask, torch.stack(outputs).sum(0)))
            outputs.append(torch.tanh(project((weights[-1][..., None] * widen(regions)).sum(1))))
        return outputs, weights

    def encode_captions(self, tokens: Tensor, lengths: Tensor, languages: Tensor) -> Encoding:
        """Encode captions as single unit vectors (B, 1, (steps + 1) · H); one encoder for all languages."""
        states, mask = self.captions(tokens, lengths)
        outputs = [masked_mean(states, mask)]
        for attend in self.attend_words:
            outputs.append(attend(states, mask, torch.stack(outputs).sum(0)))
        return one_vector(F.normalize(widen(torch.cat(outputs, dim=-1)), dim=-1))
