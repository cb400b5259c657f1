"""`import bildwort`: the public names, and what they do in one call."""

import os
import subprocess
import sys
from pathlib import Path

import bildwort
import pytest
import torch

from modules.losses.registry import OWN, RankingLoss
from modules.retrieval_models import model_class
from modules.retrieval_models.base import MODELS
from tests.documentation import block_of
from tests.pipeline.tiny import ROOT, Tiny


def test_it_is_imported_without_anything_else() -> None:
    code = "import sys, bildwort; dir(bildwort); print([name for name in ('torch', 'pipeline') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_every_name_is_there_and_no_other() -> None:
    assert len(bildwort.__all__) <= 15
    assert all(getattr(bildwort, name).__doc__ for name in bildwort.__all__)
    assert dir(bildwort) == bildwort.__all__
    with pytest.raises(AttributeError, match=r"bildwort has no 'Galery'; it has .*Gallery"):
        _ = bildwort.Galery


def test_from_a_recipe_to_a_search(used: Tiny, tmp_path: Path) -> None:
    recipe = bildwort.load_recipe(used.yaml)
    artifacts = used.workspace.root
    bildwort.train(recipe, artifacts)  # all is up to date
    model = bildwort.export_model(recipe, tmp_path / "model", artifacts)
    assert bildwort.load_model(tmp_path / "model").fingerprint == model.fingerprint
    pictures = used.job("corpus") / "pictures"
    gallery = bildwort.index_pictures(pictures, model, tmp_path / "gallery")
    assert len(gallery) == len(list(pictures.iterdir()))
    assert len(gallery.search("a red ball", top=3)) == 3
    assert bildwort.Gallery.open(tmp_path / "gallery").exported.fingerprint == model.fingerprint


def test_what_is_no_list_and_a_folder_without_pictures_are_refused(used: Tiny, tmp_path: Path) -> None:
    model = bildwort.export_model(bildwort.load_recipe(used.yaml), tmp_path / "model", used.workspace.root)
    with pytest.raises(bildwort.RecipeError, match="encode_captions: expected a list of sentences, not one"):
        model.encode_captions("a red ball")
    (tmp_path / "empty").mkdir()
    with pytest.raises(bildwort.DataError, match="empty: no pictures in it; expected files like"):
        bildwort.index_pictures(tmp_path / "empty", model, tmp_path / "gallery")
    assert not (tmp_path / "gallery").exists()


def test_a_stage_that_is_not_there(used: Tiny) -> None:
    with pytest.raises(bildwort.RecipeError, match="no stage 'vsc'; there are prepare, mmt, augment, vse, rerank"):
        bildwort.train(bildwort.load_recipe(used.yaml), used.workspace.root, ["vsc"])
    with pytest.raises(bildwort.RecipeError, match=r"stages is 'vse'; expected a list of stages, \['vse'\]"):
        bildwort.train(bildwort.load_recipe(used.yaml), used.workspace.root, "vse")
    with pytest.raises(bildwort.RecipeError, match="expected a recipe, as load_recipe gives it, not 'scenes'"):
        bildwort.train("scenes")
    with pytest.raises(bildwort.RecipeError, match="export_model: expected a recipe, as load_recipe gives it, not 'sc"):
        bildwort.export_model("scenes", "model")
    with pytest.raises(bildwort.RecipeError, match="index_pictures: expected a model, as load_model gives it, not 'm"):
        bildwort.index_pictures("holiday", "model", "gallery")
    with pytest.raises(bildwort.RecipeError, match=r"Gallery\.open: expected a model, as load_model gives it, not 'm"):
        bildwort.Gallery.open("gallery", "model")


def test_what_is_no_query_is_refused(used: Tiny) -> None:
    gallery = bildwort.Gallery.open(used.workspace.root / "tiny" / "gallery")
    for query, top, said in ((None, 3, "expected a text as query, not None"), (["a"], 3, "not \\['a'\\]"),
                             ("a", 2.5, "2.5 pictures are wanted; expected a whole number")):  # fmt: skip
        with pytest.raises(bildwort.RecipeError, match=said):
            gallery.search(query, top=top)


def test_the_weights_of_a_training_are_loaded_as_the_site_says(tiny: Tiny) -> None:
    block = block_of("python.md", "load_state_dict")
    assert block.count("artifacts/jobs/vse-san-none-1/KEY") == 1
    loaded: dict = {}
    exec(block.replace("artifacts/jobs/vse-san-none-1/KEY", str(tiny.job("vse-san-human-1"))), loaded)
    assert type(loaded["model"]).__name__ == "SAN"


def test_the_package_of_one_s_own_on_the_site_registers_itself() -> None:
    block = block_of("python.md", "register_loss")
    try:
        exec(block, {"__name__": "mine"})
        scores, own = torch.eye(3) * 2 - 1, torch.eye(3, dtype=torch.bool)
        right, wrong = (RankingLoss("my-sigmoid", 0.2)(sign * scores, own, ~own, None) for sign in (1, -1))
        assert 0 < right < wrong
        assert model_class("my-model").__name__ == "MyModel"
    finally:
        OWN.pop("my-sigmoid", None)
        MODELS.pop("my-model", None)


def test_the_trainer_of_one_s_own_on_the_site_trains(tiny: Tiny, tmp_path: Path, monkeypatch, capsys) -> None:
    block = block_of("python.md", "pl.Trainer")
    monkeypatch.chdir(tmp_path)
    assert block.count("artifacts/jobs/corpus/KEY") == block.count("max_epochs=3") == 1
    exec(block.replace("artifacts/jobs/corpus/KEY", str(tiny.job("corpus"))).replace("max_epochs=3", "max_epochs=1"))
    assert "torch.Size([1, 1, 64])" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["data", "modules"])
def test_a_file_that_hides_a_package_is_named(name: str, tmp_path: Path) -> None:
    (tmp_path / f"{name}.py").touch()
    done = subprocess.run(
        [sys.executable, "-c", "import bildwort; bildwort.load_recipe"], cwd=tmp_path, text=True, capture_output=True,
        env=os.environ | {"PYTHONPATH": str(ROOT / "pipeline")  + os.pathsep + str(ROOT)}, check=False,
    )  # fmt: skip
    assert done.stderr.splitlines()[-1] == (
        f"ImportError: {tmp_path / name}.py hides Bildwort's package '{name}': rename it, or start Python in another "
        "folder"
    )
