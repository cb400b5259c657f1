"""The error that models raise on purpose."""


class ModelError(ValueError):
    """Something a model cannot work with, in one line: what, where, what was expected, what to do next."""
