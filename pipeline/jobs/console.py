"""Messages in the terminal."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.control import Control
from rich.markup import escape
from rich.segment import ControlType

from pipeline.jobs.ranks import rank

CONSOLE = Console(highlight=False, soft_wrap=True)
ERRORS = Console(highlight=False, soft_wrap=True, stderr=True)  # never among translations or hits
for _console in (CONSOLE, ERRORS):
    _console.width = max(_console.width, 120)  # else rich cuts figures off in a narrow terminal
_CLEARED = Control(ControlType.CARRIAGE_RETURN, (ControlType.ERASE_IN_LINE, 2))
_chosen = {"verbose": False}
_unsaid: list[str] = []


def be_verbose(wanted: bool) -> None:
    """Choose whether details are printed (`--verbose`)."""
    _chosen["verbose"] = wanted


def is_verbose() -> bool:
    """Are details printed?"""
    return _chosen["verbose"]


def printable(text: str) -> str:
    """A text without control characters, newlines excepted."""
    return "".join(one if one.isprintable() or one == "\n" else "\N{REPLACEMENT CHARACTER}" for one in text)


def escaped(text: str) -> str:
    """`printable`, with what rich would take for markup escaped."""
    return escape(printable(text))


def say(text: str) -> None:
    """Print a message, on rank 0 only; a process that prints nothing keeps it for `unsaid`."""
    if rank() == 0 and CONSOLE.quiet:
        _unsaid.append(text)
    elif rank() == 0:
        CONSOLE.control(_CLEARED)  # of a terminal alone
        CONSOLE.print(text)


def unsaid() -> list[str]:
    """The messages that this process has kept since the last call, for the one that it works for."""
    found = _unsaid.copy()
    _unsaid.clear()
    return found


def detail(text: str) -> None:
    """Print a message that only `--verbose` shows, on rank 0 only."""
    if is_verbose():
        say(text)


@contextmanager
def passing(text: str) -> Iterator[None]:
    """Show a line in a terminal for as long as the work inside takes; elsewhere nothing."""
    shown = rank() == 0 and CONSOLE.is_terminal
    if shown:
        CONSOLE.print(f"[dim]{text}[/]", end="\r")
    try:
        yield
    finally:
        if shown:
            CONSOLE.control(_CLEARED)
