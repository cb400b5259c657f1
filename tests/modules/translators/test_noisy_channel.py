"""N-best lists reranked by a noisy channel."""

import pytest
import torch
from torch.nn import functional as F

from modules.errors import ModelError
from modules.layers.static import static_shapes
from modules.translators.beam import BeamSettings, Hypothesis
from modules.translators.noisy_channel import Channel, log_likelihoods
from modules.translators.registry import translate
from modules.translators.rerankers import LogProbability, Reranker
from modules.translators.sampling import SampleSettings
from tests.modules.translators.test_ensemble import BEGIN, END, LENGTHS, REGIONS, SOURCE, member

BACK = 9  # words of the channel
BATCH = {"source": SOURCE, "source_lengths": LENGTHS, "index": torch.tensor([0, 1])}


def moved(sentences):
    """From seven token numbers to nine."""
    return [[token + 2 for token in one] or [3] for one in sentences]


def joined(weight=0.5, beam_size=4, direct=None):
    channel = Channel(member("transformer", 2, size=BACK), moved, moved, BEGIN, END)
    features = {"logp": LogProbability(), "channel": channel}
    return Reranker(direct or member("transformer", 1), features, {"logp": 1.0, "channel": weight}, beam_size)


def back(both):
    """The translator of the opposite direction."""
    return both.features["channel"].channel


def by_hand(channel, heard, said):
    """log p(said | heard) word by word, of one sentence alone."""
    memory = channel.encode(torch.tensor([heard]), torch.tensor([len(heard)]))
    logits, _ = channel(memory, torch.tensor([[BEGIN, *said]]), torch.tensor([len(said) + 1]))
    return sum(F.log_softmax(row, -1)[word] for row, word in zip(logits, [*said, END], strict=True)).item()


@pytest.mark.parametrize("kind", ["transformer", "bilstm"])
def test_the_score_is_that_of_both_ways(kind):
    both = joined()
    both.features["channel"].channel = member(kind, 3, size=BACK)
    found = [
        [Hypothesis([3, 3], -1.0), Hypothesis([4], -1.1), Hypothesis([], -1.2)],
        [Hypothesis([5, 4, 3, 6], -2.0)],
    ]
    ordered = both.rerank(BATCH, found)
    for said, before, after in zip(([5, 6, 5], [6]), found, ordered, strict=True):
        wanted = {
            tuple(one.tokens): one.score + 0.5 * by_hand(back(both), *moved([one.tokens]), said) / (len(said) + 1)
            for one in before
        }
        assert [one.score for one in after] == sorted((one.score for one in after), reverse=True)
        assert {tuple(one.tokens): one.score for one in after} == pytest.approx(wanted, abs=1e-5)


def test_no_weight_is_the_wider_beam_alone_and_much_is_the_channel_alone():
    alone = translate(member("transformer", 1), BATCH, BeamSettings(4), BEGIN, END)
    for search in (BeamSettings(4), BeamSettings(1)):
        found = translate(joined(weight=0.0), BATCH, search, BEGIN, END)
        assert [[h.tokens for h in best] for best in found] == [[h.tokens for h in best] for best in alone]
    both = joined(weight=1e6)
    for said, best, before in zip(
        ([5, 6, 5], [6]), translate(both, BATCH, BeamSettings(1), BEGIN, END), alone, strict=True
    ):
        likely = [by_hand(back(both), *moved([one.tokens]), said) for one in best]
        assert likely == sorted(likely, reverse=True)
        assert sorted(one.tokens for one in best) == sorted(one.tokens for one in before)
    assert len(translate(joined(beam_size=2), BATCH, BeamSettings(5), BEGIN, END)[0]) == 5


def test_a_sentence_alone_is_the_same_sentence_in_a_batch():
    both = joined(weight=2.0)
    together = translate(both, BATCH, BeamSettings(3), BEGIN, END)[1]
    batch = {"source": SOURCE[1:, :1], "source_lengths": LENGTHS[1:]}
    (alone,) = translate(both, batch, BeamSettings(3), BEGIN, END)
    assert [h.tokens for h in together] == [h.tokens for h in alone]
    assert [h.score for h in together] == pytest.approx([h.score for h in alone], abs=1e-5)


@pytest.mark.parametrize("search", [BeamSettings(4, groups=2), SampleSettings(3)])
def test_what_has_an_order_of_its_own_is_refused(search):
    with pytest.raises(ModelError, match="re-ranking needs the lists of plain beam search"):
        translate(joined(), BATCH, search, BEGIN, END)


def test_the_translator_looks_and_the_channel_does_not():
    both = joined(direct=member("transformer", 1, looks=True))
    assert both.regions is both.direct.regions
    found = translate(both, {**BATCH, "regions": REGIONS}, BeamSettings(2), BEGIN, END)
    assert [len(best) for best in found] == [4, 4]


def test_likelihoods_are_those_by_hand():
    model = member("transformer", 5)
    batch = {
        **BATCH, "target": torch.tensor([[BEGIN, 5, 3], [BEGIN, 4, 0]]), "target_lengths": torch.tensor([3, 2]),
        "labels": torch.tensor([[5, 3, END], [4, END, 0]]),
    }  # fmt: skip
    wanted = [by_hand(model, [3, 4, 3], [5, 3]), by_hand(model, [4], [4])]
    for static in (False, True):  # padding counts in neither form
        with static_shapes(static):
            assert log_likelihoods(model, batch).tolist() == pytest.approx(wanted, abs=1e-5)
