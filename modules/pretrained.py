"""Word vectors from pretrained text models of `transformers`: their last hidden states replace a table of vectors."""

import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from modules.errors import ModelError


class PretrainedWords(nn.Module):
    """The last hidden states of a pretrained text model, one vector for each sub-word.

    Token ids are those of the model plus 1; 0 is padding.

    Args:
        name: a folder, or a name on the Hugging Face hub.

    Raises:
        ModelError: the model is not found, or it is not a text encoder.
    """

    def __init__(self, name: str) -> None:
        from transformers import AutoConfig, AutoModel  # takes seconds to import

        super().__init__()
        try:
            config = AutoConfig.from_pretrained(name, trust_remote_code=False)
            self.model = AutoModel.from_pretrained(name, config=config, dtype=torch.float32, trust_remote_code=False)
        except (OSError, ValueError, SafetensorError) as error:
            reason = " ".join(str(error).split())[:200]
            raise ModelError(f"vse.pretrained {name!r}: no text model of transformers found ({reason})") from None
        if getattr(config, "is_encoder_decoder", False):
            raise ModelError(f"vse.pretrained {name!r}: an encoder-decoder model; expected an encoder (BERT, XLM-R …)")
        table = getattr(self.model, "get_input_embeddings", lambda: None)()
        if not isinstance(table, nn.Embedding) or not hasattr(config, "hidden_size"):
            raise ModelError(f"vse.pretrained {name!r}: not a text model; expected an encoder (BERT, XLM-R …)")
        self.embedding_dim, self.vocabulary_size = int(config.hidden_size), table.num_embeddings
        self.model.train()  # it is read in evaluation mode, in which it would be fine-tuned without its dropout

    def forward(self, tokens: Tensor) -> Tensor:
        """Return hidden states (B, L, embedding_dim) of tokens (B, L)."""
        mask = tokens > 0
        trained = any(parameter.requires_grad for parameter in self.model.parameters())
        with torch.set_grad_enabled(trained and torch.is_grad_enabled()):
            states: Tensor = self.model((tokens - 1).clamp(min=0), attention_mask=mask.long()).last_hidden_state
        return states

    def freeze(self) -> None:
        """Freeze the weights and turn dropout off."""
        self.requires_grad_(False).eval()

    def train(self, mode: bool = True) -> "PretrainedWords":
        """Set the training mode; a frozen model stays in evaluation mode."""
        return super().train(mode and any(parameter.requires_grad for parameter in self.parameters()))
