"""The regional translator against a plain float64 form: every thread run through nn.LSTM, Eq. 1–6 by loops."""

import math

import pytest
import torch
from torch import nn

from modules.errors import ModelError
from modules.translators.regional import Memory, RegionalAttention, RegionalTranslator

B, N, K, D, V = 3, 5, 4, 6, 11
LENGTHS, TARGETS = torch.tensor([4, 5, 1]), torch.tensor([3, 2, 4])


@pytest.fixture
def model():
    torch.manual_seed(1)
    return RegionalTranslator(V, D, embedding_dim=5, hidden_dim=3, dropout=0.0).double()


@pytest.fixture
def batch():
    torch.manual_seed(2)
    source, target = torch.randint(1, V, (B, N)), torch.randint(1, V, (B, 4))
    return source, torch.randn(B, K, D, dtype=torch.float64), target


def plain_log_likelihood(model, source, regions, target):
    """Log p of each target word by the book: K full sequences, no sharing, one sentence and word at a time."""
    logs = []
    for b in range(B):
        n, states, finals = int(LENGTHS[b]), [], []
        for k in range(K):
            thread = torch.cat([model.regions(regions[b, k])[None], model.words(source[b, :n]) * 5**0.5])
            output, (h, c) = model.encoder.lstm(thread[None])
            _, (before, before_c) = model.encoder.lstm(thread[None, 1:])  # backward, not yet at the region
            states.append(output[0])
            finals.append((torch.cat([h[0, 0], before[1, 0]]), torch.cat([c[0, 0], before_c[1, 0]])))
        h = model.to_hidden(sum(f[0] for f in finals) / K)[None]
        c = model.to_cell(sum(f[1] for f in finals) / K)[None]
        cell = nn.LSTMCell(5, 6).double()
        for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
            delattr(cell, name)
            setattr(cell, name, getattr(model.decoder, f"{name}_l0"))
        for i in range(int(TARGETS[b])):
            h, c = cell(model.words(target[b, i])[None] * 5**0.5, (h, c))
            q, r = model.attention.to_states(h[0]), model.attention.to_threads(h[0])
            region = torch.softmax(torch.stack([r @ s.mean(0) for s in states]), 0)
            context = 0
            for k in range(K):
                word = torch.softmax(states[k] @ q, 0)
                for j in range(n + 1):
                    context = context + region[k] * word[j] * states[k][j]
            attentional = torch.tanh(model.combine(torch.cat([context, h[0]])))
            logs.append(torch.log_softmax(attentional @ model.words.weight.t() + model.output_bias, 0))
    return torch.stack(logs)


def fast_log_likelihood(model, source, regions, target):
    logits, where = model(model.encode(source, LENGTHS, regions), target, TARGETS)
    return logits.log_softmax(-1)[where.argsort()]


def test_value_and_gradient_equal_the_plain_form(model, batch):
    source, regions, target = batch
    regions.requires_grad_()
    weight = torch.randn(int(TARGETS.sum()), V, dtype=torch.float64)
    results = []
    for form in (fast_log_likelihood, plain_log_likelihood):
        model.zero_grad()
        regions.grad = None
        value = form(model, source, regions, target)
        (value * weight).sum().backward()
        results.append((value.detach(), regions.grad, [p.grad.clone() for p in model.parameters()]))
    torch.testing.assert_close(results[0][0], results[1][0])
    torch.testing.assert_close(results[0][1], results[1][1])
    for name, fast, plain in zip(dict(model.named_parameters()), results[0][2], results[1][2], strict=True):
        torch.testing.assert_close(fast, plain, msg=lambda m, name=name: f"{name}: {m}")


def test_attention_sums_to_one_over_words_and_regions_and_ignores_padding(model, batch):
    source, regions, _ = batch
    memory = model.encode(source, LENGTHS, regions)
    weights = model.attention.weights(torch.randn(B, 2, 6, dtype=torch.float64), memory)
    torch.testing.assert_close(weights.sum((2, 3)), torch.ones(B, 2, dtype=torch.float64))
    assert weights[2, :, :, 2:].abs().max() == 0  # a sentence of one word: the region and the word


