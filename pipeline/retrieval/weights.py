"""The weights that a training starts from."""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import nn

from modules.pretrained.dual_network import revision_of
from modules.retrieval_models.base import RetrievalModel
from modules.retrieval_models.dual_encoder import DualEncoder
from modules.training.retrieval import Retrieval
from pipeline.engine.artifacts import read_tensors
from pipeline.errors import RecipeError
from pipeline.recipes.retrieval_settings import VseSettings
from pipeline.vectors.image_vectors import REVISION

_ADAPTED = ".base_layer."  # in names by `peft`


def start_network(module: Retrieval, settings: VseSettings, images: Path | None) -> None:
    """Load the weights of a dual encoder, and choose what of it is trained.

    Args:
        module: of the model.
        settings: with `pretrained`.
        images: folder of what it reads of images; None: regions.

    Raises:
        ModelError: they are not there or not whole, or adapters need `peft`.
        RecipeError: the image vectors are of another revision of a network on the hub.
    """
    if isinstance(module.model, DualEncoder):
        assert settings.pretrained is not None
        if images is not None and not settings.teacher and (images / REVISION).is_file():
            theirs, own = (images / REVISION).read_text("utf-8"), revision_of(settings.pretrained) or ""
            if theirs != own:
                raise RecipeError(
                    f"vse.pretrained {settings.pretrained!r}: its image vectors are of revision {theirs[:8]}, its text "
                    f"tower is of {own[:8]}; run the command again, which encodes the pictures anew"
                )
        module.model.start(settings.pretrained)


def start_weights(model: nn.Module, folders: Sequence[Path]) -> None:
    """Give a model the weights of trained ones; of a part that several have, those of the first.

    Args:
        model: gets them.
        folders: of the jobs that trained the others.

    Raises:
        RecipeError: a part has another shape, or nothing fits.
    """
    own = {name.replace(_ADAPTED, "."): each for name, each in model.state_dict(keep_vars=True).items()}
    for folder in folders:
        given = read_tensors(folder / "weights.safetensors")
        if not own.keys() & given.keys() and own:
            raise RecipeError(f"vse.start: {folder} holds no part that the model lacks; leave it out")
        for name in sorted(own.keys() & given.keys()):
            if own[name].shape != given[name].shape:
                raise RecipeError(
                    f"vse.start: {name} has the shape {tuple(given[name].shape)} in {folder}, and "
                    f"{tuple(own[name].shape)} in this model; use equal sizes"
                )
            with torch.no_grad():
                own.pop(name).copy_(given[name])
    if isinstance(model, RetrievalModel):
        model.weights_were_set()


def start_scale(module: Retrieval) -> None:
    """Let the loss of a dual encoder start by the scale and bias of its network, as it is now."""
    if isinstance(module.model, DualEncoder):
        module.start_losses(module.model.scale())
