"""The error class of this package."""


class ModelError(ValueError):
    """Invalid input or settings; the message is one line: what, where, what was expected, what to do next."""
