"""Gradients of a batch that is encoded in chunks (GradCache) are those of the whole batch."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

import modules.training.gathering
from modules.distributed import touch
from modules.errors import ModelError
from modules.pretrained.dual_network import dual_network_arguments
from modules.training.gathering import in_chunks
from modules.training.retrieval import Retrieval
from tests.modules.dual_networks import SIDE, save

R, D, V, L = 2, 5, 15, 4
# (image, sentence, type and language): image 2 comes twice; 1 and 4 share a sentence; 5 and 6 are taught to `student`
VISITS = [(0, 100, 0), (1, 101, 1), (2, 102, 0), (3, 103, 0), (2, 104, 1), (4, 101, 0), (0, 105, 1), (5, 106, 2),
          (6, 107, 2)]  # fmt: skip
MODELS = ["san", "vse++", "oe", "pivot-parallel-asym", "gxn", "student", "dual-encoder"]
PLAIN = {
    "loss": None, "margin": 0.5, "type_weights": None, "warmup_epochs": 0, "learning_rate": 0.01, "decay_epoch": 5,
    "decay": 0.1, "test_languages": ["en"], "select": ["en"],
}  # fmt: skip


def arguments(model: str, folder: Path, dropout: float) -> dict[str, Any]:
    sizes: dict[str, Any] = {"vocabulary_size": V, "languages": ["en", "de", "fr"], "dim": 6, "word_dim": 4}
    if model != "dual-encoder":
        return sizes | {"region_dim": D, "dropout": dropout}
    network = folder / f"clip-{dropout}"
    if not network.is_dir():
        save("clip", network, dropout=dropout)
    return sizes | {"region_dim": 3 * SIDE**2, "image": "full", "network": dual_network_arguments(str(network))}


def module_of(model: str, folder: Path, chunk: int, world: int = 1, dropout: float = 0.0, **more: Any) -> Retrieval:
    torch.manual_seed(0)
    given = arguments(model, folder, dropout)
    settings = PLAIN | {"cached_chunk": chunk} | ({"taught_types": [False, False, True]} if model == "student" else {})
    module = Retrieval(model, given, **settings | more)
    if model == "dual-encoder":
        module.start_losses(module.model.start(str(folder / f"clip-{dropout}")))
    module._trainer = SimpleNamespace(world_size=world, current_epoch=0, global_step=7)
    return module.double().train()


def batch_of(model: str, visits: list[tuple[int, int, int]]) -> dict[str, Tensor]:
    """A batch as data makes it; words are a function of the sentence."""
    generator = torch.Generator().manual_seed(1)
    regions, count = torch.randn(7, R, D, dtype=torch.float64, generator=generator), R
    if model == "dual-encoder":
        regions, count = torch.randint(0, 256, (7, 1, 3 * SIDE**2), generator=generator).double(), 1
    words = torch.randint(1, V, (10, L), generator=generator)
    images, sentences, types = (torch.tensor(column) for column in zip(*visits, strict=True))
    keys, index = images.unique(return_inverse=True)
    lengths = 1 + sentences % 4
    tokens = words[sentences - 100] * (torch.arange(L) < lengths[:, None])
    return {
        "regions": regions[keys], "region_mask": torch.ones(len(keys), count, dtype=torch.bool), "image_key": keys,
        "tokens": tokens[:, : lengths.max()], "lengths": lengths, "image_index": index, "caption_key": sentences,
        "language": types, "type": types, "sentence": sentences, "image_sentences": torch.stack([images, sentences], 1),
    }  # fmt: skip


def results(module: Retrieval, visits: list[tuple[int, int, int]]) -> tuple[Tensor, dict[str, Tensor]]:
    """The sum of all losses, and its gradients."""
    module.zero_grad()
    losses = module.losses(batch_of(module.hparams["model"], visits))
    loss = torch.stack(list(losses.values())).sum() + touch(module.parameters())
    loss.backward()
    named = module.named_parameters()
    return loss.detach(), {name: weight.grad.clone() for name, weight in named if weight.requires_grad}


def check_equal(ours: dict[str, Tensor], theirs: dict[str, Tensor], close: float = 1e-11) -> None:
    assert ours.keys() == theirs.keys()
    assert ours
    for name, gradient in theirs.items():
        torch.testing.assert_close(ours[name], gradient, atol=close, rtol=1e-9, msg=lambda m, n=name: f"{n}: {m}")
    assert sum(bool(gradient.abs().max() > 1e-6) for gradient in theirs.values()) > len(theirs) / 2


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Of the tiny networks."""
    return tmp_path_factory.mktemp("networks")


