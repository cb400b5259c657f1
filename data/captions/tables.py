"""Tables of text as people have them: separated by TABs, commas or semicolons, with a header or not, quoted or not."""

import ast
import csv
import io
import json
import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from data.errors import BadLines, DataError
from data.lines import read_text
from data.pictures.folder import SUFFIXES, without_number
from data.text.characters import plain_characters
from data.text.language_codes import CALLED, LANGUAGE_NAMES

PICTURE, LANGUAGE, CAPTION, SPLIT, OTHER = "picture", "language", "caption", "split", "-"
"""What a column may hold; nothing is read from `OTHER`."""
HEADINGS = {
    PICTURE: ("picture", "image", "file", "file_name", "filename", "image_name", "image_id", "path"),
    LANGUAGE: ("language", "lang"),
    CAPTION: ("caption", "captions", "text", "sentence", "sentences", "description", "comment", "raw"),
    SPLIT: ("split",),
}
"""What a column is called in the first line, if that is a header."""
CAPTION_OF = f"{CAPTION}:"
"""What a column of captions of one language holds begins so: `caption:en`, from the heading `caption_en`."""
KNOWN_HEADINGS = " and ".join(f"{kind} (or {', '.join(HEADINGS[kind][1:])})" for kind in (PICTURE, CAPTION))
"""Those of pictures and of captions, in words."""
_NAMES = "|".join(map(str.lower, LANGUAGE_NAMES.values()))
_CAPTIONS = re.compile(
    r"(?:alt_?)?(?:caption|text|sentence|description|comment|raw)s?"
    r"(?:[ _.-]?(\d+|[a-z]+|[a-z]{2,3}(?:[_-](?:[a-z]{2,4}|\d{3}))+))?"
    rf"|([a-z]{{2}}(?:-(?:[a-z]{{2}}|[a-z]{{4}}))?|(?:{_NAMES})(?: \([a-z ]+\))?)"
)
_LANGUAGES = {called: code for called, code in CALLED.items() if called != "id"}  # which numbers things
_NUMBERS = re.compile(r"[ _.-]?no$")  # the code of Norwegian
_CODE = 3  # letters of a code
_REGION = re.compile(r"[_( -]")  # before a region or a script: `zh-tw`, `chinese (simplified)`
_NOTHING = {"", "na", "n/a", "nan", "null", "none", "<na>"}
_SEPARATORS = {"\t": "TAB", ",": "COMMA", ";": "SEMICOLON", "|": "BAR"}
# Every cell that holds a quotation mark is in quotation marks and has its own doubled, as spreadsheets write it.
_QUOTED = re.compile(r'(?:(?:"(?:[^"\t]|"")*+"|[^"\t\n]*+)(?:\t|\r?\n|\Z))*+')
_CELL = re.compile(r'\s*".*"\s*')
_STRING = r"""'(?:[^'\\]|\\.)*+'|"(?:[^"\\]|\\.)*+\""""
_LIST = re.compile(rf"\s*\[\s*(?:(?:{_STRING}|None|null|nan)[\s,]*)*+\]\s*", re.DOTALL)


class Table(NamedTuple):
    """The rows of a table.

    Attributes:
        rows: number of the line that a row begins on, from 1, and its cells, without spaces around them.
        half_quoted: lines with cells in quotation marks, which are kept, for others have marks of another kind.
        separator: between cells.
    """

    rows: list[tuple[int, list[str]]]
    half_quoted: list[int]
    separator: str

    def form(self, line: str) -> str:
        """What a line of a TSV is (`picture TAB caption`), with this table's separator: `picture COMMA caption`."""
        return line.replace("TAB", _SEPARATORS[self.separator])


def read_table(
    path: Path,
    expected: str,
    separators: Iterable[str] = _SEPARATORS,
    bad: BadLines | None = None,
    line_break: str = " ",
) -> Table:
    """Read a table, unpacked if the name ends in .gz; blank lines are left out.

    Cells are separated by TABs if the first line has one, else by what separates a picture's name or a heading there;
    where nothing does, the first line may be an unknown heading, and the second one tells.
    Where every cell with a quotation mark is written as spreadsheets do (`"a ""stop"" sign"`), cells are what was typed
    there (`a "stop" sign`); else cells separated by TABs are kept as they are.

    Args:
        path: the file.
        expected: what it should be, for the error.
        separators: that may be; of TABs alone, another file is one of single cells.
        bad: gathers the lines that are not UTF-8, and all are read; None: they are an error.
        line_break: what a line break inside a cell is read as.

    Raises:
        DataError: the file is missing or unreadable, is not whole, is not UTF-8, or its quotation marks do not match.
    """
    text = read_text(path, expected, bad)
    begin = islice((line for line in text.split("\n") if line.strip()), 2)
    separator = next((one for line in begin for one in separators if _separates(one, line)), "\t")
    if separator != "\t":
        return Table(list(_parsed(path, text, separator, line_break)), [], separator)
    if '"' in text and _QUOTED.fullmatch(text):
        return Table(list(_parsed(path, text, separator, line_break)), [], separator)
    lines = [(number, line.rstrip("\r").split("\t")) for number, line in enumerate(text.split("\n"), 1)]
    half = [number for number, cells in lines if any(_CELL.fullmatch(cell) for cell in cells)]
    return Table([(number, stripped) for number, cells in lines if any(stripped := _stripped(cells))], half, separator)


