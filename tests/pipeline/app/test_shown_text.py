"""Texts in the terminal and on the page: every letter and space of a language, nothing that steers what shows it."""

import re

import pytest

from data.corpora.coco.karpathy import _image
from data.errors import DataError
from pipeline.app.page_text import plain
from pipeline.engine.console import printable

KEPT = ["un chien\u00a0!", "犬が\u3000走る", "می\u200cرود", "क्\u200dष", "👩\u200d👩\u200d👧", "e\u0301", "soft\u00adly"]
STEERING = ["\x1b", "\x00", "\x85", "\u2028", "\u2029", "\udce9", "\u202e", "\u2066", "\r"]


@pytest.mark.parametrize("text", KEPT, ids=ascii)
def test_letters_and_spaces_of_all_languages_are_shown(text: str) -> None:
    assert printable(text) == text
    assert plain(text).replace("\\", "") == text


@pytest.mark.parametrize("letter", STEERING, ids=ascii)
def test_what_steers_a_terminal_or_the_order_of_text_is_not(letter: str) -> None:
    assert printable(f"a{letter}b") == "a\N{REPLACEMENT CHARACTER}b"
    assert plain(f"a{letter}b") == "ab"


@pytest.mark.parametrize("text", ["www.evil.example", "see HTTPS://evil.example", "bob@evil.example"])
def test_no_text_becomes_a_link_on_the_page(text: str) -> None:
    """The Markdown of the page makes links of these, whatever is escaped; a word joiner is not seen."""
    assert plain(text).replace("\\", "").replace("\u2060", "") == text
    assert "\u2060" in plain(text)
    assert plain("a dog, www") == "a dog, www"


@pytest.mark.parametrize("text", ["a :material/home:", ":streamlit:", "a -- b", "a -> b <- c <-> d", "a >= b", "~="])
def test_no_text_becomes_an_icon_or_an_arrow_on_the_page(text: str) -> None:
    """Streamlit puts them in after the Markdown is read, so that no backslash keeps them out."""
    shown = plain(text).replace("\\", "")
    assert shown.replace("\u2060", "") == text
    assert not re.search(r":material|:streamlit|--|->|<-|[<>~]=", shown)


def test_lines_stay_lines_in_the_terminal_and_are_one_on_the_page() -> None:
    assert printable("a\nb") == "a\nb"
    assert plain("a\nb\tc") == "a b c"


def test_a_picture_of_a_list_may_be_named_as_one_of_a_folder() -> None:
    entry = {"split": "train", "filename": "le\u00a0chien.jpg", "sentences": [{"raw": "un chien"}]}
    assert _image(entry, "images[0]").filename == "le\u00a0chien.jpg"
    with pytest.raises(DataError, match="is no file name"):
        _image(entry | {"filename": "a\u202eb.jpg"}, "images[0]")