@pytest.mark.parametrize("model", MODELS)
def test_gradients_of_chunks_are_those_of_the_whole_batch(model: str, folder: Path) -> None:
    whole = results(module_of(model, folder, 0), VISITS)
    for chunk in (1, 3, 50):
        cached = results(module_of(model, folder, chunk), VISITS)
        torch.testing.assert_close(cached[0], whole[0], atol=1e-12, rtol=1e-12)
        check_equal(cached[1], whole[1])


@pytest.mark.parametrize("model", MODELS)
def test_what_is_dropped_is_dropped_again_for_the_gradient(
    model: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gradients are those of the same chunks whose activations are kept."""
    drops = {} if model == "dual-encoder" else {"drop_words": 0.3, "drop_regions": 0.2 if model != "student" else 0.0}
    module = module_of(model, folder, 4, dropout=0.4, **drops)
    calls = []

    def plain(encode, *inputs, use_reentrant):
        calls.append(len(inputs[0]))
        return encode(*inputs)

    seeded = []
    for kept in (False, True):
        if kept:
            monkeypatch.setattr(modules.training.gathering, "checkpoint", plain)
        for seed in (5, 6):
            torch.manual_seed(seed)
            seeded.append(results(module, VISITS))
    assert calls == [4, 3, 4, 4, 1] * 2
    for cached, whole in zip(seeded[:2], seeded[2:], strict=True):
        assert cached[0] == whole[0]
        check_equal(cached[1], whole[1], 1e-15)
    assert seeded[0][0] != seeded[1][0]  # something is dropped


def test_fewer_activations_are_kept(folder: Path) -> None:
    """Each chunk is encoded twice, and between them nothing of the encoder is kept but its vectors."""
    module = module_of("dual-encoder", folder, 2)
    batch, kept = batch_of("dual-encoder", VISITS), []
    for chunk in (0, 2):
        module.hparams["cached_chunk"] = chunk
        sizes: list[int] = []
        with torch.autograd.graph.saved_tensors_hooks(lambda tensor, s=sizes: s.append(tensor.numel()) or tensor, id):
            module.encode(batch)
        kept.append(sum(sizes))
    assert kept[1] < kept[0] / 5


def test_only_training_is_in_chunks(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module, batch = module_of("vse++", folder, 2), batch_of("vse++", VISITS)
    monkeypatch.setattr(modules.training.retrieval, "in_chunks", None)
    with torch.no_grad():
        module.encode(batch)
    module.eval().encode(batch)
    with pytest.raises(TypeError):
        module.train().encode(batch)


def test_no_rows_are_no_chunk_too_few() -> None:
    vectors, mask = in_chunks(lambda rows: (rows[:, None], torch.ones(len(rows), 1).bool()), 2, torch.zeros(0, 3))
    assert (vectors.shape, mask.shape) == ((0, 1, 3), (0, 1))


def test_a_model_that_normalises_over_the_batch_is_one_line() -> None:
    sizes = {"region_dim": D, "vocabulary_size": V, "languages": ["en"], "dim": 6, "word_dim": 4}
    says = r"^vse\.cached_chunk is 2, but mule normalises over the whole batch; set it to 0$"
    with pytest.raises(ModelError, match=says):
        Retrieval("mule", sizes, **PLAIN, cached_chunk=2)
    Retrieval("mule", sizes, **PLAIN)
