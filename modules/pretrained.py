"""Text models of `transformers` as word vectors: their last states stand for a table of vectors."""

import torch
from safetensors import SafetensorError
from torch import Tensor, nn

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
        from transformers import AutoConfig, AutoModel  # seconds to import

        super().__init__()
        try:
            config = AutoConfig.from_pretrained(name, trust_remote_code=False)
            self.model = AutoModel.from_pretrained(name, config=config, dtype=torch.float32, trust_remote_code=False)
        except (OSError, ValueError, SafetensorError) as error:
            reason = " ".join(str(error).split())[:200]
            raise ModelError(f"vse.pretrained {name!r}: no text model of transformers there ({reason})") from None
        if getattr(config, "is_encoder_decoder", False):
            raise ModelError(f"vse.pretrained {name!r}: an encoder and decoder; expected an encoder (BERT, XLM-R …)")
        table = getattr(self.model, "get_input_embeddings", lambda: None)()
        if not isinstance(table, nn.Embedding) or not hasattr(config, "hidden_size"):
            raise ModelError(f"vse.pretrained {name!r}: no model of text; expected an encoder (BERT, XLM-R …)")
        self.embedding_dim, self.vocabulary_size = int(config.hidden_size), table.num_embeddings

    def forward(self, tokens: Tensor) -> Tensor:
        """States (B, L, embedding_dim) of tokens (B, L)."""
        mask = tokens > 0
        trained = any(parameter.requires_grad for parameter in self.model.parameters())
        with torch.set_grad_enabled(trained and torch.is_grad_enabled()):
            states: Tensor = self.model((tokens - 1).clamp(min=0), attention_mask=mask.long()).last_hidden_state
        return states

    def freeze(self) -> None:
        """Keep the weights as they are, and dropout off."""
        self.requires_grad_(False).eval()

    def train(self, mode: bool = True) -> "PretrainedWords":
        """Train, or with frozen weights stay as it is."""
        return super().train(mode and any(parameter.requires_grad for parameter in self.parameters()))
