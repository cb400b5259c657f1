"""What the report says first: where not every row was validated, and of gains."""

from collections.abc import Sequence

import numpy as np
import pytest

from modules.metrics.intervals import Difference
from pipeline.commands.summary import retrieval_table
from pipeline.engine.workspace import Workspace
from pipeline.graph import Graph
from pipeline.recipes.loading import load_recipe
from pipeline.reporting import opening
from pipeline.reporting.records import own_results
from pipeline.reporting.report import report, write_report
from tests.modules.dual_networks import save
from tests.pipeline.reporting.finished import finish, scores


def sentences(
    workspace: Workspace, validated: dict[str, float], *rows: str, captions: int = 120, untrained: str = "",
    more: Sequence[str] = (),
) -> list[str]:  # fmt: skip
    """What a report says first, of rows of the same test figures on 120 images, of which some were validated."""
    recipe = load_recipe("scenes", [*more, f"--vse.only=[{','.join(rows)}]", "--vse.test=[en]"])
    for row in (row for row in Graph(recipe, workspace).rows if row.name != untrained):
        found = np.ones(captions, dtype=int)
        files = {"text_to_image": found, "image_to_text": np.pad(found, (0, 120 - captions)),
                 "caption_image": np.arange(captions)}  # fmt: skip
        val = {"val": {"en": {"rsum": validated[row.name]}}} if row.name in validated else {}
        finish(workspace, row.job, {"test": {"en": scores(100.0)}, **val}, [("en", files)])
    report(Graph(recipe, workspace))
    text = (workspace.root / "scenes" / "report" / "report.md").read_text(encoding="utf-8")
    return [line.removeprefix("- ") for line in text.splitlines() if line.startswith("- ")]


def first_sentence(workspace: Workspace, validated: dict[str, float], *rows: str) -> str:
    return sentences(workspace, validated, *rows)[0].removeprefix("English: ")


def test_without_validation_no_row_is_called_the_best(workspace: Workspace) -> None:
    said = first_sentence(workspace, {}, "none", "mt-f")
    assert said == "mean recall of none 100.0 and mt-f 100.0 %; no row was validated, so none is called the best."


@pytest.mark.parametrize(
    ("validated", "best"),
    [
        ({"mt-f": 90.0}, "mt-f (san) is the only validated row; "),
        ({"none": 80.0, "mt-f": 90.0}, "mt-f (san) is the best of 2 rows on validation; "),
    ],
)
def test_rows_that_were_not_validated_are_not_counted(workspace: Workspace, validated, best: str) -> None:
    assert first_sentence(workspace, validated, "none", "mt-f", "mmt-f").startswith(best)


def test_a_single_row_needs_no_validation(workspace: Workspace) -> None:
    assert first_sentence(workspace, {}, "none").startswith("none (san) is the only row; ")


def test_rows_that_are_not_trained_are_named(workspace: Workspace) -> None:
    first, second, *_ = sentences(workspace, {}, "none", "mt-f", untrained="mt-f")
    assert "none (san) is the only row that is trained; " in first
    assert second == "Not trained and tested: mt-f (san); run `bildwort vse` with the same recipe and settings."


def test_of_rows_that_are_all_trained_none_is_named(workspace: Workspace) -> None:
    assert not any("Not trained" in line for line in sentences(workspace, {}, "none", "mt-f"))


@pytest.mark.parametrize("rows", [("none", "german"), ("german",)])
def test_a_row_that_did_not_learn_the_test_s_language_is_not_called_untrained(workspace: Workspace, rows) -> None:
    first, *others = sentences(workspace, {}, *rows, more=["--vse.rows.german=[de/human]"])
    assert not any("Not trained" in line for line in others)
    alone = "No row that has been tested was trained on a language of vse.test."
    assert (first == alone) == (rows == ("german",))


@pytest.mark.parametrize(("captions", "said"), [(120, False), (20, True)])
def test_few_captions_among_many_images_are_told(workspace: Workspace, captions: int, said: bool) -> None:
    text = " ".join(sentences(workspace, {}, "none", "mt-f", captions=captions))
    page = (workspace.root / "scenes" / "report" / "report.md").read_text(encoding="utf-8")
    assert ("(120 images, 20 of them with captions, 20 captions, too few to compare systems)" in page) == said
    assert ("(120 images, 120 captions)" in page) != said
    assert ("20 test captions in English are too few to compare rows" in text) == said
    assert "too few to compare rows" not in text or said


def test_what_search_finds_is_not_taken_from_another_seed(workspace: Workspace) -> None:
    recipe = load_recipe("scenes", ["--vse.test=[en]", "--vse.seeds=[1,2]"])
    row = Graph(recipe, workspace).reranker
    assert row is not None
    found = np.ones(120, dtype=int)
    files = {"text_to_image": found, "image_to_text": found, "caption_image": np.arange(120)}
    finish(workspace, row.job, {"test": {"en": scores(98.0)}}, [("en", files)])
    for one in (one for one in Graph(recipe, workspace).rows if one.name == "mmt-f"):
        val = {"val": {"en": {"rsum": 100.0 * one.seed}}}
        finish(workspace, one.job, {"test": {"en": scores(100.0)}, **val}, [("en", files)])
    report(Graph(recipe, workspace))
    text = (workspace.root / "scenes" / "report" / "report.md").read_text(encoding="utf-8")
    assert "; tested on vse-san-mmt-f-1, not on vse-san-mmt-f-2, which search reads." in text


