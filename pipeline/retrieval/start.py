"""Trainings that give their weights to another one, before it begins."""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import nn

from pipeline.errors import RecipeError
from pipeline.jobs.artifact_files import read_tensors


def start_weights(model: nn.Module, folders: Sequence[Path]) -> None:
    """Give a model the weights of trained ones; of a part that several have, those of the first.

    Args:
        model: gets them.
        folders: of the jobs that trained the others.

    Raises:
        RecipeError: a part has another shape, or nothing fits.
    """
    own = dict(model.state_dict(keep_vars=True))
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
