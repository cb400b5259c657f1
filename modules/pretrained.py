"""Text models of `transformers` as word vectors: their last states stand for a table of vectors."""

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel

from modules.errors import ModelError


class PretrainedWords(nn.Module):
    """The last states of a pretrained text model, a vector a sub-word.

    Token numbers are the model's own plus 1; 0 is padding.

    Args:
        name: a folder, or a name on the hub.

    Raises:
        ModelError: there is no such model, or it is not a text encoder.
    """

    def __init__(self, name: str) -> None:
        super().__init__()
        try:
            self.model = AutoModel.from_pretrained(name, config=AutoConfig.from_pretrained(name))
        except (OSError, ValueError) as error:
            reason = " ".join(str(error).split())[:200]
            raise ModelError(f"vse.pretrained {name!r}: no text model of transformers there ({reason})") from None
        if getattr(self.model.config, "is_encoder_decoder", False):
            raise ModelError(f"vse.pretrained {name!r}: an encoder and decoder; expected an encoder (BERT, XLM-R …)")
        self.embedding_dim = int(self.model.config.hidden_size)

    def forward(self, tokens: Tensor) -> Tensor:
        """States (B, L, embedding_dim) of tokens (B, L)."""
        mask = tokens > 0
        trained = any(parameter.requires_grad for parameter in self.model.parameters())
        with torch.set_grad_enabled(trained and torch.is_grad_enabled()):
            states: Tensor = self.model((tokens - 1).clamp(min=0), attention_mask=mask.long()).last_hidden_state
        return states

    def freeze(self) -> None:
        """Keep the weights as they are, and dropout off."""
        self.requires_grad_(False)

    def train(self, mode: bool = True) -> "PretrainedWords":
        """Train, or with frozen weights stay as it is."""
        return super().train(mode and any(parameter.requires_grad for parameter in self.parameters()))
