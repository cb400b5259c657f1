"""The regional translator: a Bi-LSTM over K threads, one per region, and a decoder that attends to words and regions.

        thread k:  v_k  x_1  x_2 … x_N        forward states differ by thread (v_k comes first);
                    │    │    │     │         backward states over the words are equal in all threads
                   s_1k s_2k s_3k … s_Nk+1    (v_k comes last), so they are computed once.

Without regions there is one thread and no v: the text-only translator (NMT, MT).
Source: mmt-retrieval, section 3.1, Eq. 1–6.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from modules.errors import ModelError
from modules.layers.encoders import real_words
from modules.layers.recurrent import (
    BiLSTM,
    Packing,
    input_gates,
    lstm_cell,
    matmul_dtype,
    open_forget_gates,
    padded_states,
    recurrent_matrix,
    scan,
    states_to_the_right,
    widen,
)
from modules.layers.static import is_static
from modules.translators.beam import follow

_FORGET_BIAS = 2.0  # keeps v_k in a thread's state until the word that it disambiguates


@dataclass
class Memory:
    """The output of the encoder, as input of the decoder.

    Attributes:
        states: (B, K, J, 2H) s_jk; J = N + 1 with regions, N without.
        mask: (B, J) bool, true for real states (not padding).
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
        """Return the memory of some of the sentences, by index."""
        parts = (self.states, self.mask, self.means, self.hidden, self.cell)
        return Memory(*(part[sentences] for part in parts))


def require_regions(regions: Tensor | None, projection: nn.Module | None) -> None:
    """Check that regions are given if and only if the translator is multimodal.

    Raises:
        ModelError: regions are missing, or given to a text-only translator.
    """
    if (regions is None) != (projection is None):
        kind, given = ("text-only", "regions") if projection is None else ("multimodal", "no regions")
        raise ModelError(f"the translator is {kind}, but {given} were given; choose mt or mmt to match")


