"""Stage sts: trained models and baselines on sets of sentence pairs, cached, in tables, rows and records."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import pearsonr

from data.evaluation.sts import SentencePairs, gold_file, read_sts
from data.text.sentences import sentence_hash
from modules.metrics.sentence_similarity import pearson_interval, tf_idf_similarity
from pipeline.errors import RecipeError
from pipeline.graph import Graph
from pipeline.recipes.loading import load_recipe
from pipeline.reporting.records import finished_records
from pipeline.reporting.results import Figures
from pipeline.reporting.sts import sts_tables, sts_variants
from pipeline.similarity import models
from pipeline.similarity.baselines import BASELINES
from pipeline.similarity.models import can_run, sts_rows
from pipeline.similarity.sets import read_tested
from pipeline.training.model_files import load_model
from tests.pipeline.tiny import Tiny

pytestmark = pytest.mark.whole

CLEAN = 12
SETS = "--sts.sets.made=sts/STS.input.made.txt"


def write(folder: Path, pairs: list[tuple[str, str]], name: str = "made") -> Path:
    path = folder / "sts" / f"STS.input.{name}.txt"
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(f"{one}\t{other}\n" for one, other in pairs))
    gold = np.random.default_rng(0).uniform(0, 5, len(pairs))
    gold_file(path).write_text("".join(f"{score:.3f}\n" for score in gold))
    return path


@pytest.fixture(scope="module")
def made(tiny: Tiny, tmp_path_factory) -> Tiny:
    """The tiny recipe's models, and a set: some pairs have a training caption on one side, with other signs."""
    made = tiny.without(tmp_path_factory.mktemp("sts"), "sts-*")
    texts = [row["text"] for row in made.captions("corpus") if row["split"] == "train" and row["language"] == "en"]
    words = sorted({word for text in texts for word in text.lower().split()})
    rng = np.random.default_rng(1)
    fresh = [(" ".join(rng.choice(words, 9)), " ".join(rng.choice(words, 9))) for _ in range(CLEAN)]
    pairs = [*fresh[:6], (texts[0].upper() + " !", "a word"), ("a word", texts[1]), *fresh[6:]]
    write(made.folder, pairs)
    assert made.main("sts", SETS, f"--corpus.root={made.folder}") == 0
    return made


def options(made: Tiny, *more: str) -> list[str]:
    return [SETS, f"--corpus.root={made.folder}", *more]


def test_figures_are_those_of_the_model_pair_by_pair_whole_and_clean(made: Tiny) -> None:
    pairs = read_sts(made.folder / "sts" / "STS.input.made.txt")
    tested = read_tested(made.job("sts-san-human-1"), "made")
    model, text = load_model(made.job("vse-san-human-1"))
    for place, sides in enumerate(zip(pairs.first, pairs.second, strict=True)):
        one, other = (text.encode(side, "en") for side in sides)
        with torch.no_grad():
            a, b = (
                model.encode_captions(
                    torch.tensor([ids]), torch.tensor([len(ids)]), torch.tensor([model.languages.index("en")])
                )[0][0, 0] for ids in (one, other)
            )  # fmt: skip
        assert tested.prediction[place] == pytest.approx(float(a @ b / a.norm() / b.norm()), abs=1e-5)
    assert tested.clean.tolist() == [*[True] * 6, False, False, *[True] * 6]
    figures = made.metrics("sts-san-human-1")
    assert figures["made"]["en"]["pairs"] == CLEAN + 2
    assert figures["made-clean"]["en"]["pairs"] == CLEAN
    for name, kept in (("made", slice(None)), ("made-clean", tested.clean)):
        r = pearsonr(tested.prediction[kept], np.array(pairs.gold)[kept]).statistic
        assert figures[name]["en"]["pearson"] == pytest.approx(100 * r)


def test_a_synthetic_caption_makes_a_pair_unclean_for_the_row_that_reads_it(made: Tiny, tmp_path: Path) -> None:
    other = made.without(tmp_path, "sts-*")
    written = next(row["text"] for row in other.captions("synthetic-mmt-en-de-en") if row["text"])
    human = [row for row in other.captions("corpus") if row["language"] == "en"]
    trained = {sentence_hash(row["text"]) for row in human if row["split"] == "train"}
    tested = next(row["text"] for row in human if row["split"] == "test" and sentence_hash(row["text"]) not in trained)
    write(other.folder, [("xx yy", "yy zz"), (f"{written}.", "xx"), ("zz xx", "zz yy xx"), (tested, "yy xx")])
    assert other.main("sts", *options(other)) == 0
    clean = {row: read_tested(other.job(f"sts-san-{row}-1"), "made").clean.tolist() for row in ("human", "mmt-fb")}
    assert clean["mmt-fb"] == [True, False, True, True]
    assert [clean["human"][place] for place in (0, 2, 3)] == [True, True, True]


