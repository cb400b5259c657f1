"""The report as one self-contained page: tables, intervals, training curves, pictures of what models look at."""

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from pipeline.engine.files import write_atomically
from pipeline.engine.job import Job
from pipeline.reporting.by_language import language_plots
from pipeline.reporting.records import Result, own_results
from pipeline.visualization.pages import render
from pipeline.visualization.plots import as_svg, curves, intervals
from pipeline.visualization.text_table import TextTable

_WATCHED = {"mmt": ("val/bleu", "BLEU"), "vse": ("val/rsum", "sum of R@1, 5 and 10, both directions")}


@dataclass(frozen=True)
class Page:
    """A report: its figures, and what it says of them in words and tables.

    Attributes:
        folder: with `results.jsonl`, `report.md` and `report.html`.
        title: the recipe and its corpus.
        date: of the last run; empty if nothing was run.
        sentences: what its figures say.
        legend: row → what it is trained on.
        signatures: how figures are computed.
        results: its figures, of which mean recalls are plotted with their intervals.
    """

    folder: Path
    title: str
    date: str
    sentences: list[str]
    legend: Mapping[str, str]
    sheets: Sequence[TextTable]
    signatures: Sequence[str]
    results: Sequence[Result]

    def as_markdown(self) -> str:
        """All of it."""
        legend = [f"{row}: {text}" for row, text in self.legend.items()]
        parts = [f"# {self.title}", f"Last run: {self.date}" if self.date else "", _listed(self.sentences)]
        parts += ["**Rows, by what they are trained on**", _listed(legend)] if legend else []
        parts += [sheet.as_markdown() for sheet in self.sheets]
        parts += ["**How figures are computed**", _listed(self.signatures)] if self.signatures else []
        return "\n\n".join(filter(None, parts)) + "\n"


def _listed(texts: Sequence[str]) -> str:
    return "\n".join(f"- {text}" for text in texts)


def write_pages(
    page: Page, logs: Callable[[Job], Path], jobs: Sequence[Job], drawings: Sequence[tuple[str, bytes]] = ()
) -> None:
    """Write the report as Markdown and, with plots and pictures, as HTML.

    Args:
        logs: TensorBoard's folder of a job; one that does not exist is not plotted.
        jobs: whose training is plotted.
        drawings: title and PNG file of what `make draw` has drawn.
    """
    write_atomically(page.folder / "report.md", page.as_markdown())
    plots = [*_recalls(page.results), *language_plots(page.results), *_training(logs, jobs)]
    pictures = [(name, base64.b64encode(content).decode()) for name, content in drawings]
    write_atomically(page.folder / "report.html", render("report.html", **vars(page), plots=plots, pictures=pictures))


def _recalls(results: Sequence[Result]) -> Iterator[str]:
    """Mean recall with its interval, a plot a language; a table's `SAN` that is the recipe's own row `san` once."""
    recalls = [result for result in results if result.metric == "mean_recall" and result.split == "test"]
    own = {_drawn(result) for result in own_results(recalls)}
    recalls = [result for result in recalls if not result.table or _drawn(result) not in own]
    for language in sorted({result.language for result in recalls}):
        shown: dict[str, dict[tuple[float, float | None, float | None], str]] = {}
        for result in (result for result in recalls if result.language == language):
            name, figure = f"{result.system}: {result.source}", (result.value, result.low, result.high)
            shown.setdefault(name, {}).setdefault(figure, f" ({result.table})" if result.table else "")
        rows = [  # a system of several tables is shown once, those that are trained otherwise with their table
            (name + (table if len(tables) > 1 else ""), *figure)
            for name, tables in shown.items() for figure, table in tables.items()
        ]  # fmt: skip
        yield as_svg(intervals(f"Mean recall in percent, {language}, test; lines are 95 % intervals", rows))


def _drawn(result: Result) -> tuple[object, ...]:
    """What is drawn of a figure, whatever the letters of its system."""
    return result.language, result.system.casefold(), result.source, result.value, result.low, result.high


def _training(logs: Callable[[Job], Path], jobs: Sequence[Job]) -> Iterator[str]:
    """The validation figure that chose the weights, by step, a plot for each stage."""
    for stage, (tag, name) in _WATCHED.items():
        lines = {}
        for job in (job for job in jobs if job.stage == stage and logs(job).is_dir()):
            events = EventAccumulator(str(logs(job)), size_guidance={"scalars": 0}).Reload()
            if tag in events.Tags()["scalars"]:
                points = {event.step: event.value for event in events.Scalars(tag)}  # of a repeated run, the later
                lines[job.name] = sorted(points.items())
        if lines:
            yield as_svg(curves(f"On validation, while {stage} was trained", name, lines))
