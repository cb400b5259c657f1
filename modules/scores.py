"""Scores of images with captions: inner product, stacked cross attention (SCAN), order violation (OE).

All are in float32 or wider, whatever autocast says: in bfloat16 near scores would tie. The last two are made in parts,
so that what lies between stays under a fixed size however many items are compared.
"""

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from modules.recurrent import widen

PART = 2**21  # numbers in one tensor of a part; larger ones leave the caches of a CPU
PART_ON_GPU = 2**25  # larger, since each part costs a kernel launch
STORED = 2**26  # numbers of all parts together above which a part is computed again in the backward pass
SMALLEST = 1e-12  # squared lengths of contexts are at least this
SLOPE = 0.1  # of the leaky rectifier below zero

Encoding = tuple[Tensor, Tensor]


def inner_product(one: Tensor, other: Tensor) -> Tensor:
    """Scores (N, M) of vectors (N, H) with vectors (M, H)."""
    with torch.autocast(one.device.type, enabled=False):
        return widen(one) @ widen(other).t()


def cross_attention(
    queries: Encoding, contexts: Encoding, lambda_softmax: float, lambda_lse: float | None = None
) -> Tensor:
    """How well the items of a query match what they attend to in a context (SCAN, Lee et al. 2018, Eq. 1-7).

    For a query's unit vectors q_s and a context's x_t: a_st = LeakyReLU(q_sᵀ x_t), divided by its norm over s;
    α_st = softmax_t(λ1 a_st); R_s = cosine(q_s, Σ_t α_st x_t); the score is the mean of R_s over s, or
    log Σ_s exp(λ2 R_s) / λ2.

    No context vector is formed: q_sᵀ Σ_t α_st x_t is a weighted sum of the raw scores, and |Σ_t α_st x_t|² = αᵀ G α
    with the Gram matrix G of the context's vectors. Padding is vectors of zeros: it takes a share of α, which shortens
    the context, and the cosine does not see that. Always in float32 or wider.

    Args:
        queries: unit vectors (N, S, H) and their mask (N, S).
        contexts: unit vectors (M, T, H) and their mask (M, T).
        lambda_softmax: λ1.
        lambda_lse: λ2; None takes the mean.

    Returns:
        scores (N, M).
    """

    def score(query: Tensor, real: Tensor, context: Tensor, _: Tensor) -> Tensor:
        """Scores (N, M) of one part of each side."""
        shape = (len(context), context.shape[1], len(query), query.shape[1])
        raw = (context.flatten(0, 1) @ query.flatten(0, 1).t()).view(shape)  # (M, T, N, S)
        dot, square = _Attend.apply(raw, context @ context.transpose(1, 2), lambda_softmax)
        relevance = dot / square.clamp(min=SMALLEST).sqrt()  # (M, N, S)
        if lambda_lse is None:
            return (relevance * real).sum(-1).t() / real.sum(-1)[:, None]
        return (lambda_lse * relevance).masked_fill(~real, -torch.inf).logsumexp(-1).t() / lambda_lse

    with torch.autocast(queries[0].device.type, enabled=False):
        return _by_parts(score, queries, contexts, queries[0].shape[1] * contexts[0].shape[1])


def order_violation(upper: Tensor, lower: Tensor) -> Tensor:
    """How far each lower vector is from lying below each upper one: −‖max(0, u − l)‖² (Vendrov et al. 2016, Eq. 2).

    Args:
        upper: (N, H), captions: the more abstract.
        lower: (M, H), images.

    Returns:
        scores (N, M), 0 at the most.
    """

    def score(above: Tensor, _: Tensor, below: Tensor, __: Tensor) -> Tensor:
        """Scores (N, M) of one part of each side."""
        return -(above - below.transpose(0, 1)).relu().square().sum(-1)

    ones = [vectors.new_ones(len(vectors), 1).bool() for vectors in (upper, lower)]
    with torch.autocast(upper.device.type, enabled=False):
        return _by_parts(score, (upper[:, None], ones[0]), (lower[:, None], ones[1]), upper.shape[1])