def test_a_second_run_does_nothing_and_prints_the_same_tables(made: Tiny, capsys) -> None:
    printed = []
    for _ in range(2):
        assert made.main("sts", *options(made)) == 0
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1]
    assert printed[0].count("is up to date") == 6  # two models, two baselines for each of the two kinds of captions
    lines = printed[0].splitlines()
    (human,) = [line for line in lines if line.split()[:2] == ["san", "human"]]
    assert f" {CLEAN + 2} " in human
    assert f" {CLEAN} " in human
    assert [line.split()[0] for line in lines if "en/human" in line] == ["TF-IDF", "TF-IDF", "fastText", "fastText"]


def test_the_report_has_the_table_and_rows_with_intervals(made: Tiny) -> None:
    assert made.main("report", *options(made)) == 0
    folder = made.workspace.root / "tiny" / "report"
    assert "**Sentence similarity, made, en: Pearson's r × 100" in (folder / "report.md").read_text()
    assert "Sentence similarity, made, en" in (folder / "report.html").read_text()
    found = [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]
    found = [row for row in found if row["metric"] == "pearson"]
    systems = {(row["system"], row["source"], row["split"]) for row in found}
    assert ("san", "human", "made") in systems
    assert ("TF-IDF", "en/human, en/mmt:en-de-en", "made-clean") in systems
    assert len(found) == len(systems) == 12
    row = next(row for row in found if (row["system"], row["source"], row["split"]) == ("san", "human", "made"))
    assert (row["task"], row["language"], row["n"], row["seeds"]) == ("sts", "en", CLEAN + 2, 1)
    assert row["low"] < row["value"] < row["high"]


def test_the_interval_of_the_clean_part_is_of_its_own_pairs(made: Tiny) -> None:
    figures = Figures(Graph(made.recipe(*options(made)), made.workspace), [])
    sts_tables(figures, sts_rows(figures.graph))
    tested = read_tested(made.job("sts-san-human-1"), "made")
    for split, clean in (("made", False), ("made-clean", True)):
        prediction, gold = tested.part(clean)
        expected = pearson_interval([prediction], gold, figures.recipe.report.resamples)
        assert expected is not None
        (row,) = (one for one in figures.results if (one.split, one.source, one.system) == (split, "human", "san"))
        assert (row.value, row.low, row.high) == pytest.approx(tuple(expected), abs=1e-4)


def test_baselines_of_chinese_compare_letters() -> None:
    pairs = {"made": SentencePairs(["红色的狗"], ["狗。"], [1.0])}
    found = BASELINES["TF-IDF"]({}, pairs, ["红色的狗", "蓝色的猫"], "zh")["made"]
    letters = tf_idf_similarity(["红 色 的 狗", "蓝 色 的 猫"], ["红 色 的 狗"], ["狗 。"])
    assert found == pytest.approx(letters)
    assert found[0] > 0.3


def test_records_fill_the_table_when_the_artifacts_are_gone(made: Tiny, workspace) -> None:
    recipe = made.recipe(*options(made))
    rows = sts_rows(Graph(recipe, made.workspace))
    runs = list(finished_records(made.workspace, [row.job for row in rows if row.job], recipe, sts_variants(rows)))
    assert ("en", "made-clean_pearson") in {(run.language, run.metric) for run in runs}
    (here,) = sts_tables(Figures(Graph(recipe, made.workspace), []), rows)
    (gone,) = sts_tables(
        Figures(Graph(recipe, workspace), runs, sts_variants(rows)), sts_rows(Graph(recipe, workspace))
    )
    assert [line[2] for line in gone.rows] == [line[2] for line in here.rows]
    assert {line[3] for line in gone.rows} == {"–"}


def test_what_has_not_been_trained_is_not_run(made: Tiny, tmp_path: Path, capsys) -> None:
    other = Tiny(tmp_path / "other")
    shutil.copytree(made.workspace.root / "jobs", other.workspace.root / "jobs")
    for path in (other.workspace.root / "jobs").glob("*-san-mmt-fb-1"):
        shutil.rmtree(path)
    assert other.main("sts", *options(made)) == 0
    printed = capsys.readouterr().out
    assert any(line.split() == ["san", "mmt-fb", "not", "run"] for line in printed.splitlines())
    assert "1 not run: run `bildwort vse` with the same recipe and settings, then again `bildwort sts`" in printed


