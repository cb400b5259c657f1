"""GRUs over sentences of different lengths, with one product for the weight gradient as in `modules.layers.recurrent`.

Parameters, values and gradients are those of `nn.GRU` (`tests/modules/layers/test_gru.py`).
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from modules.layers.onnx_recurrent import onnx_states
from modules.layers.recurrent import Packing, both_ways_padded, matmul_dtype
from modules.layers.static import is_static


def both_ways(gru: nn.GRU, words: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Run a bidirectional GRU over sentences.

    Args:
        gru: one layer, bidirectional, batch first.
        words: (B, N, E).
        lengths: (B,), each at least 1.

    Returns:
        forward and backward states, each (B, N, H), zero after the end of a sentence.
    """
    if is_static(words):
        return both_ways_padded(gru, words, lengths)
    if torch.compiler.is_exporting():
        forward_states, backward_states = onnx_states(gru, words, lengths)[0]
        return forward_states, backward_states
    packing = Packing.of(lengths, words.shape[1])
    flat = words.flatten(0, 1)
    states = []
    for suffix, where in (("", packing.forward), ("_reverse", packing.backward)):
        states.append(packing.spread(packed_states(gru, flat[where], packing.sizes, suffix), bool(suffix)))
    return states[0], states[1]


def packed_states(
    gru: nn.GRU, words: Tensor, sizes: tuple[int, ...], suffix: str = "", start: Tensor | None = None
) -> Tensor:
    """Return the states (T, H) of one direction of a GRU (`_reverse`: the backward one) over packed words (T, E)."""
    names = ("weight_ih", "bias_ih", "weight_hh", "bias_hh")
    input_weight, input_bias, recurrent, bias = (getattr(gru, f"{name}_l0{suffix}") for name in names)
    return gru_scan(F.linear(words, input_weight, input_bias), recurrent, bias, sizes, start)


def gru_scan(
    inputs: Tensor, recurrent: Tensor, bias: Tensor, sizes: tuple[int, ...], start: Tensor | None = None
) -> Tensor:
    """Run a GRU over packed tokens.

    Args:
        inputs: (T, 3H) the input part W_ih x + b_ih of the gates, in nn.GRU's order r, z, n.
        recurrent: (3H, H) W_hh.
        bias: (3H,) b_hh.
        sizes: number of sentences at each step, which never increases.
        start: (B, H) state before the first step, sentences in packed order; None: zeros.

    Returns:
        hidden states (T, H), in float32 or wider.
    """
    dtype = matmul_dtype(inputs)
    with torch.autocast(inputs.device.type, enabled=False):
        if start is None:
            start = recurrent.new_zeros(sizes[0], recurrent.shape[1])
        return _Scan.apply(inputs, recurrent, bias, start.to(recurrent.dtype), sizes, dtype)


class _Scan(torch.autograd.Function):
    """`gru_scan` and its gradient: h' = n + z (h − n), n = tanh(x_n + r y_n), with y = W_hh h + b_hh."""

    @staticmethod
    def forward(
        ctx: Any, inputs: Tensor, recurrent: Tensor, bias: Tensor, start: Tensor, sizes: tuple[int, ...],
        dtype: torch.dtype,
    ) -> Tensor:  # fmt: skip
        """Run all steps and save the tensors that the gradient needs."""
        tokens, width = len(inputs), recurrent.shape[1]
        gates = inputs.to(recurrent.dtype, copy=True)
        state_products, states = gates.new_empty(tokens, width), gates.new_empty(tokens, width)
        before, low = gates.new_empty(tokens, width), gates.new_empty(tokens, width, dtype=dtype)
        weight, low_bias = recurrent.to(dtype).t(), bias.to(dtype)
        h, done = start, 0
        for size in sizes:
            now = slice(done, done + size)
            before[now] = h[:size]
            y = torch.addmm(low_bias, low[now].copy_(h[:size]), weight)
            rz, n = gates[now].split((2 * width, width), 1)
            rz.add_(y[:, : 2 * width]).sigmoid_()
            r, z = rz.chunk(2, 1)
            n.addcmul_(r, state_products[now].copy_(y[:, 2 * width :])).tanh_()
            h = torch.lerp(n, before[now], z, out=states[now])
            done += size
        ctx.save_for_backward(recurrent, gates, state_products, before, low)
        ctx.sizes, ctx.dtype, ctx.input_dtype = sizes, dtype, inputs.dtype
        return states

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """Run the steps in reverse, then compute the gradient of the recurrent matrix in one product."""
        recurrent, gates, state_products, before, low = ctx.saved_tensors
        (grad_states,) = grads
        width, weight = recurrent.shape[1], recurrent.to(ctx.dtype)
        grad_inputs = torch.empty_like(gates)
        grad_products = gates.new_empty(gates.shape, dtype=ctx.dtype)
        dh, end = gates.new_zeros(ctx.sizes[0], width), len(gates)
        for size in reversed(ctx.sizes):
            now = slice(end - size, end)
            r, z, n = gates[now].chunk(3, 1)
            dh_now = dh[:size].add_(grad_states[now])
            kept = dh_now * z
            dn = (dh_now - kept).mul_(1 - n * n)
            x, y = grad_inputs[now], grad_products[now]
            x[:, :width] = dn * state_products[now] * r * (1 - r)
            x[:, width : 2 * width] = kept * (1 - z) * (before[now] - n)
            x[:, 2 * width :] = dn
            y[:, : 2 * width] = x[:, : 2 * width]
            y[:, 2 * width :] = dn * r
            dh[:size] = kept.add_(torch.mm(y, weight))
            end -= size
        grad_recurrent = torch.mm(grad_products.t(), low).to(recurrent.dtype)
        grad_bias = grad_products.sum(0, dtype=recurrent.dtype)
        return grad_inputs.to(ctx.input_dtype), grad_recurrent, grad_bias, dh, None, None
