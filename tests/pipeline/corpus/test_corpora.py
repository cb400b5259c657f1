"""The corpora of other people's layouts through the stages: doctor, prepare, a tiny retrieval model, folds, report."""

import json
import re
import shutil
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

from data.captions.table import Caption, Pair, read_captions
from data.corpora import Corpus
from data.corpora.registry import CORPORA
from data.pictures.regions import RegionStore, write_regions
from modules.metrics.retrieval import fold_scores, retrieval_scores
from pipeline.cli import main
from pipeline.corpus.prepare import _regions
from pipeline.engine.job import Job
from pipeline.engine.workspace import Workspace
from pipeline.graph import Graph
from pipeline.recipes.loading import load_recipe
from pipeline.recipes.settings import CorpusSettings
from pipeline.retrieval.ranks import read_ranks
from tests.data.layouts import SIZES, write_folder, write_json, write_karpathy, write_precomputed, write_xtd10
from tests.pipeline.drawn import draw
from tests.pipeline.tiny import at

pytestmark = pytest.mark.whole

RECIPE = """
seed: 3
trainer: {accelerator: cpu, threads: 1, progress: false}
vse:
  dim: 16
  word_dim: 16
  min_count: 1
  batch_size: 4
  epochs: 2
  warmup_epochs: 1
  rows: {none: [en/human]}
  test: [en]
"""
KARPATHY = "corpus: {name: karpathy, captions: dataset.json, regions: regions, label: made up}\n"
PRECOMPUTED = "corpus: {name: precomputed, folder: coco_precomp, test: testall, label: made up}\n"


class Made:
    """A data root, a recipe and its artifacts."""

    def __init__(self, folder: Path, corpus: str) -> None:
        self.folder, self.yaml = folder, folder / "made.yaml"
        self.yaml.write_text(RECIPE + corpus)
        self.workspace = Workspace(folder / "artifacts")
        if "karpathy" in corpus:
            write_karpathy(folder)
        else:
            sizes = {"train": 8, "dev": 4, "testall": 10}
            write_precomputed(folder / "coco_precomp", sizes, copies=5)

    def main(self, stage: str, *arguments: str) -> int:
        with at(self.folder):
            return main([stage, "--recipe", str(self.yaml), f"--corpus.root={self.folder}", *arguments])

    def row(self, *arguments: str) -> Path:
        """The folder of the only row."""
        (row,) = Graph(load_recipe(str(self.yaml), [f"--corpus.root={self.folder}", *arguments]), self.workspace).rows
        return self.workspace.require(row.job)


def corpora(folder: Path) -> list[Path]:
    """The finished folders of corpora."""
    return [path.parent for path in (folder / "artifacts/jobs/corpus").glob("*/manifest.json")]


@pytest.mark.parametrize("corpus", [KARPATHY, PRECOMPUTED])
def test_a_whole_run(tmp_path: Path, capsys, corpus: str) -> None:
    made = Made(tmp_path, corpus)
    assert made.main("doctor") == 0
    assert "data report: 0 errors, 0 warnings" in capsys.readouterr().out
    assert not (tmp_path / "artifacts").exists()
    folds = "--vse.folds=5"
    assert [made.main(stage, folds, "-v") for stage in ("prepare", "vse", "report")] == [0, 0, 0]
    printed = capsys.readouterr().out
    assert "pairs, regions 2×5\ndata report: 0 errors, " in printed
    metrics = json.loads((made.row(folds) / "manifest.json").read_text())["metrics"]
    (retrieved,) = (tmp_path / "artifacts" / "jobs").glob("retrieved-*/*/manifest.json")
    whole, mean = metrics["test"]["en"], metrics["folds"]["en"]
    assert mean["images"] == 2
    assert mean.keys() == whole.keys() | {"images"}
    assert mean["t2i_r5"] == mean["i2t_r10"] == 100  # of two images, or ten captions
    assert whole["t2i_r5"] < 100
    assert metrics["test"]["en"] == retrieval_scores(read_ranks(made.row(folds), "en"))
    text = (tmp_path / "artifacts/made/report/report.md").read_text()
    name = "karpathy" if corpus is KARPATHY else "precomputed"
    assert re.search(rf"\*\*Retrieval, san, en, test \(10 images, \d+ captions, too few .*\), made up \({name}\)", text)
    assert f"**Retrieval, san, en, test, mean of 5 folds, made up ({name})**" in text
    assert "en, mean of 5 folds R@1/5/10" in printed
    found = [json.loads(line) for line in (tmp_path / "artifacts/made/report/results.jsonl").read_text().splitlines()]
    of_folds = {row["metric"]: row for row in found if row["split"] == "test-2"}
    mean |= json.loads(retrieved.read_text())["metrics"]["folds"]["en"]
    assert {metric: row["value"] for metric, row in of_folds.items()} == {
        metric: pytest.approx(mean[metric], abs=1e-4) for metric in of_folds
    }
    assert {"rsum", "retrieved_cider@1"} <= of_folds.keys()
    assert {(row["low"], row["high"], row["n"]) for row in of_folds.values()} == {(None, None, 2)}
    assert {row["n"] for row in found if row["split"] == "test"} == {10}


