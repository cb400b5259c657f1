"""Tasks of `mteb` on an exported model: its protocol on a task made here, what was seen in training; bad input."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from datasets import Dataset, Image

from data.evaluation.seen import TRAIN
from modules.retrieval_models.base import MODELS
from pipeline.analyses.sets import set_of_recipe
from pipeline.cli import main
from pipeline.corpus.prepare import pictures_of
from pipeline.errors import RecipeError
from pipeline.evaluation import benchmark
from pipeline.evaluation.benchmark import (
    BenchmarkEncoder,
    all_languages,
    benchmark_task,
    languages_of_task,
    measure_task,
)
from pipeline.evaluation.measure import measure
from pipeline.evaluation.network_model import network_model
from pipeline.export.exported_model import ExportedModel
from tests.modules.dual_networks import save
from tests.pipeline.tiny import Tiny, at

mteb = pytest.importorskip("mteb", reason="mteb is not installed (`make setup EXTRA=benchmarks`)")
from mteb.abstasks.retrieval import AbsTaskRetrieval  # noqa: E402 # needs it
from mteb.abstasks.task_metadata import TaskMetadata  # noqa: E402

pytestmark = pytest.mark.whole

LANGUAGES = {"en": ["eng-Latn"], "cs": ["ces-Latn"]}


def _metadata(category: str, **changes: object) -> TaskMetadata:
    plain = {
        "name": f"Tiny{category}", "description": "tiny", "reference": None, "type": "Any2AnyMultilingualRetrieval",
        "dataset": {"path": "nobody/nothing", "revision": "1"}, "category": category, "eval_splits": ["test"],
        "eval_langs": LANGUAGES, "main_score": "ndcg_at_10", "date": None, "domains": None, "task_subtypes": None,
        "license": None, "annotations_creators": None, "dialect": None, "sample_creation": None, "bibtex_citation": "",
        "modalities": ["text", "image"],
    }  # fmt: skip
    return TaskMetadata(**plain | changes)


def _task(used: Tiny, category: str, split: str = "test") -> AbsTaskRetrieval:
    """The English captions and pictures of a split of the tiny corpus, as a task of mteb."""
    pictures = pictures_of(used.job("corpus"))
    rows = [row for row in used.captions("corpus") if row["split"] == split and row["language"] == "en"]
    images = list(dict.fromkeys(row["image_id"] for row in rows))
    texts = Dataset.from_dict({"id": [f"text-{n}" for n in range(len(rows))], "text": [row["text"] for row in rows]})
    shown = Dataset.from_dict({"id": images, "image": [str(pictures[one]) for one in images]})
    shown = shown.cast_column("image", Image())
    links: dict[str, dict[str, int]] = {}
    for number, row in enumerate(rows):
        of_text, of_image = f"text-{number}", row["image_id"]
        query, found = (of_text, of_image) if category == "t2i" else (of_image, of_text)
        links.setdefault(query, {})[found] = 1
    queries, corpus = (texts, shown) if category == "t2i" else (shown, texts)
    data = {"queries": queries, "corpus": corpus, "relevant_docs": links, "top_ranked": None}

    class Task(AbsTaskRetrieval):
        metadata = _metadata(category)

        def load_data(self, **_: object) -> None:
            self.dataset, self.data_loaded = {"en": {"test": dict(data)}}, True

    return Task()


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch, used: Tiny) -> None:
    """Two tasks that mteb knows by name."""
    from mteb.get_tasks import _TASKS_REGISTRY

    for category in ("t2i", "i2t"):
        monkeypatch.setitem(_TASKS_REGISTRY, f"Tiny{category}", type(_task(used, category)))


@pytest.mark.parametrize("category", ["t2i", "i2t"])
def test_mteb_s_figures_are_those_of_our_ranks(used: Tiny, exported: ExportedModel, category: str) -> None:
    languages, left = languages_of_task(exported, _task(used, category))
    assert (languages, left) == ({"en": "en"}, ["cs"])
    (found,) = measure_task(exported, _task(used, category), languages, None)
    (ours,) = measure(exported, set_of_recipe(used.recipe(), used.workspace, "test"), 100, 1)
    names = [f"{category}_r{k}" for k in (1, 5, 10)]
    assert [found.figures[name][0] for name in names] == pytest.approx([ours.figures[name][0] for name in names])
    assert 0 < found.figures["ndcg_at_10"][0] <= 100
    assert (found.images, found.captions, found.language) == (ours.images, ours.captions, "en")
    assert (found.seen or {})[TRAIN]._asdict() == {"names": None, "pictures": 0, "sentences": 0}


def test_what_was_trained_on_is_found_in_a_task(used: Tiny, exported: ExportedModel) -> None:
    (found,) = measure_task(exported, _task(used, "t2i", "train"), {"en": "en"}, "test")
    assert (found.seen or {})[TRAIN] == (None, found.images, found.captions)


def test_a_network_reads_all_languages_of_a_task(used: Tiny, tmp_path: Path) -> None:
    task = _task(used, "t2i")
    assert all_languages(task) == ["cs", "en"]
    texts = " ".join(row["text"] for row in used.captions("corpus") if row["language"] == "en")
    network = network_model(str(save("clip", tmp_path, sorted({*texts.split()}))), all_languages(task))
    assert languages_of_task(network, task) == ({"en": "en", "cs": "cs"}, [])
    (found,) = measure_task(network, task, {"en": "en"}, None)
    (ours,) = measure(network, set_of_recipe(used.recipe(), used.workspace, "test"), 100, 1, ["en"])
    names = [f"t2i_r{k}" for k in (1, 5, 10)]
    assert [found.figures[name][0] for name in names] == pytest.approx([ours.figures[name][0] for name in names])
    assert (found.seen, found.ranks) == (None, None)


@pytest.mark.usefixtures("registered")
def test_the_command_prints_a_table_or_json(used: Tiny, exported: ExportedModel, capsys) -> None:
    capsys.readouterr()
    with at(used.folder):
        assert main(["evaluate", str(exported.folder), "--on", "mteb:Tinyt2i"]) == 0
        table = capsys.readouterr()
        assert main(["evaluate", str(exported.folder), "--on", "mteb:Tinyi2t", "--json"]) == 0
    assert "t→i" in table.out
    assert "0 of 4" in table.out
    assert "left out: cs; the model was trained on en" in table.err
    (line,) = [json.loads(one) for one in capsys.readouterr().out.splitlines()]
    assert line["figures"]["i2t_r10"] == {"value": 100.0, "low": None, "high": None}


def test_pairs_are_compared_by_inner_product(exported: ExportedModel) -> None:
    encoder = BenchmarkEncoder(exported, {"en": "en"})
    vectors = encoder.encode([{"text": ["a bat", "a ball"]}, {"text": ["a box"]}], hf_subset="en")
    assert encoder.similarity(vectors, vectors).diagonal().tolist() == pytest.approx(
        encoder.similarity_pairwise(vectors, vectors).tolist()
    )


def test_bad_tasks_are_one_line(used: Tiny, exported: ExportedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RecipeError, match=r"has no such task .*Did you mean: 'XM3600T2IRetrieval'"):
        benchmark_task("XM3600T2IRetrival")
    with pytest.raises(RecipeError, match="a task of kind t2t, STS; expected"):
        benchmark_task("STS12")
    task = _task(used, "t2i")
    with pytest.raises(RecipeError, match="--split val: mteb:Tinyt2i is scored on test"):
        measure_task(exported, task, {"en": "en"}, "val")
    with pytest.raises(RecipeError, match=r"mteb:Tinyt2i: has captions in ces, eng; the model .* was trained on de"):
        languages_of_task(replace(exported, languages=["de"]), task)
    sizes = {
        "region_dim": exported.model.input_dim, "vocabulary_size": exported.model.vocabulary_size,
        "languages": exported.model.languages, "dim": 8, "word_dim": 8,
    }  # fmt: skip
    with pytest.raises(RecipeError, match="no single vectors"):
        measure_task(replace(exported, model=MODELS["scan-t2i-avg"](**sizes)), task, {"en": "en"}, None)
    with pytest.raises(RecipeError, match="regions that were made elsewhere"):
        measure_task(replace(exported, extractor=None), task, {"en": "en"}, None)
    monkeypatch.setitem(sys.modules, "mteb", None)
    with pytest.raises(RecipeError, match=r"mteb:STS12: not installed .*make setup EXTRA=benchmarks"):
        benchmark_task("STS12")


def test_without_a_network_it_says_what_to_do(exported: ExportedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(benchmark, "ask_hub", lambda: asked.append("the hub") or "")
    task = benchmark_task("XM3600T2IRetrieval")
    with pytest.raises(RecipeError, match=r"cannot be loaded \(.*mteb/xm3600.*\); .* where there is internet, or"):
        measure_task(exported, task, {"en": "en"}, None)
    assert asked == ["the hub"]  # else its client asks for each part of the data for half a minute
