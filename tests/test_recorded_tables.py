"""READMEs print what the CSV files in pipeline/results hold."""

import re
from collections.abc import Iterator

import pytest

from tests.benchmarks.power import power, recorded_deviations
from tests.recorded_tables import PAGES, RECORDED, TABLES, differing, tables_of, wrong_cells, wrong_sentence

NOT_RECORDED = {
    "Re-ranking with pictures 1", *(f"Scenes {number}" for number in range(1, 4)),
}  # fmt: skip
"""Tables of figures that the CSV files do not hold, as the page says."""


def _named(kind: str) -> Iterator[tuple[str, str]]:
    return ((recipe, name) for recipe, section in RECORDED.items() for name in section.get(kind, {}))


@pytest.mark.parametrize(("recipe", "name"), _named("tables"))
def test_a_table_prints_what_is_recorded(recipe: str, name: str) -> None:
    wrong = list(wrong_cells(recipe, name))
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(("recipe", "part"), _named("sentences"))
def test_a_sentence_prints_what_is_recorded(recipe: str, part: str) -> None:
    wrong = list(wrong_sentence(recipe, part))
    assert not wrong, "\n".join(wrong)


def test_every_row_of_every_table_of_results_is_looked_up():
    found: dict[str, set[int]] = {}
    for section in RECORDED.values():
        for name, table in section.get("tables", {}).items():
            first = table.get("first", 1)
            found.setdefault(name, set()).update(range(first, first + len(table["rows"])))
    for name in tables_of(PAGES["pipeline/results/README.md"]):
        assert name in NOT_RECORDED or found[name] == set(range(1, len(TABLES[name]) + 1)), name


def test_how_often_a_true_gain_is_found():
    deviations = recorded_deviations()
    pooled = (sum(one**2 for one in deviations) / len(deviations)) ** 0.5
    shares = [f"{100 * power(gain, pooled):.0f}" for gain in (1, 2, 3)]
    for page, count in (("README.md", 2), ("pipeline/results/README.md", 3)):
        line = next(line for line in PAGES[page].splitlines() if "true gain of 1 point" in line)
        assert re.findall(r"(\d+) %", line)[:count] == shares[:count]
    assert f"({pooled:.2f})" in PAGES["pipeline/results/README.md"]
    assert power(0, 0.67) < 0.03
    assert power(1, 0.01, images=0.01) > 0.99


def test_a_figure_that_is_rounded_twice_is_found():
    assert not list(differing(["41.6", "−0.7", "7,440"], [41.5567, -0.7356, 7440.0], "cell"))
    assert list(differing(["41.5"], [41.5567], "cell")) == ["cell: 41.5 is 41.5567"]
    assert list(differing(["41.6"], [41.5567, 1.0], "cell")) == ["cell: ['41.6'] stand for [41.5567, 1.0]"]
