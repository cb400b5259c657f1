"""Tables of the captions that retrieval models retrieve for the test images: BLEU-1 to BLEU-4 and CIDEr-D."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from pipeline.analyses.retrieved import DEPTH, MEASURES, name_of, read_retrieved
from pipeline.recipes.settings import Table
from pipeline.reporting.results import INTERVALS, NOT_RUN, Figures, fold_split, over_seeds, shown_interval
from pipeline.retrieval.rows import Cells, Row
from pipeline.visualization.text_table import TextTable

HEADS = ["rank", "BLEU-1", "2", "3", "4", "CIDEr-D"]
_EMPTY = len(HEADS) + 1


@dataclass(frozen=True)
class _Line:
    """The captions at one rank.

    Attributes:
        rank: from 1.
        values: mean over seeds of `MEASURES`.
        interval: of CIDEr-D, as tables print it.
        seeds: how many, with the standard deviation of CIDEr-D.
    """

    rank: int
    values: Sequence[float]
    interval: str
    seeds: str

    def shown(self) -> list[str]:
        """Its cells."""
        return [str(self.rank), *(f"{value:.1f}" for value in self.values), self.interval, self.seeds]


def retrieved_tables(figures: Figures, cells: Cells, language: str) -> Iterator[TextTable]:
    """The table of a language, on all test images, and with `vse.folds` that of the means over folds."""
    rows = [row for *_, row in cells]
    scored = [row for row in rows if "retrieved" in row.analyses and language in row.languages]
    for folds in (False, True) if figures.recipe.vse.folds > 1 else (False,):
        lines, titles = list[list[str]](), dict[str, list[Row]]()
        for row in scored:
            titles.setdefault(row.title(language), []).append(row)
        size = ""
        for title, named in titles.items():
            found, size_of_it = _lines(figures, named, named[0].system, title, language, folds)
            size = size or size_of_it
            lines += [[title, *cells] for cells in found]
        yield TextTable(
            f"Retrieved captions, {rows[0].system}, {language}{size}, {figures.label} ({figures.task_of(language)}): "
            f"compared with the other captions of the image; CIDEr-D × 100; {INTERVALS}",
            ["trained on", *HEADS, "95 %", "seeds"], lines,
        )  # fmt: skip


def published_table(figures: Figures, settings: Table, rows: Cells) -> TextTable:
    """A table of the paper: each system's captions above the published figures and the difference.

    Args:
        figures: of the recipe.
        settings: of the table.
        rows: system, row and job of every cell, seed by seed.
    """
    cells: dict[tuple[str, str], list[Row]] = {}
    for system, name, row in rows:
        cells.setdefault((system, name), []).append(row)
    language, lines, size = settings.language, list[list[str]](), ""
    for (system, name), named in cells.items():
        title = named[0].title(language)
        found, size_of_it = _lines(figures, named, system, title, language, settings.folds)
        size = size or size_of_it
        lines += _beside(system, title, found, settings.systems[system].published.get(name, []))
    for system, values in settings.published.items():
        lines += [[system, "published", *cells, "", ""] for cells in _published(values)]
    title = f"{settings.title}; {figures.label} ({figures.task_of(language)}), {language}{size}; {INTERVALS}"
    return TextTable(title, ["system", "trained on", *HEADS, "95 %", "seeds"], lines)


def _beside(
    system: str, title: str, ours: Sequence[list[str]], published: Sequence[float | None]
) -> Iterator[list[str]]:
    """Lines of a system: at each rank its own, and below it what was published and the difference."""
    theirs = {cells[0]: cells for cells in _published(published)}
    for cells in ours:
        yield [system, title, *cells]
        other = theirs.pop(cells[0], None)
        if other is not None:
            yield ["", "published", *other, "", ""]
            pairs = zip(cells[1 : len(HEADS)], other[1:], strict=True)
            yield ["", "difference", cells[0],
                   *(f"{float(one) - float(two):+.1f}" if two else "" for one, two in pairs), "", ""]  # fmt: skip
    for cells in theirs.values():  # where nothing was run
        yield ["", "published", *cells, "", ""]


def _published(values: Sequence[float | None]) -> Iterator[list[str]]:
    """Rank and published figures, of each rank that has some."""
    for start in range(0, len(values), len(MEASURES)):
        part = values[start : start + len(MEASURES)]
        yield [str(start // len(MEASURES) + 1), *("" if one is None else f"{one:.1f}" for one in part)]


def _lines(
    figures: Figures, rows: Sequence[Row], system: str, title: str, language: str, folds: bool
) -> tuple[list[list[str]], str]:
    """Cells of a row's seeds at each rank, kept as rows of the results, and of how many images they are."""
    part = "folds_" if folds else ""
    first = (language, part + name_of(MEASURES[-1], 1))
    named = [row.analyses["retrieved"] for row in rows if "retrieved" in row.analyses]
    jobs = [job for job in named if first in figures.scores(job)]
    if not jobs:
        tested = any(figures.workspace.done(job) for job in named)
        reason = "–" if tested else NOT_RUN  # there is no second caption of an image, or no training caption
        return [[reason, *[""] * _EMPTY]], ""
    scores = [figures.scores(job) for job in jobs]
    n = int(scores[0][language, f"{part}retrieved_images"])
    split = fold_split(n) if folds else "test"
    found = []
    for rank in range(1, DEPTH + 1):
        names = [name_of(measure, rank) for measure in MEASURES]
        if (language, part + names[0]) not in scores[0]:
            break  # of a gallery with fewer captions
        by_seed = [[one[language, part + name] for one in scores] for name in names]
        means = [sum(values) / len(values) for values in by_seed]
        low, high = (None, None) if folds else figures.interval(jobs, _cider(language, rank))
        for name, mean in zip(names, means, strict=True):
            ends = (low, high) if name == names[-1] else (None, None)
            figures.add(split, system, title, language, name, mean, *ends, len(jobs), n)
        interval = shown_interval(low, high)
        found.append(_Line(rank, means, interval, over_seeds(by_seed[-1], interval)).shown())
    return found, f", mean of folds of {n:,} images" if folds else f" ({n:,} images)"


def _cider(language: str, rank: int) -> Callable[[Path], torch.Tensor]:
    """What reads CIDEr-D × 100 (I,) of the captions at a rank."""
    return lambda folder: torch.from_numpy(read_retrieved(folder, language).cider[:, rank - 1])
