"""Beam search: exhaustive where the beam is wide enough, the same alone and in a batch, normalised by length."""

import copy
import itertools

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import modules.losses.cross_entropy
from modules.errors import ModelError
from modules.layers.static import static_shapes
from modules.translators.beam import BeamSettings, beam_search, follow, top
from modules.translators.registry import build_translator, translate

V, BEGIN, END, LONGEST = 5, 1, 2, 3
SOURCE, LENGTHS = torch.tensor([[3, 4, 3], [4, 0, 0], [3, 3, 0]]), torch.tensor([3, 1, 2])


@pytest.fixture(params=["bilstm", "transformer"])
def model(request):
    torch.manual_seed(5)
    arguments = {"vocabulary_size": V, "embedding_dim": 8, "hidden_dim": 4, "dropout": 0.0}
    model = build_translator(request.param, **arguments).eval()
    torch.nn.init.normal_(model.output_bias)
    return model


def exhaustive(model, source, alpha):
    """Every sentence of at most LONGEST tokens that ends, or is cut at LONGEST, scored by teacher forcing."""
    memory, found = model.encode(source[None], torch.tensor([len(source)])), {}
    words = [w for w in range(V) if w != END]
    for n in range(LONGEST + 1):
        for tokens in itertools.product(words, repeat=n):
            predicted = [*tokens, END] if n < LONGEST else list(tokens)
            logits, _ = model(memory, torch.tensor([[BEGIN, *predicted[:-1]]]), torch.tensor([len(predicted)]))
            logs = logits.log_softmax(-1)[range(len(predicted)), predicted].sum()
            found[tokens] = float(logs.detach()) / len(predicted) ** alpha
    return sorted(found.items(), key=lambda item: -item[1])


@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_a_wide_beam_is_exhaustive_search(model, alpha):
    width = V**LONGEST * 2
    found = beam_search(model, model.encode(SOURCE, LENGTHS), BeamSettings(width, alpha), BEGIN, END, LONGEST)
    for b in range(3):
        expected = exhaustive(model, SOURCE[b, : LENGTHS[b]], alpha)
        assert len(found[b]) == len(expected)
        for hypothesis, (_, score) in zip(found[b], expected, strict=True):
            assert hypothesis.score == pytest.approx(score, abs=1e-5)
        assert tuple(found[b][0].tokens) == expected[0][0]


class Largest(TorchDispatchMode):
    """Bytes of the largest tensor that anything made, views apart."""

    made = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        found = function(*args, **(kwargs or {}))
        known = {one.untyped_storage().data_ptr() for one in tree_leaves((args, kwargs)) if torch.is_tensor(one)}
        for one in tree_leaves(found):
            if torch.is_tensor(one) and one.untyped_storage().data_ptr() not in known:
                self.made = max(self.made, one.untyped_storage().nbytes())
        return found


@pytest.mark.parametrize(
    ("network", "look", "region_dim"),
    [("bilstm", {}, None), ("bilstm", {}, 6), *(("transformer", {"look": look}, 6) for look in ("gate", "tokens"))],
)
def test_the_hypotheses_share_the_encoder_s_states(network, look, region_dim):
    """A step makes nothing as large as all of them; a copy for each hypothesis would be five times that."""
    count, width, words, dim = 2, 5, 300, 64
    model = build_translator(
        network, vocabulary_size=30, region_dim=region_dim, embedding_dim=dim, hidden_dim=dim, dropout=0.0, **look
    ).eval()
    regions = None if region_dim is None else torch.randn(count, 3, region_dim)
    with torch.no_grad():
        memory = model.encode(torch.randint(3, 30, (count, words)), torch.full((count,), words), regions)
        state = model.follow(model.step(memory, torch.full((count, 1), BEGIN), model.start(memory))[1],
                             torch.zeros(count, width, dtype=torch.long))  # fmt: skip
        with Largest() as largest:
            for _ in range(3):
                states, state = model.step(memory, torch.randint(3, 30, (count, width)), state)
                state = model.follow(state, torch.randint(0, width, (count, width)))
    assert states.shape == (count, width, dim)
    assert 0 < largest.made < 4 * count * words * dim


@pytest.mark.parametrize("width", [1, 2, 5])
def test_alone_as_in_a_batch(model, width):
    settings = BeamSettings(width)
    together = beam_search(model, model.encode(SOURCE, LENGTHS), settings, BEGIN, END, 12)
    for b in range(3):
        memory = model.encode(SOURCE[b : b + 1, : LENGTHS[b]], LENGTHS[b : b + 1])
        alone = beam_search(model, memory, settings, BEGIN, END, 12)[0]
        assert [h.tokens for h in alone] == [h.tokens for h in together[b]]
        assert 1 <= len(alone) <= width


