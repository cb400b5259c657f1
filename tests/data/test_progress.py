"""Bars of long loops: in a terminal alone."""

import pytest

from data import progress
from data.progress import shown


@pytest.mark.parametrize(("terminal", "parent"), [(True, None), (False, None), (True, "a process")])
def test_all_items_come_and_nothing_is_printed_without_a_terminal_of_its_own(
    monkeypatch, capsys, terminal: bool, parent: str | None
) -> None:
    seen = []
    monkeypatch.setattr(progress, "parent_process", lambda: parent)
    monkeypatch.setattr(progress, "track", lambda *given, **more: seen.append(more) or given[0])
    monkeypatch.setattr(progress.sys.stdout, "isatty", lambda: terminal)
    assert list(shown(iter("abc"), "reading", 3)) == ["a", "b", "c"]
    assert seen == [{"transient": True, "disable": not terminal or parent is not None}]
    monkeypatch.undo()
    assert list(shown(iter("abc"), "reading", 3)) == ["a", "b", "c"]
    assert capsys.readouterr().out == ""
