"""Settings classes: which settings name a result, so that a new setting leaves recorded results valid."""

from copy import copy
from dataclasses import MISSING, Field, asdict, field, fields
from functools import partial
from typing import Any


def added(default: Any) -> Any:
    """A field that was added after results were recorded: at its default, they stay valid.

    Args:
        default: the value that those results were computed with; a list or mapping is copied.
    """
    if isinstance(default, list | dict):
        return field(default_factory=partial(copy, default), metadata={"added": True})
    return field(default=default, metadata={"added": True})


def result_settings(settings: Any) -> dict[str, Any]:
    """The settings that name a result, as plain values: all but `added` ones at their defaults."""
    plain = asdict(settings)
    for one in fields(settings):
        if one.metadata.get("added") and getattr(settings, one.name) == default_of(one):
            del plain[one.name]
    return plain


def default_of(one: "Field[Any]") -> Any:
    """A field's default; MISSING where it has none."""
    return one.default if one.default_factory is MISSING else one.default_factory()
