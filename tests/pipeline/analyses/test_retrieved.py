"""Captions that a trained model retrieves: scored against the other captions of the image, in the report and tables."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from data.captions.table import read_captions, references_of
from data.pictures.regions import RegionStore
from data.text.tokenisation import plain_words
from modules.metrics.cider import CiderD, document_frequencies
from modules.training.ranked import EncodedModule
from pipeline.analyses.description import read_values
from pipeline.analyses.retrieved import _means, name_of
from pipeline.engine.workspace import Workspace
from pipeline.errors import RecipeError
from pipeline.graph import Graph
from pipeline.recipes.loading import load_recipe
from pipeline.recipes.trainer_settings import TrainerSettings
from pipeline.reporting.analyses import tables_of
from pipeline.reporting.records import finished_records
from pipeline.reporting.results import Figures
from pipeline.retrieval.ranks import ModelTest, encode_split
from pipeline.training.model_files import load_model
from tests.pipeline.test_two_processes import run_on_two
from tests.pipeline.tiny import Tiny

TWO = ["--corpus.captions=2", "--vse.only=[human]", "--vse.epochs=2"]
ON = "--vse.retrieved_captions=true"
TABLE = """
tables:
  "2":
    title: Retrieved
    captions: true
    folds: {folds}
    systems:
      ours: {{rows: [human], published: {{human: [54.6, 34.5, 21.0, null, 56.3, 1, 2, 3, 4, 5]}}}}
    published: {{theirs: [50, 40, 30, 20, 61.1]}}
