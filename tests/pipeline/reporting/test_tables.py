"""Tables of systems and rows: what is missing is trained, ours stands beside the published figures."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch

from modules.metrics.retrieval import retrieval_ranks, retrieval_scores
from pipeline.cli import main
from pipeline.engine.workspace import Workspace
from pipeline.errors import RecipeError
from pipeline.graph import Graph
from pipeline.recipes.loading import load_recipe
from pipeline.reporting.paper_tables import paper_tables
from pipeline.reporting.results import Figures
from pipeline.retrieval.ranks import read_ranks
from pipeline.training.model_files import load_model
from tests.pipeline.tiny import Tiny, encoded

pytestmark = pytest.mark.whole

TABLES = """
tables:
  "5":
    title: German
    language: de
    systems:
      plain: {vse: {}, rows: [both, mmt-fb]}
      search: {vse: {translate: "mt:de-en"}, rows: [human], published: {human: [1, 2, 3, 4, 5, 6]}}
      reranked: {vse: {model: scan-t2i-avg, first: san, first_k: 2}, rows: [human]}
      fused: {vse: {fuse: [san, dan], options: {steps: 1}}, rows: [human, mmt-fb]}
  "1":
    title: English
    systems:
      fused:
        vse: {fuse: [san, dan], options: {steps: 1}}
        rows: [human, mmt-fb]
        published: {human: [1, 2, 3, 9, 4, 5, 6, 8], mmt-fb: [2.5]}
      plain: {rows: [human]}
    compare: [[fused, plain]]
