"""Plots of recorded figures: which runs count, their interval, the files, and CSV files that are malformed."""

from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from pipeline.errors import RecipeError
from pipeline.reporting.records import read_records
from tests import recorded_plots
from tests.pipeline.tiny import ROOT
from tests.recorded_plots import PLOTS, Figures, Mark, Panel, half_width, panels, plots

HEAD = "job,variant,language,metric,value,low,high,settings,version,date,wall_s,peak_memory_mb\n"
RUNS = "".join(
    f"{line},,,key,0.1.0,2026-01-01,1,1\n"
    for line in (
        "vse-san-none-1,longer,en,mean_recall,10", "vse-san-none-1,,en,mean_recall,50",
        "vse-san-none-2,,en,mean_recall,52", "vse-san-none-3,,en,mean_recall,54", "vse-san-none-3,,de,mean_recall,3",
        "vse-san-none-best-1,,en,mean_recall,90", "mt-en-de,first,,test_bleu,39.5", "mt-en-de,,,test_bleu,40.5",
    )
)  # fmt: skip
SPEED = "machine,part,ratio,date\nCPU,step,2.0,2026-01-01\nCPU,search,0.5,2026-01-01\nGPU,step,1,2026-01-01\n"
DRAWN = {
    "a.png": ("recall", "percent", [Figures("en", "mean_recall", {"none": "r:vse-san-none"}, "en")]),
    "b.png": ("BLEU", "BLEU", [Figures("de", "test_bleu", {"mt": "r:mt-en-de", "mt 1": "r:mt-en-de|first"},
                                      published={"paper": 41.0})]),
}  # fmt: skip


@pytest.fixture
def results(tmp_path: Path) -> Path:
    folder = tmp_path / "results"
    folder.mkdir()
    (folder / "r.csv").write_text(HEAD + RUNS)
    (folder / "speed.csv").write_text(SPEED)
    return folder


def test_each_plot_is_a_picture(results: Path, tmp_path: Path) -> None:
    plots(tmp_path / "out", results, DRAWN)
    written = {path.name: path for path in (tmp_path / "out").iterdir()}
    assert set(written) == {"a.png", "b.png", "speed.png"}
    for path in written.values():
        with Image.open(path) as picture:
            assert picture.size[0] == 1040
        assert path.stat().st_size < 100_000
    again = tmp_path / "again"
    plots(again, results, DRAWN)
    assert all((again / name).read_bytes() == path.read_bytes() for name, path in written.items())


def test_all_seeds_count_and_a_variant_is_chosen_by_its_name(results: Path, tmp_path: Path, monkeypatch) -> None:
    drawn = {}

    def kept(title: str, axis: str, parts: list[Panel], start: float | None = None):
        drawn[title] = parts
        return panels(title, axis, parts, start)

    monkeypatch.setattr(recorded_plots, "panels", kept)
    plots(tmp_path / "out", results, DRAWN)
    error = 4.30265 * 2 / 3**0.5  # Student's t with two degrees of freedom, sd 2, three seeds
    (mark,) = drawn["recall"][0].marks
    assert (mark.label, mark.value, mark.parts) == ("none", 52, [50, 52, 54])
    assert (mark.low, mark.high) == pytest.approx((52 - error, 52 + error), abs=1e-3)
    assert drawn["BLEU"][0].marks == [Mark("mt", 40.5), Mark("mt 1", 39.5), Mark("paper", 41.0, hollow=True)]
    speed = drawn["Speed relative to the published form"]
    assert [(part.title, [mark.value for mark in part.marks]) for part in speed] == [("CPU", [2.0, 0.5]), ("GPU", [1])]


def test_differences_are_of_the_same_seeds(results: Path) -> None:
    gains = Figures("gain", "mean_recall", {"more": "r:vse-san-more"}, "en", less="r:vse-san-none")
    with (results / "r.csv").open("a") as file:
        for seed, value in ((4, 10), (3, 58), (2, 55)):
            file.write(f"vse-san-more-{seed},,en,mean_recall,{value},,,key,0.1.0,2026-01-01,1,1\n")
    (mark,) = recorded_plots._panel(gains, lambda recipe: read_records(recipe, results)).marks
    assert (mark.value, sorted(mark.parts)) == (3.5, [3, 4])
    none = replace(gains, less="r:vse-san-more", sources={"first": "r:vse-san-none-best"})
    with pytest.raises(RecipeError, match="has no seed in common"):
        recorded_plots._panel(none, lambda recipe: read_records(recipe, results))