def test_a_picture_that_changes_is_read_again_by_what_reads_pixels_and_by_nothing_else(tmp_path: Path) -> None:
    made = Made(tmp_path, KARPATHY.replace("captions:", "pictures: pictures, captions:"))
    picture = tmp_path / "pictures" / "a.png"
    picture.parent.mkdir()

    def keys(number: int) -> tuple[str, str, str]:
        draw(picture, number)
        arguments = ("--vse.model=gxn", "--vse.options={generate: [t2i], picture_size: 8}")
        recipe = load_recipe(str(made.yaml), [f"--corpus.root={tmp_path}", *arguments])
        graph = Graph(recipe, made.workspace)
        job = graph.rows[0].job
        return graph.corpus.key, job.inputs["pixels"].key, job.key

    (corpus, pixels, trained), (same, *others) = keys(1), keys(2)
    assert same == corpus
    assert others[0] != pixels
    assert others[1] != trained


def test_all_that_is_wrong_with_pictures_is_said_before_any_is_read(tmp_path: Path, monkeypatch, capsys) -> None:
    write_folder(tmp_path / "data")
    for name in ("3.png", "5.png"):
        (tmp_path / "data" / "pictures" / name).write_text("no picture")
    monkeypatch.setattr("pipeline.corpus.prepare.Extractor", None)  # it is not asked
    monkeypatch.chdir(tmp_path)
    assert main(["prepare", "--recipe", "own", f"--corpus.root={tmp_path / 'data'}"]) == 1
    told = " ".join(capsys.readouterr().err.split())
    assert "pictures that cannot be read (2×" in told
    assert (
        "correct the data, or leave them out by `unreadable: skip` in the recipe's section corpus (or --corpus" in told
    )


def test_pictures_that_cannot_be_read_are_left_out_if_asked_for(tmp_path: Path, monkeypatch, capsys) -> None:
    """With their captions and pairs; other corpora keep their keys."""
    write_folder(data := tmp_path / "data")
    (data / "pictures" / "3.png").write_text("no picture")
    (data / "pictures" / "5.png").write_bytes((data / "pictures" / "5.png").read_bytes()[:-40])
    monkeypatch.chdir(tmp_path)
    words = ["--recipe", "own", f"--corpus.root={data}", "--corpus.unreadable=skip"]
    assert main(["prepare", *words]) == 0
    assert "pictures that cannot be read, left out with their captions: 2×" in " ".join(capsys.readouterr().out.split())
    workspace = Workspace(tmp_path / "artifacts")
    job = Graph(load_recipe("own", words[2:]), workspace).corpus
    kept = read_captions(workspace.folder(job) / "captions.parquet")["image_id"][:]
    assert {*kept} == {f"{number}.png" for number in range(40)} - {"3.png", "5.png"}
    plain = Graph(load_recipe("own", [words[2]]), workspace).corpus
    assert plain.key != job.key
    assert plain.key == Graph(load_recipe("own", [words[2], "--corpus.unreadable=refuse"]), workspace).corpus.key