@pytest.mark.parametrize("width", [1, 2, 5])
def test_one_that_never_ends_is_cut_by_its_own_source_not_by_the_longest_of_its_batch(model, width):
    torch.nn.init.constant_(model.output_bias, 0.0)
    model.output_bias.data[END] = -9.0
    settings = BeamSettings(width)
    together = translate(model, {"source": SOURCE, "source_lengths": LENGTHS}, settings, BEGIN, END)
    for b in range(3):
        batch = {"source": SOURCE[b : b + 1, : LENGTHS[b]], "source_lengths": LENGTHS[b : b + 1]}
        alone = translate(model, batch, settings, BEGIN, END)[0]
        assert [h.tokens for h in alone] == [h.tokens for h in together[b]]
        assert len(alone[0].tokens) == int(1.5 * LENGTHS[b]) + 10


def test_greedy_takes_the_best_word_each_time(model):
    memory = model.encode(SOURCE[:1], LENGTHS[:1])
    tokens, state = [BEGIN], model.start(memory)
    while len(tokens) < 8:
        states, state = model.step(memory, torch.tensor([[tokens[-1]]]), state)
        tokens.append(int(model.predict(states).argmax()))
        if tokens[-1] == END:
            break
    expected = [t for t in tokens[1:] if t != END]
    assert beam_search(model, memory, BeamSettings(1), BEGIN, END, 7)[0][0].tokens == expected


@pytest.mark.parametrize("width", [1, 5])
def test_a_sentence_at_a_time_finds_the_same(model, width, monkeypatch):
    memory = model.encode(SOURCE, LENGTHS)
    together = beam_search(model, memory, BeamSettings(width), BEGIN, END, 12)
    monkeypatch.setattr(modules.losses.cross_entropy, "PART", 1)
    apart = beam_search(model, memory, BeamSettings(width), BEGIN, END, 12)
    for one, other in zip(together, apart, strict=True):
        assert [h.tokens for h in one] == [h.tokens for h in other]
        assert [h.score for h in one] == pytest.approx([h.score for h in other])


