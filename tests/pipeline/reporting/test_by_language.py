"""The figure of several languages: its points and bars are the results, and it is the same each time."""

from dataclasses import replace

import numpy as np
import pytest
from matplotlib.text import Text

from pipeline.reporting import by_language
from pipeline.reporting.by_language import CAPTIONS, PARAMETERS, language_plots, language_table
from pipeline.reporting.records import Result
from pipeline.visualization.plots import Point, as_pixels, as_svg, by_count

POINTS = [
    Point("en", "mule: all", 100, 50.0, 48.0, 52.0),
    Point("fr", "mule: all", 20, 40.0),
    Point("en", "embn: none", 100, 51.0, 49.0, 53.0),
]


def result(split: str, system: str, source: str, language: str, metric: str, value: float) -> Result:
    return Result("tiny", "tiny", split, system, source, language, "task", metric, value, None, None, 1, 4)


def results(*languages: str) -> list[Result]:
    """Recall and captions of a row in some languages, and the parameters of its model."""
    of_row = ("mule", "all")
    return [
        *(result("test", *of_row, one, "mean_recall", 40.0 + n) for n, one in enumerate(languages)),
        *(result("train", *of_row, one, CAPTIONS, 20.0 + n) for n, one in enumerate(languages)),
        result("test-1k", *of_row, "en", "mean_recall", 99.0),
        result("train", *of_row, "", PARAMETERS, 154_625.0),
    ]


def test_points_are_drawn_with_their_intervals() -> None:
    (above,) = by_count("recall", ("captions", "percent"), POINTS).axes
    dots = [line for line in above.lines if line.get_marker() != "None"]
    assert [float(np.ravel(dot.get_ydata())[0]) for dot in dots] == [50.0, 40.0, 51.0]
    assert len(above.lines) == len(dots) + 2  # one has no interval
    assert dots[0].get_color() == dots[2].get_color() != dots[1].get_color()
    assert dots[0].get_marker() == dots[1].get_marker() != dots[2].get_marker()
    places = [float(np.ravel(dot.get_xdata())[0]) for dot in dots]
    assert places == pytest.approx([100, 20, 100], rel=0.02)
    assert places[0] < places[2]  # of one count, side by side


def test_the_figure_shows_the_results_and_the_table_the_parameters(monkeypatch) -> None:
    shown = []
    monkeypatch.setattr(by_language, "by_count", lambda *given: shown.append(given) or by_count(*given))
    (plot,) = language_plots(results("en", "fr"))
    assert plot.startswith("<svg")
    assert "Mean recall on test by language" in plot
    _, _, points = shown[0]
    assert [(one.colour, one.shape, one.count, one.value) for one in points] == [
        ("en", "mule: all", 20, 40.0), ("fr", "mule: all", 21, 41.0)
    ]  # fmt: skip
    table = language_table(results("en", "fr"), {"MULE": 1.7e6})
    assert table.rows == [["mule", "0.155"], ["MULE, published", "1.7"]]
    assert not language_table(results("en"), {"MULE": 1.7e6}).rows


def test_every_label_lies_within_the_figure(monkeypatch) -> None:
    made = []
    monkeypatch.setattr(by_language, "as_svg", lambda figure: made.append(figure) or as_svg(figure))
    language_plots(results("en", "de", "fr", "cs"))
    (figure,) = made
    as_pixels(figure)  # so that each label has its place
    for axes in figure.axes:
        for label in filter(Text.get_text, (axes.xaxis.label, axes.yaxis.label)):
            box = label.get_window_extent()
            assert figure.bbox.x0 <= box.x0 <= box.x1 <= figure.bbox.x1, label
            assert figure.bbox.y0 <= box.y0 <= box.y1 <= figure.bbox.y1, label


def test_of_one_language_there_is_no_plot_nor_of_one_count() -> None:
    assert language_plots(results("en")) == []
    without_counts = [one for one in results("en", "fr") if one.metric != CAPTIONS]
    assert language_plots(without_counts) == []
    as_many = [replace(one, value=20.0) if one.metric == CAPTIONS else one for one in results("en", "fr")]
    assert language_plots(as_many) == []


def test_it_is_the_same_file_each_time() -> None:
    one, other = (as_svg(by_count("recall", ("captions", "percent"), POINTS)) for _ in range(2))
    assert one == other
