"""A decoder that writes a caption of a vector, word by word (GXN, Gu et al. 2018, section 3.3)."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence

from modules.layers.gru import packed_states
from modules.layers.recurrent import Packing, widen
from modules.translators.beam import BeamSettings, beam_search, follow

END = 0
"""The number of the end of a caption: that of padding, which is no word."""
UNKNOWN = 1
"""The number of words that the vocabulary lacks; `search` never writes it, `write` may."""
_BEGIN = -1


class CaptionDecoder(nn.Module):
    """A GRU whose first state is tanh(W v) of a vector v, and which then reads each word that it has written.

    The first input is a learned vector of the language. Word vectors are those of the model that the decoder belongs
    to, and are given with each call.

    Args:
        vocabulary_size: V, entries of the text input.
        word_dim: E, size of a word vector.
        languages: number of languages.
        vector_dim: size of v.
        state_dim: size of the GRU's state.
        dropout: dropout rate of word vectors and of states before the output layer.
    """

    def __init__(
        self, vocabulary_size: int, word_dim: int, languages: int, vector_dim: int, state_dim: int,
        dropout: float = 0.0,
    ) -> None:  # fmt: skip
        super().__init__()
        self.vocabulary_size, self.dropout = vocabulary_size, dropout
        self.begin = nn.Embedding(languages, word_dim)
        nn.init.uniform_(self.begin.weight, -0.1, 0.1)
        self.state = nn.Linear(vector_dim, state_dim)
        self.gru = nn.GRU(word_dim, state_dim, batch_first=True)
        self.out = nn.Linear(state_dim, vocabulary_size)

    def first_state(self, vectors: Tensor) -> Tensor:
        """Return the state (B, H') before the first word, from vectors (B, H)."""
        return torch.tanh(widen(self.state(vectors)))

    def surprise(
        self, words: nn.Module, vectors: Tensor, tokens: Tensor, lengths: Tensor, languages: Tensor,
        fed: Tensor | None = None, ended: Tensor | None = None, drop: bool = True,
    ) -> Tensor:  # fmt: skip
        """Return −log p (B,) of captions given their vectors, summed over words and the end (Eq. 4).

        Args:
            words: the word vectors.
            vectors: (B, H).
            tokens: (B, L), padded with zeros.
            lengths: (B,), 0 or more.
            languages: (B,) as indexes.
            fed: (B, L) the words that the decoder reads instead of `tokens` (scheduled sampling); None: `tokens`.
            ended: (B,) bool, on the CPU: false for captions of 1 or more words that stop without an end; None: all end.
            drop: use dropout in training; false for captions that the decoder has sampled, which it does without.
        """
        steps = lengths.cpu() + (1 if ended is None else ended.long())
        packing = Packing.of(steps, tokens.shape[1] + 1).to(tokens.device)
        read = torch.cat([self.begin(languages)[:, None], words(tokens if fed is None else fed)], 1)
        dropout = self.dropout if self.training and drop else 0.0
        states = F.dropout(self._states(F.dropout(read, dropout), packing, self.first_state(vectors)), dropout)
        labels = F.pad(tokens, (0, 1), value=END).flatten()[packing.forward]
        losses = F.cross_entropy(widen(self.out(states)), labels, reduction="none")
        return losses.new_zeros(len(tokens)).index_add(0, packing.forward // packing.width, losses)

    def _states(self, inputs: Tensor, packing: Packing, first: Tensor) -> Tensor:
        """States (T, H') of packed inputs."""
        if inputs.is_cuda:
            lengths = torch.tensor(packing.sizes)[:, None].gt(torch.arange(len(first))).sum(0)
            packed = pack_padded_sequence(inputs[packing.order], lengths, batch_first=True)
            states: Tensor = on_cudnn(self.gru, packed, first[packing.order][None])[0].data
            return states
        packed_words = inputs.flatten(0, 1)[packing.forward]
        return packed_states(self.gru, packed_words, packing.sizes, start=first[packing.order])

    def _step(self, words: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Logits (B, V) of the next word and the new state, from the vector (B, E) of the last word and the state."""
        state = self.after(words, state)
        return widen(self.out(state)), widen(state)

    def after(self, words: Tensor, state: Tensor) -> Tensor:
        """Return the state (B, H') after one more word, from its vectors (B, E) and the state before it."""
        if words.is_cuda:
            return on_cudnn(self.gru, words[:, None], state[None])[0][:, 0]
        return self.gru(words[:, None], state[None].to(words.dtype))[0][:, 0]

    @torch.no_grad()
    def write(self, words: nn.Module, vectors: Tensor, languages: Tensor, numbers: Tensor) -> tuple[Tensor, Tensor]:
        """Write a caption of each vector, by sampling or greedily.

        Args:
            words: the word vectors.
            vectors: (B, H).
            languages: (B,) as indexes.
            numbers: (B, L) in [0, 1), by which each word is drawn; below 0 the most likely word is taken. L is the
                greatest length.

        Returns:
            tokens (B, L'), padded with zeros, and lengths (B,) on the CPU, which can be 0.
        """
        state, word, written = self.first_state(vectors), self.begin(languages), []
        ended = torch.zeros(len(vectors), dtype=torch.bool, device=vectors.device)
        for number in numbers.unbind(1):
            logits, state = self._step(word, state)
            token = torch.where(number < 0, logits.argmax(-1), _sample(logits, number)).masked_fill(ended, END)
            written.append(token)
            ended = ended | (token == END)
            if ended.all():
                break
            word = words(token)
        tokens = torch.stack(written, 1)
        return tokens, (tokens != END).sum(1).cpu()

    @torch.no_grad()
    def mixed_words(
        self, words: nn.Module, vectors: Tensor, tokens: Tensor, languages: Tensor, share: float, numbers: Tensor
    ) -> Tensor:
        """Return captions (B, L) with a share of words drawn by the decoder itself (scheduled sampling, Bengio 2015).

        Each word is replaced with the given probability by one that the decoder draws after the mixed words before it.

        Args:
            words: the word vectors.
            vectors: (B, H).
            tokens: (B, L), padded with zeros.
            languages: (B,) as indexes.
            share: probability of a replacement.
            numbers: (B, 2 · L) in [0, 1): for each word whether to replace it, and what to draw.
        """
        state, word, mixed = self.first_state(vectors), self.begin(languages), []
        whether, which = numbers[:, 0::2], numbers[:, 1::2]
        for place, token in enumerate(tokens.unbind(1)):
            logits, state = self._step(word, state)
            drawn = _sample(logits, which[:, place])
            token = torch.where((whether[:, place] < share) & (drawn != END) & (token != END), drawn, token)
            mixed.append(token)
            word = words(token)
        return torch.stack(mixed, 1)

    def search(
        self, words: nn.Module, vectors: Tensor, languages: Tensor, settings: BeamSettings, longest: int
    ) -> list[list[int]]:
        """Return the best caption of each vector (B, H) by beam search, as token numbers without the end."""
        writer = _Writer(self, words)
        memory = _Memory(self.first_state(vectors), torch.ones(len(vectors), 1).bool().to(vectors.device), languages)
        with torch.no_grad():
            captions = beam_search(writer, memory, settings, _BEGIN, END, longest)
        return [hypotheses[0].tokens for hypotheses in captions]


@dataclass
class _Memory:
    """What beam search keeps of each vector."""

    state: Tensor
    mask: Tensor
    languages: Tensor

    def select(self, rows: Tensor) -> "_Memory":
        """Return some of the rows."""
        return _Memory(self.state[rows], self.mask[rows], self.languages[rows])


@dataclass
class _Writer:
    """The decoder as beam search sees it."""

    decoder: CaptionDecoder
    words: nn.Module

    @property
    def vocabulary_size(self) -> int:
        """V."""
        return self.decoder.vocabulary_size

    def start(self, memory: _Memory) -> tuple[Tensor, ...]:
        """Return the state before the first word."""
        return (memory.state[:, None],)

    def step(self, memory: _Memory, token: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Read the last word (B, S) of each hypothesis."""
        begin = self.decoder.begin(memory.languages)[:, None].expand(*token.shape, -1)
        words = torch.where((token == _BEGIN)[..., None], begin, self.words(token.clamp(min=0)))
        new = widen(self.decoder.after(words.flatten(0, 1), state[0].flatten(0, 1))).unflatten(0, token.shape)
        return new, (new,)

    def predict(self, states: Tensor) -> Tensor:
        """Return log-probabilities (…, V); a word that the vocabulary lacks is never written."""
        logs = widen(self.decoder.out(states)).log_softmax(-1)
        logs[..., UNKNOWN] = -torch.inf
        return logs

    def follow(self, state: tuple[Tensor, ...], beam: Tensor) -> tuple[Tensor, ...]:
        """Return the state of new hypotheses."""
        return tuple(follow(part, beam) for part in state)


def _sample(logits: Tensor, numbers: Tensor) -> Tensor:
    """Draw an entry of softmax(logits (B, V)) by numbers (B,) in [0, 1): that where the cumulative share passes it."""
    shares = logits.softmax(-1).cumsum(-1)
    places = torch.searchsorted(shares, (numbers.clamp(min=0) * shares[:, -1])[:, None], right=True)
    return places[:, 0].clamp(max=logits.shape[1] - 1)


def on_cudnn(network: nn.RNNBase, words: Any, start: Tensor | None = None) -> Any:
    """Run nn.GRU or nn.LSTM in the type of its weights, for GPUs.

    Under autocast torch runs cuDNN in float16, in bfloat16's autocast too, where gradients are not scaled for it.

    Args:
        network: what runs.
        words: (B, N, E), or packed.
        start: (1, B, H) first states of a GRU; None: zeros.

    Returns:
        what the network returns.
    """
    weight = next(network.parameters())
    with torch.autocast(weight.device.type, enabled=False):
        return network(words.to(weight.dtype), None if start is None else start.to(weight.dtype))
