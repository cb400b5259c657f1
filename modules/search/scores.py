"""Similarity scores of images and captions: inner product, best assignment of sets, cross attention (SCAN), order (OE).

All are in float32 or wider, also under autocast: in bfloat16, scores that differ slightly would become equal. The last
two are computed in parts, so that intermediate tensors have a bounded size for any number of items.
"""

import math
from collections.abc import Callable, Iterator
from functools import partial
from itertools import permutations
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from modules.layers.recurrent import widen
from modules.layers.static import is_static
from modules.search.encodings import Encoding

PART = 2**19  # elements in one tensor of a part; larger masks do not fit in a CPU's caches
ORDER_PART = 2**18  # the same of differences of vectors, which are read more than once
PART_ON_GPU = 2**25  # larger, as a GPU waits for the launch of each part
STORED = 2**26  # elements of all parts together; above it, parts are recomputed in the backward pass
SMALLEST = 1e-12  # lower bound of squared lengths of contexts
SLOPE = 0.1  # of LeakyReLU below zero


def inner_product(one: Tensor, other: Tensor) -> Tensor:
    """Scores (N, M) of vectors (N, H) with vectors (M, H)."""
    with torch.autocast(one.device.type, enabled=False):
        return widen(one) @ widen(other).t()


def gram(vectors: Tensor) -> Tensor:
    """Scores (N, N) of vectors (N, H) with each other, `inner_product(vectors, vectors)` with one product less."""
    with torch.autocast(vectors.device.type, enabled=False):
        return _Gram.apply(widen(vectors))


def best_assignment(one: Tensor, other: Tensor) -> Tensor:
    """Scores (N, M) of sets of K unit vectors (N, K, H) and (M, K, H): the mean cosine under their best assignment.

    All K! assignments are compared: max_π 1/K Σ_k one_k · other_π(k).

    Examples:
        >>> one = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]])
        >>> other = torch.stack([one[0].flip(0), torch.tensor([[1.0, 0.0], [1.0, 0.0]])])
        >>> best_assignment(one, other).tolist()  # the order in a set does not count; each vector is assigned once
        [[1.0, 0.5]]
    """
    count = one.shape[1]
    with torch.autocast(one.device.type, enabled=False):
        cosines = widen(one).flatten(0, 1) @ widen(other).flatten(0, 1).t()
        cosines = cosines.view(len(one), count, len(other), count).transpose(1, 2).flatten(2)  # (N, M, K²)
        chosen = F.one_hot(torch.tensor(list(permutations(range(count)))), count).flatten(1)  # (K!, K²)
        return (cosines @ (chosen.to(cosines) / count).t()).amax(-1)


