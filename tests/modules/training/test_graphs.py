"""Training steps as CUDA graphs: the losses and weights of steps without them."""

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Callback
from pytorch_lightning.strategies import DDPStrategy, SingleDeviceStrategy

from data.batches.slots import parse_group
from data.batches.translation import Sentences, TranslationData
from data.pictures.regions import RegionStore, write_regions
from data.text.padding import wants_few_shapes
from data.text.tokenisation import BEGIN, END
from modules.errors import ModelError
from modules.pretrained.pretrained_text import SentenceVectors
from modules.retrieval_models.diverse_attention import DiverseAttention
from modules.training.base import TrainedModule
from modules.training.callbacks import SeedEachEpoch
from modules.training.graphs import StepGraphs, _has_room, _OfTensors
from modules.training.retrieval import Retrieval
from modules.training.translation import Translation
from pipeline.recipes.trainer_settings import TrainerSettings
from pipeline.training.trainer import wants_graphs
from tests.modules.small import Corpus, make_trainer
from tests.modules.test_gpu import RETRIEVAL, TRANSLATORS
from tests.stand_in import on_gpu

V = 40
SIZES = {"region_dim": 4, "vocabulary_size": 9, "languages": ["en"], "dim": 6, "word_dim": 4}
SETTINGS: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in RETRIEVAL), ("san", {"loss": "infonce", "drop_words": 0.2, "drop_regions": 0.2}),
    ("san", {"warmup_epochs": 3, "type_weights": [0.3, 0.7]}), ("vse++", {"loss": "hardest-k", "caption_loss": 0.5}),
    ("mlmme", {"loss": "infonce"}), ("scan-t2i-avg", {"loss": "sum"}),
]  # fmt: skip


class Losses(Callback):
    """The losses of all steps, and copies on the host that come and go between them."""

    def __init__(self) -> None:
        self.all: list[float] = []

    def on_train_batch_end(self, trainer: pl.Trainer, module: pl.LightningModule, outputs: Any, *_: Any) -> None:
        self.all.append(float(outputs["loss"]))
        torch.full((1000,), 1e6)


