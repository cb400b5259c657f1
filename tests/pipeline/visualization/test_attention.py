"""The page of attention: sub-words put together, and frames around the regions that a word looks at most."""

from pathlib import Path

import numpy as np
from PIL import Image

from pipeline.visualization.attention import AttendedSentence, _framed, attention_html, attention_picture

BOXES = np.array([[0.0, 0.0, 1.0, 1.0], [0.2, 0.2, 0.6, 0.6], [0.5, 0.5, 0.9, 0.9]])


def seen(path: Path, weights: list[list[float]]) -> AttendedSentence:
    Image.new("RGB", (150, 150), "white").save(path / "white.png")
    return AttendedSentence(
        "white.png", path / "white.png", ("a <dog>", "ein Hund"), ["▁ein", "▁hu", "nd"], weights, BOXES
    )


def test_the_strongest_region_is_framed_red_where_it_lies(tmp_path: Path) -> None:
    picture = _framed(seen(tmp_path, []), np.array([0.1, 0.7, 0.2]))
    assert picture.size == (150, 150)
    red, yellow, blue = (209, 36, 47), (191, 135, 0), (9, 105, 218)
    assert picture.getpixel((30, 60)) == red  # the left side of the box from 0.2
    assert picture.getpixel((134, 100)) == yellow
    assert picture.getpixel((0, 140)) == blue
    assert picture.getpixel((50, 50)) == (255, 255, 255)


def test_what_stands_in_a_caption_is_text_on_the_page(tmp_path: Path) -> None:
    attention_html(tmp_path / "a.html", "mmt & co", [seen(tmp_path, [[1, 0, 0]] * 3)], ("en", "de"))
    page = (tmp_path / "a.html").read_text(encoding="utf-8")
    assert "a &lt;dog&gt;" in page
    assert "<dog>" not in page
    assert "mmt &amp; co" in page
    assert page.count("<figure>") == 2


def test_the_picture_of_a_sentence_grows_with_its_words_and_its_length(tmp_path: Path) -> None:
    weights = [[0.1, 0.7, 0.2]] * 7
    tokens = [f"▁{letter}" for letter in "abcdefg"]
    one = seen(tmp_path, weights)._replace(tokens=tokens)
    picture = attention_picture(one)
    red = (np.asarray(picture) == (209, 36, 47)).all(-1)
    assert picture.width == 648  # at most twice as wide as TensorBoard draws it, with letters of 26 pixels
    assert picture.height > 2 * 200
    assert len({(x // 212, y // 246) for y, x in zip(*np.nonzero(red), strict=True)}) == 6  # of seven words
    assert attention_picture(one, words=3).height < picture.height
    longer = one._replace(texts=("a very long sentence about a dog " * 4, ""))
    assert attention_picture(longer).height == picture.height + 34 * 2


def test_a_long_word_and_its_share_stay_below_their_picture(tmp_path: Path) -> None:
    sentence = seen(tmp_path, [[0.1, 0.7, 0.2]])._replace(tokens=["▁schraubenmutternschlüssel"])
    below = np.asarray(attention_picture(sentence).convert("L"))[-40:]
    assert (below[:, :212] < 128).any()
    assert (below[:, 212:] > 200).all()  # the place of the next picture's word
