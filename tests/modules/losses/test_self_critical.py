"""Self-critical losses: the exact gradient where all captions can be listed, both baselines, γ by epoch."""

import itertools

import pytest
import torch

from modules.losses.self_critical import advantages, mixed_losses, policy_losses, share_of_rewards
from tests.modules.layers.test_caption_decoder import LANGUAGES, V, make

LONGEST = 2


def reward(sentence: tuple[int, ...]) -> float:
    return float(2 in sentence) + 0.3 * sentence.count(4) - 0.1 * len(sentence)


def everything() -> list[tuple[int, ...]]:
    return [one for length in range(LONGEST + 1) for one in itertools.product(range(1, V), repeat=length)]


def surprise_of(sentences, decoder, words, vector) -> torch.Tensor:
    tokens = torch.tensor([[*one, 0, 0][:LONGEST] for one in sentences])
    lengths, count = torch.tensor([len(one) for one in sentences]), len(sentences)
    languages = LANGUAGES[:1].expand(count)
    return decoder.surprise(words, vector.expand(count, -1), tokens, lengths, languages, ended=lengths < LONGEST)


def gradient_of(loss, decoder) -> torch.Tensor:
    return torch.cat([one.flatten() for one in torch.autograd.grad(loss, decoder.parameters())])


@pytest.mark.parametrize("baseline", ["none", "greedy"])
def test_the_expected_policy_gradient_is_that_of_the_expected_reward(baseline: str) -> None:
    decoder, words, vectors = make()
    sentences = everything()
    rewards = torch.tensor([reward(one) for one in sentences], dtype=torch.float64)
    shares = (-surprise_of(sentences, decoder, words, vectors[:1])).exp()
    torch.testing.assert_close(shares.sum(), torch.ones((), dtype=torch.float64), atol=1e-9, rtol=0)
    exact = gradient_of(-(shares * rewards).sum(), decoder)
    base = torch.tensor([0.4 if baseline == "greedy" else 0.0], dtype=torch.float64)
    advantage = advantages(rewards[None], base)[0]
    surprise = surprise_of(sentences, decoder, words, vectors[:1])
    found = gradient_of((shares.detach() * policy_losses(surprise, advantage)).sum(), decoder)
    torch.testing.assert_close(found, exact, atol=1e-10, rtol=0)


@pytest.mark.slow
def test_samples_estimate_it_with_less_variance_against_the_others() -> None:
    decoder, words, vectors = make()
    sentences = everything()
    rewards = torch.tensor([reward(one) for one in sentences], dtype=torch.float64)
    exact = gradient_of(-((-surprise_of(sentences, decoder, words, vectors[:1])).exp() * rewards).sum(), decoder)
    generator, groups, several = torch.Generator().manual_seed(0), 400, 5
    numbers = torch.rand(groups * several, LONGEST, generator=generator)
    many = groups * several
    tokens, lengths = decoder.write(words, vectors[:1].expand(many, -1), LANGUAGES[:1].expand(many), numbers)
    drawn = [tuple(row[:n]) for row, n in zip(tokens.tolist(), lengths.tolist(), strict=True)]
    got = 2 + torch.tensor([reward(one) for one in drawn], dtype=torch.float64).view(groups, several)
    errors = {}
    for name, advantage in (("others", advantages(got)), ("none", got)):
        parts = []
        for group in range(groups):
            some = drawn[group * several : (group + 1) * several]
            loss = policy_losses(surprise_of(some, decoder, words, vectors[:1]), advantage[group]).mean()
            parts.append(gradient_of(loss, decoder))
        found = torch.stack(parts)
        errors[name] = float((found - exact).square().sum(1).mean())
        assert float((found.mean(0) - exact).norm()) < 2 * (errors[name] / groups) ** 0.5  # no bias
    assert errors["others"] < errors["none"]


def test_the_mean_of_the_others_is_the_baseline_of_each_sample() -> None:
    rewards = torch.tensor([[1.0, 2, 6], [0, 0, 3]])
    expected = torch.tensor([[1 - 4.0, 2 - 3.5, 6 - 1.5], [-1.5, -1.5, 3]])
    torch.testing.assert_close(advantages(rewards), expected)


def test_gamma_goes_from_the_first_to_the_last_epoch() -> None:
    found = [share_of_rewards((0.05, 0.95), epoch, 4) for epoch in range(4)]
    assert found == pytest.approx([0.05, 0.35, 0.65, 0.95])
    assert share_of_rewards((0.05, 0.95), 0, 1) == 0.05
    one, other = torch.tensor([2.0]), torch.tensor([10.0])
    assert float(mixed_losses(one, other, 0.25)) == pytest.approx(0.75 * 2 + 0.25 * 10)
