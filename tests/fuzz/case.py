"""One case of spoiled files, what reads it, and what must hold."""

import contextlib
import io
import os
import random
import re
import shutil
import sys
import traceback
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, TypeVar

from data.errors import DataError
from modules.errors import ModelError
from pipeline.cli import main
from pipeline.errors import RecipeError
from tests.fuzz.guard import PRODUCT, ROOT, SECRET

T = TypeVar("T")
OURS = (DataError, ModelError, RecipeError)
LIGHT = 10_000
"""Cases from this number on take no process down, and little time and memory, whatever reads them."""
_MOST_LINES = 11  # of error: of ten bad lines of a file, and how many more there are
_LONGEST = 5000  # letters that a command says of an error


class Chance(random.Random):
    """Decides all of a case.

    Args:
        seed: name of the reader and number of the case.
        light: nothing very large is chosen.
    """

    light = False

    @classmethod
    def of(cls, reader: str, number: int) -> "Chance":
        """That of a case."""
        made = cls(f"{reader} {number}")
        made.light = number >= LIGHT
        return made


@dataclass(frozen=True)
class Fault:
    """Something that must not be.

    Attributes:
        what: the kind, with the type of an exception.
        place: the line of our code, as far as it is known.
        detail: what was said, or how much was used.
    """

    what: str
    place: str
    detail: str


@dataclass
class Case:
    """One number of a reader.

    Attributes:
        number: which; the good files are -1.
        rng: decides all of it.
        given: the folder that a user gives, to be filled by `Reader.spoil`.
        work: where commands run; all that is written goes there.
        outside: a folder that nobody has been given.
        said: all that was printed or raised.
        faults: what was found.
        accepted: how many calls gave a result.
        refusals: what the others said.
        used: bytes of memory at most, beyond what the process had.
        traces: of exceptions that nobody has caught.
    """

    number: int
    rng: Chance
    given: Path
    work: Path
    outside: Path
    said: list[str] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    accepted: int = 0
    refusals: list[str] = field(default_factory=list)
    used: int = 0
    traces: list[str] = field(default_factory=list)

    @property
    def is_good(self) -> bool:
        """Are these the good files, which are read in all ways?"""
        return self.number < 0

    def is_one_of(self, every: int, rest: int = 0) -> bool:
        """Is it this case's turn, of `every` cases?"""
        return self.is_good or self.number % every == rest

    def call(self, action: Callable[[], T]) -> T | None:
        """What a function returns; None if it refuses, by an error of ours of one line."""
        try:
            found = action()
        except OURS as error:
            self.refusals.append(str(error))
            self.said.append(str(error))
            if "\n" in str(error) or not str(error).strip():
                what = "message of several lines" if str(error).strip() else "message without words"
                self.faults.append(Fault(what, raised_at(error), str(error)[:200]))
            return None
        except BaseException as error:
            self.note(error)
            return None
        self.accepted += 1
        return found

    def note(self, error: BaseException) -> None:
        """Note an exception that nobody has caught."""
        self.faults.append(Fault(type(error).__name__, raised_at(error), last_words(error)))
        self.traces.append("".join(traceback.format_exception(error)))

    def command(self, *words: str) -> int | None:
        """The status of a command in `work`: 0, or 1 or 2 and one line on standard error; None: it raised."""
        out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", errors) for errors in ("strict", "backslashreplace"))
        before, status = dict(os.environ), None
        os.environ["BILDWORT_ARTIFACTS"] = str(self.work / "artifacts")
        try:
            with contextlib.ExitStack() as stack:
                for one in (
                    contextlib.chdir(self.work),
                    contextlib.redirect_stdout(out),
                    contextlib.redirect_stderr(err),
                ):
                    stack.enter_context(one)
                stack.enter_context(warnings.catch_warnings())  # each is shown once, as by a new process
                status = main(list(words))
                out.flush()
        except BaseException as error:
            self.note(error)
        os.environ.clear()
        os.environ.update(before)
        told, printed = (one.buffer.getvalue().decode("utf-8", "replace") for one in (err, out))
        self.said += [printed, told]
        if status is not None:
            self._judge(status, told, f"bildwort {words[0]}")
        return status

    def _judge(self, status: int, told: str, where: str) -> None:
        """Note what is wrong with the end of a command."""
        errors = [line for line in told.split("\n") if line.strip()]
        if status == 0:
            self.accepted += 1
            if any(line.startswith(("error:", "Traceback")) for line in errors):
                self.faults.append(Fault("status 0, but an error is told", where, told[:200]))
        elif status not in (1, 2):
            self.faults.append(Fault(f"status {status}", where, told[:200]))
        else:
            self.refusals.append(told)
            if not 1 <= len(errors) <= _MOST_LINES or not all(line.startswith("error:") for line in errors):
                warned = re.search(r"([\w/]+\.py):\d+: (\w+Warning)", told)
                also = f" ({warned[2]} of {warned[1]})" if warned else ""
                self.faults.append(Fault(f"not one line of error{also}", where, told[-300:]))
            elif any(len(line) > _LONGEST for line in errors):
                self.faults.append(Fault("an error of very many letters", where, told[:200]))

    def check(self, holds: bool, what: str, detail: object = "") -> None:
        """Note a fault of a result unless something holds."""
        if not holds:
            self.faults.append(Fault(f"result: {what}", sys._getframe(1).f_code.co_name, str(detail)[:200]))

    def leaks(self) -> Iterator[Fault]:
        """What of the outside folder stands in messages, or in files that were written."""
        for text in self.said:
            if SECRET in text:
                yield Fault("tells what stands outside", "message", text[max(0, text.find(SECRET) - 150) :][:300])
        for path in self.work.rglob("*"):
            if path.is_file() and not path.is_symlink() and SECRET.encode() in path.read_bytes():
                yield Fault("copies what stands outside", "file", str(path.relative_to(self.work)))


class Reader(ABC):
    """What reads one kind of files of a user."""

    name: ClassVar[str]
    reads_elsewhere: ClassVar[bool] = False
    """May its files name files outside of the given folder, or be links?"""

    @abstractmethod
    def prepare(self, base: Path, light: bool) -> None:
        """Write good files, from which all cases are made, once; for light cases alone, if some take long."""

    @abstractmethod
    def spoil(self, case: Case, base: Path) -> str:
        """Write the files of a case to `case.given`; returns in words what is wrong with them."""

    @abstractmethod
    def read(self, case: Case) -> None:
        """Read them in every way that there is, by `case.call` and `case.command`."""

    def give(self, case: Case, base: Path) -> None:
        """Copy the good files."""
        shutil.copytree(base, case.given, symlinks=True, dirs_exist_ok=True)


def raised_at(error: BaseException) -> str:
    """The innermost line of our packages that an error passed, else the line that raised it."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if frame.filename.startswith(PRODUCT)]
    if not ours:
        return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "?"
    return f"{Path(ours[-1].filename).relative_to(ROOT)}:{ours[-1].lineno}"


def last_words(error: BaseException) -> str:
    """What an error says, and the line that raised it."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{str(error)[:200]} [{'/'.join(Path(frame.filename).parts[-3:])}:{frame.lineno}]"
