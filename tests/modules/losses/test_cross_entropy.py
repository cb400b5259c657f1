"""Cross-entropy in parts is torch's own: value and gradient, at any size of a part."""

from collections.abc import Sequence

import pytest
import torch
from torch.nn import functional as F

import modules.losses.cross_entropy as own
from modules.losses.cross_entropy import agreeing_cross_entropy, smoothed_cross_entropy
from modules.training.translation import Translation

T, E, V = 7, 4, 9


def made(dtype: torch.dtype = torch.float64) -> list[torch.Tensor]:
    torch.manual_seed(0)
    return [torch.randn(*shape, dtype=dtype, requires_grad=True) for shape in ((T, E), (V, E), (V,))]


def require_same(found: torch.Tensor, plain: torch.Tensor, inputs: Sequence[torch.Tensor]) -> None:
    """Value and gradient."""
    torch.testing.assert_close(found, plain)
    for one, other in zip(
        torch.autograd.grad(3 * found, inputs), torch.autograd.grad(3 * plain, inputs), strict=True
    ):  # fmt: skip
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("part", [1, 3 * V, 10**6])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_value_and_gradient_are_torch_s(monkeypatch, part: int, smoothing: float) -> None:
    monkeypatch.setattr(own, "PART", part)
    states, weight, bias = inputs = made()
    labels = torch.tensor([0, 8, 3, 3, 1, 7, 0])
    plain = F.cross_entropy(F.linear(states, weight, bias), labels, reduction="sum", label_smoothing=smoothing)
    found = smoothed_cross_entropy(states, weight, bias, labels, smoothing)
    require_same(found, plain, inputs)


def test_under_bfloat16_it_is_as_near_as_torch_s() -> None:
    inputs = made(torch.float32)
    labels = torch.arange(T)
    with torch.autocast("cpu", torch.bfloat16):
        found = smoothed_cross_entropy(*inputs, labels, 0.1)
    assert found.dtype == torch.float32
    exact = smoothed_cross_entropy(*inputs, labels, 0.1)
    torch.testing.assert_close(found, exact, rtol=2e-2, atol=0)
    for one, other in zip(torch.autograd.grad(found, inputs), torch.autograd.grad(exact, inputs), strict=True):
        torch.testing.assert_close(one, other, rtol=5e-2, atol=5e-2)


def test_it_can_be_differentiated_where_nothing_is_said() -> None:
    _, weight, bias = made()
    loss = smoothed_cross_entropy(weight.new_zeros(0, E), weight, bias, torch.zeros(0, dtype=torch.long), 0.1)
    loss.backward()
    assert loss.item() == 0
    assert weight.grad is not None
    assert not weight.grad.any()


@pytest.mark.parametrize("part", [1, 6 * V, 10**6])
@pytest.mark.parametrize("alpha", [0.0, 5.0])
def test_two_passes_that_must_agree(monkeypatch, part: int, alpha: float) -> None:
    """Value and gradient of the formula as it is written, by torch's own functions."""
    monkeypatch.setattr(own, "PART", part)
    first, weight, bias = made()
    second = torch.randn(T, E, dtype=first.dtype, requires_grad=True)
    inputs, labels = (first, second, weight, bias), torch.tensor([0, 8, 3, 3, 1, 7, 0])
    logs = [F.linear(states, weight, bias).log_softmax(1) for states in (first, second)]
    plain = sum(F.cross_entropy(log, labels, reduction="sum", label_smoothing=0.1) for log in logs) / 2
    for one, other in (logs, logs[::-1]):
        plain = plain + alpha / 4 * F.kl_div(other, one, reduction="sum", log_target=True)
    found = agreeing_cross_entropy(*inputs, labels, 0.1, alpha)
    require_same(found, plain, inputs)


@pytest.mark.parametrize("region_dim", [None, 6])
@pytest.mark.parametrize("network", ["bilstm", "transformer"])
def test_a_translator_s_two_passes_differ_by_dropout_alone(network: str, region_dim: int | None) -> None:
    torch.manual_seed(0)
    lengths, targets = torch.tensor([3, 1, 2]), torch.tensor([1, 4, 2])
    batch = {
        "source": torch.randint(3, 20, (3, 3)) * (torch.arange(3) < lengths[:, None]), "source_lengths": lengths,
        "target": torch.randint(3, 20, (3, 4)), "target_lengths": targets,
        "labels": torch.randint(3, 20, (3, 4)) * (torch.arange(4) < targets[:, None]),
    }  # fmt: skip
    if region_dim is not None:
        batch["regions"] = torch.randn(3, 5, region_dim, dtype=torch.float64)
    losses = {}
    for dropout, agreement in ((0.0, 0.0), (0.0, 5.0), (0.3, 5.0)):
        sizes = {"vocabulary_size": 20, "embedding_dim": 8, "hidden_dim": 8, "dropout": dropout, "padding": 0}
        torch.manual_seed(1)
        arguments = {"network": network, "region_dim": region_dim, **sizes}
        module = Translation(arguments, 1e-3, 1, 1, 0.1, 1, 2, agreement=agreement).double().train()
        loss, words = module._cross_entropy(batch, 0.1)
        assert words == 7
        losses[dropout, agreement] = float(loss)
    assert losses[0.0, 5.0] == pytest.approx(losses[0.0, 0.0])
    assert losses[0.3, 5.0] > losses[0.0, 0.0]


def test_two_passes_read_regions_in_float16_under_autocast() -> None:
    sizes = {"vocabulary_size": 20, "embedding_dim": 8, "hidden_dim": 8, "dropout": 0.0, "padding": 0, "region_dim": 6}
    torch.manual_seed(1)
    module = Translation({"network": "transformer", **sizes}, 1e-3, 1, 1, 0.1, 1, 2, agreement=5.0).train()
    tokens, lengths = torch.randint(3, 20, (3, 4)), torch.tensor([4, 4, 4])
    batch = {"source": tokens, "target": tokens, "labels": tokens, "source_lengths": lengths, "target_lengths": lengths,
             "regions": torch.randn(3, 5, 6).half()}  # fmt: skip
    with torch.autocast("cpu", torch.bfloat16):
        loss, words = module._cross_entropy(batch, 0.1)
    assert loss.isfinite()
    assert words == 12


def test_a_pass_agrees_with_itself() -> None:
    states, weight, bias = made()
    labels = torch.arange(T)
    torch.testing.assert_close(
        agreeing_cross_entropy(states, states, weight, bias, labels, 0.1, 5.0),
        smoothed_cross_entropy(states, weight, bias, labels, 0.1),
    )
