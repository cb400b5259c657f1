"""An exported model as ONNX gives the vectors that torch gives; models that cannot are refused."""

import json
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch

from data.text.padding import pad
from data.text.text_inputs import PretrainedTokens
from modules import onnx_files
from modules.pretrained.image_encoder import image_encoder_arguments
from modules.retrieval_models import build_model
from pipeline.errors import RecipeError
from pipeline.export import onnx_export
from pipeline.export.exported_model import ExportedModel
from pipeline.export.onnx_export import write_onnx
from tests.data.networks import make_network
from tests.modules.text_models import save
from tests.pipeline.tiny import Tiny

pytestmark = pytest.mark.whole

TEXTS = ["a red bat on the left", "a ball", "a small blue box"]


def with_model(exported: ExportedModel, name: str, **options: object) -> ExportedModel:
    """The exported model with an untrained network of another kind."""
    torch.manual_seed(1)
    sizes = {"region_dim": exported.model.input_dim, "vocabulary_size": len(exported.text), "dim": 8, "word_dim": 6}
    model = build_model(name, **{**sizes, "languages": ["de", "en"], **options})
    model.load_text_model()
    return replace(exported, model=model.eval(), name=name, languages=["de", "en"])


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "vectors"), [("bert", "words"), ("xlm-r", "words"), ("bert", "sentences")])
def test_models_on_a_pretrained_text_model_are_written(
    exported: ExportedModel, kind: str, vectors: str, tmp_path: Path
) -> None:
    folder = save(kind, tmp_path / "text")
    on_it = replace(exported, text=PretrainedTokens(str(folder)))
    on_it = with_model(on_it, "san", pretrained=str(folder), pretrained_vectors=vectors)
    assert write_onnx(on_it, tmp_path / "onnx") <= onnx_files.TOLERANCE
    assert on_it.encode(TEXTS, "en") == pytest.approx(
        vectors_by(tmp_path / "onnx", on_it, np.ones((1, 2, on_it.model.input_dim)))[1], abs=1e-4
    )


@pytest.mark.slow
def test_models_with_an_image_encoder_are_written(exported: ExportedModel, tmp_path: Path) -> None:
    """They read pixels."""
    arguments = image_encoder_arguments(str(make_network("resnet", tmp_path / "resnet")), 40)
    on_it = with_model(exported, "san", region_dim=3 * 40**2, image_encoder=arguments)
    assert write_onnx(on_it, tmp_path / "onnx") <= onnx_files.TOLERANCE


