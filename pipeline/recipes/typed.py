"""Settings of a section from plain values: keys and types are checked."""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from jsonargparse import ArgumentError, ArgumentParser

from pipeline.errors import RecipeError
from pipeline.recipes.checks import refuse_unknown

T = TypeVar("T")
_READ: dict[tuple[type, str], Any] = {}
_PARSERS: dict[type, ArgumentParser] = {}


def typed(kind: type[T], values: Mapping[str, Any], where: str, section: str) -> T:
    """Make settings of plain values; those that were read before are not read again, as those of several tables.

    Args:
        kind: the dataclass of the section.
        values: as they stand in a recipe.
        where: file, for messages.
        section: its name, for messages.

    Raises:
        RecipeError: a key is unknown, or a value is of the wrong type.
    """
    known: T | None = _READ.get((kind, repr(values)))
    if known is not None:
        return deepcopy(known)
    _check_keys(kind, values, where, section)
    parser = _parser_of(kind)
    try:
        made: T = parser.instantiate_classes(parser.parse_object({"it": deepcopy(dict(values))})).it
    except (ArgumentError, TypeError, ValueError) as error:
        text = (
            " ".join(str(error).split()).replace('Parser key "it.', f'key "{section}.').replace('"it"', f'"{section}"')
        )
        raise RecipeError(f"{where}: {text}") from None
    _READ[kind, repr(values)] = deepcopy(made)
    return made


def _parser_of(kind: type) -> ArgumentParser:
    """What reads a section's values, made once."""
    if kind not in _PARSERS:
        _PARSERS[kind] = ArgumentParser(exit_on_error=False)
        _PARSERS[kind].add_class_arguments(kind, "it")
    return _PARSERS[kind]


def names_of(kind: type) -> set[str]:
    """The names of the settings of a class."""
    return {field.name for field in fields(kind)}


def _check_keys(kind: type, values: Mapping[str, Any], where: str, prefix: str) -> None:
    refuse_unknown(values, names_of(kind), where, f"{prefix}.")
    hints = get_type_hints(kind)
    for key, value in values.items():
        if value is None and hints[key] is not Any and type(None) not in get_args(hints[key]):
            raise RecipeError(f"{where}: {prefix}.{key} is empty; expected a value, or leave the key out")
        inner = next((t for t in (hints[key], *get_args(hints[key])) if is_dataclass(t)), None)
        if inner is not None and isinstance(value, Mapping):
            named = value if get_origin(hints[key]) is dict else {None: value}
            for name, one in named.items():
                where_in = f"{prefix}.{key}" if name is None else f"{prefix}.{key}.{name}"
                _check_keys(inner, one, where, where_in)  # type: ignore[arg-type]
