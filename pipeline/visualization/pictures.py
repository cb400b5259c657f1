"""Drawing with Pillow: thumbnails, contact sheets, pictures inside pages, text in letters of many scripts."""

import base64
import io
import unicodedata
from bisect import bisect
from collections.abc import Sequence
from contextlib import suppress
from functools import cache, lru_cache
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from data.errors import DataError
from data.pictures.images import open_picture

Line = str | tuple[str, str]  # text on a sheet; black, or with its colour
Shown = Path | Image.Image | None  # a file, or a picture that fits into a square of 128 pixels
ShownPicture = tuple[Path | None, str, bool]  # a picture, what is written below it, whether it is the right one
GREEN, GREY, BLACK = "#1a7f37", "#6e7781", "#1f2328"
_SIZE, _LINE, _THUMBNAIL, _GAP = 15, 20, 128, 10
_OTHER_FONTS = [
    "Noto Sans CJK JP", "Noto Sans CJK SC", "Noto Sans CJK KR", "IPAexGothic", "WenQuanYi Zen Hei", "Hiragino Sans",
    "PingFang SC", "Apple SD Gothic Neo", "Yu Gothic", "Microsoft YaHei", "Malgun Gothic", "Leelawadee UI",
    "Nirmala UI", *(f"Noto Sans {script}" for script in (
        "Arabic", "Armenian", "Bengali", "Devanagari", "Ethiopic", "Georgian", "Gujarati", "Gurmukhi", "Hebrew",
        "Kannada", "Khmer", "Lao", "Malayalam", "Myanmar", "Oriya", "Sinhala", "Tamil", "Telugu", "Thai",
    )), "Noto Naskh Arabic", "Noto Serif Armenian", "Noto Serif Georgian", "Noto Serif Hebrew",
]  # fmt: skip
"""Of Debian, macOS and Windows."""


def read_thumbnail(path: Path | None, size: int = _THUMBNAIL) -> Image.Image | None:
    """A picture fitted into a square of `size`; None where there is none or it cannot be read."""
    try:
        return None if path is None else open_picture(path, size)
    except DataError:
        return None


def cut_out(picture: Image.Image | None, box: NDArray[np.floating]) -> Image.Image | None:
    """A box (4,), corners x1, y1, x2, y2 in 0…1, of a picture; None without a picture, or if the box has no area."""
    if picture is None:
        return None
    x1, y1, x2, y2 = (box.clip(0, 1) * np.tile(picture.size, 2)).round().astype(int).tolist()
    return picture.crop((x1, y1, x2, y2)) if x1 < x2 and y1 < y2 else None


def of_generator(pixels: NDArray[np.uint8], size: int = _THUMBNAIL) -> Image.Image:
    """A picture that a model has drawn, pixels (3, S, S), enlarged to a square of `size`."""
    return Image.fromarray(pixels.transpose(1, 2, 0)).resize((size, size), Image.Resampling.BICUBIC)


def picture_sheet(rows: Sequence[tuple[Sequence[Shown], Sequence[Line]]], width: int = 602) -> Image.Image:
    """A contact sheet: in each row pictures, a grey box where there is none, and beside them lines of a width."""
    left = _GAP + max((len(shown) for shown, _ in rows), default=1) * (_THUMBNAIL + _GAP)
    wrapped = [[piece for line in lines for piece in wrap(line, width)] for _, lines in rows]
    heights = [max(_THUMBNAIL, len(lines) * _LINE) + _GAP for lines in wrapped]
    sheet = Image.new("RGB", (left + width + _GAP, sum(heights) + _GAP), "white")
    top = _GAP
    for (pictures, _), lines, step in zip(rows, wrapped, heights, strict=True):
        for column, shown in enumerate(pictures):
            _paste(sheet, shown, _GAP + column * (_THUMBNAIL + _GAP), top)
        for number, line in enumerate(lines):
            write_line(sheet, (left, top + number * _LINE), *line)
        top += step
    return sheet


def hit_sheet(queries: Sequence[tuple[Line, Sequence[ShownPicture]]]) -> Image.Image:
    """For each query its words and, in a row below them, the pictures that were found; right ones framed green."""
    columns = max(5, *(len(hits) for _, hits in queries), 0)
    width, strip = columns * (_THUMBNAIL + _GAP) + _GAP, _THUMBNAIL + _LINE + 2 * _GAP
    wrapped = [wrap(words, width - 2 * _GAP) for words, _ in queries]
    sheet = Image.new("RGB", (width, sum(len(lines) * _LINE + strip for lines in wrapped) + _GAP), "white")
    top = _GAP
    for (_, hits), lines in zip(queries, wrapped, strict=True):
        for line in lines:
            write_line(sheet, (_GAP, top), *line)
            top += _LINE
        for column, (picture, label, right) in enumerate(hits):
            left = _GAP + column * (_THUMBNAIL + _GAP)
            if right:
                corners = (left - 4, top, left + _THUMBNAIL + 3, top + _THUMBNAIL + 7)
                ImageDraw.Draw(sheet).rectangle(corners, outline=GREEN, width=4)
            _paste(sheet, picture, left, top + 4)
            write_line(sheet, (left, top + _THUMBNAIL + 8), label, GREEN if right else GREY)
        top += strip
    return sheet


