"""The blocks of Python on the pages of the site run as they are printed there; those of a training: `bildwort/`."""

from pathlib import Path

import numpy as np

from pipeline.export.onnx_export import write_onnx
from tests.documentation import block_of
from tests.pipeline.tiny import Tiny


def test_from_a_recipe_to_a_search(used: Tiny, own: Path, tmp_path: Path, monkeypatch, capsys) -> None:
    block = block_of("python.md", "bildwort.train")
    assert block.count('"holiday.yaml"') == block.count("train(recipe)") == block.count('recipe, "model"') == 1
    monkeypatch.chdir(tmp_path)
    own.rename("more")
    block = block.replace("holiday.yaml", str(used.yaml)).replace(
        "train(recipe)", f"train(recipe, {str(used.workspace.root)!r})"
    )
    block = block.replace('recipe, "model"', f'recipe, "model", {str(used.workspace.root)!r}')
    exec(block, {"__name__": "__main__"})
    hits = [line.split() for line in capsys.readouterr().out.splitlines() if line.endswith(".png")]
    assert len(hits) == len({name for _, name in hits}) == 5
    assert [float(score) for score, _ in hits] == sorted((float(score) for score, _ in hits), reverse=True)


def test_a_model_is_loaded_and_its_onnx_files_give_the_same_vectors(used: Tiny, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    loaded: dict = {}
    exec(block_of("search.md", '"you/bats"').replace("you/bats", str(used.workspace.root / "tiny/model")), loaded)
    write_onnx(loaded["model"], Path("onnx"))
    by_torch = loaded["vectors"]
    exec(block_of("search.md", "onnxruntime"), loaded)
    assert np.abs(loaded["vectors"] - by_torch).max() < 1e-4


def test_embedded_pictures_are_found_by_faiss(used: Tiny, own: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    own.rename("holiday")
    Path("captions.txt").write_text("a red ball\na dog\n")
    given = ["--model", str(used.workspace.root / "tiny/model"), "--output"]
    assert used.main("embed", "--pictures", str(tmp_path / "holiday"), *given, str(tmp_path / "holiday.parquet")) == 0
    of_captions = ["--captions", str(tmp_path / "captions.txt"), "--language", "en"]
    assert used.main("embed", *of_captions, *given, str(tmp_path / "captions.npy")) == 0
    found: dict = {}
    exec(block_of("search.md", "faiss"), found)
    assert found["rows"].shape == (2, 10)
    assert (found["rows"][:, 6:] == -1).all()  # there are six pictures
    assert found["frame"]["id"].iloc[found["rows"][0, 0]].endswith(".png")
    scores = np.load("captions.npy") @ found["vectors"].T
    assert (found["rows"][:, :6] == np.argsort(-scores, axis=1)).all()


def test_the_reward_of_captions() -> None:
    made: dict = {}
    exec(block_of("models.md", "CiderD("), made)
    right, wrong = made["rewards"]
    assert right > 1 > wrong


def test_a_network_of_random_weights_is_written(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(block_of("models.md", "ResNetModel"))
    assert (tmp_path / "random-resnet" / "model.safetensors").is_file()
