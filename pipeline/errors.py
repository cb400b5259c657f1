"""The error that the pipeline raises on purpose."""

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from data.errors import DataError
from modules.errors import ModelError


class RecipeError(ValueError):
    """A recipe, a command or an artifact that does not fit, in one line: what, where, expected, next step.

    Args:
        message: what a library says in several lines, and is quoted in it, becomes one.
    """

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split("\n")))


def in_our_words(text: str) -> str:
    """What a library says of text that is no whole number, as settings say it; any other text as it is.

    Examples:
        >>> in_our_words("Input should be a valid integer, unable to parse string as an integer")
        'expected a whole number'
        >>> in_our_words("Invalid value for '--top': 'x' is not a valid int.")
        "Invalid value for '--top': expected a whole number"
        >>> in_our_words("Field required")
        'Field required'
    """
    return re.sub(r"(Input should be|'[^']*' is not) a valid int(eger)?\b.*", "expected a whole number", text)


def require_kind(function: str, value: object, kind: type, expected: str) -> None:
    """Refuse an argument that is not of the expected kind, by a RecipeError.

    Examples:
        >>> require_kind("train", "scenes", int, "a recipe, as load_recipe gives it")
        Traceback (most recent call last):
            ...
        pipeline.errors.RecipeError: train: expected a recipe, as load_recipe gives it, not 'scenes'
    """
    if not isinstance(value, kind):
        raise RecipeError(f"{function}: expected {expected}, not {value!r:.80}")


def require_readable(text: str) -> str:
    """A word of a command line, or a path, that libraries can read: UTF-8.

    Raises:
        RecipeError: it is not, or Python takes it for another encoding.

    Examples:
        >>> require_readable("Fächer")
        'Fächer'
    """
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        encoding = sys.getfilesystemencoding()
        step = "write it in UTF-8, or rename the file or folder"
        if encoding != "utf-8":
            step = f"Python reads names as {encoding} in this locale: set PYTHONUTF8=1"
        raise RecipeError(f"{text!r}: not UTF-8; {step}") from None
    if "\0" in text:
        raise RecipeError(f"{text!r}: has a character 0; leave it out")
    return text


def whole_path(path: str | Path) -> Path:
    """A path from the root, so that the working directory may change; RecipeError as `require_readable`."""
    return Path(require_readable(str(Path(path).absolute())))


@contextmanager
def as_recipe_error() -> Iterator[None]:
    """Raise what is inside as a `RecipeError` where `data` or `modules` refuse something: the one that is promised."""
    try:
        yield
    except (DataError, ModelError) as error:
        raise RecipeError(str(error)) from None