def embedded(picture: Image.Image | None) -> str:
    """A picture inside a page, a grey box where there is none."""
    (picture := picture or Image.new("RGB", (176, 112), "#d8dee4")).save(buffer := io.BytesIO(), "JPEG", quality=80)
    data = base64.b64encode(buffer.getvalue()).decode()
    return f'<img alt="" width="{picture.width}" height="{picture.height}" src="data:image/jpeg;base64,{data}">'


def _paste(sheet: Image.Image, shown: Shown, left: int, top: int) -> None:
    """Put a picture into the middle of its square, or a grey box."""
    thumbnail = shown if isinstance(shown, Image.Image) else read_thumbnail(shown)
    picture = thumbnail or Image.new("RGB", (_THUMBNAIL, _THUMBNAIL), "#d8dee4")
    sheet.paste(picture, (left + (_THUMBNAIL - picture.width) // 2, top + (_THUMBNAIL - picture.height) // 2))


def wrap(line: Line, width: int, size: int = _SIZE) -> list[tuple[str, str]]:
    """A line cut into lines of a width, each with its colour.

    It is cut between words; one of Thai, or of a script behind it in Unicode, that is too long also between letters.
    """
    text, colour = (line, BLACK) if isinstance(line, str) else line
    lines = [""]

    def too_long(part: str) -> bool:
        """Is it longer than a line?"""
        return _length(part, size) > width

    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and too_long(longer):
            lines.append(word)
        else:
            lines[-1] = longer
        while len(whole := lines[-1]) > 1 and max(whole) >= "\u0e00" and too_long(whole):
            most = bisect(range(1, len(whole)), False, key=lambda letters: too_long(whole[:letters])) or 1
            lines[-1:] = [whole[:most], whole[most:]]
    return [(text, colour) for text in lines]


def write_line(
    sheet: Image.Image, at: tuple[float, float], text: str, colour: str = BLACK, size: int = _SIZE,
    width: float | None = None,
) -> None:  # fmt: skip
    """A line of text from its upper left corner on; one longer than a `width` is written smaller."""
    draw, (left, top) = ImageDraw.Draw(sheet), at
    if width is not None and (longer := _length(text, size) / width) > 1:
        size = max(1, int(size / longer))
    for run, font in _runs(text, size):
        draw.text((left, top + size), run, colour, font, "ls")
        left += font.getlength(run)


def _length(text: str, size: int) -> float:
    """Pixels of a line of text."""
    return sum(font.getlength(run) for run, font in _runs(text, size))


def _runs(text: str, size: int = _SIZE) -> list[tuple[str, Any]]:
    """Text in pieces, each with a font that has all its letters.

    It is one piece if a font has all of it, so that words from right to left stand in their order. Else signs, spaces
    and vowel marks are in the font of the letter before them; the pieces of a line from right to left are turned round.
    """
    text = unicodedata.normalize("NFC", text)
    if (whole := next((font for font in _fonts(size) if all(_has(font, letter) for letter in text)), None)) is not None:
        return [(text, whole)]
    glyphs: list[tuple[str, Any]] = []
    for letter in text:
        before = glyphs[-1][1] if glyphs else None
        stays = before is not None and not letter.isalnum() and _has(before, letter)
        glyphs.append((letter, before) if stays else _glyph(letter, size))
    runs = [("".join(glyph for glyph, _ in run), font) for font, run in groupby(glyphs, key=lambda glyph: glyph[1])]
    first = next((kind for kind in map(unicodedata.bidirectional, text) if kind in ("L", "R", "AL")), "L")
    return runs if first == "L" else runs[::-1]


@lru_cache(maxsize=4096)
def _has(font: Any, letter: str) -> bool:
    """Is it drawn in another way than what stands for any missing letter?"""
    return bytes(font.getmask(letter)) != bytes(font.getmask("\ue123"))


@lru_cache(maxsize=4096)
def _glyph(letter: str, size: int = _SIZE) -> tuple[str, Any]:
    """A letter and the first font that has it; a letter that none has loses its accents, or is a question mark."""
    for font in _fonts(size):
        if _has(font, letter):
            return letter, font
    plain = unicodedata.normalize("NFKD", letter).encode("ascii", "ignore").decode()
    return plain or {"ß": "ss", "œ": "oe", "→": "->"}.get(letter, "?"), _fonts(size)[-1]


@cache
def installed_fonts() -> dict[str, str]:
    """Fonts of this machine with letters that ours lack: name → file."""
    from matplotlib.font_manager import findfont, get_font_names

    known = {*get_font_names()}
    return {name: findfont(name) for name in _OTHER_FONTS if name in known}


@lru_cache(maxsize=32)
def _fonts(size: int) -> list[Any]:
    """DejaVu Sans, which comes with matplotlib; installed ones; Pillow's own."""
    from matplotlib.font_manager import findfont

    fonts: list[Any] = []
    for file in (findfont("DejaVu Sans"), *installed_fonts().values()):
        with suppress(OSError):
            fonts.append(ImageFont.truetype(file, size))
    return [*fonts, ImageFont.load_default(size)]
