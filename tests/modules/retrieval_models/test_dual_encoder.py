"""Dual encoders and students as retrieval models: their scores, losses and two parts, and what is learned."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from datasets import concatenate_datasets
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import functional_call
from transformers import AlignConfig

from data.batches.retrieval import RetrievalData
from data.batches.slots import parse_group
from data.batches.taught import TaughtPair, TaughtStore, taught_captions, write_pairs
from data.captions.table import table_of
from data.pictures.pixels import PixelStore, VectorStore
from data.text.text_inputs import PretrainedTokens
from data.vectors.sentence_vectors import compute_vectors
from modules.errors import ModelError
from modules.losses.teaching import teaching_loss
from modules.pretrained.dual_network import DualNetwork, dual_network_arguments
from modules.retrieval_models import build_model
from modules.retrieval_models.dual_encoder import DualEncoder, Student, image_tower_alone
from modules.training.retrieval import Retrieval
from tests.modules.dual_networks import DIM, KINDS, SIDE, save
from tests.modules.small import Corpus, Diary, make_trainer

Networks = Callable[[str], Path]
PIXELS = 3 * SIDE**2
SIZES = {"vocabulary_size": 30, "languages": ["de", "en"]}
PLAIN = {
    "loss": None, "margin": 0.2, "type_weights": None, "warmup_epochs": 0, "learning_rate": 0.01, "decay_epoch": 100,
    "decay": 0.1, "test_languages": ["de", "en"], "select": ["de", "en"],
}  # fmt: skip


def network_of(folder: Path, towers: str = "both") -> dict[str, Any]:
    return dual_network_arguments(str(folder)) | {"towers": towers}


def made(folder: Path, region_dim: int = PIXELS, towers: str = "both", **options: Any) -> DualEncoder:
    torch.manual_seed(0)
    model = build_model("dual-encoder", region_dim=region_dim, network=network_of(folder, towers), **SIZES, **options)
    assert isinstance(model, DualEncoder)
    model.start(str(folder))
    return model.eval()


def images(count: int = 5) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (count, 1, PIXELS), generator=generator).float(), torch.ones(count, 1).bool()


def captions() -> tuple[Tensor, Tensor, Tensor]:
    tokens = torch.tensor([[1, 5, 6, 3], [1, 8, 3, 0], [1, 3, 0, 0], [1, 9, 9, 3]])
    return tokens, (tokens > 0).sum(1), torch.tensor([0, 1, 0, 1])


@pytest.mark.parametrize("kind", KINDS)
def test_the_loss_is_the_network_s_own_and_starts_as_it_did(networks: Networks, kind: str) -> None:
    folder = networks(kind)
    arguments = SIZES | {"region_dim": PIXELS, "network": network_of(folder)}
    module = Retrieval("dual-encoder", arguments, **PLAIN, caption_loss=1.0)
    of_siglip = kind.startswith("siglip")
    assert module.loss.kind == module.model.loss == ("sigmoid" if of_siglip else "infonce")
    module.start_losses(module.model.start(str(folder)))
    for loss in (module.loss, module.caption_loss):
        assert loss.log_scale.item() == 2.0
        assert not of_siglip or loss.bias.item() == -3.0
    other = Retrieval("dual-encoder", arguments, **PLAIN | {"loss": "hardest"})
    other.start_losses(other.model.start(str(folder)))  # has neither
    assert other.loss.kind == "hardest"


def test_a_score_is_the_inner_product_of_unit_vectors(networks: Networks) -> None:
    model = made(networks("clip"))
    assert (model.score, model.dim, model.reads_pixels) == ("inner product", DIM, True)
    ours, theirs = model.encode_images(*images()), model.encode_captions(*captions())
    for vectors, mask in (ours, theirs):
        assert vectors.shape[1:] == (1, DIM)
        assert mask.all()
        torch.testing.assert_close(vectors.norm(dim=-1), torch.ones(len(vectors), 1))
    scores = model.similarity(ours, theirs)
    torch.testing.assert_close(scores, torch.einsum("ith,cth->ic", ours[0], theirs[0]))
    assert scores.std() > 1e-2


def test_vectors_of_images_are_given_or_made_by_an_image_side(networks: Networks) -> None:
    folder = networks("clip")
    whole, text = made(folder, image="full"), made(folder, DIM, "text")
    regions, mask = images()
    vectors, spoken = whole.encode_images(regions, mask), whole.encode_captions(*captions())
    given = text.encode_images(*text.see(vectors[0], mask))
    assert not text.reads_pixels
    assert text.region_weights(vectors[0], mask) is None
    side = {"model": "dual-encoder", "arguments": {
        "region_dim": PIXELS, "vocabulary_size": 0, "languages": [], "image": "full",
        "network": network_of(folder, "image"),
    }}  # fmt: skip
    joined = made(folder, PIXELS, "text", image_side=side, vector_dim=DIM)
    joined.image_side.network.load(str(folder))
    assert joined.reads_pixels
    for found in (given, joined.encode_images(*joined.see(regions, mask))):
        assert torch.equal(found[0], vectors[0])
        assert torch.equal(found[1], vectors[1])
    assert torch.equal(joined.encode_captions(*captions())[0], spoken[0])
    joined.train()
    assert joined.training
    assert joined.network.training
    assert not [name for name, part in joined.image_side.named_modules() if part.training]
    assert not [name for name, weight in joined.image_side.named_parameters() if weight.requires_grad]


@pytest.mark.parametrize("kind", ["clip", "siglip"])
def test_the_image_tower_alone_has_the_same_vectors_of_images_and_no_weight_of_the_text_tower(
    networks: Networks, kind: str
) -> None:
    arguments = {
        "region_dim": PIXELS, "vocabulary_size": 9, "languages": ["en"], "image": "full",
        "network": network_of(networks(kind), "both"),
    }  # fmt: skip
    whole = DualEncoder(**arguments).eval()
    alone, weights = image_tower_alone(arguments, whole.state_dict())
    model = DualEncoder(**alone).eval()
    model.load_state_dict(weights)
    assert torch.equal(model.encode_images(*images())[0], whole.encode_images(*images())[0])
    assert len(weights) < len(whole.state_dict())
    assert not [name for name in weights if "text" in name]
    assert arguments["network"]["towers"] == "both"


def test_vectors_of_two_sizes_are_one_line(networks: Networks) -> None:
    says = rf"^vse\.pretrained has vectors of {DIM} numbers, but those of the images have 7; take another teacher"
    with pytest.raises(ModelError, match=says):
        made(networks("clip"), 7, "text")


def test_options_that_do_not_fit_are_one_line() -> None:
    with pytest.raises(ModelError, match=r"^vse\.options\.lora_rank is 0; expected 1 or more$"):
        build_model("dual-encoder", region_dim=4, lora_rank=0, **SIZES)
    with pytest.raises(ModelError, match=r"^vse\.pretrained names no dual encoder; name a folder or a model of the"):
        build_model("dual-encoder", region_dim=4, **SIZES).encode_captions(*captions())


@pytest.mark.parametrize("kind", ["clip", "siglip"])
def test_scores_are_exact_under_autocast(networks: Networks, kind: str) -> None:
    model = made(networks(kind))
    exact = model.similarity(model.encode_images(*images()), model.encode_captions(*captions()))
    with torch.autocast("cpu", torch.bfloat16):
        rough = model.similarity(model.encode_images(*images()), model.encode_captions(*captions()))
    assert rough.dtype == torch.float32
    assert (rough - exact).abs().max() < 0.05


@pytest.mark.parametrize("kind", ["clip", "siglip", "altclip", "chinese-clip"])
def test_no_value_decides_a_shape(networks: Networks, kind: str) -> None:
    """A step of the towers under fake tensors: a GPU does not wait for the host."""
    model = made(networks(kind), text="lora", image="full").train()
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        weights = {name: mode.from_tensor(weight) for name, weight in model.named_parameters()}
        buffers = {name: mode.from_tensor(buffer) for name, buffer in model.named_buffers()}
        tokens, lengths = torch.ones(4, 6, dtype=torch.long), torch.full((4,), 6)

        def loss(*inputs: Tensor) -> Tensor:
            spoken, seen = model.encode_captions(*inputs[:3])[0], model.encode_images(*inputs[3:])[0]
            return teaching_loss(spoken[:, 0], seen[:, 0], torch.ones(4).bool())

        model.forward = loss  # type: ignore[method-assign]
        inputs = (tokens, lengths, lengths, torch.ones(4, 1, PIXELS), torch.ones(4, 1).bool())
        functional_call(model, weights | buffers, inputs).backward()
    trained = [name for name, weight in model.named_parameters() if weight.requires_grad]
    assert sum(weights[name].grad is not None for name in trained) > 0.9 * len(trained)


@pytest.mark.parametrize("kind", ["siglip2", "clip"])
def test_no_step_makes_a_tensor_of_numbers_of_the_host(networks: Networks, kind: str, monkeypatch) -> None:
    """A GPU's host would wait for the copy: what pixels are scaled by lies beside the weights, but is not saved."""
    model = made(networks(kind))
    assert not [name for name in model.state_dict() if name.endswith(("mean", "deviation"))]
    numbers = 6 * 3 * 8**2 + 2 if kind == "siglip2" else PIXELS  # patches, and how many there are
    monkeypatch.setattr(torch, "tensor", lambda *_, **more: pytest.fail(f"{more}"))
    model.encode_images(torch.ones(2, 1, numbers), torch.ones(2, 1).bool())


