"""Settings of a section from plain values: keys, types, bounds of numbers, texts that a file or a terminal can hold."""

import difflib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import MISSING, field, fields, is_dataclass
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from jsonargparse import ArgumentError, ArgumentParser

from data.pictures.folder import unfit_name
from pipeline.errors import RecipeError

T = TypeVar("T")
LARGEST = 2**31 - 1
"""Of any whole number."""
_LONGEST_TEXT, LONGEST_NAME = 4096, 100  # letters; names stand in names of files, of which systems allow 255 bytes
_SEPARATORS = set('<>:"/\\|?*')
_NAMED = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
_READ: dict[tuple[Any, str], Any] = {}


def number(
    default: T, least: float | None = None, most: float | None = None, above: float | None = None,
    below: float | None = None, hint: str = "",
) -> T:  # fmt: skip
    """A field of a settings class with bounds; of a list or a mapping they are those of its numbers.

    Args:
        default: of the field; a list or a mapping is copied.
        least: the smallest number; None: there is none.
        most: the largest; None: `LARGEST` of whole numbers.
        above: every number is larger.
        below: every number is smaller.
        hint: what an error says further.
    """
    bounds = {"least": least, "most": most, "above": above, "below": below, "hint": hint}
    if isinstance(default, list | dict):
        return field(default_factory=lambda: deepcopy(default), metadata=bounds)
    return field(default=default, metadata=bounds)


@contextmanager
def located(where: str) -> Iterator[None]:
    """Say, before the text of an error that is raised inside, where it stands.

    Raises:
        RecipeError: with `where` before it.
    """
    try:
        yield
    except RecipeError as error:
        raise RecipeError(f"{where}: {error}") from None


def typed(kind: type[T], values: Mapping[str, Any], section: str) -> T:
    """Make settings of plain values.

    Args:
        kind: the dataclass of the section.
        values: as they stand in a recipe.
        section: its name, for messages.

    Raises:
        RecipeError: a key is unknown or missing, or a value is of the wrong type.
    """
    refuse_unknown(values, names_of(kind), f"{section}.")
    hints = get_type_hints(kind)
    for setting in fields(kind):  # type: ignore[arg-type]
        if setting.name not in values and setting.default is MISSING and setting.default_factory is MISSING:
            raise RecipeError(f"{section}.{setting.name} is missing; expected {in_words(hints[setting.name])}")
    return kind(**{key: _typed_value(hints[key], value, f"{section}.{key}") for key, value in values.items()})


def _typed_value(hint: Any, value: Any, place: str) -> Any:
    """A value of a type from plain values, whose keys it checks itself to say where a wrong one stands."""
    if value is None and hint is not Any and type(None) not in get_args(hint):  # the library takes it for any type
        raise RecipeError(f"{place} is empty; expected a value, or leave the key out")
    if is_dataclass(hint):
        return typed(hint, value, place)  # type: ignore[arg-type]
    if get_origin(hint) is dict and get_args(hint)[1] is not Any and isinstance(value, Mapping):
        return {name: _typed_value(get_args(hint)[1], own, f"{place}.{name}") for name, own in value.items()}
    try:
        return read_value(hint, value)
    except (ArgumentError, TypeError, ValueError):
        raise RecipeError(f"{place} is {value!r}; expected {in_words(hint)}") from None


def read_value(hint: Any, value: Any) -> Any:
    """A value of a type, as jsonargparse reads it; one that was read before, as in several tables, is not read again.

    Raises:
        ArgumentError, TypeError, ValueError: it is of another type.
    """
    if (known := (hint, repr(value))) not in _READ:
        parser = ArgumentParser(exit_on_error=False)
        parser.add_argument("--it", type=hint)
        _READ[known] = parser.parse_object({"it": deepcopy(value)}).it
    return deepcopy(_READ[known])


def in_words(hint: Any) -> str:
    """A type as a reader of a recipe knows it."""
    arguments = [one for one in get_args(hint) if one is not type(None)]
    if get_origin(hint) is Literal:
        return " or ".join(filter(None, [", ".join(map(str, arguments[:-1])), str(arguments[-1])]))
    if get_origin(hint) in (Union, UnionType):
        either = " or ".join(map(in_words, arguments))
        return f"{either} or null" if len(arguments) < len(get_args(hint)) else either
    if get_origin(hint) in (list, Sequence) and get_origin(arguments[0]) is Literal:
        return f"a list of {in_words(arguments[0])}"
    if get_origin(hint) in (list, Sequence):
        return f"a list of {in_words(arguments[0]).removeprefix('a ')}s" if arguments[0] in _NAMED else "a list"
    if get_origin(hint) is dict:
        return "keys with values"
    return _NAMED.get(hint, "keys with values" if is_dataclass(hint) else "another value")


