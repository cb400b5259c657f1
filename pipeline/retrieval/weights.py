"""The weights that a training starts from, and those between them and the ones that it ends with."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from modules.pretrained.dual_network import revision_of
from modules.retrieval_models.base import RetrievalModel
from modules.retrieval_models.dual_encoder import DualEncoder
from modules.training.retrieval import Retrieval
from pipeline.engine.artifacts import read_tensors
from pipeline.errors import RecipeError
from pipeline.recipes.retrieval_settings import VseSettings
from pipeline.vectors.image_vectors import REVISION

_FIRST_FACTOR, _ADAPTED = ".lora_A.", ".base_layer."  # names by `peft`


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


def weights_of(module: nn.Module) -> dict[str, Tensor]:
    """A copy of the weights that are trained, and of running means and variances, on the CPU.

    Of an adapter it has the second factor alone, which starts as zero. So what is between two such copies is, once
    adapters are merged, between the weights that they are merged into.
    """
    return {name: weight.detach().cpu().clone() for name, weight in _changing(module) if _FIRST_FACTOR not in name}


def _changing(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """What a training changes of a model: weights, and what batch normalisation counts."""
    yield from ((name, weight) for name, weight in module.named_parameters() if weight.requires_grad)
    yield from ((name, buffer) for name, buffer in module.named_buffers() if buffer.is_floating_point())


def interpolate(
    model: nn.Module, start: Mapping[str, Tensor], shares: Sequence[float], score: Callable[[], float]
) -> dict[str, float]:
    """Give a model those weights (1 − α) · start + α · own whose score is the highest (WiSE-FT, Wortsman et al. 2022).

    With α = 0 they are those of the start, with 1 its own, bit for bit; of equal scores the first α counts.

    Args:
        model: trained.
        start: the weights that it started from (`weights_of`).
        shares: α of the trained weights; none: it keeps its own.
        score: on validation, of the model as it is.

    Returns:
        α → its score, as text; nothing without shares.
    """
    own, scores = weights_of(model) if shares else {}, dict[float, float]()

    def put(share: float) -> None:
        """Give the model the weights between."""
        with torch.no_grad():
            for name, weight in _changing(model):
                if name in own:
                    ends = start[name], own[name]
                    weight.copy_(ends[int(share)] if share in (0, 1) else torch.lerp(*ends, share))

    for share in shares:
        put(share)
        scores[share] = score()
    if scores:
        put(max(scores, key=lambda share: scores[share]))
    return {f"{share:g}": value for share, value in scores.items()}


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
