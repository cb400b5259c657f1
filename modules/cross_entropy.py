"""Cross-entropy over a large vocabulary, a part of the words at a time: no tensor of all words times the vocabulary.

On a CPU this takes half the time of a product, `log_softmax` and their gradients on all words at once, which leave its
caches. On a GPU parts are large, and bound the memory of those tensors for large batches only.
"""

from typing import Any

import torch
from torch import Tensor

from modules.recurrent import matmul_dtype, widen

PART = 2**20  # scores at a time: 128 words of a vocabulary of 8,000
PART_ON_GPU = 2**26  # larger, since each part costs a kernel launch


def rows_at_a_time(tensor: Tensor, size: int) -> int:
    """How many rows of `size` scores are made together where the tensor is, 1 or more."""
    return max(1, (PART_ON_GPU if tensor.is_cuda else PART) // size)


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


def agreeing_cross_entropy(
    first: Tensor, second: Tensor, weight: Tensor, bias: Tensor, labels: Tensor, smoothing: float, agreement: float
) -> Tensor:
    """R-Drop (Liang et al. 2021, Eq. 4, halved): the cross-entropy of two passes with different dropout, and their
    divergence.

    ½ (CE₁ + CE₂) + α/2 · ½ (KL(P₁ ‖ P₂) + KL(P₂ ‖ P₁)), summed over words. A part at a time, like the other.

    Args:
        first: (T, E), states of one pass.
        second: (T, E), states of the other.
        weight: W (V, E).
        bias: b (V,).
        labels: (T,) the right entries.
        smoothing: share of probability spread over the vocabulary.
        agreement: α.

    Returns:
        the sum over T, a scalar in float32 or wider.
    """
    dtype = matmul_dtype(first)
    with torch.autocast(first.device.type, enabled=False):
        loss: Tensor = _AgreeingCrossEntropy.apply(
            widen(first), widen(second), weight, bias, labels, smoothing, agreement, dtype
        )
    return loss


class _CrossEntropy(torch.autograd.Function):
    """Computes the gradient together with the scores; the backward pass only scales it."""

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
        rows = rows_at_a_time(states, size)
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
        """Scale the gradient that `forward` computed."""
        return (*(known * grads[0] for known in ctx.saved_tensors), None, None, None, None)


class _AgreeingCrossEntropy(torch.autograd.Function):
    """As `_CrossEntropy`, of two passes; with d = log P₁ − log P₂ the two divergences together are Σ (P₁ − P₂) d."""

    @staticmethod
    def forward(
        ctx: Any,
        first: Tensor,
        second: Tensor,
        weight: Tensor,
        bias: Tensor,
        labels: Tensor,
        smoothing: float,
        agreement: float,
        dtype: torch.dtype,
    ) -> Tensor:
        """Part by part: scores of both passes, loss and divergence, and the gradient of all inputs."""
        size, low = len(weight), weight.to(dtype)
        of_states = torch.empty_like(first), torch.empty_like(second)
        of_weight, of_bias = torch.zeros_like(weight), torch.zeros_like(bias)
        total, pull = first.new_zeros(()), agreement / 4
        rows = rows_at_a_time(first, 2 * size)
        parts = [one.split(rows) for one in (first, second, *of_states)]
        for *states, one_out, other_out, label in zip(*parts, labels.split(rows), strict=True):
            states, right = [state.to(dtype) for state in states], label[:, None]
            logs = [torch.mm(state, low.t()).to(total.dtype).add_(bias).log_softmax(1) for state in states]
            for log in logs:
                total -= ((1 - smoothing) * log.gather(1, right)[:, 0] + smoothing * log.mean(1)).sum() / 2
            shares = [log.exp() for log in logs]
            apart = logs[0].sub_(logs[1])  # d; from here on in place: on a CPU new memory costs as much as what is done
            gaps = [torch.linalg.vecdot(share, apart) for share in shares]  # KL(P₁ ‖ P₂), −KL(P₂ ‖ P₁)
            total += pull * (gaps[0] - gaps[1]).sum()
            grads = logs[1], apart.mul_(pull)  # the memory of log P₂ is free
            torch.add((0.5 + pull - pull * gaps[0])[:, None], apart, out=grads[0])
            grads[1].neg_().add_((0.5 + pull + pull * gaps[1])[:, None])
            for place, (grad, out) in enumerate(zip(grads, (one_out, other_out), strict=True)):
                grad.mul_(shares[place]).sub_(shares[1 - place], alpha=pull).sub_(smoothing / size / 2)
                grad.scatter_add_(1, right, grad.new_full(right.shape, (smoothing - 1) / 2))
                of_bias += grad.sum(0)
                grad = grad.to(dtype)
                out.copy_(torch.mm(grad, low))
                of_weight += torch.mm(grad.t(), states[place])
        ctx.save_for_backward(*of_states, of_weight, of_bias)
        return total

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """Scale the gradient that `forward` computed."""
        return (*(known * grads[0] for known in ctx.saved_tensors), None, None, None, None)