"""


@pytest.fixture(scope="module")
def trained(tiny: Tiny, tmp_path_factory) -> Tiny:
    """The tiny recipe with a table, trained by one command from nothing but the corpus and translators."""
    here = tiny.without(tmp_path_factory.mktemp("tables"), "vse-*")
    recipe = here.yaml.read_text().replace("rows: {", "rows: {both: [en/human + de/human], ")
    here.yaml.write_text(recipe + TABLES)
    assert here.main("table", "--table=5") == 0
    return here


def test_one_command_trains_all_that_a_table_lacks(trained: Tiny) -> None:
    names = {path.name for path in (trained.workspace.root / "jobs").iterdir()}
    assert {"vse-san-human-1", "vse-san-mmt-fb-1", "search-mt-de-en-san-human-1", "fusion-san-dan-human-1"} <= names
    assert {"vse-scan-t2i-avg-human-1", "rerank-san-scan-t2i-avg-human-1"} <= names


def test_a_loaded_model_scores_as_the_trained_one_did(trained: Tiny) -> None:
    folder = trained.job("vse-san-human-1")
    found, saved = encoded(trained, folder.parent.name)["en"].ranks(), read_ranks(folder, "en")
    assert torch.equal(found.text_to_image, saved.text_to_image)
    assert torch.equal(found.image_to_text, saved.image_to_text)
    validated = encoded(trained, folder.parent.name, "val")["en"]
    ranks = retrieval_ranks(validated.scores(), validated.links)
    kept = trained.metrics("vse-san-human-1")["val"]["en"]["rsum"]  # of the best epoch: what chose it
    assert kept == pytest.approx(retrieval_scores(ranks)["rsum"])
    model, text = load_model(folder)
    assert model.vocabulary_size == len(text)


def test_fusion_ranks_by_the_mean_of_the_scores(trained: Tiny) -> None:
    figures = trained.metrics("fusion-san-dan-human-1")
    for split, languages in (("test", ("de", "en")), ("val", ("en",))):
        parts = [encoded(trained, f"vse-{model}-human-1", split) for model in ("san", "dan")]
        for language in languages:
            mean = sum(part[language].scores() for part in parts) / 2
            expected = retrieval_scores(retrieval_ranks(mean, parts[0][language].links))
            found = figures[split][language]
            assert found == pytest.approx({name: expected[name] for name in found})
    assert figures["val"].keys() == {"en"}
    assert json.loads((trained.job("vse-dan-human-1") / "network.json").read_text())["arguments"]["steps"] == 1


def test_translate_search_ranks_translated_captions_in_german_s_name(trained: Tiny) -> None:
    figures = trained.metrics("search-mt-de-en-san-human-1")["test"]
    assert set(figures) == {"de"}
    ranks = read_ranks(trained.job("search-mt-de-en-san-human-1"), "de")
    german = read_ranks(trained.job("vse-san-mmt-fb-1"), "de")
    assert torch.equal(ranks.caption_image, german.caption_image)
    rows = pq.read_table(trained.job("search-mt-de-en-san-human-1") / "translated.parquet").to_pylist()
    human = {row["caption_id"]: row for row in trained.captions("corpus")}
    assert {row["language"] for row in rows} == {"en"}
    assert all(human[row["caption_id"]]["language"] == "de" for row in rows)
    assert all(row["text"] != human[row["caption_id"]]["text"] for row in rows)


def test_the_report_prints_tables_with_what_was_published(trained: Tiny, capsys) -> None:
    assert trained.main("report") == 0
    text = (trained.workspace.root / "tiny" / "report" / "report.md").read_text()
    lines = [line for line in text.partition("**German; ")[2].splitlines() if line.startswith("|")]
    ours = next(line for line in lines if line.startswith("| search | human |")).split("|")
    published = next(line for line in lines if "| published |" in line).split("|")
    difference = next(line for line in lines if "| difference |" in line).split("|")
    assert [cell.strip() for cell in published[3:10]] == ["1.0", "2.0", "3.0", "4.0", "5.0", "6.0", "21.0"]
    for own, theirs, between in zip(ours[3:10], published[3:10], difference[3:10], strict=True):
        assert float(between) == pytest.approx(float(own) - float(theirs), abs=0.11)
    rows = (trained.workspace.root / "tiny" / "report" / "results.jsonl").read_text().splitlines()
    assert any(row["system"] == "search" and row["metric"] == "t2i_r1" for row in map(json.loads, rows))
    tests = text.partition("**German; scenes: paired tests, rsum")[2].split("\n\n")[1]
    assert "| search human − plain both |" in tests
    assert "mmt-fb" not in tests  # it never saw German, and is marked so
    assert "| plain | mmt-fb (not trained on de) |" in "\n".join(lines)
    english = text.partition("**English; ")[2].partition("\n\n")[2].partition("\n\n")[0].splitlines()
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in english if line.startswith("|")]
    assert cells[0][2:11] == ["t→i R@1", "5", "10", "median rank", "i→t R@1", "5", "10", "median rank", "rsum"]
    published = [line[2:11] for line in cells if line[1] == "published"]
    assert published == [["1.0", "2.0", "3.0", "9.0", "4.0", "5.0", "6.0", "8.0", "21.0"], [*[""] * 8, "15.0"]]
    (own, *_), (away, *_) = ([line for line in cells if line[1] == name] for name in ("human", "difference"))
    assert float(away[5]) == pytest.approx(float(own[5]) - 9, abs=0.11)
    tests = text.partition("**English; scenes: paired tests, rsum")[2]
    for pair in ("fused mmt-fb − human", "plain human − fused human", "fused human − plain human"):
        assert f"| {pair} |" in tests
    line = next(line for line in text.partition("**English; ")[2].splitlines() if line.startswith("| fused | human |"))
    assert float(line.split("|")[-3]) == pytest.approx(trained.metrics("fusion-san-dan-human-1")["val"]["en"]["rsum"])


def test_a_recipe_s_own_search_is_reported_in_its_language(trained: Tiny, capsys) -> None:
    assert trained.main("report", "--vse.translate=mt:de-en", "--vse.only=[human]") == 0
    text = (trained.workspace.root / "tiny" / "report" / "report.md").read_text()
    assert "**Retrieval, san by mt:de-en, de, test (4 images, 4 captions, too few to compare systems), " in text
    own = text.partition("**Retrieval, san by mt:de-en, de, test")[2].splitlines()
    assert next(line for line in own if line.startswith("| human |")).split("|")[2].strip() not in ("–", "not run")


def test_what_makes_a_system_does_not_come_from_the_command_line(trained: Tiny) -> None:
    recipe = trained.recipe("--vse.model=dan", "--vse.options.steps=3", "--vse.test=[en]", "--vse.epochs=7")
    plain = recipe.tables["5"].systems["plain"].vse
    assert (plain.model, plain.options, plain.test, plain.epochs) == ("san", {}, ["en", "de"], 7)
    assert recipe.vse.model == "dan"


def test_settings_by_which_a_table_cannot_be_made_leave_all_else_as_it_was(trained: Tiny, capsys) -> None:
    one_way = ("--mmt.directions=[en-de]", "--augment.paths=[mt:en-de]", "--vse.only=[human]")
    recipe = trained.recipe(*one_way)
    assert (list(recipe.tables), list(recipe.refused)) == (["1"], ["5"])
    assert not Graph(recipe, trained.workspace).tables  # a row of the other needs captions that no path writes
    assert trained.main("mmt", *one_way) == trained.main("vse", *one_way) == 0
    for name, reason in (("5", "vse.translate is 'mt:de-en'"), ("1", "vse.rows.mmt-fb trains on 'mmt:en-de-en'")):
        assert trained.main("table", f"--table={name}", *one_way) == 1
        assert reason in " ".join(capsys.readouterr().err.split())
        assert trained.main("report", *one_way) == 0
        told = " ".join(capsys.readouterr().out.split())
        assert f"table {name} cannot be made with these settings: " in told
        assert reason in told


def test_borrowed_captions_must_be_of_images_that_this_corpus_trains_on(trained: Tiny, tmp_path, capsys) -> None:
    other = trained.without(tmp_path, "nothing")
    lent = other.folder / "lender.yaml"
    lent.write_text(other.yaml.read_text())
    arguments = ("--corpus.retrieval=8", f"--augment.captions={lent}", "--vse.only=[mmt-fb]")
    assert other.main("prepare", "--corpus.retrieval=8") == 0
    capsys.readouterr()
    assert other.main("vse", *arguments) == 1
    assert "not in train here" in " ".join(capsys.readouterr().err.split())


def test_a_cell_that_was_not_run_says_so(trained: Tiny, capsys) -> None:
    assert trained.main("report", "--vse.seeds=[7]") == 0
    text = (trained.workspace.root / "tiny" / "report" / "report.md").read_text()
    assert "| search | human | not run |" in text


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("search: {vse: {modle: san}}", r"unknown key tables\.1\.systems\.search\.vse\.modle; did you mean .*model"),
        ("search: {rows: [nobody]}", r"search\.rows is \['nobody'\]; expected a list of some"),
        ("search: {vsee: {}}", r"unknown key tables\.1\.systems\.search\.vsee"),
        ("search: {published: {none: [1, 2]}}", r"published\.none: expected R@1, 5, 10 both ways"),
        ("search: {vse: {fuse: [san]}}", "'san' alone"),
        ("search: {vse: {fuse: [san, san@x]}}", "'san@x'; expected a model, or a model and its seed"),
        ("search: {vse: {fuse: [san@1, san@2], seeds: [1, 2]}}", r"set vse.seeds to \[1\]"),
        ("search: {vse: {fuse: [san, sann]}}", "vse.fuse: 'sann': no such retrieval model; nearest are"),
        ("search: {vse: {translate: mt:de-fr}}", r"expected mt:de-en \(a query has no picture\)"),
        ("search: {vse: {translate: mmt:de-en}}", r"expected mt:de-en \(a query has no picture\)"),
        ("search: {rows: [none], published: {none: [1, 2, .nan, 4, 5, 6]}}", r"published\.none: expected R@1, 5, 10"),
        ("search: {rows: [none], published: {none: [a, b, c, d, e, f]}}", r"published\.none: expected R@1, 5, 10"),
        ("search: {vse: {test: [de], select: [de]}}", r"tables\.1\.language is 'en', which vse\.test lacks"),
        ("search: {vse: {fuse: [san, dan], translate: mt:de-en}}", "leave one out"),
        ("search: {vse: {fuse: [san, dan], first: vse}}", "vse.first and vse.fuse are both set; leave one out"),
        ("search: {vse: {translate: mt:de-en, first: dan}}", "vse.first and vse.translate are both set"),
        ("search: {vse: {first: san}}", "vse.first and vse.model are both 'san'; expected another one to re-rank"),
        ("search: {vse: {first: oe}}", "vse.first is 'oe', whose score is of vectors; expected an inner product"),
        ("search: {vse: {first: sann}}", "vse.first: 'sann': no such retrieval model; nearest are"),
        ("search: {vse: {first: dan, first_k: 0}}", "vse.first_k is 0; expected 1 or more"),
        ("search: {vse: {first: dan, options: {lambda_lse: 1}}}", "unknown key vse.options.lambda_lse"),
    ],
)
def test_slips_in_a_table_are_named(tmp_path, lines: str, message: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(f'base: scenes\ntables: {{"1": {{title: T, systems: {{{lines}}}}}}}\n')
    with pytest.raises(Exception, match=message):
        load_recipe(str(path))


@pytest.mark.parametrize("pair", ["[a]", "[a, a]", "[a, c]", "[a, b, a]", "a", "[[a], b]"])
def test_systems_that_cannot_be_compared_are_named(tmp_path, pair: str) -> None:
    path = tmp_path / "mine.yaml"
    systems = "{a: {rows: [none]}, b: {rows: [none]}}"
    path.write_text(f'base: scenes\ntables: {{"1": {{title: T, systems: {systems}, compare: [{pair}]}}}}\n')
    with pytest.raises(RecipeError, match=r"tables\.1\.compare: .*; expected two systems of the table: a, b"):
        load_recipe(str(path))


def test_settings_that_do_not_reach_tables_are_named(trained: Tiny, capsys) -> None:
    capsys.readouterr()
    assert trained.main("table", "--table=5", "--vse.loss=infonce", "--vse.only=[human]") == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "not of tables: --vse.loss, --vse.only; the systems of a table have their own" in told
    assert trained.main("table", "--table=5") == 0
    assert "not of tables" not in capsys.readouterr().out


def test_a_table_that_is_not_there(trained: Tiny, capsys) -> None:
    assert trained.main("table", "--table=9") == 1
    assert "no table '9': recipe tiny has 5, 1; use" in " ".join(capsys.readouterr().err.split())
    assert trained.main("table") == 1
    assert "no table is named: recipe tiny has 5, 1; use" in " ".join(capsys.readouterr().err.split())
    assert main(["table", "--recipe", "scenes"]) == 1
    assert "recipe scenes has no tables; try" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("lines", "message"),
    [("translators: mine", "augment borrows from itself"), ("captions: flickr30k", "flickr30k, which borrows itself")],
)
def test_lenders_that_do_not_lend(tmp_path, monkeypatch, lines: str, message: str) -> None:
    monkeypatch.setenv("BILDWORT_DATA", str(tmp_path))
    (tmp_path / "mine.yaml").write_text(f"base: scenes\naugment: {{{lines}}}\n")
    recipe = load_recipe(str(tmp_path / "mine.yaml"))
    with pytest.raises(RecipeError, match=message):
        Graph(recipe, Workspace(tmp_path)).translators


PARTLY = """
tables:
  "3":
    title: Without R@5
    systems:
      ours: {rows: [human], published: {human: [1, null, 3, 9, 4, null, 6, 8]}}
    published:
      theirs: [10, null, 20, null, 30, null, 40, null]
