"""Tables of the objects that are recognised in the pictures that models draw of captions of scenes."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from torch import Tensor

from pipeline.analyses.object_recognition import DRAWN, MEASURES, OTHER, PICTURES, name_of, read_recognised
from pipeline.engine.job import Job
from pipeline.reporting.results import INTERVALS, NOT_RUN, Ends, Figures, over_seeds, shown_interval
from pipeline.retrieval.rows import Cells
from pipeline.visualization.text_table import TextTable

HEADS = ["system", "trained on", "pictures", "objects", "95 %", "nouns", "colours", "seeds"]
_FIRST = MEASURES[0]


def recognised_tables(figures: Figures, cells: Cells, language: str) -> Iterator[TextTable]:
    """The table of a language; none where no row draws pictures of its captions.

    Args:
        figures: of the recipe.
        cells: system, row and job of each line, seed by seed.
        language: of the captions.
    """
    named: dict[tuple[str, str], list[Job]] = {}  # system and row → a job a seed
    for system, name, row in cells:
        job = row.analyses.get("recognised")
        if job is not None and language in job.settings["languages"]:
            named.setdefault((system, name), []).append(job)
    lines = [line for (system, name), jobs in named.items() for line in _lines(figures, jobs, system, name, language)]
    yield TextTable(
        f"Objects in drawn pictures, {language}, {figures.label} ({figures.task_of(language)}): share in % of the "
        f"objects of a caption that the nearest training region recognises at their places; {INTERVALS}",
        HEADS, lines,
    )  # fmt: skip


def _lines(figures: Figures, jobs: Sequence[Job], system: str, name: str, language: str) -> Iterator[list[str]]:
    """The lines of a row: the pictures that it draws, of another caption, what is between, and real pictures."""
    done = [job for job in jobs if (language, name_of(DRAWN, _FIRST)) in figures.scores(job)]
    if not done:
        tested = any(figures.workspace.done(job) for job in jobs)
        yield [system, name, "–" if tested else NOT_RUN, *[""] * 5]  # there are no human captions of the language
        return
    scores = [figures.scores(job) for job in done]
    n = int(scores[0][language, "recognised_images"])

    def objects(*pictures: str) -> Ends:
        """The interval of the objects in some pictures, or of how many more than in others."""
        return figures.interval(done, lambda folder: _less(folder, language, pictures))

    for place, (picture, title) in enumerate(PICTURES.items()):
        means = [sum(one[language, name_of(picture, measure)] for one in scores) / len(done) for measure in MEASURES]
        ends = objects(picture)
        for measure, mean in zip(MEASURES, means, strict=True):
            bounds = ends if measure == _FIRST else (None, None)
            figures.add("test", system, name, language, name_of(picture, measure), mean, *bounds, len(done), n)
        interval = shown_interval(*ends)
        by_seed = over_seeds([one[language, name_of(picture, _FIRST)] for one in scores], interval)
        shown = [f"{means[0]:.1f}", interval, *(f"{mean:.1f}" for mean in means[1:])]
        yield [*([system, name] if not place else ["", ""]), title, *shown, by_seed]
        if picture == OTHER:
            gains = [one[language, name_of(DRAWN, _FIRST)] - one[language, name_of(OTHER, _FIRST)] for one in scores]
            ends, gain = objects(DRAWN, OTHER), sum(gains) / len(done)
            figures.add("test", system, name, language, f"{name_of(DRAWN, _FIRST)}-{OTHER}", gain, *ends, len(done), n)
            interval = shown_interval(*ends, "+")
            yield ["", "", "the difference", f"{gain:+.1f}", interval, "", "", over_seeds(gains, interval)]


def _less(folder: Path, language: str, pictures: Sequence[str]) -> Tensor:
    """Shares (I,) of whole objects in the first pictures, less those in the second if there are any."""
    first, *others = (read_recognised(folder, language, one)[:, 0] for one in pictures)
    return first - others[0] if others else first
