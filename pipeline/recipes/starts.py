"""Trainings that come before another one and give it their weights (`vse.start`), as settings."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pipeline.recipes.settings import VseSettings


def overlaid(settings: VseSettings, change: Mapping[str, Any]) -> VseSettings:
    """The settings of a training that comes before one with `settings`: `change` is an entry of `vse.start`."""
    options = settings.options | change.get("options", {})
    return replace(settings, **{**change, "options": options, "start": []})