@pytest.fixture(scope="module")
def pictured(tmp_path_factory) -> Corpus:
    """A corpus whose images are pictures of noise."""
    found, folder = Corpus(tmp_path_factory.mktemp("corpus")), tmp_path_factory.mktemp("pixels")
    np.save(folder / "pixels.npy", np.random.default_rng(0).integers(0, 256, (20, PIXELS), dtype=np.uint8))
    (folder / "ids.txt").write_text("\n".join(found.store.ids) + "\n")
    found.store = PixelStore(folder)
    return found


@pytest.fixture(scope="module")
def clip(pictured: Corpus, tmp_path_factory) -> Path:
    """A network that knows the corpus's words."""
    words = sorted({word for text in pictured.captions["text"][:] for word in text.split()})
    return save("clip", tmp_path_factory.mktemp("clip"), words)


@pytest.mark.parametrize(("text", "image", "precision"), [
    ("full", "full", "32-true"), ("full", "full", "bf16-mixed"), ("lora", "head", "32-true"),
    ("frozen", "lora", "bf16-mixed"),
])  # fmt: skip
def test_it_learns_from_pictures(pictured: Corpus, clip: Path, text: Any, image: Any, precision: Any) -> None:
    tokens = PretrainedTokens(str(clip), 12)
    torch.manual_seed(0)
    arguments = {
        "region_dim": PIXELS, "vocabulary_size": len(tokens), "languages": ["de", "en"], "text": text, "image": image,
        "network": network_of(clip),
    }  # fmt: skip
    module, diary = Retrieval("dual-encoder", arguments, **PLAIN), Diary()
    module.start_losses(module.model.start(str(clip)))
    before = {name: weight.clone() for name, weight in module.model.state_dict().items()}
    data = pictured.data()
    data = RetrievalData(
        pictured.captions, pictured.store, tokens, data.groups, ["de", "en"],
        {"val": ["de", "en"], "test": ["de", "en"]}, 16,
    )  # fmt: skip
    make_trainer(4, diary, precision=precision, check_val_every_n_epoch=4).fit(module, data)
    assert diary.logged[-1]["train/loss"] < diary.logged[0]["train/loss"]
    after = module.model.state_dict()
    for tower, how in (("text_model", text), ("vision_model", image)):
        own = [name for name in before if name.startswith(f"network.network.{tower}")]
        assert any(not torch.equal(before[name], after[name]) for name in own) is (how in ("full", "lora"))


