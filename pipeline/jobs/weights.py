"""Networks' weights on disk."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save
from torch import nn

from pipeline.errors import RecipeError

Network = TypeVar("Network", bound=nn.Module)


def load_best(module: nn.Module, checkpoint: Path) -> None:
    """Put the weights of a Lightning checkpoint into the module that it was made of."""
    module.load_state_dict(torch.load(checkpoint, map_location="cpu", weights_only=True)["state_dict"])


def save_weights(module: nn.Module, path: Path) -> None:
    """Write a network's weights as safetensors."""
    path.write_bytes(save({name: tensor.contiguous() for name, tensor in module.state_dict().items()}))


def build_with_weights(build: Callable[[], Network], path: Path, sized: bool = True) -> Network:
    """A network with the weights of a file; no memory is taken for one of another size than these.

    Args:
        build: makes the network with start values.
        path: a file that `save_weights` wrote.
        sized: compare sizes first; False: it has a pretrained part, whose size its own files bound.

    Raises:
        RecipeError: as `load_weights`.
    """
    if sized:
        _require_sizes(build, path)
    network = build()
    load_weights(network, path)
    return network


def _require_sizes(build: Callable[[], nn.Module], path: Path) -> None:
    """Refuse weights of other sizes than the network's, before either takes memory."""
    with torch.device("meta"):
        sizes = {name: list(one.shape) for name, one in build().state_dict().items()}
    try:
        with safe_open(path, "pt") as file:
            found = {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118  # no dictionary
    except Exception as error:
        raise _unreadable(path, error) from None
    for name in sorted(found.keys() & sizes.keys()):
        if found[name] != sizes[name]:
            raise RecipeError(
                f"{path}: weights of another network ({name} is {found[name]}, the network's {sizes[name]})"
            )


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
        raise _unreadable(path, error) from None
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


def _unreadable(path: Path, error: Exception) -> RecipeError:
    return RecipeError(f"{path}: not a readable safetensors file ({error}); run the stage again")
