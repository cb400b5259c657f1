"""Query translation from several languages at once, and figures that name the task of their language."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet as pq
import pytest

import pipeline.reporting.records as store
import pipeline.retrieval.query_translation as query_translation
from data.text.text_inputs import WordVocabulary
from modules.retrieval_models import build_model
from pipeline.corpus.prepare import about_corpus, corpus_job
from pipeline.engine.artifacts import write_manifest
from pipeline.engine.job import Job
from pipeline.engine.workspace import Workspace
from pipeline.errors import RecipeError
from pipeline.export.model_card import model_card
from pipeline.graph import Graph
from pipeline.recipes.loading import load_recipe
from pipeline.recipes.settings import Recipe
from pipeline.reporting.report import report
from pipeline.retrieval.ranks import read_ranks
from pipeline.training.model_files import save_model
from tests.data.official import OWN, write_data
from tests.pipeline.tiny import at, ran

THREE = "--vse.translate=[mt:de-en,mt:fr-en,mt:cs-en]"
SMALL = ["--trainer.accelerator=cpu", "--trainer.threads=1", "--trainer.progress=false", "--trainer.precision=32-true",
         "--vse.seeds=[1]", "--vse.only=[none]", "--report.record=false"]  # fmt: skip


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_data(tmp_path / "data")
    return tmp_path


def recipe_of(root: Path, *more: str) -> Recipe:
    return load_recipe("multi30k-flickr8k-4", [f"--corpus.root={root / 'data'}", *SMALL, *more])


def untrained(folder: Path) -> Path:
    """A retrieval model of English on regions of five numbers, with random weights."""
    folder.mkdir()
    words = WordVocabulary.build(["the dog of is in park with ball task2"], ["en"], min_count=1)
    words.save(folder / "words.json")
    arguments = {"region_dim": 5, "vocabulary_size": len(words), "languages": ["en"], "dim": 8, "word_dim": 8}
    save_model(folder, "san", arguments, build_model("san", **arguments))
    return folder


def test_queries_of_three_languages_are_translated_each_by_its_translator(root: Path, monkeypatch, capfd) -> None:
    recipe, workspace = recipe_of(root, THREE), Workspace(root / "artifacts")
    (row,) = Graph(recipe, workspace).rows
    assert (row.languages, row.unseen, row.system) == ({"de", "fr", "cs"}, set(), "san by mt:de-en, mt:fr-en, mt:cs-en")
    assert row.job.name == "search-mt-de-en+mt-fr-en+mt-cs-en-san-none-1"
    names = {place: job.name for place, job in row.job.inputs.items()}
    assert names == {
        "corpus": "corpus", "model": "vse-san-none-1",
        **{f"translator-{direction}": f"mt-{direction}" for direction in ("de-en", "fr-en", "cs-en")},
    }  # fmt: skip
    loaded = []

    def translate_all(network, bpe, source, image_ids, regions, target, *_) -> list:
        assert (target, regions, set(image_ids)) == ("en", None, {None})
        return [[SimpleNamespace(text=f"by {network}: {text}")] for text in source]

    def load(folder: Path) -> tuple:
        loaded.append(folder.name)
        return folder.name, SimpleNamespace(encode_all=lambda texts, language: texts)

    monkeypatch.setattr(query_translation, "load_translator", load)
    monkeypatch.setattr(query_translation, "translate_all", translate_all)
    with at(root):
        corpus = ran(workspace, corpus_job(recipe, workspace))
        inputs = {"corpus": corpus, "model": untrained(root / "model")}
        inputs |= {place: root / job.name for place, job in row.job.inputs.items() if place.startswith("translator")}
        (root / "out").mkdir()
        figures = row.job.run(root / "out", inputs)
    assert loaded == ["mt-de-en", "mt-fr-en", "mt-cs-en"]
    assert "parquet" not in capfd.readouterr().err  # a bar that nobody asked for
    assert list(figures["test"]) == ["de", "fr", "cs"]
    count = len(OWN["test"])
    assert {one: len(read_ranks(root / "out", one).text_to_image) for one in figures["test"]} == {
        "de": 5 * count, "fr": count, "cs": count,
    }  # fmt: skip
    rows = pq.read_table(root / "out" / "translated.parquet").to_pylist()
    assert len(rows) == 7 * count
    assert {row["language"] for row in rows} == {"en"}
    french = next(row["text"] for row in rows if "#fr" in row["caption_id"])
    assert french.startswith("by mt-fr-en: Le chien de t5 task1")


def test_one_translation_has_the_job_that_it_had(root: Path) -> None:
    """Recorded results of `mt:de-en` stay valid."""
    workspace = Workspace(root / "artifacts")
    jobs = [
        Graph(recipe_of(root, f"--vse.translate={one}"), workspace).rows[0].job for one in ("mt:de-en", "[mt:de-en]")
    ]
    assert jobs[0].key == jobs[1].key
    assert (jobs[0].name, set(jobs[0].inputs)) == ("search-mt-de-en-san-none-1", {"corpus", "model", "translator"})
    assert jobs[0].settings == {"direction": "de-en", "beam_size": 5, "length_penalty": 1.0}


@pytest.mark.parametrize(
    ("translate", "words"),
    [
        ("[mt:de-en,mt:xx-en]", "vse.translate is 'mt:xx-en'; expected mt:de-en"),
        ("[mmt:de-en]", "vse.translate is 'mmt:de-en'; expected mt:de-en (a query has no picture)"),
        ("[mt:de-en,mt:de-en]", "expected one translation or more, each from another language"),
        ("[mt:en-de,mt:en-fr]", "expected one translation or more, each from another language"),
        ("[]", "vse.translate is []; expected one translation or more"),
    ],
)
def test_translations_that_make_no_sense_are_one_line(root: Path, translate: str, words: str) -> None:
    with pytest.raises(RecipeError) as error:
        recipe_of(root, f"--vse.translate={translate}")
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def finish(workspace: Workspace, job: Job, metrics: dict, queries: dict[str, int]) -> None:
    """A job's artifact: figures, and ranks of three images with so many captions in each language."""
    folder = workspace.folder(job)
    folder.mkdir(parents=True)
    manifest = {"metrics": metrics, "wall_s": 1.0, "cpu_s": 1.0, "peak_memory_mb": 5.0, "resumed": False}
    write_manifest(folder, manifest)
    for language, count in queries.items():
        np.savez(folder / f"ranks-{language}.npz", text_to_image=np.full(count, 1), image_to_text=np.full(3, 1),
                 caption_image=np.arange(count) % 3)  # fmt: skip