def cross_attention(
    queries: Encoding, contexts: Encoding, lambda_softmax: float, lambda_lse: float | None = None
) -> Tensor:
    """Similarity of the items of a query to the context vectors they attend to (SCAN, Lee et al. 2018, Eq. 1-7).

    For a query's unit vectors q_s and a context's x_t: a_st = LeakyReLU(q_sᵀ x_t), divided by its norm over s;
    α_st = softmax_t(λ1 a_st); R_s = cosine(q_s, Σ_t α_st x_t); the score is the mean of R_s over s, or
    log Σ_s exp(λ2 R_s) / λ2.

    No attended vector is computed: q_sᵀ Σ_t α_st x_t is a weighted sum of the raw scores, and |Σ_t α_st x_t|² = αᵀ G α
    with the Gram matrix G of the context's vectors. Padding is vectors of zeros: it takes a share of α, which shortens
    the attended vector but does not change the cosine. Always in float32 or wider.

    Args:
        queries: unit vectors (N, S, H) and their mask (N, S).
        contexts: unit vectors (M, T, H) and their mask (M, T).
        lambda_softmax: λ1.
        lambda_lse: λ2; None takes the mean.

    Returns:
        scores (N, M).

    Examples:
        >>> words, regions = torch.eye(3)[None, :2], torch.eye(3)[None]  # each word has a region
        >>> queries, contexts = (words, torch.ones(1, 2).bool()), (regions, torch.ones(1, 3).bool())
        >>> scores = [cross_attention(queries, contexts, lambda_softmax) for lambda_softmax in (0.0, 9.0)]
        >>> [round(float(score), 2) for score in scores]  # of attention to all regions alike, 1/√3; to the word's own
        [0.58, 1.0]
    """

    def score(query: Tensor, query_mask: Tensor, context: Tensor, _: Tensor) -> Tensor:
        """Scores (N, M) of one part of each side."""
        shape = (len(context), context.shape[1], len(query), query.shape[1])
        raw = (context.flatten(0, 1) @ query.flatten(0, 1).t()).view(shape)  # (M, T, N, S)
        dot, square = _Attend.apply(raw, context @ context.transpose(1, 2), lambda_softmax)
        relevance = dot / square.clamp(min=SMALLEST).sqrt()  # (M, N, S)
        if lambda_lse is None:
            return (relevance * query_mask).sum(-1).t() / query_mask.sum(-1)[:, None]
        return (lambda_lse * relevance).masked_fill(~query_mask, -torch.inf).logsumexp(-1).t() / lambda_lse

    with torch.autocast(queries[0].device.type, enabled=False):
        return _by_parts(score, queries, contexts, queries[0].shape[1] * contexts[0].shape[1])


def order_violation(upper: Tensor, lower: Tensor) -> Tensor:
    """Negative order violation of each upper and each lower vector: −‖max(0, u − l)‖² (Vendrov et al. 2016, Eq. 2).

    Args:
        upper: (N, H), captions: the more general items.
        lower: (M, H), images.

    Returns:
        scores (N, M), at limit 0.

    Examples:
        >>> caption, images = torch.tensor([[1.0, 0.0]]), torch.tensor([[2.0, 3.0], [0.5, 0.0]])
        >>> (-order_violation(caption, images)).tolist()  # none, as no number of the caption is above the first image's
        [[0.0, 0.25]]
    """

    with torch.autocast(upper.device.type, enabled=False):
        scores: Tensor = _OrderViolation.apply(widen(upper), widen(lower))
        return scores


class _OrderViolation(torch.autograd.Function):
    """−‖max(0, u − l)‖² of all pairs, block by block; the differences are computed again for the gradient."""

    @staticmethod
    def forward(ctx: Any, upper: Tensor, lower: Tensor) -> Tensor:
        """Compute all scores (N, M)."""
        ctx.save_for_backward(upper, lower)
        scores = upper.new_empty(len(upper), len(lower))
        for above, _, __, block in _blocks(upper, lower, scores):
            torch.sum(above.square_(), -1, out=block)
        return scores.neg_()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        """Compute −2 Σ_j g_ij max(0, u_i − l_j) and 2 Σ_i g_ij max(0, u_i − l_j)."""
        upper, lower = ctx.saved_tensors
        grad_upper, grad_lower = torch.zeros_like(upper), torch.zeros_like(lower)
        for above, rows, columns, grad in _blocks(upper, lower, grads[0]):
            above.mul_(grad[..., None])
            grad_upper[rows] -= above.sum(1)
            grad_lower[columns] += above.sum(0)
        return grad_upper.mul_(2), grad_lower.mul_(2)


