"""Networks with two towers: their vectors are those of transformers, and what is frozen stays as it was."""

import json
import re
import shutil
from collections.abc import Callable
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers as hf
from PIL import Image
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn import functional as F

import modules.pretrained.adapters
from data.pictures.network_pixels import NetworkPixels
from data.text.padding import pad
from data.text.text_inputs import PretrainedTokens
from modules.errors import ModelError
from modules.pretrained.dual_network import DualNetwork, Tower, dual_network_arguments
from modules.pretrained.quiet import quiet
from tests.data.networks import make_network
from tests.modules.dual_networks import KINDS, PATCH, save

Networks = Callable[[str], Path]
TEXTS = [
    "ein roter hund",
    "a red Dog runs",
    "Der Hund",
    "",
    "house",
    " ".join(["der hund läuft"] * 5),
]  # the last is cut
SHAPES = ((20, 30), (64, 16), (16, 16), (9, 70), (40, 41))
HEADS = {
    "clip": ("text_projection", "visual_projection"), "metaclip2": ("text_projection", "visual_projection"),
    "chinese-clip": ("text_projection", "visual_projection"), "siglip": ("text_model.head", "vision_model.head"),
    "siglip2": ("text_model.head", "vision_model.head"),
    "altclip": (("text_projection", "text_model.transformation", "text_model.pre_LN"), "visual_projection"),
}  # fmt: skip


def pictures() -> list[Image.Image]:
    generator = np.random.default_rng(0)
    return [Image.fromarray(generator.integers(0, 255, (*shape, 3), dtype=np.uint8)) for shape in SHAPES]


arguments_of = cache(dual_network_arguments)


def loaded(folder: Path, text: Tower = "frozen", image: Tower = "frozen", rank: int = 2) -> DualNetwork:
    torch.manual_seed(0)
    network = DualNetwork(**json.loads(json.dumps(arguments_of(str(folder)))))
    network.load(str(folder))
    network.train_towers(text, image, rank)
    return network.eval()


started = cache(loaded)
"""A network as it is in its files, which nothing changes."""


def tokens_of(folder: Path, network: DualNetwork) -> Tensor:
    text = PretrainedTokens(str(folder), network.words["longest"], network.words["lower"])
    return pad([text.encode(one, "") for one in TEXTS])


def pixels_of(folder: Path) -> Tensor:
    reader = NetworkPixels(str(folder))
    return torch.from_numpy(np.concatenate([reader.extract(picture)[0] for picture in pictures()]))


def vectors_of_transformers(folder: Path) -> tuple[Tensor, Tensor]:
    """By the network's own tokenizer, processor and methods."""
    with quiet():
        model = hf.AutoModel.from_pretrained(folder).eval()
    tokenizer = hf.AutoTokenizer.from_pretrained(folder)
    processor = hf.AutoImageProcessor.from_pretrained(folder, backend="pil")
    kind = model.config.model_type
    padding = {"padding": "max_length", "max_length": 12} if kind.startswith("siglip") else {"padding": True}
    texts = [text.lower() for text in TEXTS] if kind == "siglip2" else TEXTS
    read = tokenizer(texts, truncation=True, return_tensors="pt", **padding)
    read.pop("token_type_ids", None)
    with torch.no_grad():
        found = (
            model.get_text_features(**read).pooler_output,
            model.get_image_features(**processor(pictures(), return_tensors="pt")).pooler_output,
        )
    return F.normalize(found[0], dim=-1), F.normalize(found[1], dim=-1)


def apart(vectors: Tensor) -> float:
    """The smallest distance between two of some vectors."""
    return float(torch.pdist(vectors).min())


@pytest.fixture
def own(networks: Networks, tmp_path: Path) -> Callable[[str], Path]:
    """A copy of a network that may be spoiled."""

    def copied(kind: str) -> Path:
        return Path(shutil.copytree(networks(kind), tmp_path / kind))

    return copied


