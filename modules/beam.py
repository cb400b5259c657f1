"""Beam search over a batch: all sentences and hypotheses in one tensor step, finished sentences leave the batch."""

from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from modules.errors import ModelError


class Decoder(Protocol):
    """A translator, as the search sees it. Its memory has a `mask` (B, J) and can `select` sentences."""

    def start(self, memory: Any) -> tuple[Tensor, ...]:
        """The state before the first word, tensors (B, 1, …)."""

    def step(self, memory: Any, token: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Log-probabilities (B, S, V) after the last word (B, S) of each hypothesis, and states (B, S, …)."""


@dataclass(frozen=True)
class Hypothesis:
    """One translation: its tokens without the end mark, and its length-normalised log-probability."""

    tokens: list[int]
    score: float


@dataclass(frozen=True)
class BeamSettings:
    """How translations are searched for.

    Attributes:
        beam_size: hypotheses kept a sentence; 1 is greedy search.
        length_penalty: α of score = log p / length^α, the end mark counted; 0 does not normalise.
        max_ratio: a translation is at most max_ratio · N + 10 tokens long, N the length of its source.
    """

    beam_size: int = 5
    length_penalty: float = 1.0
    max_ratio: float = 1.5

    def __post_init__(self) -> None:
        if self.beam_size < 1:
            raise ModelError(f"beam_size is {self.beam_size}; it must be at least 1 (1 is greedy search)")


@torch.no_grad()
def beam_search(
    model: Decoder, memory: Any, settings: BeamSettings, begin: int, end: int, max_length: int | Tensor
) -> list[list[Hypothesis]]:
    """The best translations of each sentence, best first, at most `beam_size` of them.

    A sentence is finished when as many hypotheses as the beam holds have ended, or at `max_length`, where what
    is left ends as it is.

    Args:
        model: the translator.
        memory: of the B source sentences.
        settings: beam size and length normalisation.
        begin: number of the begin-of-sentence token.
        end: number of the end-of-sentence token.
        max_length: predictions a sentence at the most, the end mark included; one number or (B,) of them, so that a
            translation does not depend on what else is in the batch.
    """
    count, width = len(memory.mask), settings.beam_size
    device = memory.mask.device
    ended: list[list[Hypothesis]] = [[] for _ in range(count)]
    alive = torch.arange(count)  # the sentence of each row that is still searched
    tokens = torch.full((count, 1, 1), begin, device=device)
    scores = torch.zeros(count, 1, device=device)
    state = model.start(memory)
    limits = torch.as_tensor(max_length).cpu().expand(count)
    for length in range(1, int(limits.max()) + 1):
        logs, state = model.step(memory, tokens[:, :, -1], state)
        total = scores[..., None] + logs  # (rows, S, V)
        vocabulary = total.shape[-1]
        best, flat = total.flatten(1).topk(min(2 * width, total[0].numel()), dim=1)
        origin, word = flat // vocabulary, flat % vocabulary
        is_end = word == end
        left = (limits[alive] - length).to(device)[:, None]
        is_end[:, :width] |= left == 0  # nothing may go on: what is in the beam ends here
        is_end &= left >= 0  # its sentence is done, though still in the batch
        _collect(ended, alive, tokens, best, origin, word, is_end, length, settings, end)
        # The best `width` that go on; ended ones are pushed behind them by sorting on (ended, place).
        keep = (is_end.long() * best.shape[1] + torch.arange(best.shape[1], device=device)).argsort(1)[:, :width]
        scores = best.gather(1, keep).masked_fill(is_end.gather(1, keep), -torch.inf)
        beam = origin.gather(1, keep)
        tokens = torch.cat([tokens.gather(1, _over(beam, tokens)), word.gather(1, keep)[..., None]], -1)
        state = tuple(part.gather(1, _over(beam, part)) for part in state)
        going = torch.tensor([len(ended[sentence]) < width for sentence in alive.tolist()]) & (limits[alive] > length)
        if not going.any():
            break
        if going.sum() <= 0.75 * len(going):  # leaving costs a copy of the memory: worth it by the quarter
            rows = going.nonzero()[:, 0].to(device)
            alive, memory = alive[going], memory.select(rows)
            tokens, scores, state = tokens[rows], scores[rows], tuple(part[rows] for part in state)
    return [sorted(hypotheses, key=lambda h: -h.score)[:width] for hypotheses in ended]


def _collect(
    ended: list[list[Hypothesis]], alive: Tensor, tokens: Tensor, best: Tensor, origin: Tensor, word: Tensor,
    is_end: Tensor, length: int, settings: BeamSettings, end: int,
) -> None:  # fmt: skip
    """Move hypotheses that end among the best `beam_size` to their sentence's list, while it has room."""
    width = settings.beam_size
    for row, place in is_end[:, :width].nonzero().tolist():
        hypotheses = ended[int(alive[row])]
        score = float(best[row, place])
        if len(hypotheses) < width and score > -torch.inf:
            history = tokens[row, origin[row, place], 1:].tolist()
            last = int(word[row, place])
            words = history if last == end else [*history, last]
            hypotheses.append(Hypothesis(words, score / length**settings.length_penalty))


def _over(beam: Tensor, tensor: Tensor) -> Tensor:
    """Indexes (rows, S) widened to gather whole parts of `tensor` (rows, S', …)."""
    return beam.view(*beam.shape, *[1] * (tensor.dim() - 2)).expand(*beam.shape, *tensor.shape[2:])
