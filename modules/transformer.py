"""A small Transformer translator, with or without regions; trained, searched and reported like the Bi-LSTM.

Pre-norm layers (Vaswani et al. 2017; Xiong et al. 2020), one matrix for source, target and output words. Regions enter
in one of two ways (after Wu et al. 2021, "Good for Misconceived Reasons", who have one vector an image):

- `gate`: each word's state attends to the regions, and a gate decides, number by number, how much of the result is
  added: h + σ(W [h; c]) ⊙ c;
- `tokens`: the regions stand before the words in the encoder.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from modules.beam import follow
from modules.encoders import real_words
from modules.errors import ModelError
from modules.recurrent import widen
from modules.transformer_layers import Attention, DecoderLayer, EncoderLayer, KeysValues, drop, positions
from modules.translator import require_regions

State = tuple[Tensor, ...]


@dataclass
class TransformerMemory:
    """What the encoder passes to the decoder.

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
    """Translates a sentence, with or without the regions of its picture.

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
            ModelError: regions are given to a text-only translator, or missing for one that reads them.
        """
        states, objects, mask = self._read_source(source, lengths, regions)
        if objects is not None and self.look == "gate":
            seen = self.glance(states, self.glance.keys_values(objects))
            states = states + torch.sigmoid(self.gate(torch.cat([states, seen], -1))) * seen
        return TransformerMemory(mask, [layer.source(states) for layer in self.decoder])  # type: ignore[operator]

    def _read_source(
        self, source: Tensor, lengths: Tensor, regions: Tensor | None
    ) -> tuple[Tensor, Tensor | None, Tensor]:
        """The encoder's states (B, J, E), the regions (B, K, E) if it reads them, and the states' mask (B, J)."""
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
        return self.encoded(states), objects, mask

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

    def look_weights(
        self, source: Tensor, lengths: Tensor, regions: Tensor, target: Tensor, target_lengths: Tensor
    ) -> Tensor:
        """How words share their attention out among the regions, the mean over heads.

        Args:
            source: (B, N) token numbers.
            lengths: (B,) on the CPU.
            regions: (B, K, D).
            target: (B, M + 1), as `read` takes it.
            target_lengths: (B,) on the CPU.

        Returns:
            (B, N, K) of the source's words if `looks_at` is `source`, else (B, M + 1, K) of the target's: for region
            tokens what the last decoder layer gives them, the rest being words'.
        """
        if self.look == "gate":
            states, objects, _ = self._read_source(source, lengths, regions)
            return self.glance.weights(states, self.glance.keys_values(objects))  # type: ignore[arg-type]
        memory = self.encode(source, lengths, regions)
        states = self._embed(target)
        for layer, part in zip(self.decoder, memory.parts, strict=True):
            states, before = layer(states, part, memory.mask), states
        last: DecoderLayer = self.decoder[-1]  # type: ignore[assignment]
        return last.across_weights(before, memory.parts[-1], memory.mask)[..., : regions.shape[1]]

    @property
    def looks_at(self) -> Literal["source", "target"]:
        """Which words attend to regions: the source's through a gate, the target's at region tokens."""
        return "source" if self.look == "gate" else "target"

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
            states (B, S, E) that `predict` reads, and the new state.
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

    def predict(self, states: Tensor) -> Tensor:
        """Log-probabilities (…, V) of the next word, in float32, from what `step` gives (…, E)."""
        return widen(F.linear(states, self.words.weight, self.output_bias)).log_softmax(-1)

    @property
    def vocabulary_size(self) -> int:
        """V."""
        return len(self.output_bias)

    def follow(self, state: State, beam: Tensor) -> State:
        """The state of the hypotheses (B, S) that go on, by the number of the one that each continues."""
        return follow(state[0], beam), *state[1:]

    def _embed(self, tokens: Tensor, first: int = 0) -> Tensor:
        """Words (…, N) with their positions, counted from `first`."""
        words = self.words(tokens) * self.word_scale
        return self._drop(words + positions(first, tokens.shape[-1], words))

    def _drop(self, tensor: Tensor) -> Tensor:
        return drop(tensor, self.dropout, self.training)