@pytest.mark.parametrize(("length", "count"), [(7, 3), (7, 10), (128, 2), (1000, 5), (1000, 10), (5000, 10), (5120, 1)])
def test_the_largest_are_those_that_topk_finds(length, count):
    values = torch.randn(4, length, generator=torch.Generator().manual_seed(length))
    values[1, : length // 2] = -torch.inf
    best, places = top(values, count)
    expected = values.topk(min(count, length), dim=1)
    assert torch.equal(best, expected.values)
    real = best > -torch.inf
    assert torch.equal(places[real], expected.indices[real])
    assert all(len(set(row)) == len(row) for row in places.tolist())


def test_hypotheses_take_along_what_is_theirs():
    tensor, beam = torch.randn(2, 3, 4, 5), torch.tensor([[2, 2, 0, 1], [1, 0, 0, 0]])
    expected = torch.stack([torch.stack([tensor[b, s] for s in row]) for b, row in enumerate(beam.tolist())])
    assert torch.equal(follow(tensor, beam), expected)


def test_no_sentences_have_no_translations(model):
    memory = model.encode(SOURCE, LENGTHS).select(torch.arange(0))
    assert beam_search(model, memory, BeamSettings(2), BEGIN, END, 8) == []


def test_beam_size_zero_is_refused():
    with pytest.raises(ModelError, match="at least 1"):
        BeamSettings(beam_size=0)


@pytest.mark.parametrize("setting", ["length_penalty", "diversity"])
def test_settings_below_zero_are_refused(setting: str):
    with pytest.raises(ModelError, match=rf"{setting}( is)? -1\.0.*; expected 0 or more of each"):
        BeamSettings(**{setting: -1.0})
    assert getattr(BeamSettings(**{setting: 0.0}), setting) == 0


def test_one_group_is_plain_beam_search_and_several_are_its_beams_kept_apart(model):
    memory = model.encode(SOURCE, LENGTHS)
    plain = beam_search(model, memory, BeamSettings(2), BEGIN, END, 8)
    apart = beam_search(model, memory, BeamSettings(6, groups=3, diversity=0.0), BEGIN, END, 8)
    for few, many in zip(plain, apart, strict=True):  # with no price for agreement, three times the same
        assert [one.tokens for one in many] == [one.tokens for one in few for _ in range(3)]
    dear = beam_search(model, memory, BeamSettings(3, groups=3, diversity=1e4), BEGIN, END, 8)
    for found in dear:
        assert len({tuple([*one.tokens, END][:1]) for one in found}) == 3  # no two begin alike
        assert len(found) == 3


def test_the_best_of_each_diverse_beam_comes_before_the_second_of_any(model):
    memory = model.encode(SOURCE, LENGTHS)
    first_beam = beam_search(model, memory, BeamSettings(2), BEGIN, END, 8)  # what the others say costs it nothing
    by_score_alone = []
    for found, (best, second) in zip(
        beam_search(model, memory, BeamSettings(6, groups=3, diversity=1e4), BEGIN, END, 8), first_beam, strict=True
    ):
        said = [one.tokens for one in found]
        assert said.index(best.tokens) < 3 <= said.index(second.tokens)
        assert found[0].score == max(one.score for one in found)
        by_score_alone.append(sum(one.score > second.score for one in found) < 3)
    assert any(by_score_alone)


def test_scores_of_diverse_beams_are_log_probabilities_without_what_diversity_costs(model):
    memory = model.encode(SOURCE[:1], LENGTHS[:1])
    found = beam_search(model, memory, BeamSettings(4, 0.0, groups=4, diversity=2.0), BEGIN, END, LONGEST)[0]
    expected = dict(exhaustive(model, SOURCE[0], 0.0))
    for one in found:
        assert one.score == pytest.approx(expected[tuple(one.tokens)], abs=1e-5)


def test_diverse_beams_of_a_model_in_float64(model):
    wide = copy.deepcopy(model).double()
    settings = BeamSettings(4, groups=2, diversity=0.5)
    found, expected = (
        beam_search(one, one.encode(SOURCE, LENGTHS), settings, BEGIN, END, LONGEST) for one in (wide, model)
    )
    assert [[one.tokens for one in best] for best in found] == [[one.tokens for one in best] for best in expected]


def test_groups_that_do_not_divide_the_beam_are_refused():
    for groups in (0, 2, 4):
        with pytest.raises(ModelError, match="equal groups"):
            BeamSettings(beam_size=3, groups=groups)


def test_a_group_that_is_done_pushes_no_other_away():
    class Toy:
        """Two words A and B and the end; A is over after one word for the first group, B goes on as it likes."""

        vocabulary_size = 5

        def start(self, memory):
            return (torch.zeros(len(memory.mask), 1, 1),)

        def step(self, memory, token, state):
            return token[..., None].float(), state

        def predict(self, states):
            table = torch.full((5, 5), -9.0)
            table[1] = torch.tensor([-9.0, -9.0, -9.0, -0.2, -0.4])  # at first: A (3) or B (4)
            table[3, 2], table[3, 4] = -0.1, -3.0  # after A: the end, else B
            table[4, 4], table[4, 3], table[4, 2] = -0.5, -0.9, -2.0  # after B: B, else A
            return table[states[..., 0].long()].clone()

        def follow(self, state, beam):
            return tuple(follow(part, beam) for part in state)

    class Memory:
        mask = torch.ones(1, 1, dtype=torch.bool)

    settings = BeamSettings(2, 0.0, groups=2, diversity=0.45)
    found = beam_search(Toy(), Memory(), settings, BEGIN, END, 3)[0]
    assert [one.tokens for one in found] == [[3], [4, 4, 4]]  # at its third word nothing stands against B


@pytest.mark.parametrize("network", ["bilstm", "transformer"])
@pytest.mark.parametrize(("beam", "groups"), [(1, 1), (5, 1), (4, 2)])
@pytest.mark.parametrize("seed", range(3))
def test_looking_every_few_steps_finds_the_same(network: str, beam: int, groups: int, seed: int) -> None:
    torch.manual_seed(seed)
    arguments = {"vocabulary_size": 30, "embedding_dim": 8, "hidden_dim": 4, "dropout": 0.0}
    model = build_translator(network, **arguments).eval()
    torch.nn.init.normal_(model.output_bias)
    lengths = torch.tensor([12, 1, 7, 3, 9])
    source = torch.randint(3, 30, (5, 12)) * (torch.arange(12) < lengths[:, None])
    settings, found = BeamSettings(beam, groups=groups), []
    for static in (False, True):
        with static_shapes(static):
            memory = model.encode(source, lengths)
            found.append(beam_search(model, memory, settings, BEGIN, END, 2 * lengths + 10))
    for plain, static in zip(*found, strict=True):
        assert [each.tokens for each in static] == [each.tokens for each in plain]
        assert [each.score for each in static] == pytest.approx([each.score for each in plain], abs=1e-5)
    assert {len(each) for each in found[0]} == {beam}
