"""Weights between those that a training starts from and those that it ends with."""

from collections.abc import Callable, Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn

_FIRST_FACTOR = ".lora_A."  # in names by `peft`


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
