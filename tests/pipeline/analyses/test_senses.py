"""How well each branch of a model tells the two senses of twin pictures apart."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from data.captions.table import read_captions
from data.pictures.regions import RegionStore
from pipeline.analyses.description import read_values
from pipeline.corpus.prepare import about_corpus
from pipeline.graph import Graph
from pipeline.reporting.analyses import tables_of
from pipeline.reporting.records import finished_records
from pipeline.reporting.results import Figures
from pipeline.retrieval.probes import BOTH
from pipeline.training.model_files import load_model
from tests.pipeline.tiny import GXN, Tiny

NAME = "senses-gxn-both-1"


@pytest.mark.whole
def test_a_branch_is_right_where_its_own_score_is_higher_for_the_own_picture(gxn: Tiny) -> None:
    """One caption at a time, in German: of English twins the captions are equal, so that one of them is wrong."""
    corpus, whole = gxn.job("corpus"), {}
    (folder,) = (job for job in Graph(gxn.recipe(*GXN), gxn.workspace).rows[0].trained)
    model, text = load_model(gxn.workspace.folder(folder))
    store = RegionStore(corpus / "regions")
    twin = {row["image_id"]: row["twin_id"] for row in about_corpus(corpus)["twins"]}
    captions = [row for row in read_captions(corpus / "captions.parquet").to_list()
                if row["split"] == "twins" and row["language"] == "de"]  # fmt: skip
    for row in captions:
        pair = [row["image_id"], twin[row["image_id"]]]
        regions = torch.from_numpy(np.stack([store.regions[store.rows([one])[0]] for one in pair])).float()
        with torch.no_grad():
            images = model.encode_images(regions, regions.new_ones(regions.shape[:2]).bool())
            encoded = model.encode_sentences([text.encode(row["text"], "de")], "de")
            for branch in ("abstract", "grounded", BOTH):
                sides = (images, encoded) if branch == BOTH else (
                    model.of_branch(images, branch), model.of_branch(encoded, branch)
                )  # fmt: skip
                own, other = model.similarity(*sides)[:, 0].tolist()
                whole.setdefault(branch, {}).setdefault(frozenset(pair), []).append(100.0 * (own > other))
    assert gxn.metrics(NAME)["test"].keys() == {"de"}
    scores = gxn.metrics(NAME)["test"]["de"]
    assert scores["senses_pairs"] == 2
    for branch, by_pair in whole.items():
        expected = [np.mean(values) for values in by_pair.values()]
        assert read_values(gxn.job(NAME), "de", "senses", branch).tolist() == pytest.approx(expected)
        assert scores[f"senses_{branch}"] == pytest.approx(np.mean(expected))
    trained = np.load(gxn.workspace.folder(folder) / "twins-de.npy")
    assert scores["senses_both"] == pytest.approx(100 * trained.mean())


def test_tables_compare_branches_and_systems_on_the_same_pairs(gxn: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = gxn.recipe(*GXN)
    (row,) = Graph(recipe, gxn.workspace).rows
    values = {"abstract": [0.0, 50.0], "grounded": [50.0, 100.0], BOTH: [50.0, 50.0]}
    monkeypatch.setattr("pipeline.analyses.senses.read_values",
                        lambda folder, language, file, array: torch.tensor(values[array]))  # fmt: skip
    figures = Figures(Graph(recipe, gxn.workspace), [])
    rows = [replace(row, system=system) for system in ("two", "i2t")]
    table, differences = tables_of("senses", figures, rows, "de")
    assert [line[:3] for line in table.rows[:4]] == [
        ["two", "both", "abstract"], ["", "", "grounded"], ["", "", BOTH], ["i2t", "both", "abstract"],
    ]  # fmt: skip
    assert {line[1] for line in differences.rows if "grounded − abstract" in line[0]} == {"+50.0"}
    assert [line[:3] for line in differences.rows if line[0].startswith("grounded: ")] == [
        ["grounded: i2t both − two both", "+0.0", "+0.0 … +0.0"]
    ]
    (kept,) = [one for one in figures.results if (one.system, one.metric) == ("two", "senses_grounded")]
    assert (kept.split, kept.n) == ("twins", 2)
    assert kept.low <= 75 <= kept.high
    assert not list(tables_of("senses", figures, rows, "en"))


def test_records_fill_the_table(gxn: Tiny, tmp_path: Path) -> None:
    recipe = gxn.recipe(*GXN)
    (row,) = Graph(recipe, gxn.workspace).rows
    gone, rows = type(gxn.workspace)(tmp_path / "nowhere"), [row]
    (here, _) = tables_of("senses", Figures(Graph(recipe, gxn.workspace), []), rows, "de")
    records = list(finished_records(gxn.workspace, [row.analyses["senses"]], recipe, {}))
    (there,) = tables_of("senses", Figures(Graph(recipe, gone), records), rows, "de")
    assert [line[:4] for line in there.rows] == [line[:4] for line in here.rows]
    assert {line[4] for line in there.rows} == {"–"}
    assert not list(tables_of("senses", Figures(Graph(recipe, gone), []), rows, "de"))


def test_a_single_branch_is_tested_alone_and_models_without_branches_not_at_all(tiny: Tiny) -> None:
    more = ["--vse.options.branches=[abstract]", "--vse.options.generate=[]", "--vse.start=[]"]
    (row,) = Graph(tiny.recipe(*GXN, *more), tiny.workspace).rows
    assert row.analyses["senses"].settings["parts"] == ["abstract"]
    assert [one.analyses.get("senses") for one in Graph(tiny.recipe(), tiny.workspace).rows] == [None, None]
    assert [
        one.analyses.get("senses") for one in Graph(tiny.recipe(*GXN, "--corpus.twins=0"), tiny.workspace).rows
    ] == [None]
