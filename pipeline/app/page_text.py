"""What the files of the page share: errors, texts that are shown as they are, pictures of one size."""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from difflib import SequenceMatcher
from itertools import groupby

import streamlit as st
from PIL import Image

from data.errors import DataError
from data.lines import is_control
from data.text.language_codes import UNSPACED
from data.text.tokenisation import typed_words
from modules.errors import ModelError
from pipeline.engine.machine_errors import line_of
from pipeline.errors import RecipeError
from pipeline.gallery.hits import Hit
from pipeline.visualization.pictures import read_thumbnail

LONGEST = 1000  # characters of a query, and of a sentence to translate; the models read 100 words
SIZE, _THINNEST = 320, 8  # pixels of the longer side of a picture, and least of the shorter one
RED, BLUE, GREEN, BROWN = COLOURS = ("#c9252d", "#0a62c4", "#18742f", "#8a5a00")  # behind white words, of frames
_SPACES = str.maketrans("\n\t", "  ")
_SIGNS = re.compile(r":(?=//|material|streamlit)|@|\bwww(?=\.)|[<>~=-](?=[=>-])", re.IGNORECASE)
"""What makes a link, an icon or an arrow (`->`) of the text around it, also behind a backslash."""


@contextmanager
def errors_shown() -> Iterator[None]:
    """Show an error of what is inside as one red line where it would stand; a decorator of each fragment and dialog,
    which run by themselves."""
    try:
        yield
    except (DataError, ModelError, RecipeError) as error:
        st.error(plain(str(error)))
    except MemoryError:
        st.error("This machine has too little memory for this.")
    except OSError as error:  # a full disk, a picture that is gone
        st.error(plain(line_of(error) or str(error)))


def plain(text: str) -> str:
    """A text that Streamlit's Markdown shows as it is, in one line, without control characters."""
    unlinked = _SIGNS.sub("\\g<0>\u2060", text.translate(_SPACES))  # a word joiner, which is not seen
    line = (letter for letter in unlinked if not is_control(letter))
    return "".join(f"\\{letter}" if letter in r"\`*_{}[]()<>#+-.!|~$:&" else letter for letter in line)


def shortened(text: str, most: int) -> str:
    """A text of at most so many letters; one that is cut ends in “…”."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def isolated(markdown: str) -> str:
    """Markdown whose letters run from right to left, apart from the line that it is in, which runs the other way."""
    leftwards = any(unicodedata.bidirectional(letter) in ("R", "AL") for letter in markdown)
    return f"\u2068{markdown}\u2069" if leftwards else markdown


def coloured(text: str, colour: str) -> str:
    """Markdown of a text in white on a colour, shown as it is."""
    return f':color[{plain(text)}]{{foreground="#ffffff" background="{colour}"}}'


def choice_of(names: Sequence[str]) -> str:
    """Names with commas and an “or” before the last."""
    return " or ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def thumbnail(hit: Hit) -> Image.Image | None:
    """A picture that was found, scaled so that its longer side has `SIZE` pixels; None where it is not at hand."""
    return scaled(read_thumbnail(hit.path, SIZE))


def scaled(picture: Image.Image | None) -> Image.Image | None:
    """The same for a picture that has been read; frames drawn on it are sharp however small it was.

    A very thin one is made thicker: Streamlit cannot show it smaller if nothing would be left of the shorter side.
    """
    if picture is None:
        return None
    factor = SIZE / max(picture.size)
    width, height = (max(_THINNEST, round(side * factor)) for side in picture.size)
    return picture.resize((width, height))


def runs(words: Sequence[str], colours: Sequence[str | None], space: str = " ") -> str:
    """Markdown of words with spaces between them; neighbours of the same colour are on one background."""
    shown = []
    for colour, some in groupby(zip(words, colours, strict=True), key=lambda pair: pair[1]):
        text = space.join(word for word, _ in some)
        shown.append(plain(text) if colour is None else coloured(text, colour))
    return isolated(space.join(shown))


def marked(text: str, other: str, colour: str, language: str) -> str:
    """Markdown of a sentence; words that another one of its language has not in their place are on a background."""
    words, others = (typed_words(one, language) for one in (text, other))
    blocks = SequenceMatcher(None, words, others, autojunk=False).get_matching_blocks()
    same = {place for block in blocks for place in range(block.a, block.a + block.size)}
    colours = [None if place in same else colour for place in range(len(words))]
    return runs(words, colours, "" if language in UNSPACED else " ")
