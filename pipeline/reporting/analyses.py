"""Tables of the analyses of trained models (`pipeline.analyses.registry`): means over seeds, as each is described."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple

from torch import Tensor

from modules.metrics.intervals import mean_interval
from pipeline.analyses.description import Analysis, Line
from pipeline.analyses.registry import ANALYSES
from pipeline.engine.job import Job
from pipeline.reporting.records import Ends, rounded
from pipeline.reporting.results import INTERVALS, NOT_RUN, Figures, Mean, Subject, fold_split
from pipeline.retrieval.rows import Row
from pipeline.visualization.text_table import TextTable

BESIDE_RECALL = [name for name, analysis in ANALYSES.items() if analysis.beside_recall]
"""Those that stand below a paper's table of recall."""
_Jobs = Mapping[int, Job]
"""By seed."""


class MeasuredLine(NamedTuple):
    """A line of what was measured.

    Attributes:
        cells: what stands behind the name of its row or system.
    """

    cells: list[str]
    label: str = ""
    means: Sequence[Mean] = ()


class Measured(NamedTuple):
    """What was measured of a row or a system.

    Attributes:
        n: of how many items; 0 where it was not measured.
        lines: of the table.
    """

    n: int
    lines: list[MeasuredLine]


def analysis_tables(
    figures: Figures, all_rows: Sequence[Row], languages: Sequence[str], names: Sequence[str] = tuple(ANALYSES),
    table: str = "",
) -> Iterator[TextTable]:  # fmt: skip
    """The tables of some analyses, each of all languages.

    Args:
        all_rows: of the table, seed by seed.
        table: that the rows are of; empty for `vse.rows`.
    """
    for name in names:
        if ANALYSES[name].of_second_set:
            yield from _of_second_set(name, figures, all_rows, table)
        else:
            for language in languages:
                yield from tables_of(name, figures, all_rows, language, table)


def tables_of(
    name: str, figures: Figures, all_rows: Sequence[Row], language: str, table: str = ""
) -> Iterator[TextTable]:  # fmt: skip
    """The tables of an analysis in a language: of all items, of folds, and of paired differences."""
    about, rows = ANALYSES[name], dict[tuple[str, str], dict[int, Job]]()
    for row in all_rows:
        job = row.analyses.get(name)
        if job is not None and language in job.settings.get("languages", row.languages):
            rows.setdefault((row.system, row.title(language)), {})[row.seed] = job
    corpus, over = f"{figures.label} ({figures.task_of(language)})", INTERVALS.replace("images", about.items)
    for folds in (False, True) if about.folds and figures.recipe.vse.folds > 1 else (False,):
        measured = {
            line: measure(
                figures, about, list(jobs.values()), Subject(about.split, *line, language, table=table), folds
            )
            for line, jobs in rows.items()
        }
        n = next((result.n for result in measured.values() if result.n), 0)
        title = about.title.format(system=all_rows[0].system, language=language, size=size(n, folds), corpus=corpus)
        lines = [line for key, result in measured.items() for line in _named(about, key, result)]
        baselines = _baselines(figures, about, next(iter(rows.values())), language) if rows and about.baselines else []
        if n or not (about.optional or folds):  # what was not run stands in the table of all items
            yield TextTable(f"{title}; {over}", about.heads, [*lines, *baselines])
    differences = list(_differences(figures, about, rows, language)) if about.compared else []
    if differences:
        title = f"Paired differences over the same {about.split}, {language}, {corpus}; {over}"
        yield TextTable(title, ["difference", "%", "95 %", "seeds"], differences)


def _of_second_set(name: str, figures: Figures, all_rows: Sequence[Row], table: str) -> Iterator[TextTable]:
    """The table of an analysis on a second data set: a line of each row and language, or one of a row that was not run.

    It is left out where nothing was measured.
    """
    about, rows, lines, on = ANALYSES[name], dict[tuple[str, str], list[Job]](), [], str(figures.recipe.vse.forgetting)
    for row in all_rows:
        if (job := row.analyses.get(name)) is not None:
            rows.setdefault((row.system, row.name), []).append(job)
    measured = 0
    for key, jobs in rows.items():
        languages = sorted({language for job in jobs for language, _ in figures.scores(job) if language})
        for language in languages or [""]:
            found = measure(figures, about, jobs, Subject(about.split, *key, language, task=on, table=table))
            measured += found.n
            lines += [[*key, language, *cells[1:]] if found.n else [*key, *cells] for cells, *_ in found.lines]
    if measured:
        yield TextTable(f"{about.title.format(corpus=on)}; {INTERVALS}", about.heads, lines)


def measure(figures: Figures, about: Analysis, jobs: Sequence[Job], subject: Subject, folds: bool = False) -> Measured:
    """The figures of one row's jobs, kept as rows of the results.

    Args:
        jobs: a job a seed.
        folds: the mean over folds of the test images instead of all at once.
    """
    part, lines = "folds_" if folds else "", about.lines(jobs[0]) if jobs else []
    done, scores = figures.run(jobs, subject.language, part + lines[0].metrics[0]) if lines else ([], [])
    if not done:
        reason = figures.not_run(jobs)
        blank = [""] * (len(about.heads) - (3 if about.systems else 2))
        return Measured(0, [] if about.optional and reason != NOT_RUN else [MeasuredLine([reason, *blank])])
    n = int(scores[0][part + lines[0].count])
    n = int(scores[0].get("folds_images", n)) if folds else n
    subject = replace(subject, n=n, split=fold_split(n) if folds else subject.split)
    known = [line for line in lines if part + line.metrics[0] in scores[0]]
    return Measured(n, [_line(figures, about, line, done, scores, subject, part) for line in known])


