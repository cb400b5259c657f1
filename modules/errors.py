"""The error class of this package."""


class ModelError(ValueError):
    """Invalid input or settings; the message is one line: what, where, what was expected, what to do next."""


def require_whole(**values: object) -> None:
    """Refuse options that are no whole numbers.

    Raises:
        ModelError: there is one.
    """
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int):
            raise ModelError(f"{name} is {value!r}; expected a whole number")


def require_weights(**values: object) -> None:
    """Refuse weights that are no numbers, below 0 or infinite.

    Raises:
        ModelError: there is one.
    """
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
            raise ModelError(f"{name} is {value!r}; expected 0 or more")
