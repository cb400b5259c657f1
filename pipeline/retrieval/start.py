"""Trainings that give their weights to another one, before it begins."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import nn

from pipeline.errors import RecipeError
from pipeline.recipes.settings import VseSettings


def start_settings(settings: VseSettings, change: Mapping[str, Any]) -> VseSettings:
    """The settings of a training that comes before one with `settings`: `change` is an entry of `vse.start`."""
    options = settings.options | change.get("options", {})
    return replace(settings, **{**change, "options": options, "start": change.get("start", [])})


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
        given = load_file(folder / "weights.safetensors")
        if not own.keys() & given.keys() and own:
            raise RecipeError(f"vse.start: {folder} holds no part that the model lacks; leave it out")
        for name in own.keys() & given.keys():
            if own[name].shape != given[name].shape:
                raise RecipeError(
                    f"vse.start: {name} has the shape {tuple(given[name].shape)} in {folder}, and "
                    f"{tuple(own[name].shape)} in this model; use equal sizes"
                )
            with torch.no_grad():
                own.pop(name).copy_(given[name])
