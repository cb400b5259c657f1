"""A page that shows which regions of its picture each word of a sentence looks at."""

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from pipeline.drawing.pictures import embedded, read_thumbnail, write_line

_SIZE, _LINE, _GAP = 150, 20, 10  # pixels of a picture, a line of text, and between
_WORDS = 10  # at most, of a sentence: those that look the most sharply
_REGIONS = 3  # drawn a word, the strongest
_COLOURS = ("#d1242f", "#bf8700", "#0969da")


def frame(picture: Image.Image, boxes: NDArray[np.floating], shares: NDArray[np.floating]) -> None:
    """Draw frames around the three regions with the largest shares, red before yellow before blue, as thick as those.

    Args:
        picture: drawn on.
        boxes: (R, 4) corners x1, y1, x2, y2 in 0…1.
        shares: (R,) of sum 1; a region with none is not framed.
    """
    draw = ImageDraw.Draw(picture)
    strongest = [region for region in shares.argsort()[::-1][:_REGIONS] if shares[region] > 0]
    for colour, region in reversed(list(zip(_COLOURS, strongest, strict=False))):
        x1, y1, x2, y2 = boxes[region].clip(0, 1) * np.tile([picture.width - 1, picture.height - 1], 2)
        width = max(1, round(6 * float(shares[region])))
        draw.rectangle((min(x1, x2), min(y1, y2), max(x1, x2), max(y1, y2)), outline=colour, width=width)


class Seen(NamedTuple):
    """A sentence and where it looks.

    Attributes:
        image_id: of its picture.
        picture: the file.
        texts: the sentence and its human translation.
        tokens: sub-words of the side that looks, `▁` before a word.
        weights: for each token its share of attention by region.
        boxes: (R, 4) corners x1, y1, x2, y2 in 0…1.
    """

    image_id: str
    picture: Path
    texts: tuple[str, str]
    tokens: Sequence[str]
    weights: Sequence[Sequence[float]]
    boxes: NDArray[np.floating]


def attention_html(path: Path, title: str, sentences: Sequence[Seen], languages: tuple[str, str]) -> None:
    """Write one page, its pictures inside it: the regions with most attention framed, the strongest red."""
    body = "\n".join(_section(one, languages) for one in sentences)
    path.write_text(_PAGE.format(title=escape(title), body=body, count=len(sentences)), encoding="utf-8")


def attention_sheet(sentences: Sequence[Seen], columns: int = 6) -> Image.Image:
    """A contact sheet: a sentence a line, its picture once for each of its sharpest words, framed as on the page."""
    step = _SIZE + _LINE + _GAP
    sheet = Image.new("RGB", (columns * (_SIZE + _GAP) + _GAP, len(sentences) * (step + _LINE) + _GAP), "white")
    for row, one in enumerate(sentences):
        top = _GAP + row * (step + _LINE)
        write_line(sheet, (_GAP, top), one.texts[0])
        for column, (word, share) in enumerate(_sharpest(one, columns)):
            place = (_GAP + column * (_SIZE + _GAP), top + _LINE)
            picture = _framed(one, share)
            if picture is not None:
                sheet.paste(picture, place)
            write_line(sheet, (place[0], place[1] + _SIZE), f"{word} {100 * share.max():.0f} %")
    return sheet


def words_of(tokens: Sequence[str], weights: Sequence[Sequence[float]]) -> list[tuple[str, NDArray[np.floating]]]:
    """Sub-words put together to words, with the mean of their weights."""
    words: list[tuple[str, list[Sequence[float]]]] = []
    for token, share in zip(tokens, weights, strict=True):
        if token.startswith("▁") or not words:
            words.append((token.lstrip("▁"), [share]))
        else:
            words[-1] = (words[-1][0] + token, [*words[-1][1], share])
    return [(word, np.array(shares).mean(0)) for word, shares in words]


def _section(one: Seen, languages: tuple[str, str]) -> str:
    figures = "".join(
        f"<figure>{embedded(_framed(one, share))}<figcaption>{escape(word)} "
        f"<small>{100 * share.max():.0f} %</small></figcaption></figure>"
        for word, share in _sharpest(one, _WORDS)
    )
    texts = "".join(
        f'<p lang="{escape(language)}">{escape(text)}</p>' for text, language in zip(one.texts, languages, strict=True)
    )
    return f"<section><h2>{escape(one.image_id)}</h2>{texts}<div>{figures}</div></section>"


def _sharpest(one: Seen, count: int) -> list[tuple[str, NDArray[np.floating]]]:
    """The words that look the most sharply, in the order of the sentence, with their weights."""
    words = [(word, share) for word, share in words_of(one.tokens, one.weights) if any(map(str.isalnum, word))]
    chosen = sorted(range(len(words)), key=lambda place: -words[place][1].max())[:count]
    return [words[place] for place in sorted(chosen)]


def _framed(one: Seen, share: NDArray[np.floating]) -> Image.Image | None:
    """The picture with frames around the regions that a word looks at most, as thick as its attention is strong."""
    picture = read_thumbnail(one.picture, _SIZE)
    if picture is not None:
        frame(picture, one.boxes, share)
    return picture


_PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title><meta name="viewport" content="width=device-width">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<style>
body {{ margin: 2rem auto; max-width: 60rem; padding: 0 1rem; font: 16px/1.5 system-ui, sans-serif; color: #1f2328; }}
section {{ border-top: 1px solid #d8dee4; padding: .5rem 0; }} h2 {{ font-size: .9rem; color: #59636e; }}
p {{ margin: .2rem 0; }} div {{ display: flex; flex-wrap: wrap; gap: .8rem; }} figure {{ margin: .5rem 0; }}
figcaption {{ font-size: .9rem; }} small {{ color: #59636e; }} img {{ display: block; }}
</style></head><body><h1>{title}</h1>
<p>{count} test sentences, drawn by lot. Framed: the three regions that a word looks at most, red before yellow before
blue, the thicker the more; beside the word the share of the first.</p>
{body}</body></html>
"""