class Gradients(Callback):
    """The gradients of all steps, before they are clipped."""

    def __init__(self) -> None:
        self.all: list[dict[str, torch.Tensor]] = []

    def on_after_backward(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        self.all.append({name: weight.grad.detach().clone().float().cpu() for name, weight in module.named_parameters()
                         if weight.grad is not None})  # fmt: skip


def assert_gradients_agree(plain: list[dict[str, torch.Tensor]], graphed: list[dict[str, torch.Tensor]]) -> None:
    """Each within 0.2 % of its length, or of what is next to nothing in its step."""
    for one, other in zip(plain, graphed, strict=True):
        assert one.keys() == other.keys()
        least = 1e-4 * max(float(gradient.norm()) for gradient in one.values())
        for name, gradient in one.items():
            assert (other[name] - gradient).norm() <= 2e-3 * gradient.norm() + least, name


class Without(StepGraphs):
    """Makes no graph, for the same batches."""

    def __call__(self, step: Any, batch: dict[str, torch.Tensor], state: Any = ()) -> Any:
        return step(batch)


def trained(module: TrainedModule, data: pl.LightningDataModule, epochs: int, graph: bool, folder: Path,
            begun: Path | None = None, precision: str = "64-true", callbacks: Sequence[Callback] = (),
            ) -> list[float]:  # fmt: skip
    losses = Losses()
    trainer = make_trainer(
        epochs, losses, SeedEachEpoch(0), *callbacks, accelerator="gpu", precision=precision, limit_val_batches=0,
        gradient_clip_val=2.0,
    )  # fmt: skip
    module.graphs = (StepGraphs if graph else Without)(module) if module.has_graphs else None
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
        module = corpus.module(name, **({"type_weights": [1.0, 1.0]} | more))
        data = corpus.data(groups=[parse_group("en/human + de/human")])
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


@pytest.mark.parametrize("name", ["san", "diverse-attention", "scan-t2i-avg", "vse-inf", "mule"])
@on_gpu
def test_gradients_in_bfloat16_are_those_without_graphs(corpus: Corpus, name: str, tmp_path: Path) -> None:
    """The passes back are in the same types. Weights stay as they are, so that small differences do not grow."""
    found = []
    for graph in (False, True):
        module = corpus.module(name, type_weights=[1.0, 1.0], learning_rate=0.0)
        data, gradients = corpus.data(groups=[parse_group("en/human + de/human")]), Gradients()
        trained(module, data, 8, graph, tmp_path, precision="bf16-mixed", callbacks=[gradients])
        found.append(gradients.all)
    assert len(found[0]) == len(found[1]) > 10
    assert_gradients_agree(*found)


def test_gradients_that_agree_and_such_that_do_not() -> None:
    """One of the size that a wrong type makes, which is 0.4 to 1.8 %, is seen."""
    plain = [{"weight": torch.randn(30, 30), "bias": torch.randn(30)} for _ in range(3)]
    assert_gradients_agree(plain, [{key: value * 1.0005 for key, value in step.items()} for step in plain])
    with pytest.raises(AssertionError):
        assert_gradients_agree(plain, [{key: value * 1.004 for key, value in step.items()} for step in plain])


def test_a_pass_back_is_not_under_the_autocast_of_the_pass_forward() -> None:
    module, seen = torch.nn.Linear(2, 1), []

    def step(batch: dict[str, torch.Tensor]) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        seen.append(torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else None)
        return module(batch["x"]).sum(), {}

    for low in (None, torch.bfloat16):
        _OfTensors(module, step, ("x",), low)(torch.ones(1, 2))
    assert seen == [None, torch.bfloat16]
    assert not torch.is_autocast_enabled("cpu")


@pytest.mark.parametrize(("network", "region_dim"), TRANSLATORS)
@on_gpu
def test_translators_learn_the_same_and_go_on_as_if_nothing_had_been(
    network: str, region_dim: int | None, tmp_path: Path
) -> None:
    found = []
    for graph in (False, True):
        module = translation(network, region_dim)
        data = sentences_of(tmp_path / str(graph), region_dim)
        losses = trained(module, data, 2, graph, tmp_path)
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


def models_without_graphs(tmp_path: Path) -> Iterator[Retrieval]:
    corpus = Corpus(tmp_path / "regions")
    yield corpus.module("san")  # weights of no types
    yield corpus.module("san", loss="random")
    yield corpus.module("san", loss="infonce", cached_chunk=4)
    yield corpus.module("san", loss="infonce", taught_types=[False, True])
    yield corpus.module("mlmme")  # random
    module = corpus.module("san", loss="infonce")
    module.model.table = SentenceVectors.__new__(SentenceVectors)
    torch.nn.Module.__init__(module.model.table)
    yield module

    class Own(Retrieval):
        def training_step(self, batch: Any, batch_idx: int) -> None:
            return None

    yield Own("san", module.hparams["arguments"], "infonce", 0.2, None, 0, 1e-3, 1, 0.1, ["en"], ["en"])


def test_steps_that_need_the_host_have_no_graph(tmp_path: Path) -> None:
    assert [module.has_graphs for module in models_without_graphs(tmp_path)] == [False] * 7
    corpus = Corpus(tmp_path / "regions")
    assert corpus.module("san", loss="infonce").has_graphs
    assert corpus.module("gxn", loss="infonce").has_graphs
    assert not corpus.module("gxn", loss="infonce", options={"generate": ["i2t"]}).has_graphs
    assert not DiverseAttention(match="set", **SIZES).has_graphs
    assert DiverseAttention(**SIZES).has_graphs


def test_graphs_are_of_one_gpu(tmp_path: Path) -> None:
    module = Corpus(tmp_path / "regions").module("san", loss="infonce")

    def trainer(strategy: Any, batches: int = 1) -> Any:
        return SimpleNamespace(strategy=strategy, accumulate_grad_batches=batches)

    auto, never, gpu = TrainerSettings(), TrainerSettings(graph="never"), torch.device("cuda", 0)
    one = trainer(SingleDeviceStrategy(gpu))
    assert wants_graphs(module, auto, one)
    assert not wants_graphs(module, never, one)
    assert not wants_graphs(module, auto, trainer(SingleDeviceStrategy(gpu), 2))
    assert not wants_graphs(module, auto, trainer(DDPStrategy(parallel_devices=[gpu])))  # on one GPU too
    assert not wants_graphs(module, auto, trainer(SingleDeviceStrategy(torch.device("cpu"))))
    assert not wants_graphs(Corpus(tmp_path / "regions").module("san"), auto, one)


def test_the_loss_of_a_graph_holds_nothing_and_keeps_its_value() -> None:
    module = torch.nn.Linear(2, 1)
    of_tensors = _OfTensors(module, lambda batch: (module(batch["x"]).sum(), {}), ("x",), None)
    loss, _ = of_tensors(torch.ones(1, 2))
    before = loss.item()
    assert loss.grad_fn is not None
    of_tensors.forget_loss()
    assert (loss.grad_fn, loss.item()) == (None, before)


def test_a_graph_that_cannot_be_made_is_one_line_with_its_first_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        try:
            raise RuntimeError("operation not permitted when stream is capturing\nat somewhere")
        finally:
            raise RuntimeError("capture was invalidated")

    monkeypatch.setattr(torch.random, "fork_rng", lambda devices: nullcontext())
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: None)
    monkeypatch.setattr(torch.cuda, "make_graphed_callables", refuse)
    module = torch.nn.Linear(2, 1)
    graphs, step = StepGraphs(module), lambda batch: (module(batch["x"]).sum(), {})
    for _ in range(2):
        graphs(step, {"x": torch.ones(1, 2)})
    with pytest.raises(ModelError) as said:
        graphs(step, {"x": torch.ones(1, 2)})
    assert str(said.value) == ("a step cannot be a CUDA graph (operation not permitted when stream is capturing); run "
                               "again with trainer.graph=never")  # fmt: skip


def test_room_for_a_graph_is_asked_for_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, module = [], torch.nn.Linear(2, 1)
    monkeypatch.setattr("modules.training.graphs._has_room", lambda device: asked.append(1))
    graphs, step = StepGraphs(module), lambda batch: (module(batch["x"]).sum(), {})
    for _ in range(250):
        graphs(step, {"x": torch.ones(1, 2)})
    assert len(asked) == 3


def test_batches_are_of_few_shapes_where_steps_are_graphs() -> None:
    module = SimpleNamespace(graphs=None)
    assert not wants_few_shapes(None)
    assert not wants_few_shapes(SimpleNamespace(lightning_module=module))
    module.graphs = StepGraphs(torch.nn.Linear(1, 1))
    assert wants_few_shapes(SimpleNamespace(lightning_module=module))