"""


def test_what_was_not_published_is_blank_and_systems_without_a_model_stand_below(tiny: Tiny, tmp_path: Path) -> None:
    (tmp_path / "partly.yaml").write_text(f"base: {tiny.yaml}\n{PARTLY}")
    figures = Figures(Graph(load_recipe(str(tmp_path / "partly.yaml")), tiny.workspace), [])
    sheet, *_ = paper_tables("3", figures)
    assert sheet.heads[5] == sheet.heads[9] == "median rank"
    assert sheet.heads[10:12] == ["R@1 + R@10", "rsum"]
    ours, published, away, theirs = sheet.rows
    assert published[2:12] == ["1.0", "", "3.0", "9.0", "4.0", "", "6.0", "8.0", "14.0", ""]
    assert theirs[:12] == ["theirs", "published", "10.0", "", "20.0", "", "30.0", "", "40.0", "", "100.0", ""]
    assert float(ours[10]) == pytest.approx(sum(float(ours[place]) for place in (2, 4, 6, 8)), abs=0.21)
    assert float(away[10]) == pytest.approx(float(ours[10]) - 14, abs=0.11)
    assert [away[place] for place in (3, 7, 11, 12)] == [""] * 4
    assert {len(line) for line in sheet.rows} == {len(sheet.heads)}
    (tmp_path / "bad.yaml").write_text(f"base: {tiny.yaml}\n{PARTLY.replace('30, null', '30')}")
    with pytest.raises(RecipeError, match=r"tables.3.published.theirs: expected R@1, 5, 10 both ways, .* null where"):
        load_recipe(str(tmp_path / "bad.yaml"))
