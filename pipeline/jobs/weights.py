"""Networks' weights on disk."""

from pathlib import Path

import torch
from safetensors.torch import load_file, save
from torch import nn

from pipeline.errors import RecipeError


def load_best(module: nn.Module, checkpoint: Path) -> None:
    """Put the weights of a Lightning checkpoint into the module that it was made of."""
    module.load_state_dict(torch.load(checkpoint, map_location="cpu", weights_only=True)["state_dict"])


def save_weights(module: nn.Module, path: Path) -> None:
    """Write a network's weights as safetensors."""
    path.write_bytes(save({name: tensor.contiguous() for name, tensor in module.state_dict().items()}))


def load_weights(module: nn.Module, path: Path, strict: bool = True) -> None:
    """Read a network's weights.

    Args:
        module: the network.
        path: a file that `save_weights` wrote.
        strict: refuse weights that lack a part of the network; else that part keeps its start values.

    Raises:
        RecipeError: the file is no safetensors file, or its weights do not fit or are not finite.
    """
    try:
        weights = load_file(path)
    except Exception as error:  # safetensors raises its own error, and OSError
        raise RecipeError(f"{path}: not a readable safetensors file ({error}); run the stage again") from None
    try:
        missing, unexpected = module.load_state_dict(weights, strict=strict)
    except RuntimeError as error:
        raise RecipeError(f"{path}: weights of another network ({str(error).splitlines()[-1].strip()})") from None
    if unexpected:
        raise RecipeError(f"{path}: weights of another network (it has {unexpected[0]})")
    for name, values in module.named_parameters():
        if name in weights and not bool(torch.isfinite(values).all()):
            raise RecipeError(f"{path}: {name} has NaN or infinity; train again, or get the model again")
    del missing
