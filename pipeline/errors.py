"""The error that the pipeline raises on purpose."""

from collections.abc import Iterator
from contextlib import contextmanager

from data.errors import DataError
from modules.errors import ModelError


class RecipeError(ValueError):
    """A recipe, a command or an artifact that does not fit, in one line: what, where, expected, next step.

    Args:
        message: what a library says in several lines, and is quoted in it, becomes one.
    """

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split("\n")))


@contextmanager
def as_recipe_error() -> Iterator[None]:
    """Raise what is inside as a `RecipeError` where `data` or `modules` refuse something: the one that is promised."""
    try:
        yield
    except (DataError, ModelError) as error:
        raise RecipeError(str(error)) from None
