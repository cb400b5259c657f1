"""Plots of the report, of TensorBoard and of the READMEs, drawn without a screen."""

import io
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from textwrap import fill

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text
from numpy.typing import NDArray
from PIL import Image

from pipeline.visualization.pictures import installed_fonts

_WIDTH = 8.0  # inches
DPI = 100
"""Pixels an inch of figures that show pictures."""
_LEAST = 0.1  # length of an axis that does not begin at 0, of the figures: small differences must look small
_LETTERS = 36  # of a line beside an axis of 3.6 inches, the lowest there is
_GREY = "#59636e"
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
"""Of Okabe and Ito, which colour-blind people tell apart."""
_SHAPES = "os^Dv<>PX*hp"
_ABOVE, _BELOW = COLOURS[:2]  # blue and vermilion


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
class Point:
    """A figure by a count.

    Attributes:
        colour: what decides its colour, such as a language.
        shape: what decides its shape, such as a system.
        count: its place, 1 or more.
        value: its height.
        low: end of its interval, or None.
        high: the other end.
    """

    colour: str
    shape: str
    count: int
    value: float
    low: float | None = None
    high: float | None = None


def curves(title: str, lines: Mapping[str, Sequence[tuple[int, float]]]) -> Figure:
    """Values by training step, a line each.

    Args:
        title: what is plotted.
        lines: name → (step, value), in the order of steps.
    """
    figure = Figure((_WIDTH, 4.0), layout="constrained")
    axes = figure.subplots()
    for name, points in lines.items():
        axes.plot(*zip(*points, strict=True), label=as_label(name), marker=".", linewidth=1)
    axes.set_xlabel("step")
    axes.set_title(as_label(title), loc="left", fontsize="medium")
    axes.grid(alpha=0.3)
    figure.legend(loc="outside right upper", fontsize="small", frameon=False)
    return figure


def intervals(title: str, rows: Sequence[tuple[str, float, float | None, float | None]]) -> Figure:
    """Figures with their intervals, the first on top.

    Args:
        title: what is plotted.
        rows: name, value, and the ends of its interval or None.
    """
    figure = Figure((_WIDTH, 0.8 + 0.28 * len(rows)), layout="constrained")
    axes = figure.subplots()
    places = list(range(len(rows)))[::-1]
    for place, (_, value, low, high) in zip(places, rows, strict=True):
        if low is not None and high is not None:
            axes.plot((low, high), (place, place), color="#59636e", linewidth=1.5)
        axes.plot(value, place, "o", color="#0969da")
    axes.set_yticks(places, [as_label(name) for name, *_ in rows])
    axes.set_title(as_label(title), loc="left", fontsize="medium")
    axes.grid(axis="x", alpha=0.3)
    return figure


def by_count(title: str, axes_of: tuple[str, str], points: Sequence[Point], below: Panel) -> Figure:
    """Figures by a count on a logarithmic axis, each with its interval; and a panel with a bar a mark below them.

    Args:
        title: what is plotted.
        axes_of: what is counted, and what the heights are.
        points: at least one.
        below: the panel; not drawn if it has no marks. Hollow bars are figures of others.
    """
    colours, shapes = (list(dict.fromkeys(getattr(point, name) for point in points)) for name in ("colour", "shape"))
    heights = [max(3.6, 0.24 * (len(colours) + len(shapes))), 0.5 + 0.3 * len(below.marks)]
    heights = heights[: 2 if below.marks else 1]
    figure = Figure((_WIDTH, 0.6 + sum(heights)), layout="constrained")
    columns = figure.subplots(len(heights), squeeze=False, height_ratios=heights)[:, 0]
    _scatter(columns[0], points, colours, shapes)
    columns[0].set_title(as_label(title), loc="left", fontsize="medium")
    columns[0].set_xlabel(as_label(axes_of[0]))
    columns[0].set_ylabel(fill(as_label(axes_of[1]), _LETTERS))
    of_colours = [Line2D([], [], color=_cycled(COLOURS, n), linewidth=4) for n in range(len(colours))]
    of_shapes = [Line2D([], [], color=_GREY, marker=_cycled(_SHAPES, n), linestyle="") for n in range(len(shapes))]
    labels = [as_label(name) for name in (*colours, *shapes)]
    figure.legend([*of_colours, *of_shapes], labels, loc="outside right upper", fontsize="small", frameon=False)
    if below.marks:
        _rows(columns[1], below)
        faces = ["white" if mark.hollow else _ABOVE for mark in below.marks]
        values = [mark.value for mark in below.marks]
        columns[1].barh(range(len(values)), values, height=0.6, color=faces, edgecolor=_ABOVE)
    return figure


def _scatter(axes: Axes, points: Sequence[Point], colours: Sequence[str], shapes: Sequence[str]) -> None:
    """A mark a point, over its interval; points of one count stand a little apart, in the order of their shapes."""
    for point in points:
        colour = _cycled(COLOURS, colours.index(point.colour))
        place = point.count * 1.03 ** (shapes.index(point.shape) - (len(shapes) - 1) / 2)
        if point.low is not None and point.high is not None:
            axes.plot((place, place), (point.low, point.high), color=colour, linewidth=1, alpha=0.6)
        axes.plot(place, point.value, _cycled(_SHAPES, shapes.index(point.shape)), color=colour, markersize=6)
    axes.set_xscale("log")
    places = sorted({point.count for point in points})
    axes.set_xticks(places, [f"{place:,}" for place in places], rotation=20)
    axes.minorticks_off()
    axes.grid(alpha=0.3)