def change(path: Path, **values: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


@pytest.mark.parametrize("kind", KINDS)
def test_vectors_are_those_of_transformers(networks: Networks, kind: str) -> None:
    folder = networks(kind)
    network, (texts, images) = started(folder), vectors_of_transformers(folder)
    assert apart(texts) > 1e-3
    assert apart(images) > 1e-3
    assert (texts.shape[1], images.shape[1]) == (network.dim, network.dim)
    torch.testing.assert_close(network.encode_text(tokens_of(folder, network)), texts, atol=1e-6, rtol=0)
    torch.testing.assert_close(network.encode_pictures(pixels_of(folder)), images, atol=1e-6, rtol=0)


@pytest.mark.parametrize("kind", ["siglip2", "clip"])
def test_a_tokenizer_may_pad_on_the_left(own: Networks, kind: str) -> None:
    folder = own(kind)
    right = loaded(folder)
    change(folder / "tokenizer_config.json", padding_side="left")
    arguments_of.cache_clear()
    left, tokens = loaded(folder), tokens_of(folder, right)
    assert (right.words["left"], left.words["left"]) == (False, True)
    texts = vectors_of_transformers(folder)[0]
    torch.testing.assert_close(left.encode_text(tokens), texts, atol=1e-6, rtol=0)
    short = [0, 1, 2, 3, 4]  # the last one has no padding
    assert (right.encode_text(tokens) - texts)[short].abs().amax(1).min() > 1e-3


@pytest.mark.parametrize("kind", KINDS)
def test_padding_and_the_size_of_a_batch_change_nothing(networks: Networks, kind: str) -> None:
    folder = networks(kind)
    network = started(folder)
    tokens, pixels = tokens_of(folder, network)[:5], pixels_of(folder)
    texts, images = network.encode_text(tokens), network.encode_pictures(pixels)
    torch.testing.assert_close(network.encode_text(F.pad(tokens, (0, 12 - tokens.shape[1]))), texts, atol=1e-5, rtol=0)
    for row in range(5):
        alone = tokens[row : row + 1, : int((tokens[row] > 0).sum())]
        torch.testing.assert_close(network.encode_text(alone)[0], texts[row], atol=1e-5, rtol=0)
        torch.testing.assert_close(network.encode_pictures(pixels[row : row + 1])[0], images[row], atol=1e-5, rtol=0)
    many = network.encode_pictures(pixels.repeat(9, 1))  # more than are read together
    torch.testing.assert_close(many, images.repeat(9, 1), atol=1e-5, rtol=0)


def test_what_stands_behind_the_patches_of_a_picture_changes_nothing(networks: Networks) -> None:
    folder = networks("siglip2")
    network, pixels = started(folder), pixels_of(folder)
    shapes = pixels[:, -2:].tolist()
    assert len({tuple(shape) for shape in shapes}) > 2  # in their own shapes
    other = pixels.clone()
    for row, (high, wide) in enumerate(shapes):
        other[row, high * wide * 3 * PATCH**2 : -2] = 255
    assert not torch.equal(other, pixels)
    torch.testing.assert_close(network.encode_pictures(other), network.encode_pictures(pixels), atol=0, rtol=0)


def steps(folder: Path, network: DualNetwork, count: int = 1) -> None:
    """Train on a few texts and pictures."""
    tokens, pixels = tokens_of(folder, network), pixels_of(folder)
    weights = torch.randn(len(tokens), len(pixels), generator=torch.Generator().manual_seed(1))
    chosen = [parameter for parameter in network.parameters() if parameter.requires_grad]
    optimizer = torch.optim.SGD(chosen, lr=0.1)
    network.train()
    for _ in range(count):
        optimizer.zero_grad()
        (network.encode_text(tokens) @ network.encode_pictures(pixels).t() * weights).sum().backward()
        optimizer.step()
    network.eval()


def changed(folder: Path, network: DualNetwork) -> set[str]:
    """The names of tensors that are others than in a network's file."""
    start = started(folder).network.state_dict()
    return {name for name, tensor in network.network.state_dict().items() if not torch.equal(tensor, start[name])}


@pytest.mark.parametrize("kind", KINDS)
def test_of_a_head_only_projections_change(networks: Networks, kind: str) -> None:
    for tower, head in zip(("text", "image"), HEADS[kind], strict=True):
        network = loaded(networks(kind), **{tower: "head"})
        steps(networks(kind), network)
        expected = {name for name in network.network.state_dict() if name.startswith(head)}
        assert expected
        assert changed(networks(kind), network) == expected


@pytest.mark.parametrize("kind", KINDS)
def test_one_tower_is_trained_and_the_other_stays_bit_for_bit(networks: Networks, kind: str) -> None:
    for tower, beginning in (("text", "text"), ("image", "vis")):
        network = loaded(networks(kind), **{tower: "full"})
        steps(networks(kind), network, 2)
        moved = changed(networks(kind), network)
        assert all(name.startswith(beginning) for name in moved)
        own = {name for name, _ in network.network.named_parameters() if name.startswith(beginning)}
        silent = own - moved  # biases of keys, whose gradient is zero, and what transformers does not read
        assert len(silent) < len(own) / 4
        assert not [name for name in silent if "embeddings.word" in name or "token_embedding" in name]


@pytest.mark.parametrize("kind", KINDS)
def test_every_adapter_learns_and_is_merged(networks: Networks, kind: str) -> None:
    folder = networks(kind)
    network, start = loaded(folder, "lora", "lora"), started(folder)
    tokens, pixels = tokens_of(folder, network), pixels_of(folder)
    assert torch.equal(network.encode_text(tokens), start.encode_text(tokens))  # adapters start as zero
    chosen = {name: each for name, each in network.network.named_parameters() if each.requires_grad}
    places = {name.partition(".lora_")[0] for name in chosen}
    assert all(".lora_" in name for name in chosen)
    assert not [name for name in places if ".head." in name]  # torch's attention reads its weights itself
    for tower, layer in product(("text", "vision"), range(2)):
        assert sum(bool(re.match(rf"{tower}_model\..*\.layers?\.{layer}\.", name)) for name in places) >= 3
    steps(folder, network, 2)
    assert not [name for name, each in chosen.items() if each.grad is None or not each.grad.any()]
    with torch.no_grad():
        before = network.encode_text(tokens), network.encode_pictures(pixels)
    assert (before[0] - start.encode_text(tokens)).abs().max() > 1e-3
    assert (before[1] - start.encode_pictures(pixels)).abs().max() > 1e-3
    network.merge()
    after = network.encode_text(tokens), network.encode_pictures(pixels)
    torch.testing.assert_close(after, before, atol=1e-6, rtol=0)
    assert list(network.network.state_dict()) == list(start.network.state_dict())
    assert changed(folder, network) == {f"{name}.weight" for name in places}  # the rest bit for bit


@pytest.mark.parametrize("kind", ["clip", "siglip", "altclip", "chinese-clip"])
def test_dropout_is_off_where_no_layer_is_trained(kind: str, tmp_path: Path) -> None:
    folder = save(kind, tmp_path, dropout=0.5)
    for tower, drops in (("frozen", False), ("head", False), ("lora", True), ("full", True)):
        network = loaded(folder, tower, "full")
        tokens = tokens_of(folder, network)
        exact = network.encode_text(tokens)
        network.train()
        assert network.training
        assert torch.equal(network.encode_text(tokens), exact) is not drops
        assert torch.equal(network.eval().encode_text(tokens), exact)


def test_a_tower_is_made_alone(networks: Networks) -> None:
    folder = networks("clip")
    whole, arguments = started(folder), dual_network_arguments(str(folder))
    tokens, pixels = tokens_of(folder, whole), pixels_of(folder)
    text, image = (DualNetwork(**arguments, towers=tower) for tower in ("text", "image"))
    for network in (text, image):
        assert network.load(str(folder)) == {"log_scale": 2.0}
        assert not any(parameter.requires_grad for parameter in network.parameters())
        assert set(network.state_dict()) < set(whole.state_dict())
    assert torch.equal(text.eval().encode_text(tokens), whole.encode_text(tokens))
    assert torch.equal(image.eval().encode_pictures(pixels), whole.encode_pictures(pixels))
    assert loaded(networks("siglip")).load(str(networks("siglip"))) == {"log_scale": 2.0, "bias": -3.0}


def says(expected: str, act: Callable[[], object]) -> None:
    """One line, a ModelError."""
    with pytest.raises(ModelError) as error:
        act()
    assert "\n" not in str(error.value)
    assert re.search(expected, str(error.value)), error.value


@pytest.mark.parametrize("kind", ["clip", "siglip2"])
def test_weights_that_lack_a_tensor_are_one_line(own: Networks, kind: str) -> None:
    folder = own(kind)
    weights = load_file(folder / "model.safetensors")
    name = "vision_model.encoder.layers.1.mlp.fc1.weight"
    network = DualNetwork(**dual_network_arguments(str(folder)))
    save_file(
        {key: tensor for key, tensor in weights.items() if key != name}, folder / "model.safetensors", {"format": "pt"}
    )
    says(
        rf"^vse\.pretrained '\S+': its weights lack {re.escape(name)}; get one that is whole",
        lambda: network.load(str(folder)),
    )
    (folder / "model.safetensors").write_bytes(b"cut")
    says(r"^vse\.pretrained '\S+': its weights are damaged or cut short \(.*\); get", lambda: network.load(str(folder)))


@pytest.mark.parametrize(("kind", "says_of"), [("vit", "a network 'vit'"), ("text", "a network 'bert'")])
def test_a_network_without_a_text_tower_is_one_line(kind: str, says_of: str, tmp_path: Path) -> None:
    make_network(kind, tmp_path)
    says(rf"^vse\.pretrained '\S+': {says_of} without text tower; expected a dual encoder",
         lambda: dual_network_arguments(str(tmp_path)))  # fmt: skip


@pytest.mark.parametrize("damage", ["none", "config", "kind"])
def test_what_is_no_network_is_one_line(own: Networks, damage: str, tmp_path: Path) -> None:
    folder = tmp_path / "none" if damage == "none" else own("clip")
    if damage == "config":
        (folder / "config.json").write_text("{")
    if damage == "kind":
        change(folder / "config.json", model_type="clup")
    says(r"^vse\.pretrained '\S+': no dual encoder of transformers there \(.*`hf download NAME --local-dir FOLDER`",
         lambda: dual_network_arguments(str(folder)))  # fmt: skip


@pytest.mark.parametrize("kind", ["clip", "chinese-clip"])
def test_a_missing_tokenizer_is_one_line(own: Networks, kind: str) -> None:
    folder = own(kind)
    for path in folder.glob("tokenizer*"):
        path.unlink()
    says(r"^vse\.pretrained '\S+': no (tokenizer|dual encoder of transformers) there \(",
         lambda: dual_network_arguments(str(folder)))  # fmt: skip


def test_a_tokenizer_of_another_network_is_one_line(networks: Networks, own: Networks, tmp_path: Path) -> None:
    folder = own("clip")
    other = save("clip", tmp_path / "other", [f"word{number}" for number in range(30)])
    for path in other.glob("tokenizer*"):
        shutil.copyfile(path, folder / path.name)
    says(r"^vse\.pretrained '\S+': its tokenizer has 34 entries, but the network 14; use the tokenizer of this network",
         lambda: dual_network_arguments(str(folder)))  # fmt: skip


def test_what_cannot_be_read_as_the_network_reads_is_one_line(own: Networks) -> None:
    folder = own("clip")
    path = folder / "preprocessor_config.json"
    whole = path.read_text()
    change(path, do_center_crop=False)
    says(r"^vse\.pretrained '\S+': reads pictures of no fixed size", lambda: dual_network_arguments(str(folder)))
    path.write_text(whole)
    change(path, image_mean=[0.5], image_std=[0.5])
    says(r"^vse\.pretrained '\S+': does not read red, green and blue", lambda: dual_network_arguments(str(folder)))
    path.write_text(whole)
    change(folder / "tokenizer_config.json", pad_token=None)
    says(r"^vse\.pretrained '\S+': its tokenizer has no padding", lambda: dual_network_arguments(str(folder)))


def test_without_peft_adapters_are_one_line(networks: Networks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modules.pretrained.adapters, "find_spec", lambda name: None)
    says(r"^lora needs the package peft, which is not installed; run `make setup EXTRA=lora`$",
         lambda: loaded(networks("clip"), "lora"))  # fmt: skip
    network = loaded(networks("clip"), "full")
    network.merge()  # nothing else needs it


def test_a_configuration_that_no_network_fits_is_one_line(networks: Networks) -> None:
    arguments = arguments_of(str(networks("clip")))
    arguments = arguments | {"config": arguments["config"] | {"model_type": "clup"}}
    says(r"^vse\.pretrained: no network 'clup' can be made \(", lambda: DualNetwork(**arguments))
