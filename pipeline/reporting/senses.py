"""Tables of how well each branch of a model tells the two senses of twin pictures apart."""

from collections.abc import Iterator, Mapping

from modules.metrics.intervals import mean_interval
from pipeline.engine.job import Job
from pipeline.reporting.results import INTERVALS, NOT_RUN, Figures, over_seeds, shown_interval
from pipeline.retrieval.probes import read_senses
from pipeline.retrieval.rows import Cells
from pipeline.visualization.text_table import TextTable

HEADS = ["system", "trained on", "vectors", "own picture nearer %", "95 %", "seeds"]
_OVER = INTERVALS.replace("images", "pairs of twins")
_Jobs = dict[int, Job]  # by seed


def senses_tables(figures: Figures, cells: Cells, language: str) -> Iterator[TextTable]:
    """The branches of each row, and how they differ from each other and from the same ones of the first row.

    Nothing where no row has branches, or the captions of twins are equal in the language.

    Args:
        figures: of the recipe.
        cells: system, row and job of each line, seed by seed.
        language: of the captions.
    """
    named: dict[tuple[str, str], _Jobs] = {}
    for system, _, row in cells:
        if "senses" in row.analyses and language in row.languages:
            named.setdefault((system, row.title(language)), {})[row.seed] = row.analyses["senses"]
    where = f"twins, {language}, {figures.label} ({figures.task_of(language)})"
    lines = [line for (system, name), jobs in named.items() for line in _lines(figures, jobs, system, name, language)]
    if any(line[2] != NOT_RUN for line in lines):
        title = f"Senses of {where}: how often a caption is nearer to its own picture than to its twin's"
        yield TextTable(f"{title}; {_OVER}", HEADS, lines)
    differences = list(_differences(figures, named, language))
    if differences:
        title = f"Paired differences over the same {where}; {_OVER}"
        yield TextTable(title, ["difference", "%", "95 %", "seeds"], differences)


def _parts(figures: Figures, job: Job, language: str) -> list[str]:
    """The vectors that a job has figures of in a language."""
    return [part for part in job.settings["parts"] if (language, f"senses_{part}") in figures.scores(job)]


def _lines(figures: Figures, jobs: _Jobs, system: str, name: str, language: str) -> Iterator[list[str]]:
    """A line for each kind of vectors of a row."""
    done = [job for job in jobs.values() if _parts(figures, job, language)]
    if not done:
        if not any(figures.workspace.done(job) for job in jobs.values()):
            yield [system, name, NOT_RUN, "", "", ""]
        return
    scores = [figures.scores(job) for job in done]
    n = int(scores[0][language, "senses_pairs"])
    for place, part in enumerate(_parts(figures, done[0], language)):
        by_seed = [one[language, f"senses_{part}"] for one in scores]
        ends = figures.interval(done, lambda folder, part=part: read_senses(folder, language, part))  # type: ignore[misc]
        mean = sum(by_seed) / len(done)
        figures.add("twins", system, name, language, f"senses_{part}", mean, *ends, len(done), n)
        first = [system, name] if not place else ["", ""]
        interval = shown_interval(*ends)
        yield [*first, part, f"{mean:.1f}", interval, over_seeds(by_seed, interval, "pairs")]


def _differences(
    figures: Figures, named: Mapping[tuple[str, str], _Jobs], language: str
) -> Iterator[list[str]]:  # fmt: skip
    """Grounded less abstract vectors of each row, and the vectors of each row less the same ones of the first row."""
    first = next(iter(named), None)
    for cell, jobs in named.items():
        title = " ".join(cell)
        both = (jobs, "grounded"), (jobs, "abstract")
        yield from _difference(figures, f"{title}: grounded − abstract", *both, language)
        if first is not None and cell != first:
            parts = jobs[min(jobs)].settings["parts"]
            for part in parts:
                label = f"{part}: {title} − {' '.join(first)}"
                yield from _difference(figures, label, (jobs, part), (named[first], part), language)


def _difference(
    figures: Figures, label: str, ours: tuple[_Jobs, str], theirs: tuple[_Jobs, str], language: str
) -> Iterator[list[str]]:  # fmt: skip
    """A line with the mean difference over pairs of twins and the seeds of both, if they are here."""
    runs = []
    for seed in sorted(ours[0].keys() & theirs[0].keys()):
        sides = [(jobs[seed], part) for jobs, part in (ours, theirs)]
        if all(figures.workspace.done(job) and part in _parts(figures, job, language) for job, part in sides):
            one, other = (read_senses(figures.workspace.folder(job), language, part) for job, part in sides)
            runs.append(one - other)
    if runs:
        found = mean_interval(runs, figures.recipe.report.resamples)
        means = [float(run.mean()) for run in runs]
        interval = shown_interval(found.low, found.high, "+")
        yield [label, f"{found.value:+.1f}", interval, over_seeds(means, interval, "pairs")]
