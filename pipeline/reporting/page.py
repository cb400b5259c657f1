"""The report as one page that needs nothing else: tables, intervals and training curves."""

import re
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from pipeline.drawing.plots import as_svg, curves, intervals
from pipeline.drawing.text_table import TextTable
from pipeline.jobs.files import write_whole
from pipeline.jobs.job import Job
from pipeline.reporting.records import Result

_WATCHED = {"mmt": "val/bleu", "vse": "val/rsum"}
_NUMBER = re.compile(r"[-+−]?\d[\d,.]*\b|–|not run")


def report_page(
    path: Path, title: str, sheets: Sequence[TextTable], results: Sequence[Result], logs: Path, jobs: Sequence[Job]
) -> None:
    """Write the page.

    Args:
        path: of the page.
        title: the recipe.
        sheets: its tables.
        results: its figures, of which mean recalls are plotted with their intervals.
        logs: the recipe's TensorBoard folder; what it lacks is not plotted.
        jobs: whose training is plotted.
    """
    plots = [*_recalls(results), *_training(logs, jobs)]
    tables = "\n".join(_table(sheet) for sheet in sheets)
    body = f"{tables}\n" + "\n".join(f"<figure>{plot}</figure>" for plot in plots)
    write_whole(path, _PAGE.format(title=escape(title), body=body))


def _table(sheet: TextTable) -> str:
    heads = "".join(f"<th>{escape(head)}</th>" for head in sheet.heads)
    rows = "\n".join("<tr>" + "".join(_cell(cell) for cell in row) + "</tr>" for row in sheet.rows)
    return (
        f"<h2>{escape(sheet.title)}</h2><div><table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _cell(text: str) -> str:
    kind = ' class="number"' if _NUMBER.match(text) else ""
    return f"<td{kind}>{escape(text)}</td>"


def _recalls(results: Sequence[Result]) -> Iterator[str]:
    """Mean recall with its interval, a plot a language."""
    found = [one for one in results if one.metric == "mean_recall" and one.split == "test"]
    for language in sorted({one.language for one in found}):
        rows = [
            (f"{one.system}: {one.source}", one.value, one.low, one.high) for one in found if one.language == language
        ]
        yield as_svg(intervals(f"Mean recall, {language}, test; 95 % over images", rows))


def _training(logs: Path, jobs: Sequence[Job]) -> Iterator[str]:
    """What chose the weights, by step, a plot a stage."""
    for stage, tag in _WATCHED.items():
        lines = {}
        for job in (job for job in jobs if (logs / stage / job.name / job.key).is_dir()):
            events = EventAccumulator(str(logs / stage / job.name / job.key), size_guidance={"scalars": 0}).Reload()
            if tag in events.Tags()["scalars"]:
                points = {event.step: event.value for event in events.Scalars(tag)}  # of a run again, the later
                lines[job.name] = sorted(points.items())
        if lines:
            yield as_svg(curves(f"{tag}, while {stage} was trained", lines))


_PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title><meta name="viewport" content="width=device-width">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<style>
body {{ margin: 2rem auto; max-width: 72rem; padding: 0 1rem; font: 15px/1.5 system-ui, sans-serif; color: #1f2328; }}
h2 {{ font-size: 1rem; margin: 2rem 0 .5rem; }} div {{ overflow-x: auto; }} table {{ border-collapse: collapse; }}
th, td {{ padding: .25rem .7rem; text-align: left; border-bottom: 1px solid #d8dee4; white-space: nowrap; }}
.number {{ text-align: right; font-variant-numeric: tabular-nums; }} figure {{ margin: 2rem 0; }}
svg {{ max-width: 100%; height: auto; }}
</style></head><body><h1>{title}</h1>
{body}</body></html>
"""
