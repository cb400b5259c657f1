"""Ensembles: the mean of the members' probabilities, in one search."""

import pytest
import torch

from modules.errors import ModelError
from modules.translators.beam import BeamSettings, beam_search
from modules.translators.ensemble import Ensemble
from modules.translators.registry import build_translator, translate

V, BEGIN, END = 7, 1, 2
SOURCE, LENGTHS = torch.tensor([[3, 4, 3], [4, 0, 0]]), torch.tensor([3, 1])
REGIONS = torch.randn(2, 3, 6, generator=torch.Generator().manual_seed(0))


def member(network, seed, looks=False, size=V):
    torch.manual_seed(seed)
    model = build_translator(
        network, vocabulary_size=size, region_dim=6 if looks else None, embedding_dim=8, hidden_dim=4, dropout=0.0
    ).eval()
    torch.nn.init.normal_(model.output_bias)
    return model


def test_the_mean_of_probabilities_word_by_word():
    members = [member("bilstm", 1), member("transformer", 2, looks=True), member("transformer", 3)]
    both = Ensemble(members)
    memory, parts = both.encode(SOURCE, LENGTHS, REGIONS), [
        one.encode(SOURCE, LENGTHS, REGIONS if one.regions is not None else None) for one in members
    ]  # fmt: skip
    state, states = both.start(memory), [one.start(part) for one, part in zip(members, parts, strict=True)]
    for words in ([[BEGIN], [BEGIN]], [[3], [5]], [[4], [4]]):
        token = torch.tensor(words)
        seen, state = both.step(memory, token, state)
        found = [one.step(part, token, own) for one, part, own in zip(members, parts, states, strict=True)]
        states = [new for _, new in found]
        mean = sum(one.predict(own).exp() for one, (own, _) in zip(members, found, strict=True)) / 3
        assert torch.allclose(both.predict(seen).exp(), mean, atol=1e-6)


def test_two_of_the_same_are_that_one_and_order_does_not_matter():
    one, other = member("transformer", 1), member("bilstm", 2)
    batch = {"source": SOURCE, "source_lengths": LENGTHS}
    settings = BeamSettings(3)
    alone, twice = (translate(model, batch, settings, BEGIN, END) for model in (one, Ensemble([one, one])))
    assert [[h.tokens for h in found] for found in twice] == [[h.tokens for h in found] for found in alone]
    there, back = (translate(Ensemble(pair), batch, settings, BEGIN, END) for pair in ([one, other], [other, one]))
    assert [[h.tokens for h in found] for found in there] == [[h.tokens for h in found] for found in back]


def test_sentences_leave_the_batch_in_all_members():
    both = Ensemble([member("bilstm", 1), member("transformer", 2)])
    memory = both.encode(SOURCE, LENGTHS)
    together = beam_search(both, memory, BeamSettings(2), BEGIN, END, torch.tensor([2, 9]))
    alone = beam_search(both, both.encode(SOURCE[1:, :1], LENGTHS[1:]), BeamSettings(2), BEGIN, END, 9)[0]
    assert [h.tokens for h in together[1]] == [h.tokens for h in alone]


def test_what_is_no_ensemble_is_refused():
    with pytest.raises(ModelError, match="an ensemble of 1"):
        Ensemble([member("bilstm", 1)])
    with pytest.raises(ModelError, match=r"vocabularies of \[7, 9\]"):
        Ensemble([member("bilstm", 1), member("bilstm", 1, size=9)])
