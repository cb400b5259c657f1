"""The error that the pipeline raises on purpose."""


class RecipeError(ValueError):
    """A recipe, a command or an artifact that does not fit, in one line: what, where, expected, next step.

    Args:
        message: what a library says in several lines, and is quoted in it, becomes one.
    """

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split("\n")))