def _cycled(values: Sequence[str], place: int) -> str:
    return values[place % len(values)]


def panels(title: str, axis: str, parts: Sequence[Panel], start: float | None = None) -> Figure:
    """Figures in panels, one below the other, to one scale; each figure is printed at its right.

    Args:
        title: what is plotted.
        axis: unit, and what dots and lines mean.
        parts: the panels.
        start: draw bars from here on a common logarithmic axis, in another colour if they go to the left; else dots
            with intervals, on axes that have the same length but may begin elsewhere.
    """
    counts = [len(part.marks) for part in parts]
    figure = Figure((_WIDTH, 0.8 + 0.5 * len(parts) + 0.25 * sum(counts)), layout="constrained")
    figure.suptitle(as_label(title), x=0.01, ha="left", fontsize="large")
    heights = [count + 0.6 for count in counts]
    columns = figure.subplots(len(parts), squeeze=False, sharex=start is not None, height_ratios=heights)[:, 0]
    ends = [([mark.ends() for mark in part.marks]) for part in parts]
    spans = [(min(low for low, _ in pairs), max(high for _, high in pairs)) for pairs in ends]
    length = max(max(1.1 * (high - low), _LEAST * high) for low, high in spans)
    for axes, part, (low, high) in zip(columns, parts, spans, strict=True):
        _rows(axes, part)
        if start is None:
            _dots(axes, part.marks)
            axes.set_xlim((low + high - length) / 2, (low + high + length) / 2)
        else:
            _bars(axes, part.marks, start)
    columns[-1].set_xlabel(as_label(axis))
    return figure


def _rows(axes: Axes, part: Panel) -> None:
    """A row a figure, the value at its right."""
    axes.set_yticks(range(len(part.marks)), [as_label(mark.label) for mark in part.marks])
    axes.set_ylim(len(part.marks) - 0.4, -0.6)
    axes.set_title(as_label(part.title), loc="left", fontsize="medium")
    axes.grid(axis="x", alpha=0.3)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    for place, mark in enumerate(part.marks):
        text = f"{mark.value:.1f}" if mark.value >= 10 else f"{mark.value:.3g}"
        axes.text(1.01, place, text, transform=axes.get_yaxis_transform(), va="center")


def _dots(axes: Axes, marks: Sequence[Mark]) -> None:
    """A dot a figure, over its parts and its interval."""
    for place, mark in enumerate(marks):
        if mark.low is not None and mark.high is not None:
            axes.plot((mark.low, mark.high), (place, place), color=_ABOVE, linewidth=2, solid_capstyle="butt")
        axes.plot(mark.parts, [place + 0.28] * len(mark.parts), "o", color=_GREY, markersize=3, alpha=0.7)
        face = "white" if mark.hollow else _ABOVE
        axes.plot(mark.value, place, "D" if mark.hollow else "o", color=_ABOVE, markerfacecolor=face, markersize=7)


def _bars(axes: Axes, marks: Sequence[Mark], start: float) -> None:
    """A bar a figure, from `start`."""
    colours = [_ABOVE if mark.value >= start else _BELOW for mark in marks]
    axes.barh(range(len(marks)), [mark.value - start for mark in marks], left=start, height=0.6, color=colours)
    axes.axvline(start, color=_GREY, linewidth=1)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:g}")


def as_label(text: str) -> str:
    """A label that is no formula, and that a legend does not leave out."""
    return ("\u200b" if text.startswith("_") else "") + text.replace("$", r"\$")


def as_svg(figure: Figure) -> str:
    """The figure as an element of a page; the same figure gives the same text."""
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "bildwort", "font.family": "sans-serif"}):
        figure.savefig(written := io.StringIO(), format="svg", metadata={"Date": None, "Creator": None})
    text = written.getvalue()
    return text[text.index("<svg") :]


def as_png(figure: Figure) -> bytes:
    """The figure as a PNG file of 64 colours, 1,040 pixels wide if it is 8 inches wide; the same bytes each time."""
    figure.set_dpi(130)
    return png_of(as_pixels(figure), 64)


def png_of(pixels: NDArray[np.uint8], colours: int = 256) -> bytes:
    """Pixels (height, width, 3) as a PNG file of at most so many colours, 256 or fewer."""
    written = io.BytesIO()
    Image.fromarray(pixels).quantize(colours).save(written, "PNG", optimize=True)
    return written.getvalue()


def as_pixels(figure: Figure) -> NDArray[np.uint8]:
    """The figure as (height, width, 3)."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    for text in figure.findobj(Text):
        if not text.get_text().isascii():
            text.set_fontfamily([*mpl.rcParams["font.sans-serif"][:1], *installed_fonts()])
    canvas = FigureCanvasAgg(figure)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from")  # of a script for which no font is installed
        canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()
