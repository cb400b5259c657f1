"""Text files as lines: unpacked and decoded; errors name the file and the line."""

import codecs
import gzip
import io
import math
import re
import unicodedata
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from data.errors import BadLines, BadLinesError, DataError

WORD_VECTORS = (".vec", ".vec.gz", ".bin")
"""Endings of the names of files with word vectors (`data.vectors.published_vectors`)."""
_CONTROLS = {"Cc", "Cs", "Zl", "Zp"}  # controls, half characters, and separators of lines and paragraphs
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?", re.ASCII | re.IGNORECASE)
_TURNING = set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_SMALL, _RATIO = 2**26, 100  # bytes that any file may hold; of text, packed to how many times as little


def is_control(character: str) -> bool:
    """Would a character end a line, drive a terminal, or turn the order of the text around it?

    Spaces of any width and what joins or parts letters (of Persian, Hindi, small pictures) are none.

    Examples:
        >>> [is_control(one) for one in "a\\u00a0\\u200d\\n\\x1b\\u2028\\u202e"]
        [False, False, False, True, True, True, True]
    """
    return not character.isprintable() and (unicodedata.category(character) in _CONTROLS or character in _TURNING)


def number_of(text: str) -> float:
    """A number as files write it; NaN for any other text, and for one that `float` alone would read (`0_5`, `nan`).

    Examples:
        >>> [number_of(text) for text in ("0.5", "-1e3", "0_5", "inf")]
        [0.5, -1000.0, nan, nan]
    """
    return float(text) if _NUMBER.fullmatch(text) else math.nan


def read_lines(path: Path, expected: str, bad: BadLines | None = None) -> list[str]:
    """Lines of a UTF-8 file as they are, unpacked if the name ends in .gz.

    Only a newline ends a line: `str.splitlines` would cut at U+2028 and U+0085 too, and shift all that follows. In a
    file without one a carriage return does, as programs on Macs write ("Tab delimited", "CSV (Macintosh)").

    Args:
        path: the file.
        expected: what it should be, for the error.
        bad: gathers the lines that are not UTF-8, and all are read; None: they are an error.

    Raises:
        DataError: the file is missing or unreadable, is not whole, or is not UTF-8.
    """
    lines = read_text(path, expected, bad).split("\n")
    return lines[:-1] if not lines[-1] else lines


def read_text(path: Path, expected: str, bad: BadLines | None = None) -> str:
    """A whole UTF-8 file, without a byte order mark; see `read_lines`.

    Raises:
        DataError: the file is missing or unreadable, is not whole, or is not UTF-8.
    """
    with _readable(path, expected):
        raw = path.read_bytes()
        raw = _unpacked(raw, path) if path.suffix == ".gz" else raw
    try:
        return text_of(raw.decode("utf-8"))
    except UnicodeDecodeError:
        if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            raise DataError(f"{path}: it is UTF-16; expected UTF-8: save it as UTF-8 (`CSV UTF-8` in Excel)") from None
        problems = {f"{path}:{number}": f"{path}:{number}: {reason}" for number, reason in _undecoded(raw)}
        if bad is None or b"\0" in raw:  # UTF-16 is no text of UTF-8 with some bad lines
            raise BadLinesError(list(problems.values())) from None
    bad.problems |= problems
    return text_of(raw.decode("utf-8", "replace"))


def text_of(decoded: str) -> str:
    """Without a byte order mark, lines ended by newlines; see `read_lines`.

    Examples:
        >>> text_of("\\ufeffone\\rtwo"), text_of("one\\r\\ntwo")
        ('one\\ntwo', 'one\\r\\ntwo')
    """
    text = decoded.removeprefix("\ufeff")
    return text if "\n" in text else text.replace("\r", "\n")


def _undecoded(raw: bytes) -> Iterator[tuple[int, str]]:
    """Number and fault of each line that is not UTF-8."""
    for number, line in enumerate(raw.split(b"\n"), 1):
        try:
            line.decode("utf-8")
        except UnicodeDecodeError as error:
            yield number, f"not UTF-8 ({error.reason}); convert the file to UTF-8 (`CSV UTF-8` in Excel)"


def _unpacked(raw: bytes, path: Path) -> bytes:
    """The contents of a gzip file, which may not be so large that only a trap can be packed so small."""
    most = max(_SMALL, _RATIO * len(raw))
    with gzip.GzipFile(fileobj=io.BytesIO(raw)) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise DataError(f"{path}: {len(raw):,} bytes that hold over {_RATIO} times as many; expected text; unpack it")
    return content


def byte_lines(path: Path, expected: str) -> Iterator[bytes]:
    """Lines of a file with their ends, undecoded, one by one, unpacked if the name ends in .gz; see `read_lines`.

    Raises:
        DataError: the file is missing or unreadable, or is not whole.
    """
    with _readable(path, expected), gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        first = next(iter(file), b"")
        yield from [first] if first.endswith(b"\n") else first.splitlines(keepends=True)
        yield from file


def caption_lines(path: Path) -> Iterator[str]:
    """The captions of a text file, one a line, one by one; see `byte_lines`.

    Raises:
        DataError: the file is missing or unreadable, is not whole, or a line is not UTF-8 or empty.
    """
    for number, line in enumerate(byte_lines(path, "a caption a line"), 1):
        try:
            text = line.decode("utf-8").removeprefix("\ufeff" if number == 1 else "").strip()
        except UnicodeDecodeError as error:
            raise DataError(f"{path}:{number}: not UTF-8 ({error.reason}); convert the file") from None
        if not text:
            raise DataError(f"{path}:{number}: the caption is empty; leave the line out")
        yield text


@contextmanager
def _readable(path: Path, expected: str) -> Iterator[None]:
    """Turn errors of reading a file into a `DataError`."""
    if not path.is_file():
        raise DataError(f"{path}: no such file; expected {expected}")
    try:
        yield
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{path}: not a whole gzip file ({error}); get it again") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}); expected {expected}") from None


def visible_files(folder: Path) -> list[Path]:
    """The files of a folder and of those in it, but for hidden ones (`.DS_Store`); none where there is no folder."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return [path for path in files if not any(part.startswith(".") for part in path.relative_to(folder).parts)]
