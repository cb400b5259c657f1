"""Tables in the terminal show what they were given: no markup of rich's, no command of the terminal's."""

import pytest

from pipeline.engine.console import CONSOLE
from pipeline.visualization.text_table import TextTable


def test_labels_are_shown_as_they_are(capsys) -> None:
    TextTable("my [/b] [pets]", ["[red]row", "value"], [["a\x1b[31m", "[bold]1"]]).show()
    shown = capsys.readouterr().out
    for text in ("my [/b] [pets]", "[red]row", "[bold]1", "a\N{REPLACEMENT CHARACTER}[31m"):
        assert text in shown
    assert "\x1b[31m" not in shown


@pytest.mark.parametrize("width", [20, 60, 120])
def test_no_figure_and_no_word_is_cut_where_the_terminal_is_narrow(width: int, monkeypatch, capsys) -> None:
    monkeypatch.setattr(CONSOLE, "_width", width)
    figures = ["10.9", "31.2", "44.0", "13.2", "35.4", "47.6", "182.3", "177.1 … 198.2", "253.2", "1"]
    heads = ["system", "trained on", "t→i R@1", "5", "10", "i→t R@1", "5", "10", "rsum", "95 %", "val rsum", "seeds"]
    TextTable("table", heads, [["β 0.75, all negatives of the batch", "human-de", *figures]]).show()
    lines = capsys.readouterr().out.splitlines()
    assert any(line.split()[-12:] == " ".join(figures).split() for line in lines)
    words = " ".join(lines).split()
    assert {"human-de", "negatives", "trained", "system", "rsum"} <= {*words}
    assert max(map(len, lines)) <= max(width, 110)


def test_long_texts_go_on_in_further_lines_and_rows_may_be_short(capsys) -> None:
    TextTable("table", ["file", "finding"], [["a.tsv", "words of a long finding " * 12], ["b.tsv"]]).show()
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 120
    assert shown.split().count("finding") == 13
    assert "b.tsv" in shown
