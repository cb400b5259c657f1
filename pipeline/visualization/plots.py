"""Plots of the report and of TensorBoard, drawn without a screen."""

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

WIDTH = 8.0  # inches
DPI = 100
"""Pixels an inch of figures that show pictures."""
_LETTERS = 36  # of a line beside an axis of 3.6 inches, the lowest there is
GREY = "#59636e"
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
"""Of Okabe and Ito, which colour-blind people tell apart."""
_SHAPES = "os^Dv<>PX*hp"
_NO_FONT = "Glyph .* missing from"  # a warning: no font of the letter's script is installed

mpl.rcdefaults()  # a matplotlibrc for papers, `text.usetex: True`, is none for pages


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


def curves(title: str, of: str, lines: Mapping[str, Sequence[tuple[int, float]]]) -> Figure:
    """Values by training step, a line each.

    Args:
        of: what the values are.
        lines: name → (step, value), in the order of steps.
    """
    figure = Figure((WIDTH, max(4.0, 0.2 + 0.19 * len(lines))), layout="constrained")  # a line of the legend each
    axes = figure.subplots()
    for place, (name, points) in enumerate(lines.items()):
        colour, shape = _cycled(COLOURS, place), _cycled(_SHAPES, place)
        axes.plot(
            *zip(*points, strict=True), label=as_label(name), color=colour, marker=shape, markersize=4, linewidth=1
        )
    axes.set_xlabel("step")
    axes.set_ylabel(as_label(of))
    axes.set_title(as_label(title), loc="left", fontsize="medium")
    axes.grid(alpha=0.3)
    figure.legend(loc="outside right upper", fontsize="small", frameon=False)
    return figure


def intervals(title: str, rows: Sequence[tuple[str, float, float | None, float | None]]) -> Figure:
    """Figures with their intervals, the first on top.

    Args:
        rows: name, value, and the ends of its interval or None.
    """
    figure = Figure((WIDTH, 0.8 + 0.28 * len(rows)), layout="constrained")
    axes = figure.subplots()
    places = list(range(len(rows)))[::-1]
    for place, (_, value, low, high) in zip(places, rows, strict=True):
        if low is not None and high is not None:
            axes.plot((low, high), (place, place), color=GREY, linewidth=1.5)
        axes.plot(value, place, "o", color="#0969da")
    axes.set_yticks(places, [as_label(name) for name, *_ in rows])
    axes.set_ylim(-0.6, len(rows) - 0.4)  # the first and last stand within the frame, however many there are
    figure.suptitle(as_label(title), x=0.01, horizontalalignment="left", fontsize="medium")  # axes may be narrower
    axes.grid(axis="x", alpha=0.3)
    return figure


def by_count(title: str, axes_of: tuple[str, str], points: Sequence[Point]) -> Figure:
    """Figures by a count on a logarithmic axis, each with its interval.

    Args:
        axes_of: what is counted, and what the heights are.
        points: at least one.
    """
    colours, shapes = (list(dict.fromkeys(getattr(point, name) for point in points)) for name in ("colour", "shape"))
    figure = Figure((WIDTH, 0.6 + max(3.6, 0.24 * (len(colours) + len(shapes)))), layout="constrained")
    axes = figure.subplots()
    _scatter(axes, points, colours, shapes)
    axes.set_title(as_label(title), loc="left", fontsize="medium")
    axes.set_xlabel(as_label(axes_of[0]))
    axes.set_ylabel(fill(as_label(axes_of[1]), _LETTERS))
    of_colours = [Line2D([], [], color=_cycled(COLOURS, n), linewidth=4) for n in range(len(colours))]
    of_shapes = [Line2D([], [], color=GREY, marker=_cycled(_SHAPES, n), linestyle="") for n in range(len(shapes))]
    labels = [as_label(name) for name in (*colours, *shapes)]
    figure.legend([*of_colours, *of_shapes], labels, loc="outside right upper", fontsize="small", frameon=False)
    return figure


def _scatter(axes: Axes, points: Sequence[Point], colours: Sequence[str], shapes: Sequence[str]) -> None:
    """A mark a point, over its interval; points of one count stand a little apart, in the order of their shapes."""
    for point in points:
        colour = _cycled(COLOURS, colours.index(point.colour))
        place = point.count * 1.03 ** (shapes.index(point.shape) - (len(shapes) - 1) / 2)
        if point.low is not None and point.high is not None:
            axes.plot((place, place), (point.low, point.high), color=colour, linewidth=1, alpha=0.6)
        axes.plot(place, point.value, _cycled(_SHAPES, shapes.index(point.shape)), color=colour, markersize=6)
    axes.set_xscale("log")  # points of one count stand side by side
    places = sorted({point.count for point in points})
    axes.set_xticks(places, [f"{place:,}" for place in places], rotation=20)
    axes.minorticks_off()
    axes.grid(alpha=0.3)


def _cycled(values: Sequence[str], place: int) -> str:
    return values[place % len(values)]


def as_label(text: str) -> str:
    """A label that is no formula, and that a legend does not leave out."""
    return ("\u200b" if text.startswith("_") else "") + text.replace("$", r"\$")


def as_svg(figure: Figure) -> str:
    """The figure as an element of a page; the same figure gives the same text."""
    with (
        mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "bildwort", "font.family": "sans-serif"}),
        warnings.catch_warnings(),
    ):
        warnings.filterwarnings("ignore", _NO_FONT)  # the browser has fonts of its own
        figure.savefig(written := io.StringIO(), format="svg", metadata={"Date": None, "Creator": None})
    text = written.getvalue()
    return text[text.index("<svg") :]


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
        warnings.filterwarnings("ignore", _NO_FONT)
        canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()
