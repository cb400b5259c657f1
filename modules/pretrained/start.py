"""Weights of trained models for a model that has parts like theirs."""

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn

from modules.errors import ModelError
from modules.retrieval_models.base import RetrievalModel

_ADAPTED = ".base_layer."  # in names by `peft`


def take_weights(model: nn.Module, given: Iterable[tuple[str, Mapping[str, Tensor]]]) -> None:
    """Give a model the weights of trained ones; of a part that several have, those of the first.

    Args:
        model: gets them.
        given: of each of the others where its weights lie, for errors, and the weights by name.

    Raises:
        ModelError: a part has another shape, or nothing fits.
    """
    own = {name.replace(_ADAPTED, "."): each for name, each in model.state_dict(keep_vars=True).items()}
    for where, weights in given:
        if not own.keys() & weights.keys() and own:
            raise ModelError(f"{where} holds no part that the model lacks; leave it out")
        for name in sorted(own.keys() & weights.keys()):
            if own[name].shape != weights[name].shape:
                raise ModelError(f"{name} has the shape {tuple(weights[name].shape)} in {where}, and "
                                 f"{tuple(own[name].shape)} in this model; use equal sizes")  # fmt: skip
            with torch.no_grad():
                own.pop(name).copy_(weights[name])
    if isinstance(model, RetrievalModel):
        model.weights_were_set()
