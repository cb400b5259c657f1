"""Sampling translations word by word, for several captions of one source (Holtzman et al. 2020 for `top_p`)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from modules.beam import Decoder, Hypothesis, follow
from modules.errors import ModelError


@dataclass(frozen=True)
class SampleSettings:
    """How translations are drawn.

    Attributes:
        samples: drawn a sentence, each by itself; equal ones may come.
        temperature: the log-probabilities are divided by it before drawing; near 0 is greedy search.
        top_p: words are drawn among the likeliest that have this much probability together.
        length_penalty: α of score = log p / length^α, the end mark counted.
        max_ratio: a translation is at most max_ratio · N + 10 tokens long, N the length of its source.
        seed: of the drawing.
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
            raise ModelError(f"temperature is {self.temperature} and top_p {self.top_p}; expected above 0, and top_p "
                             "at most 1")  # fmt: skip
        if self.length_penalty < 0:
            raise ModelError(f"length_penalty is {self.length_penalty}; expected 0 or more")


@torch.no_grad()
def sample(
    model: Decoder, memory: Any, settings: SampleSettings, begin: int, end: int, max_length: Tensor,
    numbers: Sequence[int],
) -> list[list[Hypothesis]]:  # fmt: skip
    """Draw translations of each sentence, the likeliest first.

    The random numbers of a sentence follow from the seed and its number alone, so that what is drawn does not depend
    on what else is in the batch, nor on how many processes share the work.

    Args:
        model: the translator.
        memory: of the B source sentences.
        settings: how to draw.
        begin: number of the begin-of-sentence token.
        end: number of the end-of-sentence token.
        max_length: (B,) predictions a sentence at the most, the end mark included; what has not ended then ends there.
        numbers: of the sentences.
    """
    count, width, device = len(memory.mask), settings.samples, memory.mask.device
    limits = max_length.cpu()
    draws = torch.zeros(count, int(limits.max()), width)
    for row, (number, limit) in enumerate(zip(numbers, limits.tolist(), strict=True)):
        generator = np.random.default_rng((settings.seed, number))
        draws[row, :limit] = torch.from_numpy(generator.random((limit, width), dtype=np.float32))
    draws = draws.to(device)
    found: list[list[Hypothesis]] = [[] for _ in range(count)]
    alive = torch.arange(count)  # the sentence of each row that is still drawn
    tokens = torch.full((count, 1, 1), begin, device=device)
    scores, state = torch.zeros(count, 1, device=device), model.start(memory)
    all_alike = torch.zeros(count, width, dtype=torch.long, device=device)
    ended = torch.zeros(count, width, dtype=torch.bool)
    for length in range(1, int(limits.max()) + 1):
        states, state = model.step(memory, tokens[:, :, -1], state)
        logs = model.predict(states)
        if length == 1:  # so far all samples are one
            logs, tokens, scores = (follow(part, all_alike) for part in (logs, tokens, scores))
            state = model.follow(state, all_alike)
        word = _drawn(logs, draws[alive.to(device), length - 1], settings)
        scores = scores + logs.gather(-1, word[..., None])[..., 0]
        tokens = torch.cat([tokens, word[..., None]], -1)
        over = ((word == end).cpu() | (limits[alive] == length)[:, None]) & ~ended
        for row, place in over.nonzero().tolist():
            words = tokens[row, place, 1:].tolist()
            score = float(scores[row, place]) / length**settings.length_penalty
            found[int(alive[row])].append(Hypothesis(words[:-1] if words[-1] == end else words, score))
        ended |= over
        rows = (~ended.all(1)).nonzero()[:, 0]
        if not len(rows):
            break
        if len(rows) <= 0.75 * len(ended):
            alive, ended, memory = alive[rows], ended[rows], memory.select(rows.to(device))
            rows = rows.to(device)
            tokens, scores, state = tokens[rows], scores[rows], tuple(part[rows] for part in state)
    return [sorted(drawn, key=lambda one: -one.score) for drawn in found]


def _drawn(logs: Tensor, draws: Tensor, settings: SampleSettings) -> Tensor:
    """Words (B, S) by log-probabilities (B, S, V) and random numbers (B, S) from 0 to 1."""
    ordered, words = (logs / settings.temperature).softmax(-1).sort(-1, descending=True)
    total = ordered.cumsum(-1)
    kept = total - ordered < settings.top_p  # the word that passes top_p is the last
    mass = (ordered * kept).sum(-1)
    place = (total < (draws * mass)[..., None]).sum(-1).clamp(max=logs.shape[-1] - 1)
    return words.gather(-1, place[..., None])[..., 0]