class _Attend(torch.autograd.Function):
    """Raw scores (M, T, N, S) and Gram matrices (M, T, T) to q_sᵀ Σ_t α_st x_t and αᵀ G α, each (M, N, S).

    The gradient is written out: autograd would go through the raw scores twice as often.
    """

    @staticmethod
    def forward(ctx: Any, raw: Tensor, gram: Tensor, lambda_softmax: float) -> tuple[Tensor, Tensor]:
        """Weights, and what they weigh."""
        attention = F.leaky_relu(raw, SLOPE)
        length = torch.linalg.vector_norm(attention, dim=-1, keepdim=True)
        weights = attention.mul_(lambda_softmax / (length + 1e-8)).softmax(dim=1)  # 1e-8 as published
        mixed = (gram @ weights.flatten(2)).view_as(weights)
        dot, square = (weights * raw).sum(1), (weights * mixed).sum(1)
        ctx.save_for_backward(raw, length, weights, mixed, dot, square)
        ctx.lambda_softmax = lambda_softmax
        return dot, square

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """Through both sums, the softmax, the norm and the rectifier."""
        raw, length, weights, mixed, dot, square = ctx.saved_tensors
        of_dot, of_square = (grad[:, None] for grad in grads)
        grad_gram = (weights * of_square).flatten(2) @ weights.flatten(2).transpose(1, 2)
        mean = of_dot * dot[:, None] + 2 * of_square * square[:, None]  # Σ_t α ∂α
        grad = (raw * of_dot).addcmul_(mixed, of_square, value=2).sub_(mean).mul_(weights)  # G is symmetric
        attention, scale = F.leaky_relu(raw, SLOPE), ctx.lambda_softmax / (length + 1e-8)
        turn = (grad * attention).sum(-1, keepdim=True) * scale / ((length + 1e-8) * length.clamp(min=SMALLEST))
        grad.mul_(scale).sub_(attention.mul_(turn))
        grad = torch.where(raw > 0, grad, SLOPE * grad)
        return grad.addcmul_(weights, of_dot), grad_gram, None


def _by_parts(score: Callable[..., Tensor], queries: Encoding, contexts: Encoding, each: int) -> Tensor:
    """Scores (N, M) from those of parts; a pair of items needs `each` numbers in between."""
    sides, total = (queries, contexts), len(queries[0]) * len(contexts[0]) * each
    most = PART_ON_GPU if queries[0].is_cuda else PART
    if total <= most:
        return score(*_without_padding(*queries), *_without_padding(*contexts))
    if total > STORED and torch.is_grad_enabled():
        score = partial(checkpoint, score, use_reentrant=False, preserve_rng_state=False)
    size = max(1, math.isqrt(most // each))
    orders = [_width(mask).argsort(stable=True) for _, mask in sides]
    parts = [list(_parts(*side, order, size)) for side, order in zip(sides, orders, strict=True)]
    rows = [torch.cat([score(*query, *context) for context in parts[1]], dim=1) for query in parts[0]]
    places = [order.argsort() for order in orders]
    return torch.cat(rows)[places[0]][:, places[1]]


def _width(mask: Tensor) -> Tensor:
    """How long each item is (N,), up to its last true place in the mask (N, T)."""
    return (mask * torch.arange(1, mask.shape[1] + 1, device=mask.device)).amax(1)


def _parts(vectors: Tensor, mask: Tensor, order: Tensor, size: int) -> Iterator[Encoding]:
    """Items in that order, short ones first, `size` at a time and cut to their longest."""
    for part, real in zip(vectors.index_select(0, order).split(size), mask[order].split(size), strict=True):
        width = int(_width(real).max())
        yield _without_padding(part[:, :width], real[:, :width])


def _without_padding(vectors: Tensor, mask: Tensor) -> Encoding:
    """Vectors of zeros where there is padding, in float32 or wider; and their mask."""
    return widen(vectors) * mask[..., None], mask