def test_half_width_is_as_in_tables_of_student_s_t() -> None:
    assert half_width([1.0, 3.0]) == pytest.approx(12.7062, abs=1e-3)
    assert half_width([2.0, 2.0, 2.0]) == 0


def test_what_panels_show() -> None:
    marks = [Mark("a", 50.0, 49.0, 51.0, [49.5, 50.5]), Mark("b $x$", 40.0, hollow=True)]
    first, second = panels("t", "percent", [Panel("one", marks), Panel("two", [Mark("c", 10.0)])]).axes
    assert [text.get_text() for text in first.get_yticklabels()] == ["a", r"b \$x\$"]
    assert first.get_yticks()[0] < first.get_yticks()[1]
    assert first.yaxis.get_inverted()  # the first is on top
    assert [text.get_text() for text in first.texts] == ["50.0", "40.0"]
    drawn = [list(line.get_xdata()) for line in first.lines]
    assert drawn == [[49.0, 51.0], [49.5, 50.5], [50.0], [], [40.0]]
    lengths = [right - left for left, right in (axes.get_xlim() for axes in (first, second))]
    assert lengths[0] == pytest.approx(lengths[1])  # one scale


def test_bars_go_both_ways_from_the_start() -> None:
    parts = [Panel("m", [Mark("a", 2.0), Mark("b", 0.5)]), Panel("n", [Mark("c", 1.0)])]
    axes, other = panels("t", "times", parts, 1).axes
    first, second = axes.patches
    assert (first.get_x(), first.get_width()) == (1, 1)
    assert (second.get_x(), second.get_width()) == (1, -0.5)
    assert first.get_facecolor() != second.get_facecolor()
    assert axes.get_xlim() == other.get_xlim()
    assert axes.get_xscale() == "log"


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("r.csv", HEAD + "a,b,en,mean_recall,x,,,k,1,d,1,1\n", r"r\.csv:2: expected job,variant,language,metric"),
        ("r.csv", HEAD + RUNS + "a,b\n", r"r\.csv:10: expected job,variant"),
        ("r.csv", "name,value\na,1\n", r"r\.csv:2: expected job,variant"),
        ("r.csv", HEAD, r"r\.csv holds no mean_recall en of vse-san-none; run its stage"),
        ("r.csv", None, r"r\.csv holds no mean_recall en of vse-san-none; run its stage"),
        ("speed.csv", None, r"speed\.csv: No such file or directory"),
        ("speed.csv", "", r"speed\.csv: no ratios"),
        ("speed.csv", "machine,part,ratio\nCPU,step,0\n", r"speed\.csv:2: expected machine,part,ratio,date, a ratio"),
        ("speed.csv", "machine,part,ratio\nCPU,step\n", r"speed\.csv:2: expected machine"),
        ("speed.csv", "machine,part,ratio\nCPU,step,nan\n", r"speed\.csv:2: expected machine"),
        ("speed.csv", 'machine,part,ratio\n"CPU,step,1\n', r"speed\.csv:\d: expected machine"),
    ],
)  # fmt: skip
def test_a_malformed_file_is_one_line(results: Path, tmp_path: Path, name: str, text: str | None, line: str) -> None:
    (results / name).unlink()
    if text is not None:
        (results / name).write_text(text)
    with pytest.raises(RecipeError, match=line) as caught:
        plots(tmp_path / "out", results, DRAWN)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_letters_that_are_no_utf_8_are_one_line(results: Path, tmp_path: Path) -> None:
    (results / "speed.csv").write_bytes(SPEED.encode() + b"\xff,a,1,\n")
    with pytest.raises(RecipeError, match=r"speed\.csv:\d+: expected machine"):
        plots(tmp_path / "out", results, DRAWN)


def test_the_command_draws_what_is_recorded(tmp_path: Path, capsys) -> None:
    recorded_plots.main(["--output", str(tmp_path)])
    assert {path.name for path in tmp_path.iterdir()} == {*PLOTS, "speed.png"}
    for name in (*PLOTS, "speed.png"):
        assert (ROOT / ".screenshots" / name).stat().st_size < 100_000