def columns_of(header: Sequence[str]) -> list[str] | None:
    """What columns hold, by a header; None if a row is no header, or does not say where pictures and captions are.

    Several columns of captions are numbered (`caption_1`), or named by their languages (`caption_en`). `caption_no`
    numbers captions, unless another column names a language. Beside a column `caption` no other without a language
    is read.

    Examples:
        >>> columns_of(["image", "caption_en", "caption_de", "split"])
        ['picture', 'caption:en', 'caption:de', 'split']
        >>> columns_of(["image", "caption", "alt_text"]), columns_of(["image", "caption", "description"])
        (['picture', 'caption', '-'], None)
    """
    headings = [cell.lower() for cell in header]
    columns = [_kind(heading) for heading in headings]
    if all(kind == OTHER or not kind.startswith(CAPTION_OF) or _NUMBERS.search(heading)
           for kind, heading in zip(columns, headings, strict=True)):  # fmt: skip
        columns = [OTHER if kind.startswith(CAPTION_OF) else kind for kind in columns]
    exact = [heading in HEADINGS[CAPTION] for heading in headings]
    if any(exact):
        columns = [OTHER if kind == CAPTION and not own else kind for kind, own in zip(columns, exact, strict=True)]
    plain = sum(kind == CAPTION and not heading[-1].isdigit() for kind, heading in zip(columns, headings, strict=True))
    found = columns.count(PICTURE) == 1 and plain <= 1 and any(map(holds_captions, columns))
    return columns if found else None


def holds_captions(column: str) -> bool:
    """Whether a column holds captions, of one language or not.

    Examples:
        >>> [holds_captions(column) for column in ("caption", "caption:en", "picture")]
        [True, True, False]
    """
    return column == CAPTION or column.startswith(CAPTION_OF)


def language_in(heading: str) -> str | None:
    """The language in the heading of a column of captions; empty if there is none; None: by it, it holds no captions.

    Examples:
        >>> [language_in(heading) for heading in ("captions_de", "English", "text1", "caption_id", "caption_zh-TW")]
        ['de', 'en', '', None, 'zh']
    """
    match = _CAPTIONS.fullmatch(heading.lower())
    if match is None:
        return None
    ending = match[1] or match[2]
    if ending is None or ending.isdigit():
        return ""
    return _LANGUAGES.get(ending) or _LANGUAGES.get(_REGION.split(ending)[0])


def _kind(heading: str) -> str:
    """What a column holds by its heading in lower case; a code alone (`is`, `no`) may be of something else."""
    for kind, names in HEADINGS.items():
        if heading in names:
            return kind
    language = None if len(heading) <= _CODE else language_in(heading)
    if language is None:
        return OTHER
    return f"{CAPTION_OF}{language}" if language else CAPTION


def is_header(row: Sequence[str]) -> bool:
    """Is a row of captions a header: does it begin with a heading of pictures, or name pictures and captions?"""
    return row[0].lower() in HEADINGS[PICTURE] or columns_of(row) is not None


def is_picture_name(cell: str) -> bool:
    """Does a cell end as the names of pictures do, a caption's number (`1.jpg#0`) behind it or not?"""
    return PurePosixPath(without_number(cell)).suffix.lower() in SUFFIXES


def is_missing(cell: str) -> bool:
    """Does a cell hold nothing, or what programs write for nothing (`NA`, `null`)?"""
    return plain_characters(cell).strip().lower() in _NOTHING


def captions_in(cell: str) -> list[str]:
    """The captions in a cell: those of a list of texts, as JSON, Python or NumPy write it (`['a dog', 'a cat']`).

    Args:
        cell: of a table; any other text is one caption, as it stands.

    Examples:
        >>> captions_in("['a dog', 'a cat']"), captions_in("a dog [sic]")
        (['a dog', 'a cat'], ['a dog [sic]'])
    """
    if not _LIST.fullmatch(cell):
        return [cell]
    with suppress(ValueError, SyntaxError), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a backslash that escapes nothing
        try:
            found = json.loads(cell)
        except ValueError:
            found = [ast.literal_eval(string) for string in re.findall(_STRING, cell, re.DOTALL)]
        texts = [" ".join(text.split()) for text in found if text is not None]
        if all(map(_is_text, texts)):
            return texts
    return [cell]


def _is_text(text: str) -> bool:
    """Is there no half of a character in it (`\\ud83d`), which no file can hold?"""
    return not any("\ud800" <= letter <= "\udfff" for letter in text)


def _separates(separator: str, line: str) -> bool:
    if separator == "\t":
        return "\t" in line
    cells = [cell.strip().strip('"') for cell in line.split(separator)]
    return len(cells) > 1 and (is_header(cells) or is_picture_name(cells[0]) or is_picture_name(cells[-1]))


csv.field_size_limit(2**30)  # letters of a cell; of longer ones than 131,072 it says that quotation marks do not match


def _parsed(path: Path, text: str, separator: str, line_break: str) -> Iterator[tuple[int, list[str]]]:
    reader, begins = csv.reader(
        io.StringIO(text, newline=""), delimiter=separator, strict=True, skipinitialspace=separator in ",;"
    ), 1  # fmt: skip
    try:
        for cells in reader:
            if any(stripped := _stripped(cells, line_break)):
                yield begins, stripped
            begins = reader.line_num + 1
    except csv.Error as error:
        raise DataError(f"{path}:{begins}: its quotation marks do not match ({error}); write a text that holds one in "
                        'quotation marks, with its own doubled: "a ""stop"" sign"') from None  # fmt: skip


def _stripped(cells: Sequence[str], line_break: str = " ") -> list[str]:
    """Cells without spaces around them or around their lines."""
    return [line_break.join(map(str.strip, cell.split("\n"))).strip() for cell in cells]
