"""Cross-entropy over a large vocabulary, a part of the words at a time: no tensor of all words times the vocabulary.

On a CPU this takes half the time of a product, `log_softmax` and their gradients on all words at once, which leave its
caches; on any device it saves the memory of those tensors.
"""

from typing import Any

import torch
from torch import Tensor

from modules.recurrent import matmul_dtype, widen

PART = 2**20  # scores at a time: 128 words of a vocabulary of 8,000


def smoothed_cross_entropy(states: Tensor, weight: Tensor, bias: Tensor, labels: Tensor, smoothing: float) -> Tensor:
    """Summed cross-entropy of softmax(states Wᵀ + b), as `F.cross_entropy` has it with `label_smoothing`.

    Args:
        states: (T, E).
        weight: W (V, E).
        bias: b (V,).
        labels: (T,) the right entries.
        smoothing: share of probability spread over the vocabulary.

    Returns:
        the sum over T, a scalar in float32 or wider.
    """
    dtype = matmul_dtype(states)
    with torch.autocast(states.device.type, enabled=False):
        learns = torch.is_grad_enabled()
        loss: Tensor = _CrossEntropy.apply(widen(states), weight, bias, labels, smoothing, dtype, learns)
    return loss


class _CrossEntropy(torch.autograd.Function):
    """The gradient is known as soon as the scores are: it is computed with them, and scaled in the backward pass."""

    @staticmethod
    def forward(
        ctx: Any,
        states: Tensor,
        weight: Tensor,
        bias: Tensor,
        labels: Tensor,
        smoothing: float,
        dtype: torch.dtype,
        learns: bool,
    ) -> Tensor:
        """Part by part: scores, their loss, and the gradient of states, weight and bias."""
        size, low = len(weight), weight.to(dtype)
        of_states, of_weight, of_bias = torch.empty_like(states), torch.zeros_like(weight), torch.zeros_like(bias)
        total = states.new_zeros(())
        rows = max(1, PART // size)
        for state, label, out in zip(states.split(rows), labels.split(rows), of_states.split(rows), strict=True):
            state, right = state.to(dtype), label[:, None]
            scores = torch.mm(state, low.t()).to(total.dtype).add_(bias)
            shares = scores.softmax(1)
            whole = scores.amax(1) - shares.amax(1).log()  # logsumexp, whose exponents need no computing again
            wanted = (1 - smoothing) * scores.gather(1, right)[:, 0] + smoothing * scores.mean(1)
            total += (whole - wanted).sum()
            if not learns:
                continue
            grad = shares.sub_(smoothing / size)
            grad.scatter_add_(1, right, grad.new_full(right.shape, smoothing - 1))
            of_bias += grad.sum(0)
            grad = grad.to(dtype)
            out.copy_(torch.mm(grad, low))
            of_weight += torch.mm(grad.t(), state)
        ctx.save_for_backward(of_states, of_weight, of_bias)
        return total

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """Scale what is known."""
        return (*(known * grads[0] for known in ctx.saved_tensors), None, None, None, None)
