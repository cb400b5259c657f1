"""Messages in the terminal."""

from rich.console import Console
from rich.markup import escape

from pipeline.jobs.ranks import rank

CONSOLE = Console(highlight=False, soft_wrap=True)
ERRORS = Console(highlight=False, soft_wrap=True, stderr=True)  # never among translations or hits
for _console in (CONSOLE, ERRORS):
    _console.width = max(_console.width, 120)  # else rich cuts figures off in a narrow terminal


def printable(text: str) -> str:
    """A text without control characters, newlines excepted."""
    return "".join(one if one.isprintable() or one == "\n" else "\N{REPLACEMENT CHARACTER}" for one in text)


def escaped(text: str) -> str:
    """`printable`, with what rich would take for markup escaped."""
    return escape(printable(text))


def say(text: str) -> None:
    """Print a message, on rank 0 only."""
    if rank() == 0:
        CONSOLE.print(text)
