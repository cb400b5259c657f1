"""Plots of the report and of TensorBoard, drawn without a screen."""

import io
from collections.abc import Mapping, Sequence

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

_WIDTH = 8.0  # inches


def curves(title: str, lines: Mapping[str, Sequence[tuple[int, float]]]) -> Figure:
    """Values by training step, a line each.

    Args:
        title: what is plotted.
        lines: name → (step, value), in the order of steps.
    """
    figure = Figure((_WIDTH, 4.0), layout="constrained")
    axes = figure.subplots()
    for name, points in lines.items():
        axes.plot(*zip(*points, strict=True), label=_plain(name), marker=".", linewidth=1)
    axes.set_xlabel("step")
    axes.set_title(_plain(title), loc="left", fontsize="medium")
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
    axes.set_yticks(places, [_plain(name) for name, *_ in rows])
    axes.set_title(_plain(title), loc="left", fontsize="medium")
    axes.grid(axis="x", alpha=0.3)
    return figure


def scatter(title: str, groups: Mapping[str, NDArray[np.floating]]) -> Figure:
    """Points (N, 2) of some groups, each in its colour."""
    figure = Figure((6.0, 6.0), layout="constrained")
    axes = figure.subplots()
    for name, points in groups.items():
        axes.scatter(points[:, 0], points[:, 1], s=8, alpha=0.7, label=_plain(name))
    axes.set_title(_plain(title), loc="left", fontsize="medium")
    axes.set_xticks([])
    axes.set_yticks([])
    axes.legend(fontsize="small")
    return figure


def _plain(text: str) -> str:
    """A label that is no formula, and that a legend does not leave out."""
    return ("\u200b" if text.startswith("_") else "") + text.replace("$", r"\$")


def as_svg(figure: Figure) -> str:
    """The figure as an element of a page; the same figure gives the same text."""
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "bildwort", "font.family": "sans-serif"}):
        figure.savefig(written := io.StringIO(), format="svg", metadata={"Date": None, "Creator": None})
    text = written.getvalue()
    return text[text.index("<svg") :]


def as_pixels(figure: Figure) -> NDArray[np.uint8]:
    """The figure as (height, width, 3)."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()
