"""A page that shows which regions of its picture each word of a sentence attends to."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from data.text.tokenisation import mean_by_word
from pipeline.visualization.pages import render
from pipeline.visualization.pictures import embedded, read_thumbnail, wrap, write_line

_SIZE = 150  # pixels of a picture on the page
_LARGE, _FONT, _LINE, _GAP, _COLUMNS = 200, 26, 34, 12, 3  # of the picture that TensorBoard shows at half its width
_WORDS = 10  # at most, of a sentence: those with the sharpest attention
_REGIONS = 3  # drawn a word, the strongest
_COLOURS = ("#d1242f", "#bf8700", "#0969da")
_LABEL = ImageFont.load_default(size=16)


def outline(picture: Image.Image, box: NDArray[np.floating], colour: str, width: int, label: str = "") -> None:
    """Draw the frame of a box (4,), corners x1, y1, x2, y2 in 0…1, on a picture, with a label in its upper corner."""
    x1, y1, x2, y2 = box.clip(0, 1) * np.tile([picture.width - 1, picture.height - 1], 2)
    corners = (min(x1, x2), min(y1, y2), max(x1, x2), max(y1, y2))
    draw = ImageDraw.Draw(picture)
    draw.rectangle(corners, outline=colour, width=width)
    if label:
        place = corners[0] + width, corners[1] + width
        draw.rectangle(draw.textbbox(place, label, font=_LABEL), fill=colour, outline=colour, width=2)
        draw.text(place, label, fill="white", font=_LABEL)


class AttendedSentence(NamedTuple):
    """A sentence and its attention to regions.

    Attributes:
        texts: the sentence and its human translation.
        tokens: sub-words of the side that attends to regions, `▁` before a word.
        weights: for each token its share of attention by region.
        boxes: (R, 4) corners x1, y1, x2, y2 in 0…1.
    """

    image_id: str
    picture: Path
    texts: tuple[str, str]
    tokens: Sequence[str]
    weights: Sequence[Sequence[float]]
    boxes: NDArray[np.floating]


def attention_html(path: Path, title: str, sentences: Sequence[AttendedSentence], languages: tuple[str, str]) -> None:
    """Write one page, its pictures inside it: the regions with most attention framed, the strongest red."""
    shown = []
    for sentence in sentences:
        words = _sharpest(sentence, _WORDS)
        figures = [(word, f"{100 * share.max():.0f}", embedded(_framed(sentence, share))) for word, share in words]
        shown.append((sentence, figures))
    page = render("attention.html", title=title, sentences=shown, languages=languages)
    path.write_text(page, encoding="utf-8")


def attention_picture(sentence: AttendedSentence, words: int = 2 * _COLUMNS) -> Image.Image:
    """A sentence in large letters; below it its picture once for each of its sharpest words, framed as on the page."""
    step = _LARGE + _GAP
    width, shown = _COLUMNS * step + _GAP, _sharpest(sentence, words)
    lines = wrap(sentence.texts[0], width - 2 * _GAP, _FONT)
    rows = -(-len(shown) // _COLUMNS)
    top = 2 * _GAP + len(lines) * _LINE
    sheet = Image.new("RGB", (width, top + rows * (step + _LINE)), "white")
    for number, (line, _) in enumerate(lines):
        write_line(sheet, (_GAP, _GAP + number * _LINE), line, size=_FONT)
    for number, (word, share) in enumerate(shown):
        place = (_GAP + number % _COLUMNS * step, top + number // _COLUMNS * (step + _LINE))
        picture = _framed(sentence, share, _LARGE, 16)
        if picture is not None:
            sheet.paste(picture, place)
        label = f"{word} {100 * share.max():.0f} %"
        write_line(sheet, (place[0], place[1] + _LARGE), label, size=_FONT, width=_LARGE)
    return sheet


def _sharpest(sentence: AttendedSentence, count: int) -> list[tuple[str, NDArray[np.floating]]]:
    """The words with the sharpest attention, in the order of the sentence, with their weights."""
    words = [
        (word, share) for word, share in mean_by_word(sentence.tokens, sentence.weights) if any(map(str.isalnum, word))
    ]
    chosen = sorted(range(len(words)), key=lambda place: -words[place][1].max())[:count]
    return [words[place] for place in sorted(chosen)]


def _framed(
    sentence: AttendedSentence, share: NDArray[np.floating], size: int = _SIZE, thickest: float = 6
) -> Image.Image | None:
    """The picture with frames around the three regions with the largest shares, red before yellow before blue.

    Args:
        share: (R,) of sum 1; a region with none is not framed.
        size: pixels of the longer side.
        thickest: pixels of the frame of a region with all attention; others are thinner.
    """
    if (picture := read_thumbnail(sentence.picture, size)) is None:
        return None
    strongest = [region for region in share.argsort()[::-1][:_REGIONS] if share[region] > 0]
    for colour, region in reversed(list(zip(_COLOURS, strongest, strict=False))):
        outline(picture, sentence.boxes[region], colour, max(1, round(thickest * float(share[region]))))
    return picture