def size(n: int, folds: bool) -> str:
    """Of how many images the figures are, as titles say it; empty if nothing was measured."""
    if not n:
        return ""
    return f", mean of folds of {n:,} images" if folds else f" ({n:,} images)"


def _line(
    figures: Figures, about: Analysis, line: Line, jobs: Sequence[Job], scores: Sequence[Mapping[str, float]],
    subject: Subject, part: str = "",
) -> MeasuredLine:  # fmt: skip
    """A line: label, means over seeds with the interval of one, the number of seeds, and what is counted."""
    ends, means = (None, None) if part else _ends(figures, line, jobs, subject.language), []
    for place, metric in enumerate(line.metrics):
        by_seed = [job_scores[part + metric] for job_scores in scores]
        if line.less:
            by_seed = [value - job_scores[part + line.less] for value, job_scores in zip(by_seed, scores, strict=True)]
            metric = f"{metric}-{line.less.rpartition('_')[2]}"
        means.append(figures.mean(subject, metric, by_seed, ends if place == about.tested else (None, None)))
    signs: list[Literal["", "+"]] = ["+" if line.less or "-" in metric else "" for metric in line.metrics]
    tested = means[about.tested]
    shown = [f"{mean.value:{sign}.1f}" for mean, sign in zip(means, signs, strict=True)]
    shown += [""] * (len(about.measures) - len(means))
    shown.insert(about.tested + 1, tested.interval(signs[about.tested]))
    shown.append(tested.seeds(about.items.split()[0]))
    if about.counted:
        counted = sum(job_scores.get(about.counted[1], 0.0) for job_scores in scores)
        shown.append(f"{counted:.0f} of {subject.n * len(jobs):,}")
    return MeasuredLine([line.label, *shown] if about.label else shown, line.label, means)


def _ends(figures: Figures, line: Line, jobs: Sequence[Job], language: str) -> Ends:
    """The interval of the line's tested metric; none where an artifact is gone."""
    if (read := line.read) is not None:
        least = -line.most if line.less else 0.0  # a difference may be below 0
        return figures.interval(jobs, lambda folder: read(folder, language), least, line.most)
    if line.ends is None or not all(map(figures.workspace.done, jobs)):
        return None, None
    folders = [figures.workspace.folder(job) for job in jobs]
    return rounded(line.ends(folders, language, figures.recipe.report.resamples))


def _named(about: Analysis, row: tuple[str, str], measured: Measured) -> Iterator[list[str]]:
    """Lines of a row with its name before them; where systems are named, before the first."""
    for place, line in enumerate(measured.lines):
        names = list(row) if about.systems else [row[1]]
        yield [*(["", ""] if place and about.systems else names), *line.cells]


def _baselines(figures: Figures, about: Analysis, jobs: _Jobs, language: str) -> Iterator[list[str]]:
    """The lines of baselines, which have no seeds."""
    baselines = next(iter(jobs.values())).inputs["baselines"]
    for line in about.baselines:
        done, scores = figures.run([baselines], language, line.metrics[0])
        if done:
            subject = Subject(about.split, line.label, "–", language, int(scores[0][line.count]))
            shown = _line(figures, about, line, done, scores, subject).cells[: len(about.measures) + 1]
            yield [line.label, *shown, *[""] * (len(about.heads) - 1 - len(shown))]


def _differences(
    figures: Figures, about: Analysis, rows: Mapping[tuple[str, str], _Jobs], language: str
) -> Iterator[list[str]]:
    """Two lines of each row compared, and the lines of each row with the same ones of the first row.

    They are mean differences over items and the seeds of both, where the artifacts are here.
    """
    values: dict[tuple[tuple[str, str], str], dict[int, Tensor]] = {}  # row, label of a line → values by seed
    for row, jobs in rows.items():
        for seed, job in jobs.items():
            folder, scores = figures.workspace.folder(job), figures.scores(job)
            for line in about.lines(job) if figures.workspace.done(job) else ():
                if line.read is not None and (language, line.metrics[0]) in scores:
                    values.setdefault((row, line.label), {})[seed] = line.read(folder, language)
    pairs, (left, right), first = [], about.compared or ("", ""), next(iter(rows), ("", ""))
    for row in rows:
        pairs.append((f"{' '.join(row)}: {left} − {right}", (row, left), (row, right)))
        labels = [label for of, label in values if of == row != first]
        pairs += [(f"{label}: {' '.join(row)} − {' '.join(first)}", (row, label), (first, label)) for label in labels]
    for name, ours, theirs in pairs:
        sides = values.get(ours, {}), values.get(theirs, {})
        if seeds := sorted(sides[0].keys() & sides[1].keys()):
            runs = [sides[0][seed] - sides[1][seed] for seed in seeds]
            whole = mean_interval(runs, figures.recipe.report.resamples)
            mean = Mean([float(run.mean()) for run in runs], (whole.low, whole.high))
            yield [name, f"{whole.value:+.1f}", mean.interval("+"), mean.seeds(about.items.split()[0])]