@pytest.mark.parametrize("options", [{}, {"pooling": "mean", "encoder": "none"}])
def test_a_student_finds_pictures_by_a_language_without_captions(
    corpus: Corpus, options: dict[str, Any], tmp_path: Path
) -> None:
    names, drawn = corpus.store.ids, np.random.default_rng(1).normal(size=(20, 16))
    teacher = {name: vector / np.linalg.norm(vector) for name, vector in zip(names, drawn, strict=True)}
    np.save(tmp_path / "vectors.npy", np.stack([teacher[name] for name in names]).astype(np.float32))
    (tmp_path / "ids.txt").write_text("\n".join(names) + "\n")
    pairs = [
        TaughtPair(f"a {row['image_id']}", "de", row["text"])
        for row in corpus.captions.to_list() if row["language"] == "de" and row["split"] == "train"
    ]  # fmt: skip
    taught = tmp_path / "taught"
    taught.mkdir()
    known = [f"a {name}" for name in names]

    def encode(batch: Tensor) -> np.ndarray:
        return np.stack([teacher[names[number - 1]] for number in batch[:, 0].tolist()]).astype(np.float32)

    compute_vectors(known, lambda text: [1 + known.index(text)], encode, taught, taught / "parts")
    write_pairs(pairs, taught)
    table = concatenate_datasets([corpus.captions, table_of(taught_captions(taught, "text:toy", ["de"]))])
    store = TaughtStore(VectorStore(tmp_path), {"text:toy": taught})
    data = RetrievalData(
        table, store, corpus.words, [parse_group("de/text:toy")], ["de", "en"],
        {"val": ["de"], "test": ["de"]}, 20,
    )  # fmt: skip
    assert not {"en/human", "de/human"} & set(data.types)
    settings = PLAIN | {"test_languages": ["de"], "select": ["de"]}
    arguments = {
        "region_dim": 16, "vocabulary_size": len(corpus.words), "languages": ["de", "en"], "dim": 16, "word_dim": 16,
    }  # fmt: skip
    torch.manual_seed(0)
    module, diary = Retrieval("student", arguments | options, **settings, taught_types=[True]), Diary()
    assert isinstance(module.model, Student)
    trainer = make_trainer(60, diary, check_val_every_n_epoch=60)
    (before,) = trainer.validate(module, data, verbose=False)
    trainer.fit(module, data)
    (after,) = trainer.test(module, data, verbose=False)
    assert set(diary.logged[-1]) >= {"train/teaching", "train/teaching_contrast"}
    assert "train/ranking" not in diary.logged[-1]
    assert before["val/rsum"] < 300
    assert after["test/de/rsum"] > 590


def test_a_student_pools_real_words_alone() -> None:
    torch.manual_seed(0)
    for options in ({}, {"pooling": "mean"}, {"encoder": "none"}, {"pooling": "mean", "encoder": "none"}):
        model = build_model("student", region_dim=6, dim=8, word_dim=5, **SIZES, **options).eval()
        tokens, lengths, languages = captions()
        together = model.encode_captions(tokens, lengths, languages)[0]
        assert together.shape == (4, 1, 6)
        assert torch.pdist(together[:, 0]).min() > 1e-3
        longer = model.encode_captions(torch.nn.functional.pad(tokens, (0, 3)), lengths, languages)[0]
        torch.testing.assert_close(longer, together)
        for row, length in enumerate(lengths.tolist()):
            alone = model.encode_captions(tokens[row : row + 1, :length], lengths[row : row + 1], languages[:1])[0]
            torch.testing.assert_close(alone[0], together[row])


def test_a_network_whose_scores_have_no_such_scale_is_one_line() -> None:
    with torch.device("meta"), pytest.raises(ModelError) as caught:
        DualNetwork(AlignConfig().to_dict(), pixels={}, text={})
    assert str(caught.value).startswith("vse.pretrained: a network 'align' has no logit_scale; expected ")
