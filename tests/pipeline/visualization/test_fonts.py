"""Letters of other scripts on contact sheets and plots."""

import pytest
from matplotlib.figure import Figure
from matplotlib.font_manager import findfont
from PIL import Image

from pipeline.visualization import pictures, plots
from pipeline.visualization.pictures import wrap, write_line

SIGN = "ℊ"  # DejaVu Sans lacks it


@pytest.fixture
def another_font(monkeypatch):
    """One that has the sign is installed."""
    monkeypatch.setattr(pictures, "installed_fonts", lambda: {"STIXGeneral": findfont("STIXGeneral")})
    for known in (pictures._fonts, pictures._glyph):
        known.cache_clear()
    yield
    for known in (pictures._fonts, pictures._glyph):
        known.cache_clear()


def drawn(text: str) -> bytes:
    write_line(sheet := Image.new("RGB", (60, 30), "white"), (5, 5), text)
    return sheet.tobytes()


def test_a_letter_of_another_script_is_drawn_by_a_font_that_is_installed(another_font) -> None:
    assert drawn(SIGN) != drawn("?")
    assert pictures._glyph(SIGN)[0] == SIGN


def test_signs_stay_in_the_font_of_the_letter_before_them(another_font, monkeypatch) -> None:
    other = pictures._fonts(15)[-2]
    monkeypatch.setattr(
        pictures, "_has", lambda font, letter: letter in f"{SIGN}. " if font is other else letter != SIGN
    )
    assert [run for run, _ in pictures._runs(f"ab, c {SIGN}. d")] == ["ab, c ", f"{SIGN}. ", "d"]
    assert [run for run, _ in pictures._runs(f"{SIGN}. ")] == [f"{SIGN}. "]


def test_the_pieces_of_a_line_from_right_to_left_are_turned_round(another_font, monkeypatch) -> None:
    other = pictures._fonts(15)[-2]
    monkeypatch.setattr(pictures, "_has", lambda font, letter: (letter in "שלום ") == (font is other))
    assert [run for run, _ in pictures._runs("שלום abc")] == ["abc", "שלום "]
    assert next(run for run, _ in pictures._runs("abc שלום")).startswith("abc")


def test_a_text_without_spaces_is_cut_between_letters() -> None:
    lines = [text for text, _ in wrap("左に青い箱があります。" * 6, 200)]
    assert len(lines) > 2
    assert "".join(lines) == "左に青い箱があります。" * 6


def test_plots_ask_installed_fonts_and_print_no_warning(monkeypatch, recwarn) -> None:
    monkeypatch.setattr(plots, "installed_fonts", lambda: {"STIXGeneral": ""})
    figure = Figure((2, 1))
    shown = figure.text(0.1, 0.5, "犬 ਲ")
    plots.as_pixels(figure)
    assert shown.get_fontfamily() == ["DejaVu Sans", "STIXGeneral"]
    assert not [str(one.message) for one in recwarn if "Glyph" in str(one.message)]
