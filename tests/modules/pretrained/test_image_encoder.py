"""Image encoders: the regions of a network of transformers; frozen they stay, fine-tuned they are trained."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import AutoImageProcessor, AutoModel

from data.pictures.pixels import PixelStore
from modules.errors import ModelError
from modules.pretrained.image_encoder import ImageEncoder, image_encoder_arguments
from modules.retrieval_models import build_model
from modules.training.gxn import GxnTraining
from modules.training.retrieval import Retrieval
from tests.data.networks import make_network
from tests.modules.small import Corpus, Diary, make_trainer

S, RATE = 40, 0.01
SIZES = {"region_dim": 3 * S * S, "languages": ["de", "en"], "dim": 16, "word_dim": 8}
PLAIN = {
    "loss": None, "margin": 0.2, "type_weights": None, "warmup_epochs": 0, "learning_rate": RATE, "decay_epoch": 100,
    "decay": 0.1, "test_languages": ["de", "en"], "select": ["de", "en"],
}  # fmt: skip


@pytest.fixture(scope="module")
def resnet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_network("resnet", tmp_path_factory.mktemp("resnet"))


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """Pictures of noise, one for each name."""
    found = Corpus(tmp_path_factory.mktemp("corpus"))
    folder = tmp_path_factory.mktemp("pixels")
    pixels = np.random.default_rng(0).integers(0, 256, (len(found.store), 3, S, S), dtype=np.uint8)
    np.save(folder / "pixels.npy", pixels)
    (folder / "ids.txt").write_text("\n".join(found.store.ids) + "\n")
    found.store = PixelStore(folder)
    return found


def made(
    network: Path, corpus: Corpus, model: str = "vse++", options: dict[str, Any] | None = None, **more: Any
) -> Any:
    arguments = SIZES | {
        "vocabulary_size": len(corpus.words),
        "image_encoder": image_encoder_arguments(str(network), S),
    }
    torch.manual_seed(0)
    module = (GxnTraining if model == "gxn" else Retrieval)(model, arguments | (options or {}), **PLAIN | more)
    module.model.image_encoder.load(str(network))
    return module


def state(module: Retrieval) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in module.model.image_encoder.state_dict().items()}


def trained(module: Retrieval, corpus: Corpus, epochs: int = 2, **more: Any) -> tuple[set[str], Diary]:
    """Train; which tensors of the encoder are others now."""
    before, diary = state(module), Diary()
    make_trainer(epochs, diary, **more).fit(module, corpus.data())
    assert diary.logged[-1]["train/loss"] < diary.logged[0]["train/loss"]
    return {name for name, tensor in state(module).items() if not torch.equal(tensor, before[name])}, diary


@pytest.mark.parametrize(("kind", "size", "shape"), [("resnet", S, (4, 12)), ("vit", 32, (17, 32))])
def test_regions_are_those_of_the_network(kind: str, size: int, shape: tuple[int, int], tmp_path: Path) -> None:
    folder = make_network(kind, tmp_path)
    arguments = image_encoder_arguments(str(folder), size)
    encoder = ImageEncoder(3 * size**2, **json.loads(json.dumps(arguments)))
    encoder.load(str(folder))
    pictures = torch.randint(0, 256, (40, 3, size, size), dtype=torch.uint8)
    read = AutoImageProcessor.from_pretrained(folder, backend="pil")
    pixels = read(list(pictures.numpy()), return_tensors="pt", do_resize=False, input_data_format="channels_first")
    with torch.no_grad():
        states = AutoModel.from_pretrained(folder).eval()(**pixels).last_hidden_state
    found = encoder(pictures.flatten(1).float())
    assert found.shape == (40, *shape)
    assert encoder.width == shape[1]
    expected = states.permute(0, 2, 3, 1).flatten(1, 2) if kind == "resnet" else states
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(encoder(pictures[:1].flatten(1).float()), found[:1], atol=1e-4, rtol=1e-4)


def test_frozen_it_gives_the_same_before_and_after(resnet: Path, corpus: Corpus) -> None:
    module = made(resnet, corpus)
    pictures = torch.from_numpy(corpus.store.regions[:3].copy()).float()
    before = module.model.see(pictures, torch.ones(3, 1).bool())
    assert not before[0].requires_grad
    assert (before[0].shape, before[1].shape) == ((3, 4, 12), (3, 4))
    changed, _ = trained(module, corpus)
    assert not changed
    assert torch.equal(module.train().model.see(pictures, torch.ones(3, 1).bool())[0], before[0])
    assert all(one.grad is None for one in module.model.image_encoder.parameters())


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_fine_tuned_its_weights_move_and_its_statistics_stay(resnet: Path, corpus: Corpus, precision: Any) -> None:
    module = made(resnet, corpus, image_encoder_rate=0.1)
    others, own = module.adam(list(module.parameters())).param_groups
    assert (others["lr"], own["lr"]) == (RATE, pytest.approx(0.1 * RATE))
    assert {id(one) for one in own["params"]} == {id(one) for one in module.model.image_encoder.parameters()}
    changed, _ = trained(module, corpus, precision=precision)
    weights = {name for name, _ in module.model.image_encoder.named_parameters()}
    assert changed
    assert changed <= weights  # not the running means and variances
    assert "network.embedder.embedder.convolution.weight" in changed


def test_a_picture_is_read_alone_as_in_a_batch_while_it_is_trained(resnet: Path, corpus: Corpus) -> None:
    encoder = made(resnet, corpus, image_encoder_rate=1.0).train().model.image_encoder
    pictures = torch.from_numpy(corpus.store.regions[:8, 0].copy()).float()
    together = encoder(pictures)
    assert together.requires_grad
    torch.testing.assert_close(together[2:3], encoder(pictures[2:3]), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(("rate", "seen", "moves"), [(0.0, 1, set()), (0.1, 3, {"captioning", "ranking"})])
def test_gxn_moves_it_by_captions_and_ranking(
    resnet: Path, corpus: Corpus, rate: float, seen: int, moves: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"generate": ["i2t", "t2i"], "target": "regions", "picture_width": 2}
    module = made(resnet, corpus, "gxn", options, image_encoder_rate=rate, margin=0.05)
    calls, moved, update = [], set(), GxnTraining._update
    plain = ImageEncoder.forward

    def forward(self: ImageEncoder, pictures: Tensor) -> Tensor:
        calls.append(torch.is_grad_enabled())
        return plain(self, pictures)

    def watched(self: GxnTraining, name: str, losses: dict[str, Tensor]) -> None:
        before = state(self)
        update(self, name, losses)
        if any(not torch.equal(tensor, before[key]) for key, tensor in state(self).items()):
            moved.add(name)

    monkeypatch.setattr(ImageEncoder, "forward", forward)
    monkeypatch.setattr(GxnTraining, "_update", watched)
    module._checked = True  # which encodes some images before the first step
    trainer = make_trainer(1, limit_train_batches=1, limit_val_batches=0)
    trainer.fit(module, corpus.data())
    assert moved == moves
    assert (sum(calls) if rate else len(calls)) == seen  # with a gradient; a frozen one sees a batch once


@pytest.mark.parametrize("name", ["san", "scan-t2i-avg", "dan", "vse-inf", "diverse-attention", "mule", "mlmme", "oe"])
def test_every_kind_of_model_takes_it(name: str, resnet: Path, corpus: Corpus) -> None:
    arguments = SIZES | {"vocabulary_size": 9, "image_encoder": image_encoder_arguments(str(resnet), S)}
    model = build_model(name, **arguments)
    assert (model.input_dim, model.region_dim) == (3 * S * S, 12)
    pictures = torch.from_numpy(corpus.store.regions[:2].copy()).float()
    images = model.encode_images(*model.see(pictures, torch.ones(2, 1).bool()))
    scores = model.similarity(images, model.encode_sentences([[1, 2], [3]], "en"))
    scores.sum().backward()
    assert all(one.grad is not None for one in model.image_encoder.parameters())


@pytest.mark.parametrize(("kind", "size", "says"), [
    (None, 32, r"vse\.image_encoder '\S+': no vision model of transformers there \(.*config\.json"),
    ("text", 32, r"vse\.image_encoder '\S+': no vision model of transformers there"),
    ("vit", 40, r"vse\.image_encoder: a network 'vit' gives no regions of pictures of 40×40 pixels \(Input image size "
                r"\(40\*40\) doesn't match model \(32\*32\)\); set vse\.image_encoder_size"),
    ("clip", 32, r"vse\.image_encoder: a network 'clip' gives no regions of pictures of 32×32 pixels"),
])  # fmt: skip
def test_what_is_no_image_encoder_is_one_line(kind: str | None, size: int, says: str, tmp_path: Path) -> None:
    if kind is not None:
        make_network(kind, tmp_path)
    with pytest.raises(ModelError, match=says) as error:
        image_encoder_arguments(str(tmp_path), size)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("change", "says"), [
    ({"do_normalize": False}, "does not read red, green and blue with mean 0"),
    ({"rescale_factor": 1 / 127.5}, r"multiplies pixels by 0\.0078\d+; expected 1/255"),
    ({"do_rescale": False}, "multiplies pixels by 1; expected 1/255"),
])  # fmt: skip
def test_a_network_that_reads_other_numbers_is_refused(change: dict[str, Any], says: str, tmp_path: Path) -> None:
    make_network("resnet", tmp_path)
    about = tmp_path / "preprocessor_config.json"
    about.write_text(json.dumps(json.loads(about.read_text()) | change))
    with pytest.raises(ModelError, match=says) as error:
        image_encoder_arguments(str(tmp_path), S)
    assert "\n" not in str(error.value)


def test_weights_of_another_width_are_one_line(resnet: Path, tmp_path: Path) -> None:
    make_network("resnet", tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"hidden_sizes": [4, 6, 8, 14]}))
    encoder = ImageEncoder(3 * S * S, **image_encoder_arguments(str(tmp_path), S))
    with pytest.raises(ModelError, match=r"vse\.image_encoder '\S+': no vision model of transformers there \("):
        encoder.load(str(tmp_path))
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(ModelError, match=r"vse\.image_encoder '\S+': no vision model of transformers there \("):
        encoder.load(str(tmp_path))