def _blocks(upper: Tensor, lower: Tensor, pairs: Tensor) -> Iterator[tuple[Tensor, slice, slice, Tensor]]:
    """Yield max(0, u − l) (n, m, H) block by block: with its rows, its columns and its part (n, m) of `pairs`."""
    size = max(1, math.isqrt((PART_ON_GPU if upper.is_cuda else ORDER_PART) // upper.shape[1]))
    for first in range(0, len(upper), size):
        for second in range(0, len(lower), size):
            rows, columns = slice(first, first + size), slice(second, second + size)
            above = (upper[rows, None] - lower[columns]).clamp_(min=0)
            yield above, rows, columns, pairs[rows, columns]


class _Gram(torch.autograd.Function):
    """V Vᵀ. Its gradient is (G + Gᵀ) V; autograd would compute G V and Gᵀ V."""

    @staticmethod
    def forward(ctx: Any, vectors: Tensor) -> Tensor:
        """Multiply."""
        ctx.save_for_backward(vectors)
        return vectors @ vectors.t()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        """Multiply the symmetric part."""
        return (grads[0] + grads[0].t()) @ ctx.saved_tensors[0]


class _Attend(torch.autograd.Function):
    """Compute q_sᵀ Σ_t α_st x_t and αᵀ G α, each (M, N, S), from raw scores (M, T, N, S) and Gram matrices (M, T, T).

    The gradient is explicit: autograd would read the raw scores twice as often.
    """

    @staticmethod
    def forward(ctx: Any, raw: Tensor, gram: Tensor, lambda_softmax: float) -> tuple[Tensor, Tensor]:
        """Attention weights and the two weighted sums."""
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
        """Gradient through both sums, the softmax, the norm and LeakyReLU."""
        raw, length, weights, mixed, dot, square = ctx.saved_tensors
        grad_dot, grad_square = (grad[:, None] for grad in grads)
        grad_gram = (weights * grad_square).flatten(2) @ weights.flatten(2).transpose(1, 2)
        mean = grad_dot * dot[:, None] + 2 * grad_square * square[:, None]  # Σ_t α ∂α
        grad = (raw * grad_dot).addcmul_(mixed, grad_square, value=2).sub_(mean).mul_(weights)  # G is symmetric
        attention, scale = F.leaky_relu(raw, SLOPE), ctx.lambda_softmax / (length + 1e-8)
        through_norm = (grad * attention).sum(-1, keepdim=True) * scale / ((length + 1e-8) * length.clamp(min=SMALLEST))
        grad.mul_(scale).sub_(attention.mul_(through_norm))
        grad = torch.ops.aten.leaky_relu_backward(grad, raw, SLOPE, False)
        return grad.addcmul_(weights, grad_dot), grad_gram, None


def _by_parts(score: Callable[..., Tensor], queries: Encoding, contexts: Encoding, each: int) -> Tensor:
    """Compute scores (N, M) part by part; a pair of items needs `each` elements of intermediate tensors."""
    sides, total = (queries, contexts), len(queries[0]) * len(contexts[0]) * each
    limit = PART_ON_GPU if queries[0].is_cuda else PART
    if total <= limit:
        return score(*_without_padding(*queries), *_without_padding(*contexts))
    if total > STORED and torch.is_grad_enabled():
        score = partial(checkpoint, score, use_reentrant=False, preserve_rng_state=False)
    size = max(1, math.isqrt(limit // each))
    orders = [_width(mask).argsort(stable=True) for _, mask in sides]
    parts = [list(_parts(*side, order, size)) for side, order in zip(sides, orders, strict=True)]
    rows = [torch.cat([score(*query, *context) for context in parts[1]], dim=1) for query in parts[0]]
    positions = [order.argsort() for order in orders]
    return torch.cat(rows)[positions[0]][:, positions[1]]


def _width(mask: Tensor) -> Tensor:
    """Length of each item (N,), up to its last true position in the mask (N, T)."""
    return (mask * torch.arange(1, mask.shape[1] + 1, device=mask.device)).amax(1)


def _parts(vectors: Tensor, mask: Tensor, order: Tensor, size: int) -> Iterator[Encoding]:
    """Yield the items in the given order, `size` at a time, each part cut to its longest item where that is known."""
    for part, real in zip(vectors.index_select(0, order).split(size), mask[order].split(size), strict=True):
        width = real.shape[1] if is_static(real) else int(_width(real).max())
        yield _without_padding(part[:, :width], real[:, :width])


def _without_padding(vectors: Tensor, mask: Tensor) -> Encoding:
    """Return the vectors, with padding set to zero, in float32 or wider, and their mask."""
    return widen(vectors) * mask[..., None], mask
