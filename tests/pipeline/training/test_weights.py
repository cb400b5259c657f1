"""Weights between those that a training starts from and those that it ends with: the best on validation is kept."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from modules.pretrained.dual_network import DualNetwork, dual_network_arguments
from modules.pretrained.interpolation import interpolate, weights_of
from modules.retrieval_models import build_model
from modules.training.retrieval import Retrieval
from pipeline.graph import Graph
from pipeline.retrieval.weights import start_scale, start_weights
from pipeline.training.model_files import load_best, save_model, save_weights
from tests.modules.dual_networks import save
from tests.modules.retrieval_models.test_dual_encoder import PIXELS, PLAIN, SIZES, network_of
from tests.pipeline.tiny import Tiny


def model_of() -> nn.Module:
    """One layer is trained, one is frozen."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    model[0].requires_grad_(False)
    return model


def trained() -> tuple[nn.Module, dict[str, Tensor], dict[str, Tensor]]:
    """A model with other weights than it started from, its start, and all that it has."""
    model = model_of()
    start = weights_of(model)
    assert set(start) == {"1.weight", "1.bias", "1.running_mean", "1.running_var", "2.weight", "2.bias"}
    with torch.no_grad():
        for name, weight in model.state_dict().items():
            if name in start:
                weight.add_(torch.rand_like(weight) / 3)
    return model, start, {name: tensor.clone() for name, tensor in model.state_dict().items()}


def scored(model: nn.Module, seen: list[dict[str, Tensor]], scores: Sequence[float]) -> Callable[[], float]:
    """Gives one score after the other, and remembers the weights that it is asked for."""

    def score() -> float:
        seen.append({name: tensor.clone() for name, tensor in model.state_dict().items()})
        return scores[len(seen) - 1]

    return score


