"""How fast a processor is in bfloat16."""

import math

import torch
from torch import nn

from modules import precision
from modules.precision import bfloat16_cost, bfloat16_cost_of_gpu


def test_the_cost_of_bfloat16_is_measured_and_draws_nothing() -> None:
    before, threads = torch.get_rng_state(), torch.get_num_threads()
    assert 0.01 < bfloat16_cost(1) < 1000 or bfloat16_cost(1) == math.inf
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.get_num_threads() == threads


def test_the_step_of_a_gpu_runs_and_draws_nothing(monkeypatch) -> None:
    monkeypatch.setattr(precision, "_REGIONS", (8, 16))
    monkeypatch.setattr(precision, "_WORDS", (2, 3, 4))
    before = torch.get_rng_state()
    assert 0.001 < bfloat16_cost_of_gpu(1, "cpu") < 1000
    assert torch.equal(torch.get_rng_state(), before)


def test_it_is_infinite_where_there_is_no_lstm_in_bfloat16(monkeypatch) -> None:
    plain = nn.LSTM.forward

    def forward(self, *given):
        """As oneDNN on processors without AVX512."""
        if torch.is_autocast_enabled("cpu"):
            raise RuntimeError("could not create a primitive descriptor for the LSTM")
        return plain(self, *given)

    monkeypatch.setattr(nn.LSTM, "forward", forward)
    assert bfloat16_cost(1) == math.inf
