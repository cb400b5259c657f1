"""Messages in the terminal. They are plain text: what looks like markup in a path or a caption is printed as it is."""

import os
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.control import Control
from rich.segment import ControlType
from rich.text import Text

from data.lines import is_control
from pipeline.engine.machine import process_rank


class _Console(Console):
    """A terminal whose reader may go (`bildwort all | head`): the work goes on without words."""

    def on_broken_pipe(self) -> None:
        """Say nothing more; rich would end the process."""
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), self.file.fileno())


CONSOLE = _Console(highlight=False, soft_wrap=True)
ERRORS = _Console(highlight=False, soft_wrap=True, stderr=True)  # never among translations or hits
for _console in (CONSOLE, ERRORS):
    if not _console.is_terminal:
        _console.width = max(_console.width, 120)  # rich takes 80 for a file
_CLEARED = Control(ControlType.CARRIAGE_RETURN, (ControlType.ERASE_IN_LINE, 2))
_chosen = {"verbose": False}
_PLURAL = re.compile(r"s\b")  # of the first word that has it
_LONGEST = 1000  # letters of an error: what is quoted from a file may have any number


class Message(NamedTuple):
    """A message, with a coloured label before it; without a label the text itself has the colour."""

    text: str
    label: str = ""
    colour: str = ""


_unsaid: list[Message] = []


def be_verbose(wanted: bool) -> None:
    """Choose whether details are printed (`--verbose`)."""
    _chosen["verbose"] = wanted


def is_verbose() -> bool:
    """Are details printed?"""
    return _chosen["verbose"]


def printable(text: str) -> str:
    """A text without control characters (`data.lines.is_control`), newlines excepted."""
    return "".join("\N{REPLACEMENT CHARACTER}" if is_control(char) and char != "\n" else char for char in text)


def counted(count: int, what: str) -> str:
    """A count and what is counted, given in the plural.

    Examples:
        >>> counted(1, "Parquet files of other folders"), counted(1200, "lines")
        ('1 Parquet file of other folders', '1,200 lines')
    """
    return f"{count:,} {_PLURAL.sub('', what, count=1) if count == 1 else what}"


def info(text: str, label: str = "", colour: str = "") -> None:
    """Print a message, on rank 0 only; a process that prints nothing keeps it for `unsaid`."""
    message = Message(text, label, colour)
    if process_rank() == 0 and CONSOLE.quiet:
        _unsaid.append(message)
    elif process_rank() == 0:
        if CONSOLE.is_terminal:
            CONSOLE.control(_CLEARED)
        CONSOLE.print(_shown(message))


def by_make() -> bool:
    """Was this program called by `make`?"""
    return "MAKELEVEL" in os.environ


def command(*words: str, target: Sequence[str] = ()) -> str:
    """A command that can be copied into a shell, of this program as it was called.

    Args:
        words: of the command.
        target: the same for `make`, which also installs what a command needs; taken where `make` called the program.
    """
    if target and by_make():
        return shlex.join(["make", *target])
    called = Path(sys.argv[0])
    program = [sys.argv[0]] if called.name == "bildwort" else ["bildwort"]
    if called.resolve() == Path(__file__).resolve().parents[1] / "__main__.py":
        program = [sys.executable, "-m", "pipeline"]
    return shlex.join([*program, *words])


def flag(word: str) -> str:
    """An option of this program, within a sentence, as it is given: `--force`, or `ARGS=--force` to make."""
    return f"ARGS={word}" if by_make() else word


def stage_command(stage: str, *words: str) -> str:
    """Words for a sentence: the command of a stage (`bildwort vse`, or `make stage-vse`), and with what to call it."""
    words_of_make = [f"ARGS={' '.join(words)}"] if words else []
    run = command(stage, *words, target=[f"stage-{stage}", *words_of_make])
    return f"`{run}` with the same recipe and settings"


def unsaid() -> list[Message]:
    """The messages that this process has kept since the last call, for the one that it works for."""
    messages = _unsaid.copy()
    _unsaid.clear()
    return messages


def debug(text: str, label: str = "") -> None:
    """Print a message that only `--verbose` shows, on rank 0 only."""
    if is_verbose():
        info(text, label)


def info_aside(text: str, label: str = "") -> None:
    """Print a warning on standard error, where it is not among results."""
    ERRORS.print(_shown(Message(text, label, "yellow")))


def error_line(text: str) -> None:
    """Print an error on standard error, as one line."""
    line = " ".join(text.split("\n"))
    if len(line) > _LONGEST:
        line = f"{line[: _LONGEST // 2]} … {line[-_LONGEST // 2 :]}"
    ERRORS.print(_shown(Message(line, "error:", "red")))


def _shown(message: Message) -> Text:
    text = printable(message.text)
    if not message.label:
        return Text(text, message.colour)
    return Text.assemble((printable(message.label), message.colour), f" {text}")


@contextmanager
def status(text: str) -> Iterator[None]:
    """Show a line in a terminal for as long as the work inside takes; elsewhere nothing."""
    shown = process_rank() == 0 and CONSOLE.is_terminal
    if shown:
        CONSOLE.print(Text(printable(text), "dim"), end="\r")
    try:
        yield
    finally:
        if shown:
            CONSOLE.control(_CLEARED)