def test_without_fasttext_its_row_says_how_to_get_it(made: Tiny, tmp_path: Path, monkeypatch, capsys) -> None:
    other = made.without(tmp_path, "sts-fasttext")
    monkeypatch.setattr(models, "installed", lambda: False)
    assert other.main("sts", *options(made)) == 0
    assert "not run: needs `make setup EXTRA=fasttext`" in capsys.readouterr().out
    assert not (other.workspace.root / "jobs" / "sts-fasttext").exists()


def test_a_constant_prediction_is_marked(made: Tiny, tmp_path: Path, capsys) -> None:
    other = made.without(tmp_path, "sts-*")
    write(other.folder, [("qqq", "www"), ("eee", "rrr"), ("ttt", "zzz")])
    assert other.main("sts", *options(other)) == 0
    printed = capsys.readouterr().out
    assert "r made undefined, made-clean undefined" in printed
    assert next(line for line in printed.splitlines() if "TF-IDF" in line).count("undefin") == 2
    assert "pearson" not in other.metrics("sts-san-human-1")["made"]["en"]


def test_a_model_that_was_not_trained_on_the_language_is_skipped_with_a_mark(made: Tiny, capsys) -> None:
    german = options(made, "--sts.language=de")
    rows = sts_rows(Graph(made.recipe(*german), made.workspace))
    assert [row.job for row in rows] == [None, None]
    assert made.main("report", *german) == 0
    text = (made.workspace.root / "tiny" / "report" / "report.md").read_text()
    assert "| san | human (not trained on de) | – |" in text
    capsys.readouterr()
    assert made.main("sts", *german) == 1
    assert "that reads 'de' has been trained; run `bildwort vse`" in " ".join(capsys.readouterr().err.split())


def test_models_of_tables_are_shown_where_they_have_been_tested(made: Tiny, tmp_path: Path) -> None:
    text = "tables: {one: {title: One, systems: {SAN: {rows: [human]}, DAN: {vse: {model: dan}, rows: [human]}}}}\n"
    (tmp_path / "with.yaml").write_text(f"base: {made.yaml}\n{text}")
    recipe = load_recipe(str(tmp_path / "with.yaml"), options(made))
    rows = sts_rows(Graph(recipe, made.workspace))
    assert [(row.system, row.source, row.optional) for row in rows[:3]] == [
        ("san", "human", False), ("san", "mmt-fb", False), ("DAN", "human", True),
    ]  # fmt: skip
    assert [can_run(row, made.workspace) for row in rows] == [True, True, False, True, True, True, True]
    (sheet,) = sts_tables(Figures(Graph(recipe, made.workspace), []), rows)
    assert "DAN" not in {line[0] for line in sheet.rows}


def test_bad_input_is_one_line_before_anything_runs(fresh: Tiny, capsys) -> None:
    path = write(fresh.folder, [("a", "b"), ("c", "d")])
    gold_file(path).write_text("1\nsix\n")
    for more, said in (
        ([], "recipe tiny has no sts.sets; name one: --sts.sets.images-2014=sts/STS2014.input.images.txt"),
        ([SETS], "sts.sets: no data root; set BILDWORT_DATA=FOLDER or pass --corpus.root=FOLDER"),
        (options(fresh, "--sts.sets.made=sts/STS.input.no.txt"), "sts/STS.input.no.txt: no such file"),
        (options(fresh), "STS.gs.made.txt:2: gold score 'six'; expected a number from 0 to 5"),
        ([SETS, "--sts.sets.made=sts/made.txt"], "sts.sets.made is 'sts/made.txt'; expected the file of the pairs"),
        (["--sts.sets={a b: x.input.y}"], "sts.sets has 'a b'; expected letters, digits and -"),
        (["--sts.sets={a-clean: x.input.y}"], "sts.sets has 'a-clean'"),
        (["--sts.language=English"], "sts.language is 'English'; expected a code like en"),
        (["--sts.set=x"], "did you mean sts.sets?"),
    ):
        assert fresh.main("sts", *more) == 1
        error = capsys.readouterr().err
        assert said in " ".join(error.split()).replace(f"{fresh.folder}/", ""), error
    assert not fresh.workspace.root.exists()
    write(fresh.folder, [("a", "b"), ("c", "d")])
    assert fresh.main("sts", *options(fresh)) == 1
    assert "has been trained; run `bildwort vse`" in " ".join(capsys.readouterr().err.split())


def test_a_damaged_artifact_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "made.npz").write_bytes(b"no")
    with pytest.raises(RecipeError, match=r"made.npz: not readable .*; delete .* and run"):
        read_tested(tmp_path, "made")
