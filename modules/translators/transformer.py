"""A small Transformer translator, text-only or multimodal, with the interface of `RegionalTranslator`.

Pre-norm layers (Vaswani et al. 2017; Xiong et al. 2020), one matrix for source, target and output words. A multimodal
translator reads regions in one of two ways (similar to Wu et al. 2021, "Good for Misconceived Reasons", who have one
vector for each image):

- `gate`: each word's state h attends to the regions, and an element-wise gate controls how much of the attended c is
  added: h + σ(W [h; c]) ⊙ c;
- `tokens`: the regions are encoder inputs before the words.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from modules.errors import ModelError
from modules.layers.encoders import places_of_words, real_words
from modules.layers.recurrent import widen
from modules.layers.static import is_static
from modules.layers.transformer import Attention, DecoderLayer, EncoderLayer, KeysValues, drop, positions
from modules.translators.beam import follow
from modules.translators.regional import require_regions

State = tuple[Tensor, ...]


@dataclass
class TransformerMemory:
    """The output of the encoder, as input of the decoder.

    Attributes:
        mask: (B, J) bool, true for real states (not padding).
        parts: keys and values for each decoder layer, (B, heads, J, E / heads) each.
    """

    mask: Tensor
    parts: list[KeysValues]

    def select(self, sentences: Tensor) -> "TransformerMemory":
        """Return the memory of some of the sentences, by index."""
        parts = [(keys[sentences], values[sentences]) for keys, values in self.parts]
        return TransformerMemory(self.mask[sentences], parts)


class TransformerTranslator(nn.Module):
    """Transformer translator of a sentence with the regions of its image (multimodal), or without (text-only).

    Args:
        vocabulary_size: V, entries of the joint BPE vocabulary.
        region_dim: D, size of a region; None builds a text-only translator.
        embedding_dim: E, size of all states.
        hidden_dim: width of the feed-forward layers.
        dropout: dropout rate of embeddings and of the output of each sub-layer.
        padding: id of the padding token.
        layers: number of encoder layers, and of decoder layers.
        heads: number of attention heads; E must be divisible by twice this number.
        look: how regions are read, `gate` or `tokens`.
        gate_bias: start value of the gate's biases, None for random ones; −3 lets little of the picture through.

    Raises:
        ModelError: the sizes do not match, `look` is unknown, or tokens have a `gate_bias`.
    """

    has_graphs = True
    """A training step on a GPU may be a CUDA graph."""

    def __init__(
        self, vocabulary_size: int, region_dim: int | None = None, embedding_dim: int = 128, hidden_dim: int = 256,
        dropout: float = 0.3, padding: int = 0, layers: int = 4, heads: int = 4,
        look: Literal["gate", "tokens"] = "gate", gate_bias: float | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        if look not in ("gate", "tokens"):
            raise ModelError(f"look is {look!r}; expected gate or tokens")
        if look == "tokens" and gate_bias is not None:
            raise ModelError(f"gate_bias is {gate_bias:g}, but look is tokens, without a gate; leave one out")
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
                if gate_bias is not None:
                    nn.init.constant_(self.gate.bias, gate_bias)
        self.output_bias = nn.Parameter(torch.zeros(vocabulary_size))

    def encode(self, source: Tensor, lengths: Tensor, regions: Tensor | None = None) -> TransformerMemory:
        """Encode sentences with their regions.

        Args:
            source: (B, N) token ids.
            lengths: (B,) on the CPU, each at least 1.
            regions: (B, K, D); None for a text-only translator.

        Raises:
            ModelError: regions are given to a text-only translator, or missing for a multimodal one.
        """
        states, objects, mask = self._read_source(source, lengths, regions)
        if objects is not None and self.look == "gate":
            context = self.glance(states, self.glance.keys_values(objects))
            states = states + torch.sigmoid(self.gate(torch.cat([states, context], -1))) * context
        return TransformerMemory(mask, [layer.source(states) for layer in self.decoder])  # type: ignore[operator]

    def _read_source(
        self, source: Tensor, lengths: Tensor, regions: Tensor | None
    ) -> tuple[Tensor, Tensor | None, Tensor]:
        """Return encoder states (B, J, E), regions (B, K, E) or None if text-only, and the mask of states (B, J)."""
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
        """Return logits (T, V) of all predictions, and their positions in the flattened batch; see `read`."""
        states, where = self.read(memory, target, lengths)
        return F.linear(states, self.words.weight, self.output_bias), where

    def read(self, memory: TransformerMemory, target: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Run the decoder over target sentences, all words at once (teacher forcing).

        Args:
            memory: encoder memory of the B source sentences.
            target: (B, M + 1) ids of begin-of-sentence and the words before each prediction.
            lengths: (B,) on the CPU, number of predictions of each sentence.

        Returns:
            states (T, E) before the output matrix (`words.weight`, `output_bias`) of all predictions, and their (T,)
            positions in the flattened (B · (M + 1)) batch.
        """
        states = self._embed(target)
        for layer, part in zip(self.decoder, memory.parts, strict=True):
            states = layer(states, part, memory.mask)
        if is_static(target):  # all states; those of padding mean nothing
            return self.decoded(states.flatten(0, 1)), torch.arange(target.numel(), device=target.device)
        where = places_of_words(target, lengths)
        return self.decoded(states.flatten(0, 1)[where]), where

    def look_weights(
        self, source: Tensor, lengths: Tensor, regions: Tensor, target: Tensor, target_lengths: Tensor
    ) -> Tensor:
        """Return the attention weights of words on the regions, the mean over heads.

        Args:
            source: (B, N) token ids.
            lengths: (B,) on the CPU.
            regions: (B, K, D).
            target: (B, M + 1), as for `read`.
            target_lengths: (B,) on the CPU.

        Returns:
            (B, N, K) for source words if `looks_at` is `source`, else (B, M + 1, K) for target words: the last decoder
            layer's weights on region tokens; the rest of the weight is on words.
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
        """The words that attend to regions: `source` with a gate, `target` with region tokens."""
        return "source" if self.look == "gate" else "target"

    def start(self, memory: TransformerMemory) -> State:
        """Return the decoder state before the first word, without any keys and values."""
        none = memory.mask.new_empty(len(memory.mask), 1, 0)
        return none, *(tensor[:, :, :0] for part in memory.parts for tensor in part)

    def step(self, memory: TransformerMemory, token: Tensor, state: State) -> tuple[Tensor, State]:
        """Do one decoding step for S hypotheses of each sentence, which share the memory without copies.

        The words of all hypotheses of a sentence are stored together, and a mask limits attention to a hypothesis's own
        words. So a new selection of hypotheses does not copy keys and values.

        Args:
            memory: encoder memory of the B source sentences.
            token: (B, S) id of the last word of each hypothesis.
            state: (B, S, W) bool, which of the W stored words belong to each hypothesis; then, for each layer, the keys
                and values of these words, (B, heads, W, E / heads) each.

        Returns:
            states (B, S, E) for `predict`, and the new decoder state.
        """
        count, width = token.shape
        itself = torch.eye(width, dtype=torch.bool, device=token.device).expand(count, -1, -1)
        own = torch.cat([state[0].expand(-1, width, -1), itself], dim=2)
        states = self._embed(token[..., None], first=self._words_before(state, width))[:, :, 0]
        new_state: State = (own,)
        for number, (layer, part) in enumerate(zip(self.decoder, memory.parts, strict=True)):
            before = state[2 * number + 1], state[2 * number + 2]
            states, layer_state = layer.step(states, part, memory.mask, before, own)  # type: ignore[operator]
            new_state += layer_state
        return self.decoded(states), new_state

    def _words_before(self, state: State, width: int) -> int:
        """How many words each of so many hypotheses has; a GPU is not asked, where the shapes tell it.

        All steps but the first have equally many hypotheses, if the vocabulary is large enough for them.
        """
        if is_static(state[0]) and self.vocabulary_size >= 2 * width:
            return -(-state[0].shape[2] // width)
        return int(state[0][0, 0].sum())

    def predict(self, states: Tensor) -> Tensor:
        """Return log-probabilities (…, V) of the next word, in float32, from the states (…, E) of `step`."""
        return widen(F.linear(states, self.words.weight, self.output_bias)).log_softmax(-1)

    @property
    def vocabulary_size(self) -> int:
        """V, size of the vocabulary."""
        return len(self.output_bias)

    def follow(self, state: State, beam: Tensor) -> State:
        """Return the state of the new hypotheses; `beam` (B, S) is the index of the hypothesis that each continues."""
        return follow(state[0], beam), *state[1:]

    def _embed(self, tokens: Tensor, first: int = 0) -> Tensor:
        """Return embeddings of tokens (…, N) plus positional encodings, counted from `first`."""
        words = self.words(tokens) * self.word_scale
        return self._drop(words + positions(first, tokens.shape[-1], words))

    def _drop(self, tensor: Tensor) -> Tensor:
        return drop(tensor, self.dropout, self.training)
