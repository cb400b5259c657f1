"""Tables in the terminal show what they were given: no markup of rich's, no command of the terminal's."""

from pipeline.drawing.text_table import TextTable


def test_labels_are_shown_as_they_are(capsys) -> None:
    TextTable("my [/b] [pets]", ["[red]row", "value"], [["a\x1b[31m", "[bold]1"]]).show()
    shown = capsys.readouterr().out
    for text in ("my [/b] [pets]", "[red]row", "[bold]1", "a\N{REPLACEMENT CHARACTER}[31m"):
        assert text in shown
    assert "\x1b[31m" not in shown