def scores(value: float) -> dict[str, float]:
    names = [f"{way}_{name}" for way in ("t2i", "i2t") for name in ("r1", "r5", "r10", "medr")]
    return dict.fromkeys([*names, "mean_recall", "rsum"], value)


def test_each_figure_names_the_task_of_its_language_and_its_queries(root: Path, monkeypatch) -> None:
    monkeypatch.setattr(store, "RECORDS", root / "results")
    queries = {"en": 15, "de": 15, "fr": 3, "cs": 3}
    workspace, recipe = Workspace(root / "artifacts"), recipe_of(root, "--vse.only=[all]")
    (row,) = Graph(recipe, workspace).rows
    test = {language: scores(50.0) for language in queries}
    finish(workspace, row.job, {"test": test, "val": {}}, queries)
    with at(root):
        report(Graph(recipe, workspace))
    folder = workspace.root / recipe.name / "report"
    rows = [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]
    of_language = {(one["language"], one["task"], one["n"], one["captions"]) for one in rows if one["split"] == "test"}
    assert of_language == {("en", "task2", 3, 15), ("de", "task2", 3, 15), ("fr", "task1", 3, 3), ("cs", "task1", 3, 3),
                           ("cs+de+en+fr", "task1+task2", 3, 0)}  # fmt: skip
    text = (folder / "report.md").read_text()
    assert "san, en, test (3 images, 15 captions, too few to compare systems), Multi30K, Flickr8K overlap, own" in text
    assert "san, fr, test (3 images, 3 captions, too few to compare systems), Multi30K, Flickr8K overlap, own" in text
    titles = [line for line in text.splitlines() if line.startswith("**Retrieval, ")]
    assert [sum(f"own split ({task})" in title for title in titles) for task in ("task1", "task2")] == [2, 2]
    with at(root):
        about = about_corpus(ran(workspace, corpus_job(recipe, workspace)))
    model = {"name": "a model", "languages": ["cs", "de", "en", "fr"], "regions": None, "row": row.name,
             "seed": row.seed, "test": test, "reranker": None, "license": None}  # fmt: skip
    card = model_card(recipe, model, about, [])
    assert "| fr (task1) | 50.0" in card
    assert "| de (task2) | 50.0" in card
