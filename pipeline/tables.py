"""Stage table: a table of the paper, trained where it is not, ours beside the published figures."""

from collections.abc import Sequence
from dataclasses import replace

from modules.metrics import RECALLS, paired_difference
from pipeline.errors import RecipeError
from pipeline.figures import NOT_RUN, Figures, finished_runs, fold_split
from pipeline.jobs import Job, Workspace
from pipeline.processes import rank
from pipeline.ranking import read_ranks
from pipeline.results_store import append_runs, read_runs
from pipeline.settings import Recipe, Table
from pipeline.sheets import Sheet
from pipeline.vse import Row, vse_rows


def table_rows(recipe: Recipe, workspace: Workspace, name: str) -> list[tuple[str, str, Row]]:
    """System, row and job of every cell of a table, seed by seed."""
    return [
        (system, row.name, row)
        for system, settings in recipe.tables[name].systems.items()
        for row in vse_rows(replace(recipe, vse=settings.vse), workspace)
    ]


def table(recipe: Recipe, workspace: Workspace, name: str | None) -> None:
    """Train what a table lacks, with all that it needs, and print it.

    Raises:
        RecipeError: the recipe has no such table.
    """
    if name not in recipe.tables:
        known = ", ".join(recipe.tables) or "none"
        raise RecipeError(f"table {name!r}: recipe {recipe.name} has {known}; use `make table TABLE=…`")
    for _, _, row in table_rows(recipe, workspace, name):
        workspace.perform_all(row.job)
        if recipe.report.record and rank() == 0:
            append_runs(recipe.name, list(finished_runs(workspace, [row.job])))
    if rank() > 0:
        return
    for sheet in table_sheets(name, Figures(recipe, workspace, read_runs(recipe.name))):
        sheet.show()


def table_sheets(name: str, figures: Figures) -> list[Sheet]:
    """The table, ours above the published figures and the difference, and tests between its rows."""
    recipe, workspace = figures.recipe, figures.workspace
    settings = recipe.tables[name]
    cells: dict[tuple[str, str], list[Job]] = {}
    for system, row, cell in table_rows(recipe, workspace, name):
        cells.setdefault((system, row), []).append(cell.job)
    lines = []
    for (system, row), jobs in cells.items():
        published = settings.systems[system].published.get(row)
        lines += _lines(figures, system, row, jobs, settings, published)
    heads = ["system", "trained on", "t→i R@1", "5", "10", "i→t R@1", "5", "10", "rsum", "95 %", "seeds"]
    title = f"{settings.title}; {figures.label}"
    sheets = [Sheet(title, heads, lines)]
    if not settings.folds:
        sheets.append(_tests(figures, cells, settings.language, f"{title}: paired tests, rsum"))
    return [sheet for sheet in sheets if sheet.rows]


def _lines(
    figures: Figures, system: str, row: str, jobs: Sequence[Job], settings: Table, published: Sequence[float] | None
) -> list[list[str]]:
    """A cell's figures, mean over seeds; and where there are published ones, those and the difference."""
    language, part = settings.language, "folds_" if settings.folds else ""
    scores = [found for job in jobs if (language, f"{part}t2i_r1") in (found := figures.scores(job))]
    lines = []
    if published is not None:
        lines = [["", "published", *(f"{value:.1f}" for value in published), f"{sum(published):.1f}", "", ""]]
    if not scores:
        return [[system, row, *[NOT_RUN] * 9], *lines]
    names, split = (*RECALLS, "rsum"), fold_split(scores[0][language, "folds_images"]) if settings.folds else "test"
    mean = {name: sum(one[language, part + name] for one in scores) / len(scores) for name in names}
    interval = {} if settings.folds else figures.interval(jobs, language)
    for name in names:
        low, high, n = interval.get(name, (None, None, 0))
        figures.add(split, system, row, language, name, mean[name], low, high, len(scores), n)
    low, high, _ = interval.get("rsum", (None, None, 0))
    bounds = "–" if low is None or high is None else f"{low:.1f} … {high:.1f}"
    ours = [system, row, *(f"{mean[name]:.1f}" for name in names), bounds, str(len(scores))]
    if published is not None:
        both = zip((mean[name] for name in names), (*published, sum(published)), strict=True)
        away = "–" if low is None or high is None else f"{low - sum(published):+.1f} … {high - sum(published):+.1f}"
        lines.append(["", "difference", *(f"{own - theirs:+.1f}" for own, theirs in both), away, ""])
    return [ours, *lines]


def _tests(figures: Figures, cells: dict[tuple[str, str], list[Job]], language: str, title: str) -> Sheet:
    """Each row of a system against the system's first row and `copies`, and each system against the table's first."""
    workspace = figures.workspace
    ready = {
        cell: [read_ranks(workspace.folder(job), language) for job in jobs]
        for cell, jobs in cells.items()
        if all(workspace.done(job) and (language, "t2i_r1") in figures.scores(job) for job in jobs)
    }
    wanted = []
    for system in dict.fromkeys(system for system, _ in cells):
        rows = [row for other, row in cells if other == system]
        for below in dict.fromkeys((rows[0], "copies")):
            wanted += [((system, row), (system, below)) for row in rows if row not in (below, rows[0])]
        wanted.append(((system, rows[0]), next(iter(cells))))
    lines = []
    for cell, base in wanted:
        if cell != base and {cell, base} <= set(ready):
            d = paired_difference(ready[cell], ready[base], figures.recipe.report.resamples)["rsum"]
            names = (" ".join(cell), base[1] if cell[0] == base[0] else " ".join(base))
            lines.append([" − ".join(names), f"{d.value:+.2f}", f"{d.low:+.2f} … {d.high:+.2f}", f"{d.p_value:.3f}"])
    return Sheet(title, ["difference", "rsum", "95 %", "p"], lines)
