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
        groups: beams that share beam_size (diverse beam search; Vijayakumar et al. 2018).
        diversity: λ, what a word costs a group for each hypothesis of an earlier group that takes it at the same
            place; hypotheses are chosen so, their scores stay log-probabilities.
    """

    beam_size: int = 5
    length_penalty: float = 1.0
    max_ratio: float = 1.5
    groups: int = 1
    diversity: float = 0.5

    def __post_init__(self) -> None:
        if self.beam_size < 1:
            raise ModelError(f"beam_size is {self.beam_size}; it must be at least 1 (1 is greedy search)")
        if self.groups < 1 or self.beam_size % self.groups:
            raise ModelError(f"beam_size is {self.beam_size}, groups {self.groups}; expected equal groups of the beam")


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
    count, groups, width = len(memory.mask), settings.groups, settings.beam_size // settings.groups
    device = memory.mask.device
    ended: list[list[list[Hypothesis]]] = [[[] for _ in range(groups)] for _ in range(count)]
    alive = torch.arange(count)  # the sentence of each row that is still searched
    tokens = torch.full((count, groups, 1), begin, device=device)
    scores = torch.zeros(count, groups, device=device)
    state = tuple(part.expand(-1, groups, *part.shape[2:]) for part in model.start(memory))
    limits = torch.as_tensor(max_length).cpu().expand(count)
    for length in range(1, int(limits.max()) + 1):
        logs, state = model.step(memory, tokens[:, :, -1], state)
        left = (limits[alive] - length).to(device)[:, None]
        parts, said = [], torch.zeros_like(logs[:, 0])
        for group, (log, score) in enumerate(zip(logs.chunk(groups, 1), scores.chunk(groups, 1), strict=True)):
            place = group * log.shape[1]  # where the group's hypotheses begin
            total = score[..., None] + log  # (rows, S, V)
            vocabulary = total.shape[-1]
            wanted = total - settings.diversity * said[:, None] if group else total
            _, flat = wanted.flatten(1).topk(min(2 * width, total[0].numel()), dim=1)
            best, origin, word = total.flatten(1).gather(1, flat), flat // vocabulary + place, flat % vocabulary
            is_end = word == end
            is_end[:, :width] |= left == 0  # nothing may go on: what is in the beam ends here
            is_end &= left >= 0  # its sentence is done, though still in the batch
            found = [ended[sentence][group] for sentence in alive.tolist()]
            _collect(found, tokens, best, origin, word, is_end[:, :width], length, settings, end)
            # The best `width` that go on; ended ones are pushed behind them by sorting on (ended, place).
            keep = (is_end.long() * best.shape[1] + torch.arange(best.shape[1], device=device)).argsort(1)[:, :width]
            going = best.gather(1, keep).masked_fill(is_end.gather(1, keep), -torch.inf)
            parts.append((going, origin.gather(1, keep), word.gather(1, keep)))
            said.scatter_add_(1, parts[-1][2], torch.ones_like(going))
        scores, beam, word = (torch.cat(part, 1) for part in zip(*parts, strict=True))
        tokens = torch.cat([tokens.gather(1, _over(beam, tokens)), word[..., None]], -1)
        state = tuple(part.gather(1, _over(beam, part)) for part in state)
        full = [all(len(group) == width for group in ended[sentence]) for sentence in alive.tolist()]
        open_ = ~torch.tensor(full) & (limits[alive] > length)
        if not open_.any():
            break
        if open_.sum() <= 0.75 * len(open_):  # leaving costs a copy of the memory: worth it by the quarter
            rows = open_.nonzero()[:, 0].to(device)
            alive, memory = alive[open_], memory.select(rows)
            tokens, scores, state = tokens[rows], scores[rows], tuple(part[rows] for part in state)
    return [sorted((one for group in sentence for one in group), key=lambda h: -h.score) for sentence in ended]


def _collect(
    ended: list[list[Hypothesis]], tokens: Tensor, best: Tensor, origin: Tensor, word: Tensor, is_end: Tensor,
    length: int, settings: BeamSettings, end: int,
) -> None:  # fmt: skip
    """Move hypotheses that end among a group's best (rows, S) to the list of their row, while it has room."""
    width = is_end.shape[1]
    for row, place in is_end.nonzero().tolist():
        hypotheses, score = ended[row], float(best[row, place])
        if len(hypotheses) < width and score > -torch.inf:
            history = tokens[row, origin[row, place], 1:].tolist()
            last = int(word[row, place])
            words = history if last == end else [*history, last]
            hypotheses.append(Hypothesis(words, score / length**settings.length_penalty))


def _over(beam: Tensor, tensor: Tensor) -> Tensor:
    """Indexes (rows, S) widened to gather whole parts of `tensor` (rows, S', …)."""
    return beam.view(*beam.shape, *[1] * (tensor.dim() - 2)).expand(*beam.shape, *tensor.shape[2:])
