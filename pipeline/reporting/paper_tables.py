"""Stage table: a table of the paper, trained where it is not, ours beside the published figures."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from modules.metrics.retrieval import MEDIANS, RECALLS
from pipeline.analyses.registry import ANALYSES
from pipeline.engine.console import info
from pipeline.engine.job import Job, topological_order
from pipeline.engine.machine import process_rank
from pipeline.engine.runner import Runner
from pipeline.errors import RecipeError
from pipeline.graph import Graph
from pipeline.recipes.settings import Table
from pipeline.reporting.analyses import BESIDE_RECALL, MeasuredLine, analysis_tables, measure, size
from pipeline.reporting.records import record, records_of
from pipeline.reporting.results import INTERVALS, NOT_RUN, R_AT_K, Figures, Mean, Subject, by_line
from pipeline.retrieval.rows import Row
from pipeline.visualization.text_table import TextTable

SUM = "sum"
_OF_SUM = ("t2i_r1", "t2i_r10", "i2t_r1", "i2t_r10")
"""What papers without R@5 sum (GXN, Eq. 13)."""


def variants_of(graph: Graph) -> dict[str, str]:
    """Key of each job of a table → the system that it is of; empty: it is of the recipe's own rows too.

    Two systems of a name have it with their table's (`1: SAN`). What the command line says of the rows, and not of the
    tables, does not count.
    """
    rows = [] if graph.reranker is None else [graph.reranker]
    with suppress(RecipeError):
        vse, below = graph.recipe.vse, graph.recipe.below_tables or graph.recipe.vse
        known = replace(below, rows=vse.rows | below.rows, only=below.only or list(below.rows))
        rows += graph.with_vse(known).rows
    own = {job.key for row in rows for job in topological_order(row.jobs, "vse")}
    variants: dict[str, str] = {}
    taken: dict[tuple[str, str], str] = {}
    for name, rows in graph.tables.items():
        for row in rows:
            for job in topological_order(row.jobs, "vse"):
                if job.key in own:
                    variants[job.key] = ""
                elif job.key not in variants:
                    twice = taken.setdefault((job.name, row.system), job.key) != job.key
                    variants[job.key] = f"{name}: {row.system}" if twice else row.system
    return variants


def table_jobs(graph: Graph, name: str | None) -> list[Job]:
    """The jobs whose figures a table has, system by system and seed by seed; each needs others.

    Raises:
        RecipeError: the recipe has no such table.
    """
    rows = graph.table_rows(name or "")
    wanted = tuple(ANALYSES) if graph.recipe.tables[str(name)].captions else BESIDE_RECALL
    return [
        job for row in rows
        for job in (row.job, *(row.analyses[analysis] for analysis in wanted if analysis in row.analyses))
    ]  # fmt: skip


def table(graph: Graph, runner: Runner, name: str | None) -> None:
    """Train what a table lacks, with all that it needs, and print it.

    Raises:
        RecipeError: the recipe has no such table.
    """
    jobs = table_jobs(graph, name)
    if kept := graph.recipe.not_of_tables:
        shown = ", ".join(f"--{key}" for key in kept)
        info(f"not of tables: {shown}; the systems of a table have their own", colour="yellow")
    runner.expect(topological_order(jobs))
    try:
        runner.run(jobs)
    finally:  # what is done is recorded, whatever stops the rest
        variants = variants_of(graph)
        if process_rank() == 0:
            record(graph, topological_order(jobs, "vse"), variants)
    if process_rank() > 0:
        return
    for sheet in paper_tables(str(name), Figures(graph, records_of(graph.recipe), variants)):
        sheet.show()


def paper_tables(name: str, figures: Figures) -> list[TextTable]:
    """The table, ours above the published figures and the difference, and tests between its rows."""
    settings = figures.recipe.tables[name]
    language, all_rows = settings.language, figures.graph.tables[name]
    if settings.captions:
        return [_captions_table(figures, name, all_rows)]
    lines, columns, tested = [], _columns(settings), dict[tuple[str, str], dict[int, Job]]()
    for (system, row_name), rows in by_line(all_rows).items():
        published = settings.systems[system].published.get(row_name)
        title, jobs = rows[0].title(language), [row.job for row in rows]
        lines += _lines(figures, system, title, jobs, name, published)
        if language not in rows[0].unseen:
            tested[system, row_name] = {row.seed: row.job for row in rows}
    lines += [[system, "published", *_shown(_published(values, list(columns)), columns)]
              for system, values in settings.published.items()]  # fmt: skip
    heads = ["system", "trained on", *columns.values(), "rsum", "95 %", "val rsum", "seeds"]
    tested_on = "" if settings.folds else figures.size((row.job for row in all_rows), language)
    title = f"{settings.title}; {figures.label}"
    over = "" if settings.folds else f"; {INTERVALS}"
    sheets = [TextTable(f"{title} ({figures.task_of(language)}), {language}{tested_on}{over}", heads, lines)]
    if not settings.folds:
        sheets.append(_tests(figures, tested, settings.compare, language, f"{title}: paired tests, rsum"))
        sheets += analysis_tables(figures, all_rows, [language], BESIDE_RECALL, name)
    return [sheet for sheet in sheets if sheet.rows]


def _columns(settings: Table) -> dict[str, str]:
    """Metric → head of its column: R@K, median ranks where some are published, and the sum that stands for rsum."""
    heads = dict(zip(RECALLS, R_AT_K, strict=True))
    published = [values for system in settings.systems.values() for values in system.published.values()]
    published += settings.published.values()
    if any(len(values) == 8 for values in published):
        sides = ({name: head for name, head in heads.items() if name.startswith(way)} for way in ("t2i", "i2t"))
        heads = {name: head for side, median in zip(sides, MEDIANS, strict=True)
                 for name, head in (side | {median: "median rank"}).items()}  # fmt: skip
    return heads | ({SUM: "R@1 + R@10"} if any(None in values for values in published) else {})


def _lines(
    figures: Figures, system: str, row: str, jobs: Sequence[Job], table: str,
    published: Sequence[float | None] | None,
) -> list[list[str]]:  # fmt: skip
    """A cell's figures, mean over seeds; and where there are published ones, those and the difference."""
    settings = figures.recipe.tables[table]
    columns = _columns(settings)
    cell = figures.cell(jobs, system, row, settings.language, settings.folds, table)
    if cell is not None:
        summed = Mean([sum(cell.figures[name].value for name in _OF_SUM)])
        cell = replace(cell, figures={**cell.figures, SUM: summed})
    ours = [system, row, *(cell.shown("rsum", list(columns)) if cell else [NOT_RUN, *[""] * (len(columns) + 3)])]
    if published is None:
        return [ours]
    theirs = _published(published, list(columns))
    lines = [ours, ["", "published", *_shown(theirs, columns)]]
    if cell is not None:
        away = ["" if (value := theirs[name]) is None else f"{cell.figures[name].value - value:+.1f}"
                for name in (*columns, "rsum")]  # fmt: skip
        whole = theirs["rsum"]
        lines.append(
            ["", "difference", *away, "" if whole is None else cell.figures["rsum"].interval("+", whole), "", ""]
        )
    return lines


