"""Encoders that retrieval models share: words through a Bi-LSTM, regions through a projection, attention pooling."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from modules.recurrent import BiLSTM, widen


class CaptionEncoder(nn.Module):
    """Word vectors through a Bi-LSTM whose two directions are averaged.

    Args:
        vocabulary_size: V.
        word_dim: size of a word vector.
        dim: H, size of a state.
        dropout: share of the word vectors' numbers dropped while training.
        padding: number of the padding word.
    """

    def __init__(self, vocabulary_size: int, word_dim: int, dim: int, dropout: float, padding: int = 0) -> None:
        super().__init__()
        self.words = nn.Embedding(vocabulary_size, word_dim, padding_idx=padding)
        nn.init.uniform_(self.words.weight, -0.1, 0.1)
        self.lstm = BiLSTM(word_dim, dim)
        self.dropout = dropout

    def forward(self, tokens: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """States (B, L, H), zero where a caption has ended, and their mask (B, L)."""
        words = F.dropout(self.words(tokens), self.dropout, self.training)
        ahead, back = self.lstm(words, lengths)
        mask = (torch.arange(tokens.shape[1])[None] < lengths.cpu()[:, None]).to(tokens.device)
        return (ahead + back) / 2, mask


class AttentionPool(nn.Module):
    """Pool vectors by attention from one learned context: α = softmax_i( f_c(c)ᵀ f_z(z_i) ), z' = Σ α_i z_i.

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
        """α (B, T) of vectors (B, T, H), zero where the mask (B, T) is false."""
        context = torch.tanh(self.of_context(self.context))
        scores = widen(torch.tanh(self.of_vectors(vectors)) @ context)
        return scores.masked_fill(~mask, -torch.inf).softmax(-1)

    def forward(self, vectors: Tensor, mask: Tensor) -> Tensor:
        """z' (B, H)."""
        return (self.weights(vectors, mask)[..., None] * widen(vectors)).sum(1)  # a product would run in bfloat16