def equal(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> bool:
    return all(torch.equal(ours[name], theirs[name]) for name in theirs)


SHARES = [0, 0.25, 0.5, 1]


@pytest.mark.parametrize(("scores", "best"), [
    ([1, 2, 3, 4], 3), ([9, 2, 3, 4], 0), ([1, 7, 3, 4], 1), ([5, 7, 7, 7], 1), ([7, 7, 7, 7], 0),
])  # fmt: skip
def test_the_best_is_kept_and_of_equals_the_first(scores: list[float], best: int) -> None:
    model, start, own = trained()
    seen: list[dict[str, Tensor]] = []
    found = interpolate(model, start, SHARES, scored(model, seen, scores))
    assert found == dict(zip(("0", "0.25", "0.5", "1"), scores, strict=True))
    assert equal(seen[0], own | start)  # bit for bit
    assert equal(seen[3], own)
    for number in (1, 2):
        for name, weight in start.items():
            between = (1 - SHARES[number]) * weight.double() + SHARES[number] * own[name].double()
            torch.testing.assert_close(seen[number][name].double(), between, atol=1e-7, rtol=0)
    assert equal(model.state_dict(), seen[best])
    assert equal({"0.weight": model[0].weight}, {"0.weight": own["0.weight"]})


def test_the_order_of_the_shares_decides_between_equals() -> None:
    model, start, own = trained()
    assert list(interpolate(model, start, [1, 0], lambda: 3.0)) == ["1", "0"]
    assert equal(model.state_dict(), own)


def test_without_shares_a_model_keeps_its_weights() -> None:
    model, start, own = trained()
    assert interpolate(model, start, [], lambda: pytest.fail("is not scored")) == {}
    assert equal(model.state_dict(), own)


def test_a_copy_of_weights_is_its_own() -> None:
    model = model_of()
    start = weights_of(model)
    with torch.no_grad():
        model[2].weight.zero_()
    assert start["2.weight"].any()
    assert not any(tensor.requires_grad for tensor in start.values())


def test_between_adapters_lies_the_line_between_the_weights_that_they_are_merged_into(tmp_path: Path) -> None:
    folder = save("clip", tmp_path)
    torch.manual_seed(0)
    network = DualNetwork(**dual_network_arguments(str(folder)))
    network.load(str(folder))
    before = {name: tensor.clone() for name, tensor in network.network.state_dict().items()}
    network.train_towers("lora", "frozen", 2)
    start = weights_of(network)
    with torch.no_grad():
        for weight in network.parameters():
            if weight.requires_grad:
                weight.add_(torch.randn_like(weight) / 3)
    moved = DualNetwork(**dual_network_arguments(str(folder)))
    moved.load(str(folder))
    moved.train_towers("lora", "frozen", 2)
    moved.load_state_dict(network.state_dict())
    moved.merge()
    after = moved.network.state_dict()
    interpolate(network, start, [0.25], lambda: 0.0)
    network.merge()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed
    for name, weight in network.network.state_dict().items():
        torch.testing.assert_close(weight, torch.lerp(before[name], after[name], 0.25), atol=1e-6, rtol=0)


def test_word_vectors_are_held_to_the_weights_that_training_starts_from(tmp_path: Path) -> None:
    first, then = (build_model("embn", region_dim=4, vocabulary_size=5, languages=["en"], dim=4, word_dim=3, anchor=1.0)
                   for _ in range(2))  # fmt: skip
    save_weights(first, tmp_path / "weights.safetensors")
    start_weights(then, [tmp_path])
    assert torch.equal(then.start, first.words.weight)


def test_a_start_reaches_the_weights_beside_adapters(tmp_path: Path) -> None:
    folder = save("clip", tmp_path / "clip")
    other, arguments = save("clip", tmp_path / "other", seed=1), dual_network_arguments(str(folder))
    first, then = DualNetwork(**arguments), DualNetwork(**arguments)
    first.load(str(other))
    save_weights(first, tmp_path / "weights.safetensors")
    then.load(str(folder))
    then.train_towers("lora", "lora", 2)
    start_weights(then, [tmp_path])
    then.merge()
    assert equal(then.state_dict(), first.state_dict())


def test_a_dual_encoder_that_starts_from_a_trained_one_has_its_scale(tmp_path: Path) -> None:
    arguments = SIZES | {"region_dim": PIXELS, "network": network_of(folder := save("siglip", tmp_path / "siglip"))}
    first, second = (Retrieval("dual-encoder", arguments, **PLAIN) for _ in range(2))
    for module in (first, second):
        module.start_losses(module.model.start(str(folder)))
    first.start_losses({"log_scale": 3.1, "bias": -5.5})  # as a training has learned them
    first.finish()
    save_model(tmp_path, "dual-encoder", arguments, first.model)
    start_weights(second.model, [tmp_path])
    start_scale(second)
    assert (second.loss.log_scale.item(), second.loss.bias.item()) == pytest.approx((3.1, -5.5))


def test_a_moving_average_is_kept(fresh: Tiny, monkeypatch) -> None:
    """`vse.average`; without it the key of a training does not know of it."""
    arguments = ["--vse.only=[human]", "--augment.paths=[]"]
    found = []

    def load(module: Retrieval, checkpoint: Path) -> int:
        found.append(torch.load(checkpoint, weights_only=True))
        return load_best(module, checkpoint)

    monkeypatch.setattr("pipeline.retrieval.training.load_best", load)
    for more in ([], ["--vse.average=0.7"]):
        assert fresh.main("vse", *arguments, *more) == 0
    plain, averaged = (Graph(fresh.recipe(*arguments, *more), fresh.workspace).rows[0].job
                       for more in ([], ["--vse.average=0.7"]))  # fmt: skip
    assert "average" not in plain.settings
    assert averaged.settings == plain.settings | {"average": 0.7}
    kept = load_file(fresh.workspace.folder(averaged) / "weights.safetensors")
    assert "current_model_state" not in found[0]
    assert all(torch.equal(kept[name], found[1]["state_dict"][f"model.{name}"]) for name in kept)
    assert any(not torch.equal(kept[name], found[1]["current_model_state"][f"model.{name}"]) for name in kept)