def _shown(theirs: Mapping[str, float | None], columns: Iterable[str]) -> list[str]:
    """The cells of published figures."""
    return [*("" if theirs[name] is None else f"{theirs[name]:.1f}" for name in (*columns, "rsum")), "", "", ""]


def _published(values: Sequence[float | None], columns: Sequence[str]) -> dict[str, float | None]:
    """Metric → what was published of it; None: nothing. Of some rows the mean recall is all there is."""
    figures: dict[str, float | None] = dict.fromkeys((*columns, "rsum"))
    if len(values) == 1 and values[0] is not None:
        return figures | {"rsum": len(RECALLS) * values[0]}
    own = RECALLS if len(values) == len(RECALLS) else [name for name in columns if name != SUM]
    figures |= dict(zip(own, values, strict=True))
    return figures | {"rsum": _sum(figures, RECALLS)} | ({SUM: _sum(figures, _OF_SUM)} if SUM in columns else {})


def _sum(figures: Mapping[str, float | None], names: Sequence[str]) -> float | None:
    """The sum of some figures; None where one is not known."""
    known = [value for name in names if (value := figures[name]) is not None]
    return sum(known) if len(known) == len(names) else None


def _tests(
    figures: Figures, cells: dict[tuple[str, str], dict[int, Job]], compare: Sequence[Sequence[str]], language: str,
    title: str,
) -> TextTable:  # fmt: skip
    """Each row of a system against the system's first row and `copies`, and each system against the table's first.

    And the pairs of systems that the table's setting `compare` names.
    """
    wanted = []
    for system in dict.fromkeys(system for system, _ in cells):
        rows = [row for name, row in cells if name == system]
        for below in dict.fromkeys((rows[0], "copies")):
            wanted += [((system, row), (system, below)) for row in rows if row not in (below, rows[0])]
        wanted.append(((system, rows[0]), next(iter(cells))))
    first_cells = {system: (system, row) for system, row in reversed(cells)}
    wanted += [
        (first_cells[left], first_cells[right]) for left, right in compare if {left, right} <= first_cells.keys()
    ]
    pairs = [
        (" ".join(cell), base[1] if cell[0] == base[0] else " ".join(base), cells[cell], cells[base])
        for cell, base in wanted
        if cell != base and base in cells
    ]
    return figures.differences(title, pairs, language, "rsum")


