"""Plots and the report's page: what they show, that they need nothing else, and the joint space in TensorBoard."""

import os
import re
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugin_util import markdown_to_safe_html

from pipeline.reporting.page import Page, write_pages
from pipeline.reporting.records import Result
from pipeline.visualization.dashboards import plain
from pipeline.visualization.plots import as_svg, curves, intervals
from pipeline.visualization.text_table import TextTable
from tests.pipeline.tiny import ROOT, Tiny

LINES = {"mt": [(10, 1.0), (20, 2.5)], "mmt": [(10, 3.0)]}


def test_curves_have_a_line_a_name_and_its_points() -> None:
    axes = curves("On validation", "val/bleu", LINES).axes[0]
    assert {line.get_label(): line.get_xydata().tolist() for line in axes.lines} == {
        "mt": [[10, 1.0], [20, 2.5]], "mmt": [[10, 3.0]]
    }  # fmt: skip


def test_intervals_stand_in_the_order_given_from_the_top() -> None:
    axes = intervals("recall", [("none", 50.0, 48.0, 52.0), ("mmt-f", 51.0, None, None)]).axes[0]
    labels = {label.get_text(): place for label, place in zip(axes.get_yticklabels(), axes.get_yticks(), strict=True)}
    assert labels["none"] > labels["mmt-f"]
    drawn = [line.get_xdata() for line in axes.lines]
    assert [list(np.atleast_1d(one)) for one in drawn] == [[48.0, 52.0], [50.0], [51.0]]


def test_intervals_stand_within_the_frame() -> None:
    for count in (1, 2, 9):
        figure = intervals("recall", [(f"row {place}", 50.0, 48.0, 52.0) for place in range(count)])
        FigureCanvasAgg(figure).draw()
        frame = figure.axes[0].get_window_extent()
        for line in figure.axes[0].lines:
            heights = line.get_transform().transform(line.get_xydata())[:, 1]
            assert frame.y0 + 8 <= heights.min() <= heights.max() <= frame.y1 - 8  # pixels: a marker's radius is 4


def test_nothing_of_a_plot_is_cut_off() -> None:
    """By many lines with one name each in the legend, or names beside the axes that leave the title little room."""
    many = curves("On validation", "rsum", {f"vse-san-none-{seed}": [(1, 2.0)] for seed in range(40)})
    named = intervals("Mean recall in percent, en, test; lines are 95 % intervals", [("n" * 60, 1.0, 0.5, 2.0)])
    for figure, parts in ((many, many.legends), (named, [one for one in named.findobj(Text) if one.get_text()])):
        FigureCanvasAgg(figure).draw()
        for part in parts:
            seen = part.get_window_extent()
            assert figure.bbox.x0 <= seen.x0 < seen.x1 <= figure.bbox.x1, part
            assert figure.bbox.y0 <= seen.y0 < seen.y1 <= figure.bbox.y1, part


def test_a_figure_is_the_same_text_each_time() -> None:
    one, other = (as_svg(curves("<b> & ü", "BLEU", LINES)) for _ in range(2))
    assert one == other
    assert one.startswith("<svg")
    assert "<b>" not in one


def test_settings_of_matplotlib_for_papers_are_not_those_of_a_page(tmp_path: Path) -> None:
    (tmp_path / "matplotlibrc").write_text("text.usetex: True\nsavefig.bbox: tight\nfont.size: 30\n")
    script = "from pipeline.visualization.plots import as_svg, curves\nprint(as_svg(curves('a', 'b', {'c': [(0, 1)]})))"
    drawn = [
        subprocess.run([sys.executable, "-c", script], cwd=ROOT, env=os.environ | more, stdout=subprocess.PIPE).stdout
        for more in ({}, {"MATPLOTLIBRC": str(tmp_path)})
    ]
    assert drawn[0] == drawn[1] != b""


def test_names_are_no_formulas_and_none_is_left_out() -> None:
    rows = [("cost $5 & $6", 1.0, None, None), ("a$\\b$", 2.0, None, None)]
    assert "cost $5 &amp; $6" in as_svg(intervals("of $x$", rows))
    assert "_mt" in as_svg(curves("$", "BLEU", {"_mt": [(1, 2.0)]}))


def test_letters_that_no_font_of_ours_has_are_left_to_the_browser_without_a_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert "日本語" in as_svg(intervals("recall", [("日本語", 50.0, 48.0, 52.0)]))


def test_captions_are_no_markup_in_tensorboard() -> None:
    text = "![x](https://host/t.png) *a* `b` <b> | c"
    shown = markdown_to_safe_html(f"| {plain(text)} |\n|---|\n| d |")
    assert "<img" not in shown
    assert "<em>" not in shown
    assert "<code>" not in shown
    assert "host/t.png" in shown


