"""Translations that people see have the capital letters of the corpus's captions."""

import json
import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from data.text.tokenisation import JointBPE
from pipeline.engine.artifacts import read_manifest, write_manifest
from pipeline.errors import RecipeError
from pipeline.export.export import chosen_row, up_to_date
from pipeline.export.exported_model import ExportedModel
from pipeline.graph import Graph
from tests.pipeline.export.test_exported_model import rewritten
from tests.pipeline.tiny import Tiny
from tests.pipeline.translation.test_translate import Stdin

SENTENCES = "A red house\na red house\n"
CASED = ["Ein rotes Haus", "ein rotes Haus"]


@pytest.fixture(autouse=True)
def translated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the translator of few steps finds, its words are these."""
    monkeypatch.setattr(JointBPE, "decode", lambda *_: "ein rotes haus")


@pytest.mark.parametrize("of", ["--recipe", "--model"])
def test_translate_writes_capitals(used: Tiny, exported: ExportedModel, of: str, monkeypatch, capsys) -> None:
    monkeypatch.setattr("sys.stdin", Stdin(SENTENCES))
    model = ["--model", str(exported.folder)] if of == "--model" else []
    assert used.main("translate", "--with", "mt:en-de", *model) == 0
    assert capsys.readouterr().out.splitlines() == CASED
    monkeypatch.setattr("sys.stdin", Stdin(SENTENCES))
    assert used.main("translate", "--with", "mt:en-de-en-de", "--n-best", "2", *model) == 0
    lists = [json.loads(line)["translations"] for line in capsys.readouterr().out.splitlines()]
    assert [{best["text"] for best in some} for some in lists] == [{text} for text in CASED]


def test_an_exported_model_brings_the_capitals_of_its_target_languages(exported: ExportedModel) -> None:
    forms = json.loads((exported.folder / "casing.json").read_text(encoding="utf-8"))
    assert set(forms) == {"de", "en"}
    assert {"Haus", "ein"} <= set(forms["de"])
    assert {"house", "a", "red"} <= set(forms["en"])
    assert exported.translators.translate_all(SENTENCES.splitlines(), "mt", "en", "de") == CASED


def without_capitals(model: Path) -> Path:
    """An exported model as it was before there were any."""
    (model / "casing.json").unlink()
    about = json.loads((model / "model.json").read_text(encoding="utf-8"))
    del about["files"]["casing.json"], about["made"]
    (model / "model.json").write_text(json.dumps(about), encoding="utf-8")
    return model


def test_a_model_exported_without_capitals_writes_lower_case(exported: ExportedModel, tmp_path: Path) -> None:
    folder = without_capitals(shutil.copytree(exported.folder, tmp_path / "model"))
    found = ExportedModel.load(folder).translators.translate_all(SENTENCES.splitlines(), "mt", "en", "de")
    assert found == ["Ein rotes haus", "ein rotes haus"]


def test_such_a_model_of_a_recipe_is_exported_again(tiny: Tiny, tmp_path: Path) -> None:
    own = tiny.without(tmp_path, "nothing")
    graph = Graph(own.recipe(), own.workspace)
    folder = up_to_date(graph).folder
    before = (folder / "model.json").stat().st_ino
    assert (up_to_date(graph).folder / "model.json").stat().st_ino == before, "nothing lacks"
    without_capitals(folder)
    assert (up_to_date(graph).folder / "casing.json").is_file()


def test_a_model_that_was_trained_again_is_exported_again(tiny: Tiny, tmp_path: Path) -> None:
    own = tiny.without(tmp_path, "nothing")
    graph = Graph(own.recipe(), own.workspace)
    before, trained = up_to_date(graph).fingerprint, own.workspace.folder(chosen_row(graph).trained[0])
    weights = {name: tensor + 1 for name, tensor in load_file(trained / "weights.safetensors").items()}
    save_file(weights, trained / "weights.safetensors")
    assert up_to_date(graph).fingerprint == before
    about = read_manifest(trained)
    write_manifest(trained, about | {"finished": "2099-01-01T00:00:00Z"})  # as `vse --force` does
    assert up_to_date(graph).fingerprint != before


def test_capitals_of_another_form_are_refused_in_a_line(exported: ExportedModel, tmp_path: Path) -> None:
    shutil.copytree(exported.folder, tmp_path / "model")
    damaged = ExportedModel.load(rewritten(tmp_path / "model", {"casing.json": '{"de": "Ball"}'}))
    with pytest.raises(RecipeError, match=r"casing\.json"):
        damaged.translators.translate("a red ball", "mt", "en", "de")
