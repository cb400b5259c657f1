"""Trainings that come before others, as settings: those of `vse.start`, and that of `augment.captioner`."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pipeline.recipes.settings import VseSettings

ALONE: dict[str, Any] = {
    "reranker": {}, "fuse": [], "translate": None, "first": None, "by_likelihood": False, "folds": 1,
    "retrieved_captions": False,
}  # fmt: skip
"""Settings of a model that is trained for another job, without evaluations of its own."""


def overlaid(settings: VseSettings, change: Mapping[str, Any]) -> VseSettings:
    """The settings of a training that comes before one with `settings`: `change` is an entry of `vse.start`."""
    options = settings.options | change.get("options", {})
    return replace(settings, **{**change, "options": options, "start": []})


def captioner_settings(settings: VseSettings, captioner: Mapping[str, Any]) -> VseSettings:
    """The settings of the training of `augment.captioner`; another model has options and starts of its own."""
    own = {key: value for key, value in captioner.items() if key != "row"}
    others: dict[str, Any] = {} if own.get("model", settings.model) == settings.model else {"options": {}, "start": []}
    return replace(settings, **{"seeds": settings.seeds[:1], **others, **own, **ALONE, "only": [captioner["row"]]})
