"""Training steps as CUDA graphs: the losses and weights of steps without them."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Callback

from data.regions import RegionStore, write_regions
from data.slots import parse_group
from data.text import BEGIN, END
from data.translation import Sentences, TranslationData
from modules.training.base import TrainedModule
from modules.training.graphs import StepGraphs, _has_room
from modules.training.translation import Translation
from pipeline.training.callbacks import SeedEachEpoch
from tests.modules.small import Corpus, make_trainer
from tests.modules.test_gpu import RETRIEVAL, TRANSLATORS, on_gpu

V = 40
SETTINGS: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in RETRIEVAL), ("san", {"loss": "infonce", "drop_words": 0.2, "drop_regions": 0.2}),
    ("san", {"warmup_epochs": 3, "type_weights": [0.3, 0.7]}), ("vse++", {"loss": "hardest-k", "caption_loss": 0.5}),
]  # fmt: skip


class Losses(Callback):
    """The losses of all steps, and copies on the host that come and go between them."""

    def __init__(self) -> None:
        self.all: list[float] = []

    def on_train_batch_end(self, trainer: pl.Trainer, module: pl.LightningModule, outputs: Any, *_: Any) -> None:
        self.all.append(float(outputs["loss"]))
        torch.full((1000,), 1e6)


def trained(module: TrainedModule, data: pl.LightningDataModule, epochs: int, graph: bool, folder: Path,
            begun: Path | None = None) -> list[float]:  # fmt: skip
    losses = Losses()
    trainer = make_trainer(
        epochs, losses, SeedEachEpoch(0), accelerator="gpu", precision="64-true", limit_val_batches=0,
        gradient_clip_val=2.0,
    )  # fmt: skip
    module.graphs = StepGraphs(module) if graph and module.has_graphs else None
    trainer.fit(module, data, ckpt_path=begun, weights_only=None if begun is None else True)
    if graph and module.has_graphs:
        assert module.graphs._graphs
    module.graphs = None
    trainer.save_checkpoint(folder / f"{epochs}.ckpt")
    return losses.all


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return Corpus(tmp_path_factory.mktemp("corpus") / "regions")


@pytest.mark.parametrize(("name", "more"), SETTINGS, ids=[f"{name}-{more}" for name, more in SETTINGS])
@on_gpu
def test_retrieval_models_learn_the_same(corpus: Corpus, name: str, more: dict[str, Any], tmp_path: Path) -> None:
    found = []
    for graph in (False, True):
        module, data = (
            corpus.module(name, **({"type_weights": [1.0, 1.0]} | more)),
            corpus.data(groups=[parse_group("en/human + de/human")]),
        )
        losses = trained(module, data, 27, graph, tmp_path)
        found.append((losses, {key: value.cpu() for key, value in module.state_dict().items()}))
    assert len(found[0][0]) >= 50
    torch.testing.assert_close(found[1], found[0], rtol=1e-6, atol=1e-9)


def sentences_of(folder: Path, region_dim: int | None) -> TranslationData:
    rng = np.random.default_rng(0)
    source, target = ([rng.integers(4, V, rng.integers(1, 12)).tolist() for _ in range(200)] for _ in range(2))
    write_regions(folder, ["1", "2"], ((rng.normal(size=(3, 6)), np.zeros((3, 4))) for _ in range(2)))
    pairs = Sentences(source, target, ["1", "2", None, "1"] * 50)
    store = None if region_dim is None else RegionStore(folder)
    return TranslationData(pairs, pairs, store, 200, 25, 0, place="device")


def translation(network: str, region_dim: int | None) -> Translation:
    torch.manual_seed(0)
    sizes = {"embedding_dim": 16, "hidden_dim": 12, "dropout": 0.3, "padding": 0}
    arguments = {"network": network, "vocabulary_size": V, "region_dim": region_dim, **sizes}
    return Translation(arguments, 1e-3, 1, 50, 0.1, BEGIN, END)


@pytest.mark.parametrize(("network", "region_dim"), TRANSLATORS)
@on_gpu
def test_translators_learn_the_same_and_go_on_as_if_nothing_had_been(
    network: str, region_dim: int | None, tmp_path: Path
) -> None:
    found = []
    for graph in (False, True):
        module = translation(network, region_dim)
        losses = trained(module, sentences_of(tmp_path / str(graph), region_dim), 2, graph, tmp_path)
        found.append((losses, {key: value.cpu() for key, value in module.state_dict().items()}))
    assert len(found[0][0]) == 50
    torch.testing.assert_close(found[1], found[0], rtol=1e-6, atol=1e-9)
    first = trained(
        translation(network, region_dim), sentences_of(tmp_path / "half", region_dim), 1, True, tmp_path
    )  # fmt: skip
    module, data = translation(network, region_dim), sentences_of(tmp_path / "rest", region_dim)
    rest = trained(module, data, 2, True, tmp_path, tmp_path / "1.ckpt")
    again = {key: value.cpu() for key, value in module.state_dict().items()}
    torch.testing.assert_close((first + rest, again), found[1], rtol=1e-6, atol=1e-9)


def test_a_kind_of_batch_has_a_graph_when_it_comes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[torch.Size] = []
    graphs = StepGraphs(torch.nn.Linear(2, 1))

    def step(batch: dict[str, torch.Tensor]) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        return batch["x"].sum(), {"count": torch.tensor(float(len(batch["x"])))}

    def graph(step: Any, batch: dict[str, torch.Tensor]) -> Any:
        made.append(batch["x"].shape)
        return lambda x: step({"x": x})

    monkeypatch.setattr(graphs, "_made", graph)
    for rows, state in ((3, 0), (3, 0), (2, 0), (3, 1), (3, 0), (3, 0), (3, 1), (3, 1), (2, 0)):
        loss, figures = graphs(step, {"x": torch.ones(rows, 2)}, state)
        assert (float(loss), float(figures["count"])) == (2 * rows, rows)
    assert made == [(3, 2), (3, 2)]  # of state 0 and of state 1; batches of two rows came twice
    monkeypatch.setattr("modules.training.graphs._MOST", 2)
    for _ in range(4):
        graphs(step, {"x": torch.ones(4, 2)}, 0)
    assert len(made) == 2


def test_a_graph_needs_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_per_process_memory_fraction", lambda _: 0.5)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(total_memory=1000))
    for taken, expected in ((200, True), (201, False)):
        monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _, taken=taken: taken)
        assert _has_room(torch.device("cuda")) == expected
