"""Sampling: words come as often as the model says, the same alone and in a batch, and never past the limits."""

from collections import Counter

import pytest
import torch

from modules.errors import ModelError
from modules.translators.registry import build_translator, translate
from modules.translators.sampling import SampleSettings, sample, sampled

V, BEGIN, END, LONGEST = 5, 1, 2, 3
SOURCE, LENGTHS = torch.tensor([[3, 4, 3], [4, 0, 0], [3, 3, 0]]), torch.tensor([3, 1, 2])


@pytest.fixture(params=["bilstm", "transformer"])
def model(request):
    torch.manual_seed(5)
    arguments = {"vocabulary_size": V, "embedding_dim": 8, "hidden_dim": 4, "dropout": 0.0}
    model = build_translator(request.param, **arguments).eval()
    torch.nn.init.normal_(model.output_bias)
    return model


def first_words(model, settings):
    """How often each word came first in ten draws for each of 2,000 sentences alike, and what the model gives it."""
    memory = model.encode(SOURCE[:1].repeat(2000, 1), LENGTHS[:1].repeat(2000))
    found = sample(model, memory, settings, BEGIN, END, torch.full((2000,), LONGEST), range(2000))
    counts = Counter([*one.tokens, END][0] for drawn in found for one in drawn)
    states, _ = model.step(memory, torch.full((2000, 1), BEGIN), model.start(memory))
    return torch.tensor([counts[word] for word in range(V)]) / counts.total(), model.predict(states)[0, 0].detach()


def test_words_come_as_often_as_they_are_probable(model):
    shares, logs = first_words(model, SampleSettings(10))
    assert torch.allclose(shares, logs.exp(), atol=0.012)  # three standard errors of 20,000 draws
    shares, _ = first_words(model, SampleSettings(10, temperature=0.5))
    assert torch.allclose(shares, (2 * logs).softmax(-1), atol=0.012)


def test_top_p_draws_among_the_likeliest_words_alone(model):
    _, logs = first_words(model, SampleSettings(1))
    ordered, words = logs.exp().sort(descending=True)
    shares, _ = first_words(model, SampleSettings(10, top_p=float(ordered[0] + 0.5 * ordered[1])))
    kept = torch.zeros(V).index_copy(0, words[:2], ordered[:2] / ordered[:2].sum())
    assert torch.allclose(shares, kept, atol=0.012)


@pytest.mark.parametrize("top_p", [1.0, 0.9])
def test_the_highest_random_number_draws_a_word_that_may_be_drawn(top_p: float) -> None:
    """A sum of many probabilities rounds otherwise than the running total of them."""
    logs = (2 * torch.randn(1, 400, 8000, generator=torch.Generator().manual_seed(0))).log_softmax(-1)
    logs[..., 0] = -torch.inf
    words = sampled(logs, torch.full((1, 400), 1 - 2**-24), SampleSettings(top_p=top_p))
    ordered, place = logs.softmax(-1).sort(-1, descending=True)
    before = (ordered.cumsum(-1) - ordered).gather(-1, place.argsort(-1).gather(-1, words[..., None]))
    assert logs.gather(-1, words[..., None]).isfinite().all()
    assert before.max() < top_p


def test_a_cold_sample_is_greedy_search_and_its_score_the_log_probability(model):
    settings = SampleSettings(3, temperature=1e-4, length_penalty=0.0)
    memory = model.encode(SOURCE[:1], LENGTHS[:1])
    found = sample(model, memory, settings, BEGIN, END, torch.tensor([LONGEST]), [0])[0]
    assert len(found) == 3
    word, state, words, score = BEGIN, model.start(memory), [], 0.0
    while word != END and len(words) < LONGEST:
        states, state = model.step(memory, torch.tensor([[word]]), state)
        logs = model.predict(states).detach()
        word = int(logs.argmax())
        words.append(word)
        score += float(logs.max())
    for one in found:
        assert one.tokens == [w for w in words if w != END]
        assert one.score == pytest.approx(score, abs=1e-4)


def test_alone_as_in_a_batch_and_another_seed_draws_otherwise(model):
    batch = {"source": SOURCE, "source_lengths": LENGTHS, "index": torch.tensor([4, 5, 6])}
    together = translate(model, batch, SampleSettings(8, seed=1), BEGIN, END)
    for b in range(3):
        single = {"source": SOURCE[b : b + 1, : LENGTHS[b]], "source_lengths": LENGTHS[b : b + 1],
                  "index": batch["index"][b : b + 1]}  # fmt: skip
        alone = translate(model, single, SampleSettings(8, seed=1), BEGIN, END)[0]
        assert [one.tokens for one in alone] == [one.tokens for one in together[b]]
        assert all(len(one.tokens) <= int(1.5 * LENGTHS[b]) + 10 for one in alone)
        assert all(END not in one.tokens for one in alone)
        assert [one.score for one in alone] == sorted((one.score for one in alone), reverse=True)
    other = translate(model, batch, SampleSettings(8, seed=2), BEGIN, END)
    assert [[one.tokens for one in found] for found in other] != [[one.tokens for one in found] for found in together]


@pytest.mark.parametrize(
    "settings", [{"samples": 0}, {"temperature": 0.0}, {"top_p": 0.0}, {"top_p": 1.1}, {"length_penalty": -0.1}]
)
def test_what_cannot_be_drawn_is_refused(settings):
    with pytest.raises(ModelError):
        SampleSettings(**settings)
