"""The packed LSTM is nn.LSTM: same values, same gradients; threads are as many plain LSTMs."""

import pytest
import torch
from torch import nn

from modules.layers.caption_decoder import on_cudnn
from modules.layers.recurrent import BiLSTM, Packing, lstm_cell, scan, states_to_the_right

torch.manual_seed(0)
LENGTHS = torch.tensor([3, 7, 1, 5, 7])


def plain(lstm: nn.LSTM, words, lengths):
    packed = nn.utils.rnn.pack_padded_sequence(words, lengths, batch_first=True, enforce_sorted=False)
    return nn.utils.rnn.pad_packed_sequence(lstm(packed)[0], batch_first=True)[0]


def grads(module: nn.Module, words, loss):
    module.zero_grad()
    words.grad = None
    loss.backward()
    return [p.grad.clone() for p in module.parameters()] + [words.grad.clone()]


def test_states_and_gradients_equal_nn_lstm():
    model = BiLSTM(4, 6).double()
    words = torch.randn(5, 7, 4, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(5, 7, 12, dtype=torch.float64)
    ours = torch.cat(model(words, LENGTHS), -1)
    theirs = plain(model.lstm, words, LENGTHS)
    torch.testing.assert_close(ours, theirs)
    for a, b in zip(
        grads(model, words, (ours * weight).sum()), grads(model, words, (theirs * weight).sum()), strict=True
    ):
        torch.testing.assert_close(a, b)


def test_gradcheck_with_threads_start_state_and_last_cell():
    sizes, threads, width = (3, 2, 2, 1), 2, 3
    shapes = [(8, 4 * width), (4 * width, width), (3 * threads, width), (3 * threads, width)]
    tensors = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]
    assert torch.autograd.gradcheck(lambda *t: scan(*t, sizes, threads), tensors)


def test_threads_read_the_same_input_but_keep_their_own_state():
    sizes, threads, width = (2, 2, 1), 3, 4
    inputs, recurrent = torch.randn(5, 4 * width), torch.randn(4 * width, width)
    hidden, cell = torch.randn(2 * threads, width), torch.randn(2 * threads, width)
    states, last = scan(inputs, recurrent, hidden, cell, sizes, threads)
    for k in range(threads):
        alone, alone_last = scan(inputs, recurrent, hidden[k::threads], cell[k::threads], sizes)
        torch.testing.assert_close(states[k::threads], alone)
        torch.testing.assert_close(last[k::threads], alone_last)


def test_the_gradient_of_threads_in_float64_is_no_float32():
    sizes, threads, width = (2, 2, 1), 3, 4
    inputs = torch.randn(5, 4 * width, dtype=torch.float64, requires_grad=True)
    recurrent, start = torch.randn(4 * width, width).double(), torch.zeros(2 * threads, width).double()
    together = scan(inputs, recurrent, start, start, sizes, threads)[0].sum()
    alone = threads * scan(inputs, recurrent, start[::threads], start[::threads], sizes)[0].sum()
    ours, theirs = (torch.autograd.grad(total, inputs)[0] for total in (together, alone))
    torch.testing.assert_close(ours, theirs, rtol=1e-13, atol=1e-13)


def test_one_step_is_the_cell():
    inputs, recurrent, hidden, cell = torch.randn(3, 8), torch.randn(8, 2), torch.randn(3, 2), torch.randn(3, 2)
    states, last = scan(inputs, recurrent, hidden, cell, (3,))
    h, c = lstm_cell(inputs + hidden @ recurrent.t(), cell)
    torch.testing.assert_close(states, h)
    torch.testing.assert_close(last, c)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_autocast_does_not_reach_what_runs_on_cudnn(kind: type[nn.RNNBase]) -> None:
    """Its float16 cannot be seen on a CPU: bfloat16 stands for it."""
    network, words = kind(4, 6, batch_first=True), torch.randn(5, 7, 4)
    start = torch.randn(1, 5, 6) if kind is nn.GRU else None
    packed = nn.utils.rnn.pack_padded_sequence(words, LENGTHS, batch_first=True, enforce_sorted=False)
    expected, plain_states = network(words, start)[0], network(packed)[0].data
    with torch.autocast("cpu", torch.bfloat16):
        low = start if start is None else start.bfloat16().float()
        found = on_cudnn(network, words, low)[0]
        assert torch.equal(on_cudnn(network, packed)[0].data, plain_states)
        assert on_cudnn(network, words.bfloat16())[0].dtype == torch.float32
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, expected, rtol=0, atol=0.01 if start is not None else 0)


def test_packing_there_and_back():
    packing = Packing.of(LENGTHS, 8)
    tokens = torch.arange(40).view(5, 8)
    mask = torch.arange(8)[None] < LENGTHS[:, None]
    for backward, where in ((False, packing.forward), (True, packing.backward)):
        spread = packing.spread(tokens.flatten()[where], backward)
        assert torch.equal(spread, tokens * mask)
    assert torch.equal(packing.last(tokens.flatten()[packing.forward]), tokens[torch.arange(5), LENGTHS - 1])


@pytest.mark.parametrize("dtype", [torch.bfloat16])
def test_autocast_stays_close_to_float32(dtype):
    model, words = BiLSTM(16, 32), torch.randn(5, 7, 16)
    exact = torch.cat(model(words, LENGTHS), -1)
    with torch.autocast("cpu", dtype):
        fast = torch.cat(model(words, LENGTHS), -1)
    assert fast.dtype == torch.float32
    torch.testing.assert_close(fast, exact, atol=2e-2, rtol=0)


@pytest.mark.parametrize("width", [2, 4, 5])
def test_sentences_that_end_at_the_right_are_read_as_they_are_alone(width: int) -> None:
    torch.manual_seed(0)
    lstm, words = nn.LSTM(width, 3, batch_first=True).double(), torch.randn(2, 4, width, dtype=torch.float64)
    real = torch.tensor([[False, False, True, True], [True, True, True, True]])
    states, hidden, _ = states_to_the_right(lstm, words, real)
    alone = lstm(words[:1, 2:])[0]
    torch.testing.assert_close((states[:1, 2:], hidden[:1]), (alone, alone[:, -1]))
    assert not states[0, :2].any()


@pytest.mark.parametrize("rows", [1, 2, 4, 5])
def test_rows_in_parts_are_rows_at_once(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    lstm, words = nn.LSTM(4, 3, batch_first=True).double(), torch.randn(5, 7, 4, dtype=torch.float64)
    real = torch.arange(7) >= 7 - LENGTHS[:, None]
    at_once = states_to_the_right(lstm, words, real)
    monkeypatch.setattr("modules.layers.recurrent._MOST_ROWS", rows)
    torch.testing.assert_close(states_to_the_right(lstm, words, real), at_once)