def names_of(kind: type) -> set[str]:
    """The names of the settings of a class."""
    return {setting.name for setting in fields(kind)}


def refuse_unknown(values: Any, known: set[str], prefix: str) -> None:
    """Refuse keys that are not known, and name the nearest.

    Raises:
        RecipeError: there is one, or `values` has no keys.
    """
    if not isinstance(values, Mapping):
        raise RecipeError(f"{prefix.rstrip('.')} is {values!r}; expected keys with values")
    for key in values:
        if key not in known:
            near = difflib.get_close_matches(str(key), known, 1)
            hint = f"did you mean {prefix}{near[0]}?" if near else f"known are {', '.join(sorted(known)) or 'none'}"
            raise RecipeError(f"unknown key {prefix}{key}; {hint}")


def check_values(values: Any, key: str = "", bounds: Mapping[str, Any] | None = None) -> None:
    """Refuse numbers outside their bounds, and texts with control characters, wherever they stand.

    Args:
        values: settings, or plain values.
        key: where they stand.
        bounds: of the numbers in them, as `number` says them.

    Raises:
        RecipeError: there is one; it names the key.
    """
    if isinstance(values, int | float) and not isinstance(values, bool):
        _check_number(values, key, bounds or {})
    if isinstance(values, str):
        _check_text(values, key)
    items: Iterable[tuple[str, Any, Any]] = ()
    if is_dataclass(values):
        items = ((each.name, getattr(values, each.name), each.metadata) for each in fields(values))
    elif isinstance(values, Mapping):
        items = ((name, value, bounds) for name, value in values.items())
    elif isinstance(values, list | tuple):
        items = ((str(place), value, bounds) for place, value in enumerate(values))
    for name, value, own_bounds in items:
        _check_text(str(name), f"a key of {key}")
        check_values(value, f"{key}.{name}" if key else str(name), own_bounds)


def _check_number(value: float, key: str, bounds: Mapping[str, Any]) -> None:
    """Refuse a number outside its bounds, by a RecipeError."""
    if not math.isfinite(value):
        raise RecipeError(f"{key} is {value}; expected a finite number")
    least, most, above, below = (bounds.get(name) for name in ("least", "most", "above", "below"))
    whole = isinstance(value, int)
    largest = most if most is not None else LARGEST if whole else math.inf
    low = (least is not None and value < least) or (above is not None and value <= above)
    if not low and abs(value) <= largest and (below is None or value < below):
        return
    start = f"more than {above:g}" if above is not None else "" if least is None else f"from {least:g}"
    if below is not None:
        expected = f"{start} to below {below:g}"
    elif low and (whole or most is None):
        expected = start if above is not None else f"{least:g} or more"
    else:
        expected = f"{largest:,} at most" if whole or not start else f"{start} and at most {most:g}"
    raise RecipeError(f"{key} is {value}; expected {expected}{bounds.get('hint', '')}")


def _check_text(text: str, what: str) -> None:
    if len(text) > _LONGEST_TEXT:
        raise RecipeError(f"{what} has {len(text):,} letters; expected {_LONGEST_TEXT:,} at most")
    if reason := unfit_name(text):
        raise RecipeError(f"{what} is {text!r}: {reason.removeprefix('its name ')}; write it without")


def check_file_name(name: str, what: str) -> None:
    """Refuse a name that becomes part of a file's and cannot.

    Raises:
        RecipeError: it cannot; `what` says where it stands.
    """
    if separators := set(name) & _SEPARATORS:
        raise RecipeError(f"{what} has {name!r}, whose {min(separators)} no file name has; name it otherwise")
    if not name.strip(" .") or len(name.encode("utf-8", "surrogatepass")) > LONGEST_NAME or unfit_name(name):
        raise RecipeError(f"{what} has {name!r}, which no file can be called; expected 1 to {LONGEST_NAME} letters")


def refuse_twice(values: Iterable[Any], what: str) -> None:
    """Refuse a list with an entry that stands twice in it.

    Raises:
        RecipeError: there is one; `what` says where.
    """
    listed = [str(value) for value in values]
    if len({*listed}) < len(listed):
        raise RecipeError(f"{what} has an entry twice: {', '.join(listed)}")
