"""The packed GRU is nn.GRU: same values, same gradients."""

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from modules.layers.gru import both_ways, gru_scan

LENGTHS = torch.tensor([3, 7, 1, 5, 7])


def make(word_dim: int, dim: int) -> nn.GRU:
    torch.manual_seed(0)
    return nn.GRU(word_dim, dim, batch_first=True, bidirectional=True)


@pytest.mark.parametrize(("dtype", "close"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
@pytest.mark.parametrize("lengths", [LENGTHS, torch.tensor([4]), torch.tensor([1, 1])], ids=str)
def test_states_and_gradients_equal_nn_gru(lengths, dtype, close) -> None:
    gru = make(4, 6).to(dtype)
    words = torch.randn(len(lengths), 7, 4, dtype=dtype, requires_grad=True)
    ours = torch.cat(both_ways(gru, words, lengths), -1)
    packed = pack_padded_sequence(words, lengths, batch_first=True, enforce_sorted=False)
    theirs = pad_packed_sequence(gru(packed)[0], batch_first=True, total_length=7)[0]
    assert ours.dtype == dtype
    torch.testing.assert_close(ours, theirs, atol=close, rtol=0)
    inputs, weight = [words, *gru.parameters()], torch.randn_like(ours)
    found, expected = (torch.autograd.grad((states * weight).sum(), inputs) for states in (ours, theirs))
    for mine, other in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, other, atol=10 * close, rtol=0)


def test_gradcheck() -> None:
    shapes = [(8, 9), (9, 3), (9,)]
    tensors = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]
    assert torch.autograd.gradcheck(lambda *t: gru_scan(*t, (3, 2, 2, 1)), tensors)


def test_autocast_stays_close_to_float32() -> None:
    gru, words = make(16, 32), torch.randn(5, 7, 16)
    exact = torch.cat(both_ways(gru, words, LENGTHS), -1)
    with torch.autocast("cpu", torch.bfloat16):
        fast = torch.cat(both_ways(gru, words, LENGTHS), -1)
    assert fast.dtype == torch.float32
    torch.testing.assert_close(fast, exact, atol=2e-2, rtol=0)
    exact_grads, fast_grads = (torch.autograd.grad(one.sum(), gru.parameters()) for one in (exact, fast))
    for one, other in zip(exact_grads, fast_grads, strict=True):
        assert one.dtype == other.dtype
        torch.testing.assert_close(one, other, atol=0.03 * one.abs().max().item(), rtol=0)
