"""Recurrent layers in ONNX give torch's states, whatever the lengths."""

import io

import onnxruntime
import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from modules.layers.onnx_recurrent import onnx_states


class States(nn.Module):
    def __init__(self, network: nn.LSTM | nn.GRU) -> None:
        super().__init__()
        self.network = network

    def forward(self, vectors, lengths):
        return onnx_states(self.network, vectors, lengths)


@pytest.mark.whole
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
@pytest.mark.parametrize("both_ways", [pytest.param(False, marks=pytest.mark.slow), True])
@pytest.mark.filterwarnings("ignore")
def test_states_and_last_states_are_torch_s(kind: type, both_ways: bool) -> None:
    torch.manual_seed(0)
    network = kind(5, 4, batch_first=True, bidirectional=both_ways).eval()
    example = (torch.randn(2, 7, 5), torch.tensor([7, 3]))
    shapes = ({0: "batch", 1: "words"}, {0: "batch"})
    with torch.no_grad():
        program = torch.onnx.export(
            States(network), example, dynamo=True, verbose=False, dynamic_shapes=shapes, input_names=["x", "lengths"],
            output_names=["states", "last"],
        )  # fmt: skip
    program.save(written := io.BytesIO())
    session = onnxruntime.InferenceSession(written.getvalue())
    vectors, lengths = torch.randn(4, 6, 5), torch.tensor([6, 1, 4, 2])
    states, last = session.run(None, {"x": vectors.numpy(), "lengths": lengths.numpy()})
    with torch.no_grad():
        found, end = network(pack_padded_sequence(vectors, lengths, batch_first=True, enforce_sorted=False))
    expected = torch.stack(pad_packed_sequence(found, True)[0].chunk(1 + both_ways, -1))
    torch.testing.assert_close(torch.from_numpy(states), expected, atol=1e-6, rtol=0)
    torch.testing.assert_close(torch.from_numpy(last), end[0] if kind is nn.LSTM else end, atol=1e-6, rtol=0)
