"""Which settings name a result."""

from dataclasses import dataclass, field

from data.settings import added, result_settings


@dataclass
class Some:
    needed: int
    old: float = 0.5
    listed: list[int] = field(default_factory=list)
    rate: float = added(0.0)
    names: list[str] = added(["a"])
    table: dict[str, int] = added({})


def test_added_settings_at_their_defaults_leave_a_result_as_it_was_named():
    assert result_settings(Some(1)) == {"needed": 1, "old": 0.5, "listed": []}


def test_added_settings_away_from_their_defaults_name_another_result():
    assert result_settings(Some(1, rate=0.1, names=["a", "b"], table={"a": 1})) == {
        "needed": 1, "old": 0.5, "listed": [], "rate": 0.1, "names": ["a", "b"], "table": {"a": 1},
    }  # fmt: skip


def test_defaults_are_not_shared():
    one, other = Some(1), Some(2)
    one.names.append("b")
    assert other.names == ["a"]
    assert "names" not in result_settings(other)
