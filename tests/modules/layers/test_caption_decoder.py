"""The caption decoder against nn.GRU word by word in float64, and its ways of writing."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from modules.layers.caption_decoder import END, UNKNOWN, CaptionDecoder
from modules.translators.beam import BeamSettings

V, E, H, S = 7, 5, 6, 4
TOKENS = torch.tensor([[2, 3, 4], [5, 0, 0], [6, 2, 0]])
LENGTHS = torch.tensor([3, 1, 2])
LANGUAGES = torch.tensor([0, 1, 0])


def make() -> tuple[CaptionDecoder, nn.Embedding, Tensor]:
    torch.manual_seed(0)
    words = nn.Embedding(V, E, padding_idx=0).double()
    decoder = CaptionDecoder(V, E, 2, H, S).double()
    nn.init.normal_(decoder.begin.weight)
    return decoder, words, torch.randn(3, H, dtype=torch.float64, requires_grad=True)


def plain(decoder: CaptionDecoder, words: nn.Embedding, vector: Tensor, sentence: list[int], language: int) -> Tensor:
    """−log p of one caption, word by word, by the equations of a GRU."""
    gru = decoder.gru
    state = torch.tanh(decoder.state.weight @ vector + decoder.state.bias)
    read, loss = decoder.begin.weight[language], torch.zeros((), dtype=torch.float64)
    for word in [*sentence, END]:
        x, y = gru.weight_ih_l0 @ read + gru.bias_ih_l0, gru.weight_hh_l0 @ state + gru.bias_hh_l0
        (xr, xz, xn), (yr, yz, yn) = x.chunk(3), y.chunk(3)
        reset, update = torch.sigmoid(xr + yr), torch.sigmoid(xz + yz)
        state = (1 - update) * torch.tanh(xn + reset * yn) + update * state
        loss = loss - (decoder.out.weight @ state + decoder.out.bias).log_softmax(0)[word]
        read = words.weight[word]
    return loss


def test_surprise_is_the_sum_over_words_and_end_with_its_gradient() -> None:
    decoder, words, vectors = make()
    found = decoder.surprise(words, vectors, TOKENS, LENGTHS, LANGUAGES)
    rows = zip(vectors, TOKENS, LENGTHS, LANGUAGES, strict=True)
    expected = torch.stack([plain(decoder, words, v, t[:n].tolist(), int(k)) for v, t, n, k in rows])
    torch.testing.assert_close(found, expected, atol=1e-12, rtol=0)
    parameters = [vectors, words.weight, *decoder.parameters()]
    weight = torch.tensor([1.0, -2, 3])
    ours, theirs = (torch.autograd.grad((one * weight).sum(), parameters) for one in (found, expected))
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, atol=1e-10, rtol=0)


def test_order_and_padding_change_nothing() -> None:
    decoder, words, vectors = make()
    found = decoder.surprise(words, vectors, TOKENS, LENGTHS, LANGUAGES)
    order = torch.tensor([2, 0, 1])
    other = decoder.surprise(words, vectors[order], F.pad(TOKENS, (0, 2))[order], LENGTHS[order], LANGUAGES[order])
    torch.testing.assert_close(other, found[order], atol=1e-12, rtol=0)


def test_all_sentences_up_to_a_length_have_the_probability_one() -> None:
    decoder, words, vectors = make()
    total = torch.zeros(3, dtype=torch.float64)
    some = torch.arange(1, V)
    for length in range(3):
        sentences = torch.cartesian_prod(*[some] * length).view(-1, length) if length else torch.zeros(1, 0).long()
        for sentence in sentences:
            tokens, lengths = sentence.expand(3, -1), torch.full((3,), length)
            total += (-decoder.surprise(words, vectors, tokens, lengths, LANGUAGES)).exp().detach()
    for sentence in torch.cartesian_prod(some, some, some):  # cut at three words, so without an end
        tokens, ended = sentence.expand(3, -1), torch.zeros(3, dtype=torch.bool)
        total += (-decoder.surprise(words, vectors, tokens, torch.full((3,), 3), LANGUAGES, ended=ended)).exp().detach()
    torch.testing.assert_close(total, torch.ones(3, dtype=torch.float64), atol=1e-9, rtol=0)


def test_samples_have_the_decoder_s_probabilities_and_greedy_takes_the_likeliest() -> None:
    decoder, words, vectors = make()
    count = 4000
    numbers = torch.rand(count, 2, generator=torch.Generator().manual_seed(1))
    tokens, lengths = decoder.write(words, vectors[:1].expand(count, -1), LANGUAGES[:1].expand(count), numbers)
    assert torch.equal(lengths, (tokens != END).sum(1))
    some = torch.arange(1, V)
    first = torch.zeros(V)
    for word in some:  # of one word, or that and another one
        one = decoder.surprise(words, vectors[:1], word.view(1, 1), torch.tensor([1]), LANGUAGES[:1])
        two = torch.cartesian_prod(word.view(1), some)
        cut = decoder.surprise(
            words, vectors[:1].expand(len(two), -1), two, torch.full((len(two),), 2), LANGUAGES[:1].expand(len(two)),
            ended=torch.zeros(len(two), dtype=torch.bool),
        )  # fmt: skip
        first[word] = float(((-one).exp() + (-cut).exp().sum()).detach())
    seen = torch.bincount(tokens[:, 0], minlength=V) / count
    assert (seen[1:] - first[1:]).abs().max() < 3.5 * (0.25 / count) ** 0.5
    greedy = decoder.write(words, vectors, LANGUAGES, torch.full((3, 5), -1.0))[0]
    best = [decoder._step(decoder.begin(LANGUAGES), decoder.first_state(vectors))[0].argmax(-1)]
    assert torch.equal(greedy[:, 0], best[0])


def test_beam_of_one_is_greedy_but_for_unknown_words() -> None:
    decoder, words, vectors = make()
    decoder.out.bias.data[UNKNOWN] = -100
    greedy, lengths = decoder.write(words, vectors, LANGUAGES, torch.full((3, 5), -1.0))
    found = decoder.search(words, vectors, LANGUAGES, BeamSettings(1), 5)
    assert found == [row[:length] for row, length in zip(greedy.tolist(), lengths.tolist(), strict=True)]
    decoder.out.bias.data[UNKNOWN] = 100
    assert not any(UNKNOWN in tokens for tokens in decoder.search(words, vectors, LANGUAGES, BeamSettings(2), 5))


def test_a_wider_beam_finds_a_likelier_caption() -> None:
    decoder, words, vectors = make()
    decoder.out.bias.data[UNKNOWN] = -100
    costs = []
    for width in (1, 20):
        found = decoder.search(words, vectors, LANGUAGES, BeamSettings(width, length_penalty=0.0), 3)
        lengths = torch.tensor([len(tokens) for tokens in found])
        tokens = torch.tensor([[*tokens, 0, 0, 0][:3] for tokens in found])
        costs.append(decoder.surprise(words, vectors, tokens, lengths, LANGUAGES, ended=lengths < 3))
    assert bool((costs[1] <= costs[0] + 1e-9).all())


@pytest.mark.parametrize(("share", "differ"), [(0.0, 0), (1.0, 3)])
def test_scheduled_sampling_replaces_a_share_of_words_and_never_the_end(share: float, differ: int) -> None:
    decoder, words, vectors = make()
    decoder.out.bias.data[3] = 50  # it always draws word 3
    numbers = torch.rand(3, 6, generator=torch.Generator().manual_seed(0))
    mixed = decoder.mixed_words(words, vectors, TOKENS, LANGUAGES, share, numbers)
    assert torch.equal(mixed == END, TOKENS == END)
    assert torch.equal(mixed, torch.where(TOKENS == END, END, 3) if differ else TOKENS)


def test_what_is_read_does_not_change_what_is_to_be_written() -> None:
    decoder, words, vectors = make()
    fed = torch.where(TOKENS == END, END, 3)
    found = decoder.surprise(words, vectors, TOKENS, LENGTHS, LANGUAGES, fed)
    state = decoder.first_state(vectors[:1])
    read, loss = decoder.begin(LANGUAGES[:1]), torch.zeros((), dtype=torch.float64)
    for word in (2, 3, 4, END):
        logits, state = decoder._step(read, state)
        loss, read = loss - logits.log_softmax(-1)[0, word], words(torch.tensor([3]))
    torch.testing.assert_close(found[0], loss, atol=1e-12, rtol=0)


def test_padding_does_not_change_what_is_drawn() -> None:
    decoder, words, vectors = make()
    numbers = torch.rand(3, 12, generator=torch.Generator().manual_seed(0))
    mixed = decoder.mixed_words(words, vectors, TOKENS, LANGUAGES, 0.7, numbers[:, :6])
    assert not torch.equal(mixed, TOKENS)
    padded = decoder.mixed_words(words, vectors, F.pad(TOKENS, (0, 3)), LANGUAGES, 0.7, numbers)
    assert torch.equal(padded[:, :3], mixed)