class RegionalTranslator(nn.Module):
    """Bi-LSTM translator of a sentence with the regions of its image (multimodal), or without (text-only).

    Args:
        vocabulary_size: V, entries of the joint BPE vocabulary.
        region_dim: D, size of a region; None builds a text-only translator.
        embedding_dim: E, size of a word vector and of an attentional state.
        hidden_dim: H, size of an encoder state in each direction; the decoder's is 2H.
        dropout: dropout rate of words, regions and attentional states.
        padding: id of the padding token.

    Interpretation: source, target and output words share one matrix, as the vocabulary is joint. All
    threads have the same dropout mask. The decoder reads the previous word alone (no input feeding). It starts from
    the threads' final forward states and the final backward state over the words, before the backward LSTM reads v_k;
    other image information reaches it through attention only. The forget gates of LSTMs have a positive initial bias.
    """

    has_graphs = True
    """A training step on a GPU may be a CUDA graph."""

    def __init__(
        self, vocabulary_size: int, region_dim: int | None = None, embedding_dim: int = 256,
        hidden_dim: int = 256, dropout: float = 0.3, padding: int = 0,
    ) -> None:  # fmt: skip
        super().__init__()
        state_dim = 2 * hidden_dim
        self.dropout = dropout
        self.words = nn.Embedding(vocabulary_size, embedding_dim, padding_idx=padding)
        nn.init.normal_(self.words.weight, std=embedding_dim**-0.5)  # scale for the output matrix
        self.word_scale = embedding_dim**0.5  # unit scale for the LSTMs; without it attention takes 5x longer to learn
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
            source: (B, N) token ids.
            lengths: (B,) on the CPU, each at least 1.
            regions: (B, K, D); None for a text-only translator.

        Raises:
            ModelError: regions are given to a text-only translator, or missing for a multimodal one.
        """
        require_regions(regions, self.regions)
        words = self._drop(self._embed(source))
        mask, objects = real_words(source, lengths), None
        if regions is not None and self.regions is not None:
            objects = self._drop(self.regions(regions.to(words.dtype)), shared=1)
        if is_static(source):
            forward_states, backward_states, finals = self._encode_padded(words, objects, mask)
        else:
            packing = Packing.of(lengths, source.shape[1]).to(source.device)
            forward_states, backward_states, finals = (
                self._encode_words(words, packing) if objects is None else self._encode_threads(words, objects, packing)
            )
        states = torch.cat([forward_states, backward_states], -1)
        mask = F.pad(mask, (states.shape[2] - source.shape[1], 0), value=True)  # the region at the start of each thread
        means = states.sum(2) / mask.sum(1)[:, None, None]  # states are zero where a sentence has ended
        hidden, cell = (torch.cat([forward.mean(1), backward], -1) for forward, backward in finals)
        states = states.to(matmul_dtype(states))  # cast once, for all decoding steps
        return Memory(states, mask, means, self.to_hidden(hidden), self.to_cell(cell))

    def forward(self, memory: Memory, target: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits (T, V) of all predictions, and their positions in the flattened batch; see `read`."""
        states, where = self.read(memory, target, lengths)
        return F.linear(states, self.words.weight, self.output_bias), where  # Eq. 5 before the softmax

    def read(self, memory: Memory, target: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Run the decoder over target sentences (teacher forcing).

        Args:
            memory: encoder memory of the B source sentences.
            target: (B, M + 1) ids of begin-of-sentence and the words before each prediction.
            lengths: (B,) on the CPU, number of predictions of each sentence.

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
        """Return the attention weights of target words on the regions: Σ_j a_ijk of Eq. 2.

        Args:
            source: (B, N) token ids.
            lengths: (B,) on the CPU.
            regions: (B, K, D).
            target: (B, M + 1), as for `read`.
            target_lengths: (B,) on the CPU.

        Returns:
            (B, M + 1, K).
        """
        memory = self.encode(source, lengths, regions)
        return self.attention.weights(self._decode(memory, target, target_lengths)[0], memory).sum(-1)

    looks_at = "target"
    """The words that attend to regions: `target` or `source`."""

    def start(self, memory: Memory) -> tuple[Tensor, ...]:
        """Return the decoder state before the first word: hidden (B, 1, H') and cell (B, 1, H')."""
        return memory.hidden[:, None], memory.cell[:, None]

    def step(self, memory: Memory, token: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Do one decoding step for S hypotheses of each sentence, which share the memory without copies.

        Args:
            memory: encoder memory of the B source sentences.
            token: (B, S) id of the last word of each hypothesis.
            state: hidden (B, S, H') and cell (B, S, H') of the decoder.

        Returns:
            states (B, S, E) for `predict`, and the new decoder state.
        """
        hidden, cell = state
        gates = input_gates(self.decoder, self._embed(token)) + F.linear(hidden, recurrent_matrix(self.decoder))
        hidden, cell = lstm_cell(gates, cell)
        return self._attend(hidden, memory), (hidden, cell)

    def predict(self, states: Tensor) -> Tensor:
        """Return log-probabilities (…, V) of the next word, in float32, from the states (…, E) of `step`."""
        return widen(F.linear(states, self.words.weight, self.output_bias)).log_softmax(-1)

    @property
    def vocabulary_size(self) -> int:
        """V, size of the vocabulary."""
        return len(self.output_bias)

    def follow(self, state: tuple[Tensor, ...], beam: Tensor) -> tuple[Tensor, ...]:
        """Return the state of the new hypotheses; `beam` (B, S) is the index of the hypothesis that each continues."""
        return tuple(follow(part, beam) for part in state)

    def _decode(self, memory: Memory, target: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Return decoder states (B, M + 1, H') and the positions (T,) of real states in the flattened batch."""
        if is_static(target):  # all states; those of padding mean nothing
            states = padded_states(self.decoder, self._drop(self._embed(target)), start=(memory.hidden, memory.cell))
            return states, torch.arange(target.numel(), device=target.device)
        packing = Packing.of(lengths, target.shape[1]).to(target.device)
        words = self._drop(self._embed(target.flatten()[packing.forward]))
        start = memory.hidden[packing.order], memory.cell[packing.order]
        states, _ = scan(input_gates(self.decoder, words), recurrent_matrix(self.decoder), *start, packing.sizes)
        return packing.spread(states), packing.forward

    def _encode_padded(self, words: Tensor, objects: Tensor | None, real: Tensor) -> tuple[Tensor, Tensor, tuple]:
        """`_encode_words`, or `_encode_threads` with objects (B, K, E), over padded sentences with a mask (B, N)."""
        lstm = self.encoder.lstm
        flipped, last, cell = states_to_the_right(lstm, words.flip(1), real.flip(1), backward=True)
        backward_states = flipped.flip(1)[:, None]
        if objects is None:
            threads = words[:, None]
        else:
            count = objects.shape[1]
            threads = torch.cat([objects[:, :, None], words[:, None].expand(-1, count, -1, -1)], dim=2)
            at_region = self._at_region(objects, last, cell)
            backward_states = torch.cat([at_region[:, :, None], backward_states.expand(-1, count, -1, -1)], dim=2)
            real = F.pad(real, (1, 0), value=True)
        place, width = torch.arange(real.shape[1], device=real.device), real.shape[1]
        to_the_right = (place - (width - real.sum(1, keepdim=True))) % width  # (B, J)
        shape, turn = threads.shape[:2], to_the_right[:, None, :, None]
        moved = threads.gather(2, turn.expand(*threads.shape)).flatten(0, 1)
        filled = real.gather(1, to_the_right)[:, None].expand(*shape, -1).flatten(0, 1)
        states, hidden, last_cell = (part.unflatten(0, shape) for part in states_to_the_right(lstm, moved, filled))
        to_the_left = (place + (width - real.sum(1, keepdim=True))) % width
        forward_states = states.gather(2, to_the_left[:, None, :, None].expand(*states.shape))
        return forward_states, backward_states, ((hidden, last), (last_cell, cell))

    def _at_region(self, objects: Tensor, last: Tensor, cell: Tensor) -> Tensor:
        """The backward LSTM has read all words; in one more step each thread reads its own v_k: (B, K, H)."""
        lstm = self.encoder.lstm
        gates = input_gates(lstm, objects, backward=True)
        gates = gates + F.linear(last, recurrent_matrix(lstm, backward=True))[:, None]
        return lstm_cell(gates, cell[:, None])[0]

    def _encode_words(self, words: Tensor, packing: Packing) -> tuple[Tensor, Tensor, tuple]:
        """Encode without regions: forward and backward states (B, 1, N, H); final states and cells.

        The final states and cells are (B, 1, H) forward, (B, H) backward.
        """
        start = words.new_zeros(len(words), self.encoder.lstm.hidden_size)
        forward_states, forward_last, forward_cell = self._run(words, packing, start, start, backward=False)
        backward_states, backward_last, backward_cell = self._run(words, packing, start, start, backward=True)
        return forward_states, backward_states[:, None], ((forward_last, backward_last), (forward_cell, backward_cell))

    def _encode_threads(self, words: Tensor, objects: Tensor, packing: Packing) -> tuple[Tensor, Tensor, tuple]:
        """Encode K threads u_k = [v_k, x_1 … x_N]: forward and backward states (B, K, N + 1, H); final states, cells.

        The final states and cells are those over the words: (B, K, H) forward, (B, H) backward.
        """
        first, first_cell = lstm_cell(input_gates(self.encoder.lstm, objects), None)
        forward_states, forward_last, forward_cell = self._run(words, packing, first, first_cell, backward=False)
        start = words.new_zeros(len(words), self.encoder.lstm.hidden_size)
        backward_states, last, cell = self._run(words, packing, start, start, backward=True)
        at_region = self._at_region(objects, last, cell)
        threads = objects.shape[1]
        forward_states = torch.cat([first[:, :, None], forward_states], 2)
        backward_states = torch.cat([at_region[:, :, None], backward_states[:, None].expand(-1, threads, -1, -1)], 2)
        return forward_states, backward_states, ((forward_last, last), (forward_cell, cell))

    def _run(
        self, words: Tensor, packing: Packing, hidden: Tensor, cell: Tensor, backward: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Run one direction over the words from initial states (B, H), or (B, K, H) for K threads.

        Returns states (B, N, H) for the backward direction, (B, K, N, H) for the forward one; and the last states and
        cells, (B, H) or (B, K, H).
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
        """Return word vectors of unit scale, from the matrix that is shared with the output."""
        return self.words(tokens) * self.word_scale

    def _drop(self, tensor: Tensor, shared: int | None = None) -> Tensor:
        """Apply dropout with the same mask at all positions of dimension `shared`."""
        if not self.training or not self.dropout:
            return tensor
        shape = [1 if dim == shared else size for dim, size in enumerate(tensor.shape)]
        return tensor * F.dropout(tensor.new_ones(shape), self.dropout)


class RegionalAttention(nn.Module):
    """Factorised local attention over threads and their states (mmt-retrieval, Eq. 2–4).

    a_ijk = softmax_j(h_iᵀ W s_jk) · softmax_k(h_iᵀ W' s̄_k), c_i = Σ_jk a_ijk s_jk. The weights sum to 1 over
    j and k, so Eq. 4's division by |a| changes nothing.

    Args:
        query_dim: size of a decoder state h.
        state_dim: 2H, size of an encoder state s.
    """

    def __init__(self, query_dim: int, state_dim: int) -> None:
        super().__init__()
        self.to_states = nn.Linear(query_dim, state_dim, bias=False)
        self.to_threads = nn.Linear(query_dim, state_dim, bias=False)

    def weights(self, hidden: Tensor, memory: Memory) -> Tensor:
        """Return a_ijk: (B, T, H') → (B, T, K, J)."""
        threads, steps = memory.states.shape[1:3]
        scores = self.to_states(hidden) @ memory.states.flatten(1, 2).transpose(1, 2)
        scores = widen(scores).unflatten(-1, (threads, steps))
        scores = scores.masked_fill(~memory.mask[:, None, None], -torch.inf)
        regional = self.to_threads(hidden) @ memory.means.transpose(1, 2)
        return scores.softmax(-1) * widen(regional).softmax(-1)[..., None]

    def forward(self, hidden: Tensor, memory: Memory) -> Tensor:
        """The context c_i of each decoder state: (B, T, H') → (B, T, 2H)."""
        return self.weights(hidden, memory).flatten(2) @ memory.states.flatten(1, 2)