def test_the_page_needs_nothing_else(tmp_path: Path) -> None:
    sheets = [TextTable("A <title>", ["name", "R@1"], [["<script>x</script>", "12.5"], ["none", "not run"]])]
    rows = (("none", 40.0), ("mmt-f", 42.0))
    of_all = ("tiny", "tiny", "test", "san")
    results = [Result(*of_all, row, "en", "task", "mean_recall", x, x - 1, x + 1, 1, 4) for row, x in rows]
    legend, signatures = {"<i>row</i>": "a & b"}, ["<u>signature</u>"]
    page = Page(tmp_path, "tiny & small", "", ["<b>best</b>"], legend, sheets, signatures, results)
    write_pages(page, lambda job: tmp_path / "no logs", [])
    text = (tmp_path / "report.html").read_text()
    assert text.count("<table>") == 1
    assert text.count("<svg") == 1
    assert "&lt;script&gt;x&lt;/script&gt;" in text
    assert not re.search("<(script|b|i|u)>", text)
    assert "san: mmt-f" in text
    assert not re.search(r"""(src|href)=["'](?!data:|#)""", text.replace('xlink:href="#', ""))
    assert '<td class="number">not run</td>' in text
    assert re.search(r"\bdt {[^}]*padding-right", text)  # else a long name of a row touches what it is trained on


def test_a_table_s_system_that_is_the_recipe_s_own_row_is_plotted_once(tmp_path: Path) -> None:
    of_all = ("tiny", "Tiny", "test")
    given = [("san", 50.0, ""), ("SAN", 50.0, "1"), ("SAN", 40.0, "2"), ("DAN", 50.0, "1")]
    results = [Result(*of_all, system, "none", "en", "task", "mean_recall", value, None, None, 1, 4, table=table)
               for system, value, table in given]  # fmt: skip
    write_pages(Page(tmp_path, "tiny", "", [], {}, [], [], results), lambda job: tmp_path / job.name, [])
    drawn = re.findall(r">([^<>]*: none[^<>]*)<", (tmp_path / "report.html").read_text())
    assert sorted(drawn) == ["DAN: none", "SAN: none", "san: none"]


def test_a_report_plots_what_was_trained(tiny: Tiny, capsys) -> None:
    assert tiny.main("report") == 0
    text = (tiny.workspace.root / "tiny" / "report" / "report.html").read_text()
    assert text.count("<svg") >= 3  # recall, BLEU, rsum
    for name in ("mmt-en-de", "vse-san-human-1", "BLEU", "sum of R@1"):
        assert name in text


@pytest.mark.slow
def test_a_training_with_other_settings_has_a_curve_of_its_own(fresh: Tiny) -> None:
    only = ["--vse.only=[human]", "--augment.paths=[]"]
    assert fresh.main("prepare", *only) == 0
    for epochs in ("3", "1"):
        assert fresh.main("vse", *only, "--vse.warmup_epochs=0", f"--vse.epochs={epochs}") == 0
    folders = list((fresh.folder / "lightning_logs" / "tiny" / "vse-san-human-1").iterdir())
    watched = [EventAccumulator(str(folder)).Reload().Scalars("val/rsum") for folder in folders]
    assert sorted(map(len, watched)) == [1, 3]


def logs(made: Tiny, job: str) -> Path:
    """TensorBoard's folder of a job: the first digits of its key are the last part."""
    (folder,) = (made.folder / "lightning_logs" / "tiny" / job).iterdir()
    assert made.job(job).name.startswith(folder.name)
    return folder


def test_what_an_mmt_looks_at_is_shown(tiny: Tiny) -> None:
    board = EventAccumulator(str(logs(tiny, "mmt-en-de"))).Reload()
    tags = board.Tags()
    assert [tag for tag in tags["images"] if tag.startswith("attention/")] == [f"attention/{n}" for n in (1, 2, 3, 4)]
    assert all(board.Images(f"attention/{n}")[0].width == 648 for n in (1, 2, 3, 4))
    assert "translations/with and without the picture/text_summary" in tags["tensors"]


def test_the_joint_space_is_shown_of_enough_points(fresh: Tiny, monkeypatch) -> None:
    monkeypatch.setattr("pipeline.visualization.dashboards._FEWEST", 4)
    only = ["--vse.only=[human]", "--vse.rows={human: [en/human + de/human]}", "--vse.epochs=1", "--augment.paths=[]"]
    assert fresh.main("prepare", *only) == fresh.main("vse", *only) == 0
    folder = logs(fresh, "vse-san-human-1")
    (labels,) = folder.rglob("metadata.tsv")
    lines = labels.read_text().splitlines()
    assert lines[0] == "language\ttext"
    assert {line.split("\t")[0] for line in lines[1:]} == {"images", "en", "de"}
    (vectors,) = folder.rglob("tensors.tsv")
    assert len(vectors.read_text().splitlines()) == len(lines) - 1
