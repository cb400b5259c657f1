"""The error that the pipeline raises on purpose."""


class RecipeError(ValueError):
    """A recipe, a command or an artifact that does not fit, in one line: what, where, expected, next step."""
