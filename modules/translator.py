"""The regional translator: a Bi-LSTM over K threads, one a region, and a decoder that attends to words and regions.

        thread k:  v_k  x_1  x_2 … x_N        forward states differ by thread (v_k comes first);
                    │    │    │     │         backward states over the words are the same for all
                   s_1k s_2k s_3k … s_Nk+1    (v_k comes last), so they are computed once.

Without regions there is one thread and no v: that is the text-only translator (NMT, MT).
Source: mmt-retrieval, section 3.1, Eq. 1–6.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from modules.beam import follow
from modules.errors import ModelError
from modules.recurrent import (
    BiLSTM,
    Packing,
    input_gates,
    lstm_cell,
    matmul_dtype,
    open_forget_gates,
    recurrent_matrix,
    scan,
    widen,
)

_FORGET_BIAS = 2.0  # a thread's states must still hold v_k at the word that it disambiguates


@dataclass
class Memory:
    """What the encoder passes to the decoder.

    Attributes:
        states: (B, K, J, 2H) s_jk, J = N + 1 with regions and N without.
        mask: (B, J) bool, true where a state is real.
        means: (B, K, 2H) the masked mean of each thread's states.
        hidden: (B, H') the decoder's first hidden state.
        cell: (B, H') the decoder's first cell state.
    """

    states: Tensor
    mask: Tensor
    means: Tensor
    hidden: Tensor
    cell: Tensor

    def select(self, sentences: Tensor) -> "Memory":
        """The memory of some of the sentences, by index."""
        parts = (self.states, self.mask, self.means, self.hidden, self.cell)
        return Memory(*(part[sentences] for part in parts))


def require_regions(regions: Tensor | None, projection: nn.Module | None) -> None:
    """Refuse regions for a translator that reads none, and missing regions for one that does.

    Raises:
        ModelError: so it is.
    """
    if (regions is None) != (projection is None):
        has, got = ("no", "regions") if projection is None else ("a", "none")
        raise ModelError(f"translator: it has {has} projection for regions but got {got}; choose mt or mmt to match")


class RegionalTranslator(nn.Module):
    """Translates a sentence, with or without the regions of its picture.

    Args:
        vocabulary_size: V, entries of the joint BPE vocabulary.
        region_dim: D, size of a region; None builds a text-only translator.
        embedding_dim: E, size of a word vector and of the attentional state.
        hidden_dim: H, size of an encoder state in each direction; the decoder's is 2H.
        dropout: share of numbers dropped from words, regions and attentional states while training.
        padding: the padding token's number.

    Reading: source, target and output words share one matrix, as the vocabulary is joint; a dropout mask is the same
    for all threads; the decoder reads the previous word alone (no input feeding) and starts from the threads' final
    forward states and the final backward state over the words, before it reads any v_k: so it learns about the picture
    by attention only. LSTMs start with open forget gates.
    """

    def __init__(
        self, vocabulary_size: int, region_dim: int | None = None, embedding_dim: int = 256,
        hidden_dim: int = 256, dropout: float = 0.3, padding: int = 0,
    ) -> None:  # fmt: skip
        super().__init__()
        state_dim = 2 * hidden_dim
        self.dropout = dropout
        self.words = nn.Embedding(vocabulary_size, embedding_dim, padding_idx=padding)
        nn.init.normal_(self.words.weight, std=embedding_dim**-0.5)  # as the output matrix wants it
        self.word_scale = embedding_dim**0.5  # as the LSTMs want it: without it attention takes 5x longer to form
        self.regions = None if region_dim is None else nn.Linear(region_dim, embedding_dim)
        self.encoder = BiLSTM(embedding_dim, hidden_dim)
        self.to_hidden = nn.Linear(state_dim, state_dim)
        self.to_cell = nn.Linear(state_dim, state_dim)
        self.decoder = nn.LSTM(embedding_dim, state_dim, batch_first=True)
        for lstm in (self.encoder.lstm, self.decoder):
            open_forget_gates(lstm, _FORGET_BIAS)
        self.attention = RegionalAttention(state_dim, state_dim)
        self.combine = nn.Linear(2 * state_dim, embedding_dim)
        self.output_bias = nn.Parameter(torch.zeros(vocabulary_size))

    def encode(self, source: Tensor, lengths: Tensor, regions: Tensor | None = None) -> Memory:
        """Encode sentences with their regions.

        Args:
            source: (B, N) token numbers.
            lengths: (B,) on the CPU, each at least 1.
            regions: (B, K, D); left out by a text-only translator.

        Raises:
            ModelError: regions are given to a text-only translator, or missing for one that reads them.
        """
        require_regions(regions, self.regions)
        words = self._drop(self._embed(source))
        packing = Packing.of(lengths, source.shape[1]).to(source.device)
        if regions is None or self.regions is None:
            ahead, back, finals = self._encode_words(words, packing)
        else:
            objects = self._drop(self.regions(regions.to(words.dtype)), shared=1)
            ahead, back, finals = self._encode_threads(words, objects, packing)
        states = torch.cat([ahead, back], -1)
        extra = states.shape[2] - source.shape[1]  # 1 for the region at the head of each thread
        mask = torch.arange(states.shape[2])[None] < lengths.cpu()[:, None] + extra
        mask = mask.to(source.device)
        means = states.sum(2) / mask.sum(1)[:, None, None]  # states are zero where a sentence has ended
        hidden, cell = (torch.cat([forward.mean(1), backward], -1) for forward, backward in finals)
        states = states.to(matmul_dtype(states))  # read by every decoding step: cast once
        return Memory(states, mask, means, self.to_hidden(hidden), self.to_cell(cell))

    def forward(self, memory: Memory, target: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Logits (T, V) of what `read` gives the states of, and their positions."""
        states, where = self.read(memory, target, lengths)
        return F.linear(states, self.words.weight, self.output_bias), where  # Eq. 5 before the softmax

    def read(self, memory: Memory, target: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Go through target sentences word by word (teacher forcing).

        Args:
            memory: of the B source sentences.
            target: (B, M + 1) begin-of-sentence and the words before each prediction.
            lengths: (B,) on the CPU, predictions a sentence.

        Returns:
            states (T, E) before the output matrix (`words.weight`, `output_bias`) of all predictions, and their (T,)
            positions in the flattened (B · (M + 1)) batch.
        """
        states, where = self._decode(memory, target, lengths)
        attentional = self._attend(states, memory).flatten(0, 1)[where]
        return self._drop(attentional), where

    def look_weights(
        self, source: Tensor, lengths: Tensor, regions: Tensor, target: Tensor, target_lengths: Tensor
    ) -> Tensor:
        """How target words share their attention out among the regions: Σ_j a_ijk of Eq. 2.

        Args:
            source: (B, N) token numbers.
            lengths: (B,) on the CPU.
            regions: (B, K, D).
            target: (B, M + 1), as `read` takes it.
            target_lengths: (B,) on the CPU.

        Returns:
            (B, M + 1, K).
        """
        memory = self.encode(source, lengths, regions)
        return self.attention.weights(self._decode(memory, target, target_lengths)[0], memory).sum(-1)

    looks_at = "target"
    """Which words attend to regions."""

    def start(self, memory: Memory) -> tuple[Tensor, ...]:
        """The state before the first word: hidden (B, 1, H') and cell (B, 1, H')."""
        return memory.hidden[:, None], memory.cell[:, None]

    def step(self, memory: Memory, token: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        """One decoding step for S hypotheses a sentence; the memory is shared by them, never copied.

        Args:
            memory: of the B source sentences.
            token: (B, S) the last word of each hypothesis.
            state: hidden (B, S, H') and cell (B, S, H') of the decoder.

        Returns:
            states (B, S, E) that `predict` reads, and the new state.
        """
        hidden, cell = state
        gates = input_gates(self.decoder, self._embed(token)) + F.linear(hidden, recurrent_matrix(self.decoder))
        hidden, cell = lstm_cell(gates, cell)
        return self._attend(hidden, memory), (hidden, cell)

    def predict(self, states: Tensor) -> Tensor:
        """Log-probabilities (…, V) of the next word, in float32, from what `step` gives (…, E)."""
        return widen(F.linear(states, self.words.weight, self.output_bias)).log_softmax(-1)

    @property
    def vocabulary_size(self) -> int:
        """V."""
        return len(self.output_bias)

    def follow(self, state: tuple[Tensor, ...], beam: Tensor) -> tuple[Tensor, ...]:
        """The state of the hypotheses (B, S) that go on, by the number of the one that each continues."""
        return tuple(follow(part, beam) for part in state)

    def _decode(self, memory: Memory, target: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """The decoder's states (B, M + 1, H') and the positions (T,) of real ones in the flattened batch."""
        packing = Packing.of(lengths, target.shape[1]).to(target.device)
        words = self._drop(self._embed(target.flatten()[packing.forward]))
        start = memory.hidden[packing.order], memory.cell[packing.order]
        states, _ = scan(input_gates(self.decoder, words), recurrent_matrix(self.decoder), *start, packing.sizes)
        return packing.spread(states), packing.forward

    def _encode_words(self, words: Tensor, packing: Packing) -> tuple[Tensor, Tensor, tuple]:
        """One thread, no region: states (B, 1, N, H) ahead and back; final states and cells (B, 1, H) and (B, H)."""
        start = words.new_zeros(len(words), self.encoder.lstm.hidden_size)
        ahead, ahead_last, ahead_cell = self._run(words, packing, start, start, backward=False)
        back, back_last, back_cell = self._run(words, packing, start, start, backward=True)
        return ahead, back[:, None], ((ahead_last, back_last), (ahead_cell, back_cell))

    def _encode_threads(self, words: Tensor, objects: Tensor, packing: Packing) -> tuple[Tensor, Tensor, tuple]:
        """K threads u_k = [v_k, x_1 … x_N]: states (B, K, N + 1, H) ahead and back.

        And final states and cells over the words: (B, K, H) ahead, (B, H) back.
        """
        first, first_cell = lstm_cell(input_gates(self.encoder.lstm, objects), None)
        ahead, ahead_last, ahead_cell = self._run(words, packing, first, first_cell, backward=False)
        start = words.new_zeros(len(words), self.encoder.lstm.hidden_size)
        back, last, cell = self._run(words, packing, start, start, backward=True)
        # The backward LSTM has read all words; one more step, apart for each thread, reads v_k.
        shared = F.linear(last, recurrent_matrix(self.encoder.lstm, backward=True))
        at_region, _ = lstm_cell(
            input_gates(self.encoder.lstm, objects, backward=True) + shared[:, None], cell[:, None]
        )
        threads = objects.shape[1]
        ahead = torch.cat([first[:, :, None], ahead], 2)
        back = torch.cat([at_region[:, :, None], back[:, None].expand(-1, threads, -1, -1)], 2)
        return ahead, back, ((ahead_last, last), (ahead_cell, cell))

    def _run(
        self, words: Tensor, packing: Packing, hidden: Tensor, cell: Tensor, backward: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        """One direction over the words from start states (B, H), or (B, K, H) for K threads.

        Returns states (B, N, H) for one sequence backward, (B, K, N, H) forward; last states and cells alike.
        """
        where = packing.backward if backward else packing.forward
        inputs = input_gates(self.encoder.lstm, words.flatten(0, 1)[where], backward)
        threads = hidden.shape[1] if hidden.dim() == 3 else 1
        h, c = (state[packing.order].reshape(-1, state.shape[-1]) for state in (hidden, cell))
        recurrent = recurrent_matrix(self.encoder.lstm, backward)
        states, last_cell = scan(inputs, recurrent, h, c, packing.sizes, threads)
        states = states.unflatten(0, (-1, threads))
        last, last_cell = packing.last(states), last_cell.unflatten(0, (-1, threads))[packing.rank]
        spread = packing.spread(states, backward).transpose(1, 2)
        return (spread[:, 0], last[:, 0], last_cell[:, 0]) if backward else (spread, last, last_cell)

    def _attend(self, hidden: Tensor, memory: Memory) -> Tensor:
        """Eq. 1: h̃ = tanh(W_c [c; h]), (B, T, H') → (B, T, E)."""
        return torch.tanh(self.combine(torch.cat([self.attention(hidden, memory), hidden], -1)))

    def _embed(self, tokens: Tensor) -> Tensor:
        """Word vectors of unit scale, from the matrix that they share with the output."""
        return self.words(tokens) * self.word_scale

    def _drop(self, tensor: Tensor, shared: int | None = None) -> Tensor:
        """Dropout, with one mask for the whole of dimension `shared`."""
        if not self.training or not self.dropout:
            return tensor
        shape = [1 if dim == shared else size for dim, size in enumerate(tensor.shape)]
        return tensor * F.dropout(tensor.new_ones(shape), self.dropout)


class RegionalAttention(nn.Module):
    """Factorised local attention over threads and their states (mmt-retrieval, Eq. 2–4).

    a_ijk = softmax_j(h_iᵀ W s_jk) · softmax_k(h_iᵀ W' s̄_k), c_i = Σ_jk a_ijk s_jk. The weights sum to 1 over
    j and k, so Eq. 4's division by |a| changes nothing.

    Args:
        query_dim: size of the decoder's state h.
        state_dim: 2H, size of the encoder's states s.
    """

    def __init__(self, query_dim: int, state_dim: int) -> None:
        super().__init__()
        self.to_states = nn.Linear(query_dim, state_dim, bias=False)
        self.to_threads = nn.Linear(query_dim, state_dim, bias=False)

    def weights(self, hidden: Tensor, memory: Memory) -> Tensor:
        """a_ijk: (B, T, H') → (B, T, K, J)."""
        threads, steps = memory.states.shape[1:3]
        scores = self.to_states(hidden) @ memory.states.flatten(1, 2).transpose(1, 2)
        scores = widen(scores).unflatten(-1, (threads, steps))
        scores = scores.masked_fill(~memory.mask[:, None, None], -torch.inf)
        regional = self.to_threads(hidden) @ memory.means.transpose(1, 2)
        return scores.softmax(-1) * widen(regional).softmax(-1)[..., None]

    def forward(self, hidden: Tensor, memory: Memory) -> Tensor:
        """The context c_i of each decoder state: (B, T, H') → (B, T, 2H)."""
        return self.weights(hidden, memory).flatten(2) @ memory.states.flatten(1, 2)
