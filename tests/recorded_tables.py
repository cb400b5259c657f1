"""Figures that READMEs print, and the recorded runs that they are of.

`tests/recorded/RECIPE.yaml` says which runs of `pipeline/results/RECIPE.csv` tables and sentences of READMEs show:

- `runs`: name → `job | variant`, all its seeds, or `job 2 | variant`, the first two; without variant the recipe's own
  settings; figures of several such jobs are joined.
- `tables`: `heading number` → `rows` from the top (from row `first`): a run, a pair [run, base], or ~ where nothing is
  recorded. `columns` says what the cells after the label hold, `differences` the same for pairs; a row of its own kind
  is {run: …, columns: …}. Rows that are no pair are compared with `base`. The columns of `SHARED` have a name.
- `differences`: further pairs [run, base] of three seeds, from which `tests.benchmarks.power` takes how seeds vary.
- `sentences`: a part of a README, `#` for each figure → what the figures are, as in a cell.

What a cell holds, in the order in which it is printed: LANGUAGE/METRIC is the mean over seeds. Before it, `less` makes
it the mean difference from the base, `each` a figure for each seed, `half` half of the interval over seeds (Student's
t), `minus` the other sign, `seeds` the number of seeds and, in brackets, the standard deviation. `… of RUN` and
`… of RUN − BASE` after figures take other runs than the row's. Other figures in brackets are intervals, which need the
artifacts, unless the table says `brackets: true`.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import zip_longest
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import yaml

from pipeline.reporting.records import RECORDS, read_records
from tests.recorded_plots import half_width

RECORDED: Mapping[str, Mapping[str, Any]] = {
    path.stem: yaml.safe_load(path.read_text(encoding="utf-8"))
    for path in sorted((Path(__file__).parent / "recorded").glob("*.yaml"))
}
PAGES = {
    name: (RECORDS.parents[1] / name).read_text(encoding="utf-8")
    for name in ("README.md", "pipeline/results/README.md", ".docs/pages/models.md", ".docs/pages/speed.md")
}


SHARED: Mapping[str, Sequence[str | None]] = {
    "another image": [", ".join(f"minus /own-other_loglik{end}" for end in ("", "_high", "_low"))]
}
"""`another image`: what an MMT loses when another image's regions are shown, with intervals."""
NUMBER = r"[+−]?\d+(?:,\d{3})*(?:\.\d+)?"
_SLACK = 6e-5  # the CSV files round to four places
Seeds = list[Mapping[str, float]]
"""Of each seed LANGUAGE/METRIC → value."""


def tables_of(text: str) -> dict[str, list[list[str]]]:
    """`heading number` → the rows of a table without its head; blocks of code are skipped."""
    found: dict[str, list[list[str]]] = {}
    heading, number, inside = "", 0, False
    for line in re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S).splitlines():
        if line.startswith("#"):
            heading, number = line.lstrip("# "), 0
        number += line.startswith("|") and not inside
        inside = line.startswith("|")
        if inside:
            cells = re.split(r"(?<!\\)\|", line)[1:-1]
            found.setdefault(f"{heading} {number}", []).append([cell.strip() for cell in cells])
    return {name: rows[2:] for name, rows in found.items()}


TABLES = {name: rows for page in PAGES.values() for name, rows in tables_of(page).items()}