def _captions_table(figures: Figures, table: str, all_rows: Sequence[Row]) -> TextTable:
    """Each system's retrieved captions, rank by rank, above the published figures and the difference."""
    settings = figures.recipe.tables[table]
    about, language, lines, n = ANALYSES["retrieved"], settings.language, list[list[str]](), 0
    for (system, name), rows in by_line(all_rows).items():
        title = rows[0].title(language)
        jobs = [row.analyses["retrieved"] for row in rows if "retrieved" in row.analyses]
        subject = Subject("test", system, title, language, table=table)
        measured = measure(figures, about, jobs, subject, settings.folds)
        n = n or measured.n
        published = settings.systems[system].published.get(name, [])
        lines += _beside(system, title, measured.lines, _by_rank(published))
    for system, values in settings.published.items():
        lines += [_published_line(system, *ranked) for ranked in _by_rank(values).items()]
    title = f"{settings.title}; {figures.label} ({figures.task_of(language)}), {language}{size(n, settings.folds)}"
    return TextTable(f"{title}; {INTERVALS}", ["system", *about.heads], lines)


def _beside(
    system: str, title: str, ours: Sequence[MeasuredLine], published: Mapping[str, Sequence[float | None]]
) -> Iterator[list[str]]:  # fmt: skip
    """Lines of a system: at each rank its own, and below it what was published and the difference."""
    for own in ours:
        yield [system, title, *own.cells]
        if theirs := published.get(own.label):
            yield _published_line("", own.label, theirs)
            pairs = zip(own.means, theirs, strict=True)
            away = ["" if value is None else f"{mean.value - value:+.1f}" for mean, value in pairs]
            yield ["", "difference", own.label, *away, "", ""]
    run = {own.label for own in ours}
    yield from (_published_line("", *ranked) for ranked in published.items() if ranked[0] not in run)


def _published_line(system: str, rank: str, values: Sequence[float | None]) -> list[str]:
    return [system, "published", rank, *("" if value is None else f"{value:.1f}" for value in values), "", ""]


def _by_rank(values: Sequence[float | None]) -> dict[str, Sequence[float | None]]:
    """Rank → published figures, of each rank that has some."""
    many = len(ANALYSES["retrieved"].measures)
    return {str(rank): values[start : start + many] for rank, start in enumerate(range(0, len(values), many), 1)}
