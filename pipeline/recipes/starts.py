"""Trainings beside those of the rows, as settings: of `vse.start`, `vse.reranker` and `augment.captioner`."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pipeline.recipes.settings import EvaluationSettings, TrainingSettings, VseSettings
from pipeline.recipes.typed import names_of

_OF_ROWS = ("rows", "only", "seeds", "unseen", "first_k")
ALONE: dict[str, Any] = {
    name: getattr(EvaluationSettings(), name) for name in names_of(EvaluationSettings) if name not in _OF_ROWS
} | {"retrieved_captions": False}
"""Settings of a model that is trained for another job, without evaluations of its own."""
OF_ANOTHER: dict[str, Any] = {
    **ALONE, "options": {}, "pretrained": None, "pretrained_rate": 0.0, "pretrained_vectors": "words",
    "pretrained_layer": -1, "start": [],
}  # fmt: skip
"""Those of a second model, which has options, a text model and starts of its own."""
OF_A_START = {
    "options", "epochs", "steps", "batch_size", "learning_rate", "decay_epoch", "decay", "decay_every", "warmup_epochs",
    "loss", "margin", "image_encoder_rate",
}  # fmt: skip
"""Settings of an entry of `vse.start`: not what decides how words and images are read, as a later training goes on with
the same parts."""
OVERLAID = names_of(TrainingSettings) - {
    "pretrained", "pretrained_vectors", "pretrained_layer", "select", "test", "image_encoder", "image_encoder_size",
}  # fmt: skip
"""Settings of trainings that a section lays over `vse`: they read the same words and images."""


def reranker_settings(settings: VseSettings) -> VseSettings:
    """The settings of the training of `vse.reranker`, of its row and the first seed."""
    own = {key: value for key, value in settings.reranker.items() if key != "row"}
    return replace(settings, **{**OF_ANOTHER, "only": [settings.reranker["row"]], "seeds": settings.seeds[:1], **own})


def overlaid(settings: VseSettings, change: Mapping[str, Any]) -> VseSettings:
    """The settings of a training that comes before one with `settings`: `change` is an entry of `vse.start`."""
    options = settings.options | change.get("options", {})
    return replace(settings, **{**change, "options": options, "start": []})


def captioner_settings(settings: VseSettings, captioner: Mapping[str, Any]) -> VseSettings:
    """The settings of the training of `augment.captioner`; another model has options and starts of its own."""
    own = {key: value for key, value in captioner.items() if key != "row"}
    others: dict[str, Any] = {} if own.get("model", settings.model) == settings.model else {"options": {}, "start": []}
    return replace(settings, **{"seeds": settings.seeds[:1], **others, **own, **ALONE, "only": [captioner["row"]]})