def vectors_by(folder: Path, exported: ExportedModel, regions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of images and of `TEXTS`, as a program that has the two files gets them."""
    tokens = [exported.text.encode(text, "en") for text in TEXTS]
    languages = json.loads((folder / "onnx.json").read_text())["languages"]
    inputs = {"tokens": pad(tokens).numpy(), "lengths": np.array([len(one) for one in tokens]),
              "languages": np.full(len(tokens), languages.index("en"))}  # fmt: skip
    sides = {"images.onnx": {"regions": regions.astype(np.float32)}, "captions.onnx": inputs}
    images, captions = (
        onnxruntime.InferenceSession(folder / name).run(["vectors"], given)[0] for name, given in sides.items()
    )
    return images, captions


@pytest.mark.slow
def test_the_command_writes_onnx_that_agrees_with_torch(
    used: Tiny, exported: ExportedModel, own: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    """SAN, from files of pictures and captions to vectors."""
    folder = tmp_path / "onnx"
    assert used.main("export", "--output", str(tmp_path / "model"), "--onnx", str(folder)) == 0
    assert "ONNX; vectors differ from torch's by at most" in " ".join(capsys.readouterr().out.split())
    assert {path.name for path in folder.iterdir()} == {"images.onnx", "captions.onnx", "onnx.json", "words.json"}
    pictures = sorted(own.iterdir())[:3]
    regions = np.stack([exported.regions_of(picture)[0] for picture in pictures])
    images, captions = vectors_by(folder, exported, regions)
    np.testing.assert_allclose(images, exported.encode(pictures), atol=1e-4)
    np.testing.assert_allclose(captions, exported.encode(TEXTS, "en"), atol=1e-4)
    assert np.ptp(captions, axis=0).max() > 0.01  # they are not all the same


NAMES = ["dan", "vse", "vse-inf", "embn", "mule", "mlmme", "diverse-attention", "pivot-sym", "parallel-embn"]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_models_of_one_vector_an_item_are_written(exported: ExportedModel, name: str, tmp_path: Path) -> None:
    """Each caption by the encoder of its language."""
    model = with_model(exported, name)
    assert write_onnx(model, tmp_path / "onnx") <= onnx_files.TOLERANCE
    regions = np.random.default_rng(1).normal(size=(2, 3, model.model.input_dim)).astype(np.float32)
    images, captions = vectors_by(tmp_path / "onnx", model, regions)
    np.testing.assert_allclose(images, model.encode_regions(regions).single(), atol=1e-4)
    np.testing.assert_allclose(captions, model.encode(TEXTS, "en"), atol=1e-4)


@pytest.mark.parametrize(
    ("name", "options"), [("scan-t2i-avg", {}), ("oe", {}), ("diverse-attention", {"match": "set"})]
)
def test_a_model_without_single_vectors_is_refused(
    exported: ExportedModel, name: str, options: dict, tmp_path: Path
) -> None:
    with pytest.raises(RecipeError, match=f"{name} has no single vectors to compare by inner product"):
        write_onnx(with_model(exported, name, **options), tmp_path / "onnx")
    assert not any(tmp_path.glob("onnx*"))


def test_what_is_not_ours_is_not_replaced(exported: ExportedModel, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("of value")
    for folder in (tmp_path, tmp_path / "thesis.txt"):
        with pytest.raises(RecipeError, match=r"holds something else \(thesis\.txt\); choose another folder"):
            write_onnx(exported, folder)
    (tmp_path / "onnx.json").write_text("of an older model")  # beside it
    with pytest.raises(RecipeError, match=r"holds something else \(thesis\.txt\); choose another folder"):
        write_onnx(exported, tmp_path)
    (tmp_path / "thesis.partial").mkdir()
    (tmp_path / "thesis.partial" / "of.txt").write_text("value")
    with pytest.raises(RecipeError, match=r"thesis\.partial holds something else \(of\.txt\); choose another folder"):
        write_onnx(exported, tmp_path / "thesis")
    assert (tmp_path / "thesis.txt").read_text() == "of value"
    assert (tmp_path / "thesis.partial" / "of.txt").read_text() == "value"


def test_a_folder_that_cannot_be_is_refused_before_the_export(
    used: Tiny, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    model = tmp_path / "model"
    for folder, said in ((model / "onnx", "lies in the model's folder"), (model, "lies in the model's folder"),
                         (used.folder, "holds something else")):  # fmt: skip
        assert used.main("export", "--output", str(model), "--onnx", str(folder)) == 1
        assert said in " ".join(capsys.readouterr().err.split())
        assert not model.exists()
    for folder in (model / "network", model):
        assert used.main("export", "--output", str(model), "--transformers", str(folder)) == 1
        assert "lies in the model's folder" in " ".join(capsys.readouterr().err.split())
    (loop := tmp_path / "loop").symlink_to("loop")
    for option in ("--onnx", "--transformers"):
        assert used.main("export", "--output", str(model), option, str(loop)) == 1
        assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_missing_package_is_one_line_before_the_export(
    used: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr(onnx_export, "find_spec", lambda name: None if name == "onnxscript" else find_spec(name))
    assert used.main("export", "--output", str(tmp_path / "model"), "--onnx", str(tmp_path / "onnx")) == 1
    assert "--onnx: onnxscript is not installed; run `make setup EXTRA=onnx`" in " ".join(
        capsys.readouterr().err.split()
    )
    assert not (tmp_path / "model").exists()


@pytest.mark.slow
def test_vectors_that_differ_are_not_left(
    exported: ExportedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An older file stays."""
    (tmp_path / "onnx").mkdir()
    (tmp_path / "onnx" / "onnx.json").write_text("older")
    monkeypatch.setattr(onnx_files, "TOLERANCE", -1.0)
    with pytest.raises(RecipeError, match=r"vectors of images\.onnx differ by .* more than -1\.0: it is not written"):
        write_onnx(with_model(exported, "vse"), tmp_path / "onnx")
    assert (tmp_path / "onnx" / "onnx.json").read_text() == "older"
    assert not (tmp_path / "onnx.partial").exists()


def test_what_torch_cannot_export_is_one_line(
    exported: ExportedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = with_model(exported, "vse")
    encode = model.model.encode_images
    monkeypatch.setattr(model.model, "encode_images", lambda *seen: encode(*seen) if seen[0].sum() > 0 else None)
    with pytest.raises(RecipeError, match=r"^--onnx: vse: torch cannot export images \(.*\)$"):
        write_onnx(model, tmp_path / "onnx")
