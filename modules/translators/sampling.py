"""Sample translations word by word, to get several captions from one source (`top_p`: Holtzman et al. 2020)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from modules.errors import ModelError
from modules.translators.beam import Decoder, Hypothesis, follow


@dataclass(frozen=True)
class SampleSettings:
    """Settings of sampling.

    Attributes:
        samples: number of independent samples for each sentence; some may be equal.
        temperature: divisor of the log-probabilities before sampling; a value near 0 is greedy search.
        top_p: words are sampled from the most probable words with this total probability (nucleus sampling).
        length_penalty: α of score = log p / length^α, including the end token.
        max_ratio: a translation is at most max_ratio · N + 10 tokens long, N the length of its source.
        seed: random seed.
    """

    samples: int = 1
    temperature: float = 1.0
    top_p: float = 1.0
    length_penalty: float = 1.0
    max_ratio: float = 1.5
    seed: int = 0

    def __post_init__(self) -> None:
        if self.samples < 1:
            raise ModelError(f"samples is {self.samples}; it must be at least 1")
        if self.temperature <= 0 or not 0 < self.top_p <= 1:
            raise ModelError(f"temperature is {self.temperature} and top_p {self.top_p}; expected both above 0, and "
                             "top_p at most 1")  # fmt: skip
        if self.length_penalty < 0:
            raise ModelError(f"length_penalty is {self.length_penalty}; expected 0 or more")


@torch.no_grad()
def sample(
    model: Decoder, memory: Any, settings: SampleSettings, begin: int, end: int, max_length: Tensor,
    numbers: Sequence[int],
) -> list[list[Hypothesis]]:  # fmt: skip
    """Sample translations of each sentence and return them by score, best first.

    The random numbers of a sentence depend only on the seed and the sentence index. So the samples do not depend on the
    rest of the batch or on the number of processes.

    Args:
        model: the translator.
        memory: encoder memory of the B source sentences.
        settings: number of samples, temperature and so on.
        begin: id of the begin-of-sentence token.
        end: id of the end-of-sentence token.
        max_length: (B,) maximum number of predictions, including the end token; longer translations are cut there.
        numbers: index of each sentence.
    """
    count, width, device = len(memory.mask), settings.samples, memory.mask.device
    limits = max_length.cpu()
    draws = random_numbers(numbers, limits, width, settings.seed).to(device)
    hypotheses: list[list[Hypothesis]] = [[] for _ in range(count)]
    alive = torch.arange(count)  # sentence of each row that is still sampled
    tokens = torch.full((count, 1, 1), begin, device=device)
    scores, state = torch.zeros(count, 1, device=device), model.start(memory)
    first_hypothesis = torch.zeros(count, width, dtype=torch.long, device=device)
    ended = torch.zeros(count, width, dtype=torch.bool)
    for length in range(1, int(limits.max()) + 1):
        states, state = model.step(memory, tokens[:, :, -1], state)
        logs = model.predict(states)
        if length == 1:  # all samples have the same first state
            logs, tokens, scores = (follow(part, first_hypothesis) for part in (logs, tokens, scores))
            state = model.follow(state, first_hypothesis)
        word = sampled(logs, draws[alive.to(device), length - 1], settings)
        scores = scores + logs.gather(-1, word[..., None])[..., 0]
        tokens = torch.cat([tokens, word[..., None]], -1)
        ending = ((word == end).cpu() | (limits[alive] == length)[:, None]) & ~ended
        for row, number in ending.nonzero().tolist():
            words = tokens[row, number, 1:].tolist()
            score = float(scores[row, number]) / length**settings.length_penalty
            hypotheses[int(alive[row])].append(Hypothesis(words[:-1] if words[-1] == end else words, score))
        ended |= ending
        rows = (~ended.all(1)).nonzero()[:, 0]
        if not len(rows):
            break
        if len(rows) <= 0.75 * len(ended):
            alive, ended, memory = alive[rows], ended[rows], memory.select(rows.to(device))
            rows = rows.to(device)
            tokens, scores, state = tokens[rows], scores[rows], tuple(part[rows] for part in state)
    return [sorted(samples, key=lambda hypothesis: -hypothesis.score) for samples in hypotheses]


def random_numbers(numbers: Sequence[int], limits: Tensor, width: int, seed: int) -> Tensor:
    """Return random numbers (B, L, S) from 0 to 1 for S samples of each sentence; they depend on its number alone.

    Args:
        numbers: index of each sentence.
        limits: (B,) on the CPU, the longest translation of each; L is the largest.
        width: S.
        seed: random seed.
    """
    draws = torch.zeros(len(limits), int(limits.max()), width)
    for row, (number, limit) in enumerate(zip(numbers, limits.tolist(), strict=True)):
        generator = np.random.default_rng((seed, number))
        draws[row, :limit] = torch.from_numpy(generator.random((limit, width), dtype=np.float32))
    return draws


def sampled(logs: Tensor, draws: Tensor, settings: SampleSettings) -> Tensor:
    """Sample words (B, S) by log-probabilities (B, S, V) and random numbers (B, S) from 0 to 1.

    Scores that differ from log-probabilities by a number for each hypothesis give the same words.

    Examples:
        >>> logs, draws = torch.tensor([0.5, 0.3, 0.2]).log().expand(1, 4, 3), torch.tensor([[0.1, 0.4, 0.7, 0.95]])
        >>> sampled(logs, draws, SampleSettings()).tolist()
        [[0, 0, 1, 2]]
        >>> sampled(logs, draws, SampleSettings(top_p=0.7)).tolist()  # two words reach 0.7
        [[0, 0, 1, 1]]
    """
    ordered, words = (logs / settings.temperature).softmax(-1).sort(-1, descending=True)
    total = ordered.cumsum(-1)
    kept = total - ordered < settings.top_p  # includes the word that reaches top_p
    mass = (total * kept).amax(-1)  # not a sum of its own, which may round to more than the last total
    index = (total < (draws * mass)[..., None]).sum(-1)
    return words.gather(-1, index[..., None])[..., 0]