def test_captions_of_deleted_pictures_are_refused_or_left_out(tmp_path: Path, monkeypatch, capsys) -> None:
    write_folder(data := tmp_path / "data")
    for name in ("3.png", "5.png"):
        (data / "pictures" / name).unlink()
    lines = [number for number, line in enumerate((data / "captions.tsv").read_text().splitlines(), 1)
             if line.startswith(("3.png\t", "5.png\t"))]  # fmt: skip
    monkeypatch.chdir(tmp_path)
    words = ["--recipe", "own", f"--corpus.root={data}"]
    for command in ("prepare", "doctor"):
        assert main([command, *words]) == 1
        told = capsys.readouterr().err.splitlines()
        assert len(told) == len(lines) > 0, told
        for number, line in zip(lines, told, strict=True):
            assert f"captions.tsv:{number}: no picture " in line
            assert line.endswith("(or --corpus.unreadable=skip with each command)")
    assert main(["prepare", *words, "--corpus.unreadable=skip"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert f"lines left out, for their picture is not there: {len(lines)}×" in out
    job = Graph(load_recipe("own", [words[2], "--corpus.unreadable=skip"]), Workspace(tmp_path / "artifacts")).corpus
    kept = read_captions(Workspace(tmp_path / "artifacts").folder(job) / "captions.parquet")["image_id"][:]
    assert {*kept} == {f"{number}.png" for number in range(40)} - {"3.png", "5.png"}
    (data / "pictures" / "7.png").rename(data / "pictures" / "7.PNG")  # a name that is written otherwise is a mistake
    assert main(["prepare", *words, "--corpus.unreadable=skip"]) == 1
    assert "did you mean 7.PNG?" in capsys.readouterr().err


def test_a_picture_without_a_caption_changes_nothing_that_was_made(tmp_path: Path) -> None:
    write_folder(data := tmp_path / "data")
    recipe, workspace = load_recipe("own", [f"--corpus.root={data}"]), Workspace(tmp_path / "artifacts")
    before = Graph(recipe, workspace).corpus.key
    shutil.copy(data / "pictures" / "3.png", data / "pictures" / "0-copy.png")  # of a picture with a caption, too
    assert Graph(recipe, workspace).corpus.key == before
    read = CORPORA["folder"].read(recipe.corpus.options, data, tmp_path)
    assert read.unnamed == ["0-copy.png"]
    (data / "parallel.tsv").write_text("picture\ten\tde\n0-copy.png\tA dog\tEin Hund\n")
    with_pairs = replace(recipe.corpus.options, parallel="parallel.tsv")
    assert data / "pictures" / "0-copy.png" in CORPORA["folder"].sources(with_pairs, data)  # pairs may be about it
    with (data / "captions.tsv").open("a") as file:
        file.write("0-copy.png\ten\tA picture\n")
    assert Graph(recipe, workspace).corpus.key != before


def test_pictures_of_pairs_alone_keep_their_regions(tmp_path: Path) -> None:
    source = tmp_path / "store"
    write_regions(source, ["a", "b", "c"], [(np.full((2, 3), k), np.zeros((2, 4))) for k in range(3)])
    pairs = [Pair("1", "b", "train", "task1", {"en": "x"}), Pair("2", "gone", "train", "task1", {"en": "x"})]
    corpus = Corpus([Caption("a", "a1", "en", "x", "train")], pairs, {}, tmp_path, "task", "label")
    (tmp_path / "new").mkdir()
    store = _regions(corpus, RegionStore(source), tmp_path / "new", load_recipe("scenes"))
    assert store.ids == ["a", "b"]
    assert store.regions[1].max() == 1


def test_the_store_that_is_made_of_precomputed_features(tmp_path: Path) -> None:
    made = Made(tmp_path, PRECOMPUTED)
    assert made.main("prepare") == 0
    (folder,) = corpora(tmp_path)
    store = RegionStore(folder / "regions")
    for name in ("train", "dev", "testall"):
        images = np.load(tmp_path / "coco_precomp" / f"{name}_ims.npy")[::5].astype(np.float16)
        rows = store.rows([f"{name}-{number}" for number in range(len(images))])
        assert np.array_equal(store.regions[rows], images)
    assert len(store) == 22


@pytest.mark.parametrize("stage", ["prepare", "mmt", "vse", "report", "all"])
def test_nothing_is_prepared_or_trained_on_a_test_set(tmp_path: Path, capsys, stage: str) -> None:
    write_xtd10(tmp_path)
    arguments = ["--recipe=xtd10", f"--corpus.root={tmp_path}", "--corpus.pictures=coco"]
    with at(tmp_path):
        assert main([stage, *arguments]) == 1
        said = capsys.readouterr()
        assert main(["doctor", *arguments]) == 0
    assert said.err == (
        "error: xtd10: the corpus xtd10 is a test set, so nothing is prepared or trained; measure an exported model on "
        "it: `bildwort evaluate MODEL --on recipe:NAME`\n"
    )
    assert "data report: 0 errors, 0 warnings" in capsys.readouterr().out
    assert not list((tmp_path / "artifacts").rglob("manifest.json"))


def test_settings_of_an_extractor_that_is_not_used_leave_the_key_alone(tmp_path: Path) -> None:
    for number, corpus in enumerate((KARPATHY, PRECOMPUTED)):
        (tmp_path / str(number)).mkdir()
        made = Made(tmp_path / str(number), corpus)
        assert made.main("prepare") == made.main("prepare", "--regions.size=99") == 0
        assert len(corpora(made.folder)) == 1


def test_folds_are_those_of_the_file_not_of_the_names(tmp_path: Path) -> None:
    """The same as runs of which each has the images of one fold to test."""
    made = Made(tmp_path, KARPATHY)
    content = json.loads((tmp_path / "dataset.json").read_text())
    others, test = content["images"][:12], content["images"][12:]
    test = [test[number * 7 % 10] for number in range(10)]
    write_json(tmp_path / "dataset.json", others + test)
    arguments = ["--vse.folds=2", "--vse.epochs=1"]
    assert [made.main(stage, *arguments) for stage in ("prepare", "vse")] == [0, 0]
    mean = json.loads((made.row(*arguments) / "manifest.json").read_text())["metrics"]["folds"]["en"]
    parts = []
    for part in (test[:5], test[5:]):
        write_json(tmp_path / "dataset.json", others + part)
        assert [made.main(stage, "--vse.epochs=1") for stage in ("prepare", "vse")] == [0, 0]
        parts.append(read_ranks(made.row("--vse.epochs=1"), "en"))
    assert fold_scores(parts) | {"images": 5} == pytest.approx(mean)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--vse.folds=3"], "vse.folds is 3, but 10 test images cannot be cut into as many equal parts"),
        (["--vse.folds=0"], "vse.folds is 0; expected 1"),
        (
            ["--vse.folds=5", "--corpus.languages=[en,ja]", "--corpus.translated.ja=ja.tsv", "--vse.test=[en,ja]"],
            "vse.folds is 5, but fold 2 has no human caption in 'ja'",
        ),
    ],
)
def test_folds_that_cannot_be_are_told_before_anything_is_trained(
    tmp_path: Path, capsys, arguments: list[str], words: str
) -> None:
    made = Made(tmp_path, KARPATHY)
    lines = (tmp_path / "ja.tsv").read_text().splitlines()
    test = 100 + sum(SIZES.values()) - SIZES["test"]
    gone = {str(test + 2), str(test + 3)}
    (tmp_path / "ja.tsv").write_text("\n".join(line for line in lines if line.split("\t")[0] not in gone))
    made.main("prepare", *arguments)
    capsys.readouterr()
    assert made.main("vse", *arguments) == 1
    assert words in capsys.readouterr().err
    assert not list((tmp_path / "artifacts").rglob("*.ckpt"))


