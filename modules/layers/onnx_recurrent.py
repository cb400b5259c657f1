"""Recurrent layers as ONNX has them: one operator that reads the lengths of its sentences.

`torch.export` cannot follow a loop whose steps depend on the lengths in a batch, as in `modules.layers.recurrent` and
`modules.layers.gru`. While a model is exported to ONNX (`torch.compiler.is_exporting`), its recurrent layers are these.
"""

from typing import Any

import torch
from torch import Tensor, nn

_ORDERS = {"LSTM": (0, 3, 1, 2), "GRU": (1, 0, 2)}  # ONNX's order of gates (i, o, f, c; z, r, h) in torch's


def onnx_states(network: nn.LSTM | nn.GRU, vectors: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Run a recurrent network of one layer over sentences; only in a graph that is exported are the values right.

    Args:
        network: with or without the backward direction.
        vectors: (B, N, E).
        lengths: (B,), each at least 1.

    Returns:
        the states (D, B, N, H) of D directions, zero after the end of a sentence, and their last states (D, B, H); of
        the backward direction that is the one at the first word.
    """
    kind, width = type(network).__name__, network.hidden_size
    names = ["", "_reverse"] if network.bidirectional else [""]
    weights = {
        part: torch.stack([_in_onnx_order(network, f"{part}_l0{name}", kind) for name in names])
        for part in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    }
    batch, steps = vectors.shape[:2]
    last = (len(names), batch, width)
    shapes = [(steps, len(names), batch, width), last, last][: 3 if kind == "LSTM" else 2]
    attributes: dict[str, Any] = {
        "hidden_size": width,
        "direction": "bidirectional" if network.bidirectional else "forward",
    }
    outputs = torch.onnx.ops.symbolic_multi_out(
        kind,
        [vectors.transpose(0, 1), weights["weight_ih"], weights["weight_hh"],
         torch.cat([weights["bias_ih"], weights["bias_hh"]], 1), lengths.int()],
        attributes if kind == "LSTM" else attributes | {"linear_before_reset": 1},
        dtypes=[vectors.dtype] * len(shapes), shapes=shapes,
    )  # fmt: skip
    return outputs[0].permute(1, 2, 0, 3), outputs[1]


def _in_onnx_order(network: nn.LSTM | nn.GRU, name: str, kind: str) -> Tensor:
    """A weight or bias (gates · H, …), its gates in ONNX's order."""
    weight: Tensor = getattr(network, name)
    return weight.unflatten(0, (-1, network.hidden_size))[list(_ORDERS[kind])].flatten(0, 1)
