"""The errors that reading data raises on purpose."""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

_TOLD, _ALIKE = 10, 3  # problems that are told, and those of one fault
_PLACE = re.compile(r".*?:\d+: ")


class DataError(ValueError):
    """Bad input in one line: what is wrong, where (file, line, id), what was expected, what to do next."""


class BadLinesError(DataError):
    """Several lines of bad input, in one error.

    Args:
        problems: what is wrong with each, one or more; as text the error is the first of them, and says how many more.
    """

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = list(problems)
        more = len(self.problems) - 1
        super().__init__(self.problems[0] + (f" (and {more:,} more)" if more else ""))

    def __reduce__(self) -> tuple[type["BadLinesError"], tuple[list[str]]]:
        """It may come from another process."""
        return BadLinesError, (self.problems,)

    @property
    def told(self) -> list[str]:
        """The first ten problems, a line each, and how many more there are; of a fault of many lines the first three.

        Examples:
            >>> BadLinesError([f"a.csv:{number}: not UTF-8" for number in range(1, 31)]).told
            ['a.csv:1: not UTF-8', 'a.csv:2: not UTF-8', 'a.csv:3: not UTF-8 (and 27 more lines with this fault)']
        """
        places = defaultdict[str, list[int]](list)
        for number, problem in enumerate(self.problems):
            places[_PLACE.sub("", problem, count=1)].append(number)
        told, left = list(self.problems), set[int]()
        for alike in (numbers for numbers in places.values() if len(numbers) > _TOLD):
            told[alike[_ALIKE - 1]] += f" (and {len(alike) - _ALIKE:,} more lines with this fault)"
            left.update(alike[_ALIKE:])
        told = [problem for number, problem in enumerate(told) if number not in left]
        more = len(told) - _TOLD
        return told[:_TOLD] + ([f"{more:,} more lines do not fit"] if more > 0 else [])


class MissingPictureError(DataError):
    """A line is about a picture that is not there."""


class BadLines:
    """Gathers what is wrong with lines of files, so that a person sees all of it at once.

    Attributes:
        problems: where a line stands → what is wrong with it first of all.
        missing: where lines stand with which nothing is wrong but that their picture is not there.
    """

    def __init__(self) -> None:
        self.problems: dict[str, str] = {}
        self.missing: set[str] = set()

    @contextmanager
    def gather(self, where: str) -> Iterator[None]:
        """Note the `DataError` that is raised inside about the line that stands at `where`, and go on behind it."""
        try:
            yield
        except DataError as error:
            if where not in self.problems and isinstance(error, MissingPictureError):
                self.missing.add(where)
            self.problems.setdefault(where, str(error))

    def require_none(self) -> None:
        """End here if there was one.

        Raises:
            BadLinesError: there was.
        """
        if self.problems:
            raise BadLinesError(list(self.problems.values()))

    def require_missing_alone(self) -> list[str]:
        """What is wrong with lines whose picture is not there, if nothing is wrong with another.

        Raises:
            BadLinesError: something is; it tells of all.
        """
        if self.problems.keys() > self.missing:
            self.require_none()
        return list(self.problems.values())


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


def lacks_processor(name: str) -> str:
    """What to do about a folder with a network that has no image processor; empty where that is not what it lacks.

    Examples:
        >>> lacks_processor("google/siglip2-base-patch16-224")  # no folder
        ''
    """
    files = {path.name for path in Path(name).iterdir()} if Path(name).is_dir() else set[str]()
    if "config.json" not in files or files & {"preprocessor_config.json", "processor_config.json"}:
        return ""
    return ("; it has no image processor (preprocessor_config.json): copy that of the network that it was trained from "
            "into the folder")  # fmt: skip
