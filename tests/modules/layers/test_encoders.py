"""Encoders against a loop over items and vectors in float64: values, gradients, and what padding must not change."""

import math

import pytest
import torch
from torch import nn

from modules.layers.encoders import AttentionPool, CaptionEncoder, word_table

B, T, H, V, E = 4, 5, 6, 9, 3
LENGTHS = torch.tensor([3, 5, 1, 4])
MASK = torch.arange(T) < LENGTHS[:, None]


@pytest.fixture
def pool():
    torch.manual_seed(1)
    return AttentionPool(H).double()


@pytest.fixture
def encoder():
    torch.manual_seed(2)
    return CaptionEncoder(word_table(V, E), E, H, dropout=0.0).double()


@pytest.fixture
def vectors():
    torch.manual_seed(3)
    return torch.randn(B, T, H, dtype=torch.float64, requires_grad=True)


@pytest.fixture
def tokens():
    torch.manual_seed(4)
    return torch.randint(1, V, (B, T)) * MASK


def perceptron(layer: nn.Linear, vector):
    """One layer, number by number."""
    return [
        torch.tanh(sum(layer.weight[o, i] * vector[i] for i in range(len(vector))) + layer.bias[o])
        for o in range(layer.out_features)
    ]


def plain_pool(pool, vectors, lengths):
    """Eq. 7 by the book."""
    pooled = []
    context = perceptron(pool.of_context, pool.context)
    for b, n in enumerate(lengths.tolist()):
        pointers = [perceptron(pool.of_vectors, vectors[b, i]) for i in range(n)]
        scores = [sum(c * z for c, z in zip(context, pointer, strict=True)) for pointer in pointers]
        total = sum(score.exp() for score in scores)
        pooled.append(sum(score.exp() / total * vectors[b, i] for i, score in enumerate(scores)))
    return torch.stack(pooled)


def gradients(value, *inputs):
    weight = torch.randn(value.shape, dtype=value.dtype, generator=torch.Generator().manual_seed(0))
    return torch.autograd.grad((value * weight).sum(), inputs)


def test_attention_pooling_equals_the_loop_in_value_and_gradient(pool, vectors):
    fast, plain = pool(vectors, MASK), plain_pool(pool, vectors, LENGTHS)
    torch.testing.assert_close(fast, plain)
    inputs = (vectors, *pool.parameters())
    for ours, theirs in zip(gradients(fast, *inputs), gradients(plain, *inputs), strict=True):
        assert theirs.abs().max() > 1e-6
        torch.testing.assert_close(ours, theirs)


def test_attention_weights_are_shares_of_the_real_vectors(pool, vectors):
    weights = pool.weights(vectors, MASK)
    torch.testing.assert_close(weights.sum(1), torch.ones(B, dtype=torch.float64))
    assert (weights[~MASK] == 0).all()
    assert (weights[MASK] > 0).all()
    assert math.isclose(weights[2, 0].item(), 1.0)
    assert weights[1].std() > 1e-3  # not a plain mean


def test_what_is_masked_does_not_matter(pool, vectors):
    other = vectors.detach().clone()
    other[~MASK] = 1e3
    torch.testing.assert_close(pool(other, MASK), pool(vectors, MASK))
    for b, n in enumerate(LENGTHS.tolist()):
        alone = pool(vectors[b : b + 1, :n], torch.ones(1, n, dtype=torch.bool))
        torch.testing.assert_close(alone[0], pool(vectors, MASK)[b])


def test_the_order_of_vectors_does_not_matter(pool, vectors):
    order = torch.randperm(T)
    torch.testing.assert_close(pool(vectors[:, order], MASK[:, order]), pool(vectors, MASK))


def test_caption_states_are_the_mean_of_both_directions_of_nn_lstm(encoder, tokens):
    states, mask = encoder(tokens, LENGTHS)
    plain = torch.zeros(B, T, H, dtype=torch.float64)
    for b, n in enumerate(LENGTHS.tolist()):
        ahead, back = encoder.lstm.lstm(encoder.words.weight[tokens[b, :n]][None])[0][0].chunk(2, -1)
        plain = plain.index_put((torch.tensor([b] * n), torch.arange(n)), (ahead + back) / 2)
    torch.testing.assert_close(states, plain)
    assert torch.equal(mask, MASK)
    parameters = list(encoder.parameters())
    for ours, theirs in zip(gradients(states, *parameters), gradients(plain, *parameters), strict=True):
        assert theirs.abs().max() > 1e-6
        torch.testing.assert_close(ours, theirs)


def test_a_caption_alone_is_the_caption_in_a_batch(encoder, tokens):
    together, _ = encoder(tokens, LENGTHS)
    for b, n in enumerate(LENGTHS.tolist()):
        alone, mask = encoder(tokens[b : b + 1, :n], LENGTHS[b : b + 1])
        assert mask.all()
        torch.testing.assert_close(alone[0], together[b, :n])
    wider, mask = encoder(torch.cat([tokens, torch.zeros(B, 2, dtype=torch.long)], 1), LENGTHS)
    torch.testing.assert_close(wider[:, :T], together)
    assert not mask[:, T:].any()
    assert (wider[:, T:] == 0).all()


def test_dropout_works_on_words_and_in_training_only(tokens):
    torch.manual_seed(0)
    encoder = CaptionEncoder(word_table(V, 64), 64, H, dropout=0.5)
    one, two = (encoder(tokens, LENGTHS)[0] for _ in range(2))
    assert (one - two).abs().max() > 1e-4
    encoder.eval()
    torch.testing.assert_close(encoder(tokens, LENGTHS)[0], encoder(tokens, LENGTHS)[0], rtol=0, atol=0)


def test_autocast_is_close_and_padding_stays_without_weight(pool, encoder, tokens):
    pool, encoder = pool.float(), encoder.float()
    exact = pool(*encoder(tokens, LENGTHS))
    with torch.autocast("cpu", torch.bfloat16):
        rough = pool(*encoder(tokens, LENGTHS))
        weights = pool.weights(*encoder(tokens, LENGTHS))
    assert weights.dtype == torch.float32
    assert (weights[~MASK] == 0).all()
    torch.testing.assert_close(weights.sum(1), torch.ones(B))
    assert 0 < (rough.float() - exact).abs().max() < 0.02 * exact.abs().max()
