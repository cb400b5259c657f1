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


def one_line(error: Exception, longest: int = 200) -> str:
    """What an error of a library says, on one line without a full stop; the name of its class if it says nothing.

    Args:
        error: caught.
        longest: letters, of a longer message the first words.

    Examples:
        >>> one_line(ValueError("no weights\\n  in the file")), one_line(KeyError())
        ('no weights in the file', 'KeyError')
        >>> one_line(OSError("no file called sea.jpg"), 18), one_line(OSError("sea.jpg"), 3)
        ('no file called …', 'sea …')
    """
    text = " ".join(str(error).split())
    if len(text) > longest:
        text = f"{text[:longest].rpartition(' ')[0] or text[:longest]} …"
    return text.rstrip(" .") or type(error).__name__
