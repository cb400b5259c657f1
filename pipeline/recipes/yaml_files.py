"""Recipes as mappings: their sections, and one laid over another."""

from collections.abc import Mapping
from typing import Any

from data.yaml_text import parse_yaml
from pipeline.errors import RecipeError

GOES_WITH = (  # a setting, its default, and what belongs to its value
    ("network", "bilstm", "network_options"), ("model", "san", "options"), ("model", "san", "start"),
    ("pretrained", None, "word_vectors"), ("image_encoder", None, "image_encoder_rate"),
    ("image_encoder", None, "image_encoder_size"), ("pretrained", None, "pretrained_rate"),
)  # fmt: skip


def read_mapping(text: str, where: str) -> dict[str, Any]:
    """The sections of a recipe.

    Args:
        where: the file, for errors.

    Raises:
        RecipeError: it is no YAML with sections.
    """
    try:
        raw = parse_yaml(text)
    except ValueError as error:
        raise RecipeError(f"{where}: not a YAML file of ours ({error})") from None
    if not isinstance(raw, dict):
        kind = "nothing" if raw is None else type(raw).__name__
        raise RecipeError(f"{where}: expected sections (corpus, mmt, vse …), found {kind}")
    return raw


def mapping_of(values: Mapping[str, Any], key: str, prefix: str = "") -> dict[str, Any]:
    """The plain values of a key that has keys itself; empty if it is not there.

    Raises:
        RecipeError: it is something else.
    """
    value = values.get(key) or {}
    if not isinstance(value, Mapping):
        raise RecipeError(f"{prefix}{key} is {value!r}; expected keys with values")
    return dict(value)


def laid_over(below: Mapping[str, Any], above: Mapping[str, Any], sections: bool = True) -> dict[str, Any]:
    """One mapping over another; `rows` and other mappings are laid over key by key, lists replaced.

    Args:
        below: what is changed.
        above: what lies over it; `null` empties a mapping within a section.
        sections: are these the sections of a recipe? One without keys changes nothing.

    Raises:
        RecipeError: a section has a value instead of keys.
    """
    merged = dict(below)
    for kind, default, own in GOES_WITH:
        value = above.get(kind, below.get(kind, default))
        if value != below.get(kind, default) and (value is None or not own.endswith("_rate")):
            merged.pop(own, None)  # another network or model has other options; none has no rate
    for key, value in above.items():
        if isinstance(value, Mapping) and isinstance(merged.get(key), dict):
            merged[key] = laid_over(merged[key], value, sections=False)
        elif not isinstance(merged.get(key), dict):
            merged[key] = value
        elif value is None:
            merged[key] = merged[key] if sections else {}
        else:
            raise RecipeError(f"{key} is a section; expected {key}.KEY, found {value!r}")
    return merged