def test_folds_are_another_look_at_the_same_model(tmp_path: Path) -> None:
    write_karpathy(tmp_path)
    (tmp_path / "made.yaml").write_text(RECIPE + KARPATHY)

    def job(*arguments: str) -> Job:
        recipe = load_recipe(str(tmp_path / "made.yaml"), [f"--corpus.root={tmp_path}", *arguments])
        (row,) = Graph(recipe, Workspace(tmp_path / "artifacts")).rows
        return row.job

    plain, folds = job(), job("--vse.folds=5")
    assert plain.key == job("--vse.folds=1").key == folds.inputs["model"].key
    assert folds.name == "folds-5-san-none-1"
    assert folds.key != job("--vse.folds=2").key


def test_recipes_of_flickr30k_and_coco_are_the_paper_s_on_another_corpus() -> None:
    multi30k = load_recipe("multi30k")
    for name, folds in (("flickr30k", 1), ("coco", 5)):
        recipe = load_recipe(name)
        assert (recipe.corpus.name, recipe.vse.test, recipe.vse.folds) == ("karpathy", ["en"], folds)
        assert (recipe.mmt, recipe.augment) == (multi30k.mmt, replace(multi30k.augment, translators="multi30k"))
        assert set(multi30k.vse.rows) - set(recipe.vse.only) == {"human-de"}
        own = {"only": [], "test": ["en", "de"], "folds": 1}
        assert replace(recipe.vse, **own) == replace(multi30k.vse, **own)
    flickr = load_recipe("flickr30k").corpus.options
    assert flickr.keep_suffix
    assert flickr.regions == multi30k.corpus.options.regions  # one store for both


def test_no_corpus_has_a_setting_of_all_corpora(tmp_path: Path) -> None:
    """A recipe could not set it."""
    of_all = {field.name for field in fields(CorpusSettings)}
    for name, corpus in CORPORA.items():
        assert not of_all & {field.name for field in fields(corpus.settings)}, name
    (tmp_path / "mine.yaml").write_text("corpus: {name: precomputed, lines_per_image: 1, images: 3}")
    recipe = load_recipe(str(tmp_path / "mine.yaml"))
    assert (recipe.corpus.options.lines_per_image, recipe.corpus.images) == (1, 3)
