"""Cross-entropy over a large vocabulary, computed in parts: there is no tensor of all words times the vocabulary.

On a CPU this takes half the time of a product, `log_softmax` and their gradients on all words at once, which do not fit
in its caches. On a GPU parts are large; they limit memory for large batches only.
"""

from typing import Any

import torch
from torch import Tensor

from modules.layers.recurrent import matmul_dtype, widen
from modules.layers.static import is_static

PART = 2**20  # scores at a time: 128 words of a vocabulary of 8,000
PART_ON_GPU = 2**26  # larger, as a GPU waits for the launch of each part


def rows_at_a_time(tensor: Tensor, size: int) -> int:
    """Number of rows of `size` scores that are computed together in the form of the step, 1 or more."""
    return max(1, (PART_ON_GPU if is_static(tensor) else PART) // size)


def smoothed_cross_entropy(
    states: Tensor, weight: Tensor, bias: Tensor, labels: Tensor, smoothing: float, counted: Tensor | None = None
) -> Tensor:
    """Summed cross-entropy of softmax(states Wᵀ + b), equal to `F.cross_entropy` with `label_smoothing`.

    Args:
        states: (T, E).
        weight: W (V, E).
        bias: b (V,).
        labels: (T,) the correct entries.
        smoothing: share of probability spread over the vocabulary.
        counted: (T,) bool, which rows count; None: all.

    Returns:
        the sum over T, a scalar in float32 or wider.

    Examples:
        >>> states, weight, bias = torch.zeros(3, 2), torch.zeros(4, 2), torch.zeros(4)
        >>> labels, counted = torch.tensor([1, 0, 3]), torch.tensor([True, True, False])
        >>> round(float(smoothed_cross_entropy(states, weight, bias, labels, 0.1, counted)), 2)  # the sum of two log 4
        2.77
    """
    dtype = matmul_dtype(states)
    with torch.autocast(states.device.type, enabled=False):
        with_gradient = torch.is_grad_enabled()
        loss: Tensor = _CrossEntropy.apply(
            widen(states), weight, bias, labels, _shares(states, counted), smoothing, dtype, with_gradient
        )
    return loss


def agreeing_cross_entropy(
    first: Tensor, second: Tensor, weight: Tensor, bias: Tensor, labels: Tensor, smoothing: float, agreement: float,
    counted: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """R-Drop loss (Liang et al. 2021, Eq. 4, halved): the cross-entropy and divergence of two passes with dropout.

    ½ (CE₁ + CE₂) + α/2 · ½ (KL(P₁ ‖ P₂) + KL(P₂ ‖ P₁)), summed over words; computed in parts.

    Args:
        first: (T, E), states of the first pass.
        second: (T, E), states of the second pass.
        weight: W (V, E).
        bias: b (V,).
        labels: (T,) the correct entries.
        smoothing: share of probability spread over the vocabulary.
        agreement: α.
        counted: (T,) bool, which rows count; None: all.

    Returns:
        the sum over T, a scalar in float32 or wider.

    Examples:
        >>> weight, bias, labels = torch.eye(2), torch.zeros(2), torch.tensor([0])
        >>> first, second = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]])
        >>> losses = [agreeing_cross_entropy(first, other, weight, bias, labels, 0.0, 1.0) for other in (first, second)]
        >>> [round(float(loss), 2) for loss in losses]  # the cross-entropy of equal passes; of passes that disagree
        [0.31, 1.04]
    """
    dtype = matmul_dtype(first)
    with torch.autocast(first.device.type, enabled=False):
        loss: Tensor = _AgreeingCrossEntropy.apply(
            widen(first), widen(second), weight, bias, labels, _shares(first, counted), smoothing, agreement, dtype
        )
    return loss


def _shares(states: Tensor, counted: Tensor | None) -> Tensor:
    """What each row counts, (T, 1) of 0 and 1; (1, 1) where all do."""
    return widen(states).new_ones(1, 1) if counted is None else counted[:, None].to(widen(states).dtype)


class _CrossEntropy(torch.autograd.Function):
    """Smoothed cross-entropy; the gradient is computed with the scores and only scaled in the backward pass."""

    @staticmethod
    def forward(
        ctx: Any,
        states: Tensor,
        weight: Tensor,
        bias: Tensor,
        labels: Tensor,
        shares: Tensor,
        smoothing: float,
        dtype: torch.dtype,
        with_gradient: bool,
    ) -> Tensor:
        """For each part: the scores, their loss, and the gradient of states, weight and bias."""
        size, low = len(weight), weight.to(dtype)
        grad_states, grad_weight, grad_bias = torch.empty_like(states), torch.zeros_like(weight), torch.zeros_like(bias)
        total = states.new_zeros(())
        rows = rows_at_a_time(states, size)
        shares = shares.expand(len(states), 1)
        parts = (side.split(rows) for side in (states, labels, grad_states, shares))
        for state, label, out, share in zip(*parts, strict=True):
            state, right = state.to(dtype), label[:, None]
            scores = torch.mm(state, low.t()).to(total.dtype).add_(bias)
            probabilities = scores.softmax(1)
            whole = scores.amax(1) - probabilities.amax(1).log()  # logsumexp, from the exponentials of the softmax
            wanted = (1 - smoothing) * scores.gather(1, right)[:, 0] + smoothing * scores.mean(1)
            total += ((whole - wanted) * share[:, 0]).sum()
            if not with_gradient:
                continue
            grad = probabilities.sub_(smoothing / size)
            grad.scatter_add_(1, right, grad.new_full(right.shape, smoothing - 1)).mul_(share)
            grad_bias += grad.sum(0)
            grad = grad.to(dtype)
            out.copy_(torch.mm(grad, low))
            grad_weight += torch.mm(grad.t(), state)
        ctx.save_for_backward(grad_states, grad_weight, grad_bias)
        return total

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """Scale the stored gradients."""
        return (*(gradient * grads[0] for gradient in ctx.saved_tensors), None, None, None, None, None)


class _AgreeingCrossEntropy(torch.autograd.Function):
    """Like `_CrossEntropy`, for two passes; with d = log P₁ − log P₂ the sum of both divergences is Σ (P₁ − P₂) d."""

    @staticmethod
    def forward(
        ctx: Any,
        first: Tensor,
        second: Tensor,
        weight: Tensor,
        bias: Tensor,
        labels: Tensor,
        shares: Tensor,
        smoothing: float,
        agreement: float,
        dtype: torch.dtype,
    ) -> Tensor:
        """For each part: the scores of both passes, their loss and divergence, and all gradients."""
        size, low = len(weight), weight.to(dtype)
        grad_states = torch.empty_like(first), torch.empty_like(second)
        grad_weight, grad_bias = torch.zeros_like(weight), torch.zeros_like(bias)
        total, factor = first.new_zeros(()), agreement / 4
        rows = rows_at_a_time(first, 2 * size)
        parts = [tensor.split(rows) for tensor in (first, second, *grad_states, labels, shares.expand(len(first), 1))]
        for *states, one_out, other_out, label, share in zip(*parts, strict=True):
            states, right = [state.to(dtype) for state in states], label[:, None]
            logs = [torch.mm(state, low.t()).to(total.dtype).add_(bias).log_softmax(1) for state in states]
            for log in logs:
                wanted = (1 - smoothing) * log.gather(1, right) + smoothing * log.mean(1, keepdim=True)
                total -= (wanted * share).sum() / 2
            probabilities = [log.exp() for log in logs]
            # d, in place: on a CPU, allocating memory takes as long as the computation
            difference = logs[0].sub_(logs[1])
            gaps = [torch.linalg.vecdot(chances, difference) for chances in probabilities]  # KL(P₁ ‖ P₂), −KL(P₂ ‖ P₁)
            total += factor * ((gaps[0] - gaps[1]) * share[:, 0]).sum()
            grads = logs[1], difference.mul_(factor)  # reuses the memory of log P₂
            torch.add((0.5 + factor - factor * gaps[0])[:, None], difference, out=grads[0])
            grads[1].neg_().add_((0.5 + factor + factor * gaps[1])[:, None])
            for number, (grad, out) in enumerate(zip(grads, (one_out, other_out), strict=True)):
                own, other = probabilities[number], probabilities[1 - number]
                grad.mul_(own).sub_(other, alpha=factor).sub_(smoothing / size / 2)
                grad.scatter_add_(1, right, grad.new_full(right.shape, (smoothing - 1) / 2)).mul_(share)
                grad_bias += grad.sum(0)
                grad = grad.to(dtype)
                out.copy_(torch.mm(grad, low))
                grad_weight += torch.mm(grad.t(), states[number])
        ctx.save_for_backward(*grad_states, grad_weight, grad_bias)
        return total

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """Scale the stored gradients."""
        return (*(gradient * grads[0] for gradient in ctx.saved_tensors), None, None, None, None, None)
