"""`make plots`: the recorded figures (`pipeline/results/*.csv`) as pictures for the READMEs."""

import argparse
import csv
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from pathlib import Path
from statistics import fmean, stdev

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pipeline.engine.console import info
from pipeline.errors import RecipeError
from pipeline.reporting.records import RECORDS, Record, read_records
from pipeline.visualization.plots import COLOURS, GREY, WIDTH, as_label, as_pixels, png_of

SPEED = "speed.csv"
PICTURES = Path(__file__).parents[1] / ".screenshots"
_LEAST = 0.1  # length of an axis that does not begin at 0, of the figures: small differences must look small
_ABOVE, _BELOW = COLOURS[:2]  # blue and vermilion
_Read = Callable[[str], Sequence[Record]]


@dataclass(frozen=True)
class Mark:
    """A figure of a panel.

    Attributes:
        label: its name.
        value: where its dot is.
        low: end of its interval, or None.
        high: the other end.
        parts: what it is the mean of, as small dots.
        hollow: whether the dot is hollow: a figure of others.
    """

    label: str
    value: float
    low: float | None = None
    high: float | None = None
    parts: Sequence[float] = ()
    hollow: bool = False

    def ends(self) -> tuple[float, float]:
        """The leftmost and the rightmost place that is drawn."""
        drawn = [place for place in (self.value, self.low, self.high, *self.parts) if place is not None]
        return min(drawn), max(drawn)


@dataclass(frozen=True)
class Panel:
    """A part of a plot: its title and its figures, the first on top."""

    title: str
    marks: Sequence[Mark]


@dataclass(frozen=True)
class Figures:
    """A panel's figures.

    Attributes:
        title: of the panel.
        metric: as the CSV files name it.
        sources: label → `recipe:job`, or `recipe:job|variant`. All of a job's seeds count: `vse-san-none` stands for
            `vse-san-none-1`, `-2` …
        language: of the captions; empty for translators.
        published: label → figure of others, drawn hollow.
        less: `recipe:job`, or `recipe:job|variant`; differences from it on the same seeds are drawn. Empty: values.
    """

    title: str
    metric: str
    sources: Mapping[str, str]
    language: str = ""
    published: Mapping[str, float] | None = None
    less: str = ""


def _systems(recipe: str, direction: str, names: str, prefix: str = "") -> dict[str, str]:
    labels = {name: name.upper().replace("+CHANNEL", ", reranked").replace("+", " + ") for name in names.split()}
    return {prefix + label: f"{recipe}:{name}-{direction}" for name, label in labels.items()}


def _gains(title: str, recipe: str, variant: str = "") -> Figures:
    labels = {"mt-f": "German by MT", "mmt-f": "German by MMT", "human-de": "German by people",
              "mt-fb": "back-translated, MT", "mmt-fb": "back-translated, MMT"}  # fmt: skip
    sources = {label: f"{recipe}:vse-san-{row}{variant}" for row, label in labels.items()}
    return Figures(title, "mean_recall", sources, "en", less=f"{recipe}:vse-san-none{variant}")


_GAIN = "points more than English alone; grey: each seed, dot: mean, line: 95 % over seeds (Student's t)"
_ONE_SEED = "BLEU on test; one training each, so no intervals: a difference of one BLEU may be chance"
_FEW = "multi30k-flickr8k-few"
_BACK = "multi30k-official-back"
PLOTS: Mapping[str, tuple[str, str, Sequence[Figures]]] = {
    "gain.png": ("What translated captions bring to English: mean recall of SAN", _GAIN, (
        _gains("One caption an image", _FEW),
        _gains("Two captions an image", _FEW, "|captions_per_image=2"),
        _gains("Five captions an image", "multi30k-flickr8k"),
    )),
    "bleu-official.png": ("Translators on Multi30K's official test 2016", _ONE_SEED, (
        Figures("English → German", "test_bleu_tokenised", {
            **_systems("multi30k-official", "en-de", "nmt mt mmt mt+mmt", "official: "),
            **_systems("multi30k-official-lstm", "en-de", "nmt mt", "lstm: "),
            **_systems("multi30k-official-task1", "en-de", "mt mt+channel", "task1: "),
            **_systems("multi30k-official-task2", "en-de", "nmt mt mt+channel", "task2: "),
            "back: NMT": f"{_BACK}:nmt-en-de",
            "back: MT": f"{_BACK}:mt-en-de",
            "back: MT, R-Drop": f"{_BACK}:mt-en-de|r-drop 2",
            "back: MMT": f"{_BACK}:mmt-en-de",
            **_systems(_BACK, "en-de", "mt+mmt mt+mt2 mt+mt2+mmt", "back: "),
        }, published={"published, text only": 41.0, "published, pictures": 42.0}),
        Figures("German → English", "test_bleu_tokenised", {
            **_systems("multi30k-official", "de-en", "nmt mt mmt", "official: "),
            **_systems("multi30k-official-task1", "de-en", "mt mt+channel", "task1: "),
        }),
        Figures("English → French", "test_bleu_tokenised",
                _systems("multi30k-official", "en-fr", "nmt mt mmt", "official: ")),
        Figures("English → Czech", "test_bleu_tokenised",
                _systems("multi30k-official", "en-cs", "nmt mt mmt", "official: ")),
    )),
}  # fmt: skip
"""File → title, what its axis shows, and its panels."""


