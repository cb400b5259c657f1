"""Tables of the captions that models with a decoder write of the test images, above two floors without a decoder."""

from collections.abc import Iterator, Sequence

from pipeline.analyses.generated import FLOORS, GENERATED, MEASURES, read_cider
from pipeline.engine.job import Job
from pipeline.reporting.results import INTERVALS, NOT_RUN, Figures, over_seeds, shown_interval
from pipeline.retrieval.rows import Cells
from pipeline.visualization.text_table import TextTable

HEADS = ["BLEU-1", "2", "3", "4", "CIDEr-D", "95 %", "seeds", "empty"]


def generated_tables(figures: Figures, cells: Cells, language: str) -> Iterator[TextTable]:
    """The table of a language, of rows whose model has a decoder: a line a row, then the floors."""
    named: dict[str, list[Job]] = {}  # row → a job a seed
    for _, name, row in cells:
        job = row.analyses.get("generated")
        if job is not None and language in job.settings["languages"]:
            named.setdefault(name, []).append(job)
    if not named:
        return
    system = cells[0][0]
    lines = [[name, *_cells(figures, jobs, system, name, language)] for name, jobs in named.items()]
    floors = next(iter(named.values()))[0].inputs["floors"]
    known = [(short, name) for short, name in FLOORS.items() if (language, f"{short}_cider") in figures.scores(floors)]
    lines += [[name, *_cells(figures, [floors], name, "–", language, short)[:-2], "", ""] for short, name in known]
    yield TextTable(
        f"Generated captions, {system}, {language}, {figures.label} ({figures.task_of(language)}): "
        f"compared with all captions of the image; CIDEr-D × 100; {INTERVALS}", ["trained on", *HEADS], lines,
    )  # fmt: skip


def _cells(
    figures: Figures, jobs: Sequence[Job], system: str, source: str, language: str, of: str = GENERATED
) -> list[str]:
    """The cells of a line, whose figures are kept as rows of the results.

    Args:
        figures: of the recipe.
        jobs: a job a seed; of a floor one.
        system: what the results call it.
        source: what it was trained on.
        language: of the captions.
        of: prefix of the figures.
    """
    names = [f"{of}_{measure}" for measure in MEASURES]
    done = [job for job in jobs if (language, names[-1]) in figures.scores(job)]
    if not done:
        tested = any(figures.workspace.done(job) for job in jobs)
        return ["–" if tested else NOT_RUN, *[""] * (len(HEADS) - 1)]  # there are no human captions to compare with
    scores = [figures.scores(job) for job in done]
    by_seed = [[one[language, name] for one in scores] for name in names]
    n = int(scores[0][language, f"{of}_images"])
    bounds = figures.interval(done, lambda folder: read_cider(folder, language, of))
    means = [sum(values) / len(values) for values in by_seed]
    for name, mean in zip(names, means, strict=True):
        ends = bounds if name == names[-1] else (None, None)
        figures.add("test", system, source, language, name, mean, *ends, len(done), n)
    empty = sum(one.get((language, f"{of}_empty"), 0.0) for one in scores)
    interval = shown_interval(*bounds)
    counted = [over_seeds(by_seed[-1], interval), f"{empty:.0f} of {n * len(done):,}"]
    return [*(f"{mean:.1f}" for mean in means), interval, *counted]