def test_what_search_finds_is_told_where_a_second_model_orders_it(workspace: Workspace) -> None:
    recipe = load_recipe("scenes", ["--vse.test=[en]"])
    row = Graph(recipe, workspace).reranker
    assert row is not None
    found = np.ones(120, dtype=int)
    files = {"text_to_image": found, "image_to_text": found, "caption_image": np.arange(120)}
    finish(workspace, row.job, {"test": {"en": scores(98.0)}}, [("en", files)])
    (line,) = [line for line in sentences(workspace, {}, "none", "mmt-f") if line.startswith("Search reranks")]
    assert line == (
        f"Search reranks ({row.system}): the right picture is then first for 98.0 (English) of 100 captions."
    )


@pytest.mark.parametrize(("ends", "said"), [
    ([(-0.5, 0.7), (-2.0, -0.3)], "no gain is seen, one of more than 0.7 points is unlikely; b is worse"),
    ([(-3.0, -0.7), (-2.0, -0.3)], "no gain is seen; a and b are worse"),
    ([(0.1, 0.7), (-0.2, 0.3)], "a helps"), ([(0.1, 0.7), (0.2, 0.3)], "a and b help"),
    ([(0.1, 0.7), (-2.0, -0.3)], "a helps; b is worse"),
    ([(-2.0, 0.04), (-1.0, 0.03)], "no gain is seen"),
])  # fmt: skip
def test_what_intervals_of_rows_say_together(ends: list[tuple[float, float]], said: str) -> None:
    assert opening._verdict({row: Difference(0, *each, 0.5) for row, each in zip("ab", ends, strict=True)}) == said


@pytest.mark.parametrize(("images", "said"), [(30, "3.3"), (1000, "0.1"), (5000, "0.02"), (31000, "0.003")])
def test_what_guessing_finds_is_never_nothing(images: int, said: str) -> None:
    assert opening._chance(images) == said


TABLE = """base: scenes
vse: {only: [none], seeds: [1], test: [en]}
tables:
  few:
    title: Few epochs
    systems:
      san: {vse: {epochs: 1}, rows: [none]}
  fewer:
    title: Fewer epochs
    systems:
      san: {vse: {epochs: 2}, rows: [none]}
"""


def test_systems_of_tables_with_a_model_s_name_are_not_the_row(workspace: Workspace, tmp_path) -> None:
    (tmp_path / "own.yaml").write_text(TABLE, encoding="utf-8")
    graph = Graph(load_recipe(str(tmp_path / "own.yaml")), workspace)
    ((row,), found), values = (graph.rows, np.ones(120, dtype=int)), {"": 90.0, "few": 10.0, "fewer": 20.0}
    files = {"text_to_image": found, "image_to_text": found, "caption_image": np.arange(120)}
    for job, value in zip((row.job, *(rows[0].job for rows in graph.tables.values())), values.values(), strict=True):
        finish(workspace, job, {"test": {"en": scores(value)}}, [("en", files)])
    page = write_report(graph)
    assert "none (san) is the only row; it finds the right picture first for 90.0 of 100 captions" in page.sentences[0]
    assert any("the row has one training: intervals do not show how much" in sentence for sentence in page.sentences)
    assert retrieval_table(own_results(page.results), {("san", "none"): row}).rows == [["none", "90.0"]]
    assert {one.table: one.value for one in page.results if (one.split, one.metric) == ("test", "t2i_r1")} == values
    html = (page.folder / "report.html").read_text(encoding="utf-8")
    assert [html.count(f"san: none{table}<") for table in ("", " (few)", " (fewer)")] == [1, 1, 1]


def test_a_row_that_is_not_trained_has_one_run_whatever_the_seeds(workspace: Workspace, tmp_path) -> None:
    network = save("clip", tmp_path / "clip")
    rows = ["--vse.rows.zero-shot=[]", "--vse.row_settings={zero-shot: {epochs: 0}}", "--vse.seeds=[1,2,3]"]
    own = ["--vse.model=dual-encoder", f"--vse.pretrained={network}", "--vse.reranker.model=null", "--vse.test=[en]"]
    graph = Graph(load_recipe("scenes", [*own, *rows, "--vse.only=[zero-shot,none]"]), workspace)
    found = np.ones(120, dtype=int)
    files = {"text_to_image": found, "image_to_text": found, "caption_image": np.arange(120)}
    jobs = {row.job.key: row.job for row in graph.rows}
    assert len(jobs) == 4
    for job in jobs.values():
        finish(workspace, job, {"test": {"en": scores(90.0)}}, [("en", files)])
    page = write_report(graph)
    (sheet,) = [sheet for sheet in page.sheets if sheet.title.startswith("Retrieval")]
    assert [row[-1] for row in sheet.rows] == ["1 (images only)", "3 (sd 0.0)"]
    assert any(line.startswith("Read with care: intervals are of this corpus") for line in page.sentences)