def plots(
    output: Path = PICTURES, results: Path = RECORDS, drawn: Mapping[str, tuple[str, str, Sequence[Figures]]] = PLOTS
) -> None:
    """Draw the recorded figures as PNG files.

    Args:
        output: folder of the files.
        results: folder of the CSV files.
        drawn: what is drawn from the recorded runs; the speed ratios are drawn too.

    Raises:
        RecipeError: a CSV file is missing or malformed, or has no such figure.
    """
    read = cache(lambda recipe: read_records(recipe, results))
    figures = {
        name: panels(title, axis, [_panel(one, read) for one in parts]) for name, (title, axis, parts) in drawn.items()
    }
    speed = [Panel(machine, marks) for machine, marks in _speeds(results / SPEED)]
    figures["speed.png"] = panels(
        "Speed relative to the published form", "times as fast (logarithmic); below 1: slower", speed, start=1.0
    )
    output.mkdir(parents=True, exist_ok=True)
    for name, figure in figures.items():
        figure.set_dpi(130)
        (output / name).write_bytes(png_of(as_pixels(figure), 64))
        info(f"{output / name}")


def draw_rows(axes: Axes, title: str, rows: Sequence[tuple[str, float]]) -> None:
    """A row for each label and value, the first on top; the value stands at its right."""
    axes.set_yticks(range(len(rows)), [as_label(label) for label, _ in rows])
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_title(as_label(title), loc="left", fontsize="medium")
    axes.grid(axis="x", alpha=0.3)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    digits = min(2, max((len(f"{value:.3g}".partition(".")[2]) for _, value in rows), default=0))
    for place, (_, value) in enumerate(rows):
        text = f"{value:.1f}" if abs(value) >= 10 else f"{value:.{digits}f}" if abs(value) >= 0.1 else f"{value:.2g}"
        axes.text(1.01, place, text.replace("-", "−"), transform=axes.get_yaxis_transform(), va="center")


def panels(title: str, axis: str, parts: Sequence[Panel], start: float | None = None) -> Figure:
    """Figures in panels, one below the other, to one scale; each figure is printed at its right.

    Args:
        title: what is plotted.
        axis: unit, and what dots and lines mean.
        parts: the panels.
        start: draw bars from here on a common logarithmic axis, in another colour if they go to the left; else dots
            with intervals, on the same axis, or where the panels' figures are apart on axes of the same length.
    """
    counts = [len(part.marks) for part in parts]
    figure = Figure((WIDTH, 0.8 + 0.5 * len(parts) + 0.25 * sum(counts)), layout="constrained")
    figure.suptitle(as_label(title), x=0.01, ha="left", fontsize="large")
    heights = [count + 0.6 for count in counts]
    columns = figure.subplots(len(parts), squeeze=False, sharex=start is not None, height_ratios=heights)[:, 0]
    ends = [([mark.ends() for mark in part.marks]) for part in parts]
    spans = [(min(low for low, _ in pairs), max(high for _, high in pairs)) for pairs in ends]
    if max(low for low, _ in spans) < min(high for _, high in spans):
        spans = [(min(low for low, _ in spans), max(high for _, high in spans))] * len(spans)
    length = max(max(1.1 * (high - low), _LEAST * high) for low, high in spans)
    for axes, part, (low, high) in zip(columns, parts, spans, strict=True):
        draw_rows(axes, part.title, [(mark.label, mark.value) for mark in part.marks])
        if start is None:
            _dots(axes, part.marks)
            first, last = (low + high - length) / 2, (low + high + length) / 2
            if first < 0 < last:
                axes.axvline(0, color=GREY, linewidth=1)
            axes.set_xlim(first, last)
        else:
            _bars(axes, part.marks, start)
    columns[-1].set_xlabel(as_label(axis))
    return figure


