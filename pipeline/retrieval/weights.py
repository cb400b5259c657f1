"""The weights that a training starts from."""

from collections.abc import Sequence
from pathlib import Path

from torch import nn

from modules.pretrained.hub import revision_of
from modules.pretrained.start import take_weights
from modules.retrieval_models.dual_encoder import DualEncoder
from modules.training.retrieval import Retrieval
from pipeline.engine.artifacts import read_tensors
from pipeline.errors import RecipeError, as_recipe_error
from pipeline.recipes.retrieval_settings import VseSettings
from pipeline.recipes.typed import located
from pipeline.vectors.image_vectors import REVISION


def start_network(module: Retrieval, settings: VseSettings, images: Path | None) -> None:
    """Load the weights of a dual encoder, and choose what of it is trained.

    Args:
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
        folders: of the jobs that trained the others.

    Raises:
        RecipeError: a part has another shape, or nothing fits.
    """
    given = [(str(folder), read_tensors(folder / "weights.safetensors")) for folder in folders]
    with located("vse.start"), as_recipe_error():
        take_weights(model, given)


def start_scale(module: Retrieval) -> None:
    """Let the loss of a dual encoder start by the scale and bias of its network, as it is now."""
    if isinstance(module.model, DualEncoder):
        module.start_losses(module.model.scale())
