"""Names of classes, and packages of one's own that add to them: entry points of the group `bildwort`."""

import re
from collections.abc import Callable
from functools import cache
from importlib.metadata import entry_points
from typing import Any, TypeVar

from modules.errors import ModelError, one_line

GROUP = "bildwort"
"""An installed package lists its modules here; each registers what it has when it is imported."""
T = TypeVar("T", bound=type[Any])


def registers(table: dict[str, T], what: str) -> Callable[[str], Callable[[T], T]]:
    """Return a function of a name that returns a decorator, which puts a class into a table under that name.

    Args:
        table: name → class.
        what: the classes are, in words.

    Examples:
        >>> shapes = {}
        >>> register = registers(shapes, "shape")
        >>> @register("round")
        ... class Round: ...
        >>> shapes["round"] is Round
        True
    """

    def register(name: str) -> Callable[[T], T]:
        """Return a decorator that registers a class under the name used in recipes.

        Raises:
            ModelError: the name fits no file, or another class has it. (The class of a reloaded module replaces the
                old.)
        """
        if re.fullmatch(r"[a-z0-9][a-z0-9+_-]*", name) is None:
            raise ModelError(f"{what} {name!r}: expected a name of small letters, digits, + and -")

        def add(kind: T) -> T:
            """Register the class."""
            ours, theirs = (f"{entry.__module__}.{entry.__qualname__}" for entry in (kind, table.get(name, kind)))
            if ours != theirs:
                raise ModelError(f"{what} {name!r} is registered twice: {theirs} and {ours}; rename one")
            table[name] = kind
            return kind

        return add

    return register


@cache
def import_plugins() -> None:
    """Import the modules that installed packages list as entry points of the group `bildwort`.

    Raises:
        ModelError: one cannot be imported.
    """
    for point in entry_points(group=GROUP):
        try:
            point.load()
        except Exception as error:
            package = point.dist.name if point.dist is not None else "a package"
            raise ModelError(
                f"{point.value}, an entry point of {package} for {GROUP}, cannot be imported "
                f"({type(error).__name__}: {one_line(error)}); mend it, or uninstall {package}"
            ) from error