def test_attention_worked_by_hand():
    """Scores ln 3 and 0 weigh 3/4 and 1/4; the region's share times the word's is the state's (Eq. 2–4)."""
    attention = RegionalAttention(2, 2)
    for layer in (attention.to_states, attention.to_threads):
        nn.init.eye_(layer.weight)
    states = torch.tensor([[[[1.0, 0.0], [0.0, 0.0]], [[0.0, 0.0], [1.0, 0.0]]]])  # (1, 2 threads, 2 states, 2)
    means = torch.tensor([[[0.0, 0.0], [1.0, 0.0]]])  # the second thread is looked at
    memory = Memory(states, torch.ones(1, 2, dtype=torch.bool), means, torch.zeros(1, 2), torch.zeros(1, 2))
    hidden = torch.tensor([[[math.log(3), 0.0]]])
    expected = torch.tensor([[[[3.0, 1.0], [3.0, 9.0]]]]) / 16
    torch.testing.assert_close(attention.weights(hidden, memory), expected)
    torch.testing.assert_close(attention(hidden, memory), torch.tensor([[[12 / 16, 0.0]]]))


def test_one_region_text_only_and_step_by_step_agree(batch):
    torch.manual_seed(3)
    model = RegionalTranslator(V, None, embedding_dim=5, hidden_dim=3, dropout=0.0).double()
    source, _, target = batch
    memory = model.encode(source, LENGTHS)
    logits, where = model(memory, target, TARGETS)
    together = logits.log_softmax(-1)[where.argsort()]
    state, logs = model.start(memory), []
    for i in range(4):
        states, state = model.step(memory, target[:, i : i + 1], state)
        logs.append(model.predict(states)[:, 0])
    apart = torch.cat([torch.stack(logs, 1)[b, : TARGETS[b]] for b in range(B)])
    torch.testing.assert_close(together, apart.to(together.dtype), atol=1e-6, rtol=1e-5)


def test_a_sentence_alone_is_the_sentence_in_a_batch(model, batch):
    source, regions, _ = batch
    together = model.encode(source, LENGTHS, regions)
    for b in range(B):
        n = int(LENGTHS[b])
        alone = model.encode(source[b : b + 1, :n], LENGTHS[b : b + 1], regions[b : b + 1])
        torch.testing.assert_close(alone.states[0], together.states[b, :, : n + 1])
        torch.testing.assert_close(alone.means[0], together.means[b])
        torch.testing.assert_close(alone.hidden[0], together.hidden[b])


def test_dropout_masks_are_shared_by_the_threads(batch):
    torch.manual_seed(0)
    model = RegionalTranslator(V, D, embedding_dim=64, hidden_dim=3, dropout=0.5)
    same = torch.ones(B, K, D)  # threads that could differ by dropout alone
    whole, dropped = (model.train(training).encode(batch[0], LENGTHS, same).states for training in (False, True))
    assert not torch.allclose(dropped, whole)
    torch.testing.assert_close(dropped, dropped[:, :1].expand_as(dropped))


def test_regions_must_fit_the_kind_of_translator(model, batch):
    source, regions, _ = batch
    with pytest.raises(ModelError, match="choose mt or mmt"):
        model.encode(source, LENGTHS)
    with pytest.raises(ModelError, match="choose mt or mmt"):
        RegionalTranslator(V, None, 5, 3).encode(source, LENGTHS, regions.float())


def test_forget_gates_start_open(model):
    for lstm, width in ((model.encoder.lstm, 3), (model.decoder, 6)):
        biases = [parameter for name, parameter in lstm.named_parameters() if name.startswith("bias_ih")]
        assert all((bias[width : 2 * width] == 2).all() for bias in biases)
        assert all((bias[:width].abs() < 1).all() for bias in biases)
