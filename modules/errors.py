"""The error class of this package."""


class ModelError(ValueError):
    """Invalid input or settings; the message is one line: what, where, what was expected, what to do next."""


def require_weights(**values: float) -> None:
    """Refuse weights that are below 0, infinite or no number.

    Raises:
        ModelError: there is one.
    """
    for name, value in values.items():
        if not 0 <= value < float("inf"):
            raise ModelError(f"{name} is {value}; expected 0 or more")
