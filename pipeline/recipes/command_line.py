"""Settings on the command line."""

import re
from collections.abc import Sequence

from pipeline.errors import RecipeError

_SETTING = re.compile(r"--(?:seed|\w+(?:\.[\w-]+)+)(=|$)", re.DOTALL)


def split_settings(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Part the settings of a recipe from the rest of a command line.

    Args:
        arguments: `--vse.epochs=30` and `--vse.epochs 30` are settings, up to a `--`.

    Returns:
        the settings as `--section.key=value`, and the rest.

    Raises:
        RecipeError: a setting has no value.
    """
    settings, rest, left = list[str](), list[str](), list(arguments)
    while left:
        argument = left.pop(0)
        if argument == "--":
            return settings, [*rest, argument, *left]
        if (found := _SETTING.match(argument)) is None:
            rest.append(argument)
        elif found[1]:
            settings.append(argument)
        elif not left or left[0].startswith("--"):
            raise RecipeError(f"argument {argument!r}: no value; expected {argument} VALUE")
        else:
            settings.append(f"{argument}={left.pop(0)}")
    return settings, rest
