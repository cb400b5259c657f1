"""Vectors of words and of sentences from text models of `transformers`; they replace a table of word vectors."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from modules.errors import ModelError, one_line
from modules.pretrained.quiet import auto_model, require_weights

Vectors = Any
"""(n, E) float32, of which rows are chosen by an array of numbers: an array, or several on disk."""


class PretrainedWords(nn.Module):
    """The last hidden states of a pretrained text model, one vector for each sub-word.

    Token ids are those of the model plus 1; 0 is padding.

    Args:
        name: a folder, or a name on the Hugging Face hub.

    Raises:
        ModelError: the model is not found, it is not a text encoder, or its weights are not whole.
    """

    def __init__(self, name: str) -> None:
        super().__init__()
        config = _config_of(name)
        self.model, missing = auto_model(name, _not_found, config=config)
        try:
            table = getattr(self.model, "get_input_embeddings", lambda: None)()
        except NotImplementedError:  # of a network with several towers
            table = None
        if not isinstance(table, nn.Embedding) or not hasattr(config, "hidden_size"):
            raise _no_text_model(name)
        self.embedding_dim, self.vocabulary_size = int(config.hidden_size), table.num_embeddings
        lacking = (key for key in missing if not key.startswith("pooler."))  # it is not read
        require_weights(lacking, f"vse.pretrained {name!r}")
        self.model.train()  # it is read in evaluation mode, in which it would be fine-tuned without its dropout

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the last hidden states (B, L, embedding_dim) of tokens (B, L)."""
        return self.states(tokens)

    def states(self, tokens: Tensor, layer: int = -1) -> Tensor:
        """Return the hidden states (B, L, embedding_dim) of a layer of tokens (B, L); −1 is the last layer."""
        mask = tokens > 0
        more = {} if layer == -1 else {"output_hidden_states": True}
        trained = any(parameter.requires_grad for parameter in self.model.parameters())
        with torch.set_grad_enabled(trained and torch.is_grad_enabled()):
            output = self.model((tokens - 1).clamp(min=0), attention_mask=mask.long(), **more)
        states: Tensor = output.last_hidden_state if layer == -1 else output.hidden_states[layer]
        return states

    def freeze(self) -> None:
        """Freeze the weights and turn dropout off."""
        self.requires_grad_(False).eval()

    def train(self, mode: bool = True) -> "PretrainedWords":
        """Set the training mode; a frozen model stays in evaluation mode."""
        return super().train(mode and any(parameter.requires_grad for parameter in self.parameters()))


class SentenceVectors(nn.Module):
    """One vector for each caption: the mean of a frozen text model's hidden states over the caption's tokens.

    It stands where a table of word vectors stands: a caption is one word. A caption is given by its tokens, as
    `PretrainedWords` reads them; or by a single number, where its vector was computed before (`look_up`). The text
    model is loaded when a caption is first read by its tokens, or by `load_text_model`. Its weights are no part of this
    network's.

    Args:
        name: of the text model, a folder or a name on the Hugging Face hub.
        layer: whose states, counted from the end: −1 is the last.

    Raises:
        ModelError: the model is not found, it is not a text encoder, or it has no such layer.
    """

    def __init__(self, name: str, layer: int = -1) -> None:
        super().__init__()
        self.name, self.layer = name, layer
        config = _config_of(name)
        sizes = (getattr(config, key, None) for key in ("hidden_size", "vocab_size", "num_hidden_layers"))
        width, vocabulary, layers = sizes
        if not (isinstance(width, int) and isinstance(vocabulary, int) and isinstance(layers, int)):
            raise _no_text_model(name)
        if not -layers - 1 <= layer < 0:
            raise ModelError(f"vse.pretrained_layer is {layer}; expected -1 to {-layers - 1}, as {name!r} has {layers} "
                             "layers")  # fmt: skip
        self.embedding_dim, self.vocabulary_size = width, vocabulary
        self._text_model: list[PretrainedWords] = []  # in a list, so that it is no part of this module
        self._known: tuple[Vectors, int] | None = None

    def look_up(self, vectors: Vectors, first: int) -> None:
        """From now on, read a caption whose first token is at least `first` from row token − `first` of the vectors."""
        self._known = (vectors, first)

    def load_text_model(self) -> None:
        """Load the text model now, if it has not been loaded: its files may move later; ModelError if it is missing."""
        if not self._text_model:
            self._text_model.append(PretrainedWords(self.name))
            self._text_model[0].freeze()

    def forward(self, tokens: Tensor) -> Tensor:
        """Return vectors (B, 1, embedding_dim) of captions with tokens (B, L), 0 being padding."""
        if self._known is None:
            return self.encode(tokens)[:, None]
        vectors, first = self._known
        rows = tokens[:, 0] - first
        known = rows >= 0
        encodings = torch.empty(len(tokens), self.embedding_dim, device=tokens.device)
        encodings[known] = torch.from_numpy(_rows(vectors, rows[known])).to(tokens.device)
        if not known.all():
            encodings[~known] = self.encode(tokens[~known])
        return encodings[:, None]

    def encode(self, tokens: Tensor) -> Tensor:
        """Return vectors (B, embedding_dim) of captions with tokens (B, L), by the text model, always in float32."""
        self.load_text_model()
        model, mask = self._text_model[0].to(tokens.device), tokens > 0
        with torch.no_grad(), torch.autocast(tokens.device.type, enabled=False):
            shares = mask / mask.sum(1, keepdim=True)
            return (model.states(tokens, self.layer) * shares[..., None]).sum(1)


def read_words(words: nn.Module, tokens: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Return the word vectors (B, L, E) of captions, and the lengths (B,), all 1 where a caption has but one vector.

    Args:
        words: what `RetrievalModel.make_words` returns, or the identity where vectors stand for `tokens`.
        tokens: (B, L).
        lengths: (B,).
    """
    vectors: Tensor = words(tokens)
    return vectors, torch.ones_like(lengths) if isinstance(words, SentenceVectors) else lengths


def _rows(vectors: Vectors, numbers: Tensor) -> NDArray[np.float32]:
    """(n, E), a copy."""
    return np.array(vectors[numbers.cpu().numpy()], dtype=np.float32)


def _config_of(name: str) -> Any:
    """The configuration of a text encoder; ModelError if there is none."""
    from transformers import AutoConfig  # takes seconds to import

    try:
        config = AutoConfig.from_pretrained(name, trust_remote_code=False)
    except Exception as error:  # a damaged file can raise anything
        raise _not_found(name, error) from None
    if getattr(config, "is_encoder_decoder", False):
        raise ModelError(f"vse.pretrained {name!r}: an encoder-decoder model; expected an encoder (BERT, XLM-R …)")
    return config


def _not_found(name: str, error: Exception) -> ModelError:
    return ModelError(f"vse.pretrained {name!r}: no text model of transformers found ({one_line(error)})")


def _no_text_model(name: str) -> ModelError:
    return ModelError(f"vse.pretrained {name!r}: not a text model; expected an encoder (BERT, XLM-R …)")