def _dots(axes: Axes, marks: Sequence[Mark]) -> None:
    """A dot a figure, over its parts and its interval."""
    for place, mark in enumerate(marks):
        if mark.low is not None and mark.high is not None:
            axes.plot((mark.low, mark.high), (place, place), color=_ABOVE, linewidth=2, solid_capstyle="butt")
        axes.plot(mark.parts, [place + 0.28] * len(mark.parts), "o", color=GREY, markersize=3, alpha=0.7)
        face = "white" if mark.hollow else _ABOVE
        axes.plot(mark.value, place, "D" if mark.hollow else "o", color=_ABOVE, markerfacecolor=face, markersize=7)


def _bars(axes: Axes, marks: Sequence[Mark], start: float) -> None:
    """A bar a figure, from `start`."""
    colours = [_ABOVE if mark.value >= start else _BELOW for mark in marks]
    axes.barh(range(len(marks)), [mark.value - start for mark in marks], left=start, height=0.6, color=colours)
    axes.axvline(start, color=GREY, linewidth=1)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:g}")


def _panel(figures: Figures, read: _Read) -> Panel:
    marks = [_mark(label, source, figures, read) for label, source in figures.sources.items()]
    return Panel(figures.title, [*marks, *(Mark(*one, hollow=True) for one in (figures.published or {}).items())])


def _mark(label: str, source: str, figures: Figures, read: _Read) -> Mark:
    """The mean over seeds and its interval."""
    values = _values(source, figures, read)
    if figures.less:
        base = {_seed(job): value for job, value in _values(figures.less, figures, read).items()}
        values = {job: value - base[_seed(job)] for job, value in values.items() if _seed(job) in base}
        if not values:
            raise RecipeError(f"{source} has no seed in common with {figures.less}; train the same seeds of both")
    return _mean(label, list(values.values()))


def _values(source: str, figures: Figures, read: _Read) -> dict[str, float]:
    """Job → the recorded value of a job, or of its seeds."""
    recipe, _, job = source.partition(":")
    values = _by_job(read(recipe), figures, *job.partition("|")[::2])
    if not values:
        wanted = f"{figures.metric} {figures.language}".strip()
        raise RecipeError(f"{recipe}.csv holds no {wanted} of {job}; run its stage, then `make report RECIPE={recipe}`")
    return values


def _seed(job: str) -> str:
    return job.rpartition("-")[2]


def _mean(label: str, values: Sequence[float]) -> Mark:
    mean = fmean(values)
    if len(values) == 1:
        return Mark(label, mean)
    error = half_width(values)
    return Mark(label, mean, mean - error, mean + error, values)


def _by_job(records: Sequence[Record], figures: Figures, job: str, variant: str) -> dict[str, float]:
    """Job → the recorded value of a job, or of its seeds."""
    return {
        one.job: one.value for one in records
        if (one.job == job or (one.job.startswith(f"{job}-") and one.job[len(job) + 1 :].isdecimal()))
        and one.variant == variant and (one.metric, one.language) == (figures.metric, figures.language)
    }  # fmt: skip


def half_width(values: Sequence[float]) -> float:
    """Half of the 95 % interval of the mean of two or more values, by Student's t."""
    from scipy.stats import t

    return float(t.ppf(0.975, len(values) - 1) * stdev(values) / len(values) ** 0.5)


def _speeds(path: Path) -> Iterator[tuple[str, list[Mark]]]:
    """Machine → its ratios, in the order of the file."""
    marks = []
    try:
        with path.open(encoding="utf-8", newline="") as file:
            for row in (reader := csv.DictReader(file, strict=True)):
                marks.append((row["machine"], Mark(row["part"], float(row["ratio"]))))
                if not 0 < marks[-1][1].value < float("inf"):
                    raise ValueError
    except OSError as error:
        raise RecipeError(f"{path}: {error.strerror}; expected the recorded speed ratios") from None
    except (KeyError, TypeError, ValueError, csv.Error):
        raise RecipeError(f"{path}:{reader.line_num}: expected machine,part,ratio,date, a ratio above 0") from None
    if not marks:
        raise RecipeError(f"{path}: no ratios; expected machine,part,ratio,date")
    for machine, found in groupby(marks, lambda one: one[0]):
        yield machine, [mark for _, mark in found]


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw all plots."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=PICTURES, help="folder of the pictures; .screenshots if none")
    try:
        plots(parser.parse_args(arguments).output)
    except RecipeError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