@cache
def _recorded(recipe: str) -> Mapping[str, Mapping[str, Mapping[str, float]]]:
    """Variant → job → LANGUAGE/METRIC → value."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for one in read_records(recipe):
        found.setdefault(one.variant, {}).setdefault(one.job, {})[f"{one.language}/{one.metric}"] = one.value
    return found


def seeds_of(recipe: str, run: str) -> Seeds:
    """The figures of each seed of a run."""
    lines = RECORDED[recipe]["runs"][run]
    seeds: list[dict[str, float]] = []
    for line in [lines] if isinstance(lines, str) else lines:
        named, _, variant = line.partition(" | ")
        job, _, most = named.partition(" ")
        jobs = _recorded(recipe)[variant]
        numbered = [name for name in jobs if re.fullmatch(rf"{re.escape(job)}-\d+", name)]
        names = sorted(numbered, key=lambda name: int(name.rpartition("-")[2])) or [job]
        for place, name in enumerate(names[: int(most or len(names))]):
            seeds += [{}] * (place == len(seeds))
            seeds[place] = seeds[place] | jobs[name]
    return seeds


def values_of(figure: str, ours: Seeds, base: Seeds) -> list[float]:
    """The values that a figure stands for."""
    words, metric = re.fullmatch(r"((?:seeds |each |half |less |minus )*)(.*)", figure).groups()  # type: ignore[union-attr]
    by_seed = [seed[metric] for seed in ours]
    if "less" in words:
        by_seed = [value - seed[metric] for value, seed in zip(by_seed, base, strict=True)]
    if "seeds" in words:
        return [len(by_seed), stdev(by_seed)] if len(by_seed) > 1 else [1]
    if "half" in words:
        return [half_width(by_seed)]
    values = by_seed if "each" in words else [fmean(by_seed)]
    return [-value for value in values] if "minus" in words else values


def figures_of(cell: str, run: str = "", base: str = "") -> Iterator[tuple[str, str, str]]:
    """Each figure of a cell, with its run and base; those of the row where it names no others."""
    while cell:
        found = re.match(r"(.*?) of ([^,]*)(?:, |$)", cell)
        figures, named = found.groups() if found else (cell, f"{run} − {base}")
        cell = cell[found.end() :] if found else ""
        one, _, other = named.partition(" − ")
        yield from ((figure, one, other) for figure in figures.split(", "))


def expected(recipe: str, cell: str, run: str = "", base: str = "") -> list[float]:
    """The values that a cell holds, in a row of a run and its base."""
    return [
        value for figure, one, other in figures_of(cell, run, base)
        for value in values_of(figure, seeds_of(recipe, one), seeds_of(recipe, other) if other else [])
    ]  # fmt: skip


def cells_of(recipe: str, name: str) -> Iterator[tuple[str, str, str, str, str]]:
    """Of each cell of a table that holds recorded figures: label, text, what it holds, its row's run and base."""
    table = RECORDED[recipe]["tables"][name]
    for row, wanted in zip(TABLES[name][table.get("first", 1) - 1 :], table["rows"], strict=False):
        run, base = wanted if isinstance(wanted, list) else (wanted, table.get("base", ""))
        columns = table.get("differences" if isinstance(wanted, list) else "columns", [])
        if isinstance(run, dict):
            run, columns = run["run"], run["columns"]
        columns = SHARED[columns] if isinstance(columns, str) else columns
        label = " ".join(row[: len(row) - len(columns)])
        for text, holds in zip(row[len(row) - len(columns) :], columns, strict=True):
            if run and holds and re.search(r"\d", text):
                yield label, text, holds, run, base


def wrong_cells(recipe: str, name: str) -> Iterator[str]:
    """What a table prints that the CSV file does not say."""
    brackets = RECORDED[recipe]["tables"][name].get("brackets")
    for label, text, holds, run, base in cells_of(recipe, name):
        shown = text if brackets or holds.startswith("seeds ") else re.sub(r"\([^)]*\)", "", text)
        printed = re.findall(NUMBER, re.sub(r"`[^`]*`", "", shown))
        yield from differing(printed, expected(recipe, holds, run, base), f"{label}: {text} ({holds})")


def wrong_sentence(recipe: str, part: str) -> Iterator[str]:
    """What a part of a README prints that the CSV file does not say."""
    pattern = re.escape(part).replace(r"\#", f"({NUMBER})").replace(r"\ ", r"\s+")
    found = [match for page in PAGES.values() for match in re.finditer(pattern, page)]
    if not found:
        yield f"no README says: {part}"
    for match in found:
        yield from differing(match.groups(), expected(recipe, RECORDED[recipe]["sentences"][part]), part)


def differing(printed: Sequence[str], values: Sequence[float], where: str) -> Iterator[str]:
    """Figures that are not the values, rounded as they are printed."""
    for text, value in zip_longest(printed, values):
        if text is None or value is None:
            yield f"{where}: {list(printed)} stand for {values}"
            return
        places = len(text.partition(".")[2])
        if abs(float(text.replace("−", "-").replace(",", "")) - value) > 0.5 * 10**-places + _SLACK:
            yield f"{where}: {text} is {value:.4f}"
