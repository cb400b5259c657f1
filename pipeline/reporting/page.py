"""The report as one self-contained page: tables, intervals, training curves, pictures of what models look at."""

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from pipeline.engine.files import write_atomically
from pipeline.engine.job import Job
from pipeline.reporting.records import Result
from pipeline.visualization.pages import render
from pipeline.visualization.plots import as_svg, curves, intervals
from pipeline.visualization.text_table import TextTable

_WATCHED = {"mmt": ("val/bleu", "BLEU"), "vse": ("val/rsum", "sum of R@1, 5 and 10, both directions")}


@dataclass(frozen=True)
class Page:
    """What the report says in words and tables.

    Attributes:
        title: the recipe and its corpus.
        date: of the last run; empty if nothing was run.
        sentences: what its figures say.
        legend: row → what it is trained on.
        signatures: how figures are computed.
    """

    title: str
    date: str
    sentences: list[str]
    legend: Mapping[str, str]
    sheets: Sequence[TextTable]
    signatures: Sequence[str]

    def as_markdown(self) -> str:
        """All of it."""
        dated = f"Last run: {self.date}" if self.date else ""
        opening = [f"# {self.title}", dated, "\n".join(f"- {sentence}" for sentence in self.sentences)]
        rows = [
            "**Rows, by what they are trained on**",
            "\n".join(f"- {row}: {text}" for row, text in self.legend.items()),
        ]
        signed = ["**How figures are computed**", "\n".join(f"- {text}" for text in self.signatures)]
        parts = [
            *opening,
            *(rows if self.legend else []),
            *(sheet.as_markdown() for sheet in self.sheets),
            *(signed if self.signatures else []),
        ]
        return "\n\n".join(filter(None, parts)) + "\n"


def report_page(
    path: Path, page: Page, results: Sequence[Result], logs: Callable[[Job], Path], jobs: Sequence[Job],
    drawings: Sequence[tuple[str, bytes]] = (),
) -> None:  # fmt: skip
    """Write the page.

    Args:
        path: of the page.
        page: what it says.
        results: its figures, of which mean recalls are plotted with their intervals.
        logs: TensorBoard's folder of a job; one that does not exist is not plotted.
        jobs: whose training is plotted.
        drawings: title and PNG file of what `make draw` has drawn.
    """
    plots = [*_recalls(results), *_training(logs, jobs)]
    pictures = [(name, base64.b64encode(content).decode()) for name, content in drawings]
    values = {"title": page.title, "date": page.date, "sentences": page.sentences, "legend": page.legend}
    write_atomically(
        path,
        render("report.html", **values, signatures=page.signatures, tables=page.sheets, plots=plots, pictures=pictures),
    )


def _recalls(results: Sequence[Result]) -> Iterator[str]:
    """Mean recall with its interval, a plot a language."""
    recalls = [result for result in results if result.metric == "mean_recall" and result.split == "test"]
    for language in sorted({result.language for result in recalls}):
        rows = [
            (f"{result.system}: {result.source}", result.value, result.low, result.high)
            for result in recalls
            if result.language == language
        ]
        yield as_svg(intervals(f"Mean recall in percent, {language}, test; lines are 95 % intervals", rows))


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