"""


def retrieved(folder: Path, language: str) -> SimpleNamespace:
    """What a finished job left of one language."""
    with np.load(folder / f"retrieved-{language}.npz") as left:
        return SimpleNamespace(**left)


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Tiny:
    """A model that was trained without the setting, on images with two captions a language; then scored."""
    made = Tiny(tmp_path_factory.mktemp("retrieved"))
    assert made.main("vse", *TWO) == 0
    assert not list((made.workspace.root / "jobs").glob("retrieved-*"))
    (before,) = (made.workspace.root / "jobs" / "vse-san-human-1").glob("*/manifest.json")
    written = before.stat().st_mtime_ns
    assert made.main("vse", *TWO, ON) == 0
    assert made.job("vse-san-human-1") == before.parent
    assert before.stat().st_mtime_ns == written
    return made


def test_figures_are_those_of_the_first_captions_one_image_at_a_time(made: Tiny) -> None:
    corpus = made.job("corpus")
    captions, store = read_captions(corpus / "captions.parquet"), RegionStore(corpus / "regions")
    model, text = load_model(made.job("vse-san-human-1"))
    settings = TrainerSettings("cpu", threads=1, progress=False)
    data, encoded = encode_split(ModelTest(EncodedModule(model, ["en", "de"]), text, captions, store, settings))
    rows = captions.to_list()
    for language in ("en", "de"):
        own = [row for row in rows if row["language"] == language and row["source"] == "human"]
        training: dict[str, list] = {}
        for row in own:
            if row["split"] == "train":
                training.setdefault(row["image_id"], []).append(plain_words(row["text"], language))
        frequencies = document_frequencies(training.values())
        images, names = data.ranked("test", language)
        about = {row["caption_id"]: row for row in own if row["split"] == "test"}
        found, scored = retrieved(made.job("retrieved-san-human-1"), language), encoded[language].scores()
        assert found.images.tolist() == images
        assert found.captions.shape == found.cider.shape == (len(images), 5)
        for place, image in enumerate(images):
            scores, listed = scored[place], found.captions[place].tolist()
            best = scores[[names.index(name) for name in listed]]
            torch.testing.assert_close(best, scores.sort(descending=True).values[:5])  # of equal ones either is first
            for rank, name in enumerate(listed):
                others = [plain_words(row["text"], language) for key, row in about.items()
                          if row["image_id"] == image and key != name]  # fmt: skip
                score = CiderD([others], frequencies).score([plain_words(about[name]["text"], language)], [0])
                assert found.cider[place, rank] == pytest.approx(100 * score[0])
        scores = made.metrics("retrieved-san-human-1")["test"][language]
        assert scores[name_of("cider", 3)] == pytest.approx(found.cider[:, 2].mean())
        assert scores["retrieved_images"] == len(images)
        assert np.isfinite(found.cider).all()
        assert 0 <= scores["retrieved_bleu4@1"] <= scores["retrieved_bleu1@1"] <= 100
        assert len(scores) == 1 + 5 * 5


def test_the_report_has_a_table_of_its_own_and_rows_with_intervals_of_cider(made: Tiny) -> None:
    assert made.main("report", *TWO, ON) == 0
    folder = made.workspace.root / "tiny" / "report"
    text = (folder / "report.md").read_text()
    lines = text.partition("**Retrieved captions, san, en (4 images)")[2].partition("\n\n**")[0].splitlines()
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line.startswith("|")]
    assert cells[0] == ["trained on", "rank", "BLEU-1", "2", "3", "4", "CIDEr-D", "95 %", "seeds"]
    assert [line[:2] for line in cells[2:]] == [["human", str(rank)] for rank in range(1, 6)]
    assert "**Retrieved captions, san, de (4 images)" in text
    assert "human (not trained on de)" in text.partition("**Retrieved captions, san, de")[2].partition("\n\n**")[0]
    found = [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]
    found = [row for row in found if row["metric"].startswith("retrieved_") and row["language"] == "en"]
    assert len(found) == 25
    cider = next(row for row in found if row["metric"] == "retrieved_cider@1")
    assert cider["low"] <= cider["value"] <= cider["high"]
    assert f"{cider['value']:.1f}" == cells[2][6]
    assert next(row for row in found if row["metric"] == "retrieved_bleu1@1")["low"] is None
    assert "Retrieved captions" not in text.partition("**Retrieval, san, en")[2].partition("\n\n**")[0]


def test_records_fill_the_table_when_the_artifacts_are_gone(made: Tiny, tmp_path: Path) -> None:
    recipe = made.recipe(*TWO, ON)
    rows, gone = Graph(recipe, made.workspace).rows, Workspace(tmp_path / "artifacts")
    jobs = [job for row in rows for job in row.jobs]
    runs = list(finished_records(made.workspace, jobs, recipe, {}))
    (here,) = tables_of("retrieved", Figures(Graph(recipe, made.workspace), []), rows, "en")
    (there,) = tables_of("retrieved", Figures(Graph(recipe, gone), runs), rows, "en")
    (untrained,) = tables_of("retrieved", Figures(Graph(recipe, gone), []), rows, "en")
    assert [line[:7] for line in there.rows] == [line[:7] for line in here.rows]
    assert {line[7] for line in there.rows} == {"–"}
    assert untrained.rows[0][:2] == ["human", "not run"]


@pytest.mark.parametrize("folds", [False, True])
def test_a_table_of_the_paper_trains_scores_and_stands_beside_published_figures(
    made: Tiny, tmp_path: Path, capsys, folds: bool
) -> None:
    (tmp_path / "with.yaml").write_text(f"base: {made.yaml}\n{TABLE.format(folds=str(folds).lower())}")
    made_too = made.without(tmp_path / "run", "retrieved-*")
    made_too.yaml = tmp_path / "with.yaml"
    more = [*TWO, ON] + (["--vse.folds=2"] if folds else [])
    if folds:
        (tmp_path / "with.yaml").write_text((tmp_path / "with.yaml").read_text() + "vse: {folds: 2}\n")
    assert made_too.main("table", "--table", "2", *more) == 0
    printed = capsys.readouterr().out
    lines = [line.split() for line in printed.splitlines()]
    assert ["published", "1", "54.6", "34.5", "21.0", "56.3"] in lines
    assert ["published", "2", "1.0", "2.0", "3.0", "4.0", "5.0"] in lines
    assert ["theirs", "published", "1", "50.0", "40.0", "30.0", "20.0", "61.1"] in lines
    name = "retrieved-san-human-1"
    scores = made_too.metrics(name)["folds" if folds else "test"]["en"]
    ours = next(line for line in lines if line[:3] == ["ours", "human", "1"])
    assert ours[3:8] == [f"{scores[name_of(m, 1)]:.1f}" for m in ("bleu1", "bleu2", "bleu3", "bleu4", "cider")]
    away = next(line for line in lines if line[:2] == ["difference", "1"])
    assert away[-1] == f"{scores['retrieved_cider@1'] - 56.3:+.1f}"  # of the figure itself, not of the one shown


def test_a_fold_has_a_gallery_of_its_own(made: Tiny, tmp_path: Path) -> None:
    other = made.without(tmp_path / "folds", "retrieved-*")
    assert other.main("vse", *TWO, ON, "--vse.folds=4") == 0
    figures = other.metrics("retrieved-san-human-1")
    assert figures["test"] == made.metrics("retrieved-san-human-1")["test"]
    alone = figures["folds"]["en"]
    assert (alone["images"], alone["retrieved_images"]) == (1, 1)
    names = (name_of(m, k) for m in ("bleu1", "bleu2", "bleu3", "bleu4", "cider") for k in (1, 2))
    assert set(alone) == {"images", "retrieved_images", *names}  # it has two captions
    captions = read_captions(made.job("corpus") / "captions.parquet")
    pairs: dict[str, list] = {}
    for row in captions.to_list():
        if (row["split"], row["language"]) == ("test", "en"):
            pairs.setdefault(row["image_id"], []).append(plain_words(row["text"], "en"))
    frequencies = document_frequencies(references_of(captions, "en", "train").values())
    both = [CiderD([[b], [a]], frequencies).score([a, b], [0, 1]).sum() for a, b in pairs.values()]
    assert alone["retrieved_cider@1"] + alone["retrieved_cider@2"] == pytest.approx(100 * np.mean(both))


def test_ranks_that_a_fold_is_too_small_for_have_no_mean() -> None:
    large, small = ({name_of("cider", rank): float(rank) for rank in range(1, most)} for most in (6, 4))
    assert _means([large, small]) == _means([small, large]) == small


def test_without_a_second_caption_there_is_nothing_to_compare_with(tiny: Tiny, tmp_path: Path) -> None:
    other = tiny.without(tmp_path, "none")
    assert other.main("vse", ON, "--vse.only=[human]") == 0
    assert other.metrics("retrieved-san-human-1") == {}
    assert other.main("report", ON, "--vse.only=[human]") == 0
    text = (other.workspace.root / "tiny" / "report" / "report.md").read_text()
    assert "| human | – |" in text.partition("**Retrieved captions, san, en")[2]


def test_combined_models_are_not_scored(made: Tiny) -> None:
    for more in ("--vse.fuse=[san,dan]", "--vse.first=vse++"):
        assert [row.analyses.get("retrieved") for row in Graph(made.recipe(*TWO, ON, more), made.workspace).rows] == [
            None
        ]


def test_bad_input_is_one_line(made: Tiny, tmp_path: Path) -> None:
    (tmp_path / "retrieved-en.npz").write_bytes(b"no")
    with pytest.raises(RecipeError, match=r"retrieved-en.npz: not readable .*; delete .* and run"):
        read_values(tmp_path, "en", "retrieved", "cider")
    for old, new, said in (
        ("[50, 40, 30, 20, 61.1]", "[50, 40, 30]", "tables.2.published.theirs: expected BLEU-1 to 4 and CIDEr-D × 100"),
        ("3, 4, 5]", "3, 4]", "tables.2.systems.ours.published.human: expected BLEU-1 to 4"),
        ("{rows: [human], p", "{vse: {retrieved_captions: false}, rows: [human], p",
         "tables.2.captions needs vse.retrieved_captions"),
        ("{rows: [human], p", "{vse: {fuse: [san, dan]}, rows: [human], p", "tables.2.captions needs"),
        ("{human: [54", "{none: [54", "ours.published.none: expected one of its rows, human"),
        ("captions: true", "captions: false", "expected R@1, 5, 10 both ways"),
    ):  # fmt: skip
        text = TABLE.format(folds="false")
        assert old in text
        text = f"base: {made.yaml}\n{text.replace(old, new)}vse: {{retrieved_captions: true}}\n"
        (tmp_path / "bad.yaml").write_text(text)
        with pytest.raises(RecipeError, match=said):
            load_recipe(str(tmp_path / "bad.yaml"))


@pytest.mark.slow
def test_two_processes_leave_what_one_leaves(made: Tiny, tmp_path: Path) -> None:
    two = made.without(tmp_path / "two", "retrieved-*")
    run_on_two(two, "vse", *TWO, ON)
    ours, theirs = (one.metrics("retrieved-san-human-1")["test"]["en"] for one in (two, made))
    assert ours == pytest.approx(theirs)
    first, second = (retrieved(one.job("retrieved-san-human-1"), "en") for one in (two, made))
    assert (first.captions == second.captions).all()
