"""A recipe whose regions a network of `transformers` finds: trained, exported, moved, and searched by pixels."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from data.pictures.regions import RegionStore
from pipeline.corpus.prepare import pictures_of
from pipeline.errors import RecipeError
from pipeline.export.exported_model import ExportedModel
from pipeline.gallery.gallery import Gallery
from tests.data.networks import make_network
from tests.pipeline.tiny import Tiny

NETWORKS = {"clip": 5, "detr": 4}


@pytest.mark.parametrize("name", ["clip", pytest.param("detr", marks=pytest.mark.slow)])
def test_from_pixels_to_answers(name: str, tmp_path: Path, capsys) -> None:
    made = Tiny(tmp_path / "made")
    network = make_network(name, tmp_path / "network")
    text = made.yaml.read_text()
    found = f"regions: {{model: {network}, regions: {NETWORKS[name]}}}"
    made.yaml.write_text(text.replace("regions: {regions: 3, size: 64}", found))
    only = ["--vse.only=[human]", "--vse.epochs=1", "--augment.paths=[]", "--vse.rows={human: [en/human]}"]
    for stage in ("prepare", "vse", "index"):
        assert made.main(stage, *only) == 0, capsys.readouterr().out
    corpus = made.job("corpus")
    store = RegionStore(corpus / "regions")
    assert (store.num_regions, store.dim) == (NETWORKS[name], 32)
    model = made.workspace.root / "tiny" / "model"
    shutil.rmtree(network)  # the exported model has its own
    moved = model.rename(tmp_path / "moved")
    exported = ExportedModel.load(moved)
    assert json.loads((moved / "model.json").read_text())["regions"]["model"] == "vision"
    name_, path = next(iter(pictures_of(corpus).items()))
    regions, boxes = exported.regions_of(path)
    row = store.rows([name_])[0]
    np.testing.assert_allclose(regions, store.regions[row], atol=2e-3)
    np.testing.assert_allclose(boxes, store.boxes[row], atol=1e-5)
    own = tmp_path / "own"
    own.mkdir()
    Image.new("L", (70, 30), 90).save(own / "grey.png")
    Image.open(path).save(own / "known.png")
    assert (
        made.main("index", "--model", str(moved), "--pictures", str(own), "--gallery", str(tmp_path / "gallery")) == 0
    )
    hits = Gallery.open(tmp_path / "gallery").search("a red bat")
    assert {hit.name for hit in hits} == {"grey.png", "known.png"}
    (moved / "vision" / "model.safetensors").write_bytes(b"something else")
    with pytest.raises(RecipeError, match=r"model\.safetensors: is not what was exported"):
        ExportedModel.load(moved)


@pytest.mark.slow
def test_another_network_is_another_corpus(tmp_path: Path, capsys) -> None:
    """The key knows the weights of a network that lies here, and a missing one is told before anything is read."""
    made = Tiny(tmp_path / "made")
    network = make_network("siglip", tmp_path / "network")
    found = f"regions: {{model: {network}, regions: 2}}"
    made.yaml.write_text(made.yaml.read_text().replace("regions: {regions: 3, size: 64}", found))
    assert made.main("prepare") == 0
    make_network("siglip", tmp_path / "network", layers=2)
    capsys.readouterr()
    assert made.main("prepare") == 0
    assert "is up to date" not in capsys.readouterr().out
    assert len([one for one in (made.workspace.root / "jobs" / "corpus").iterdir() if one.is_dir()]) == 2
    shutil.rmtree(network)
    assert made.main("prepare") == 1
    told = capsys.readouterr()
    assert "no vision model of transformers there" in " ".join((told.out + told.err).split())
