"""Beam search over a batch: all sentences and hypotheses in one tensor step, finished sentences leave the batch."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Protocol

import torch
from torch import Tensor

from modules.cross_entropy import rows_at_a_time
from modules.errors import ModelError

_BLOCK = 128  # scores in a block; only its largest is compared at first


class Decoder(Protocol):
    """What a search needs of a translator. Its memory has a `mask` (B, J) and can `select` sentences."""

    @property
    def vocabulary_size(self) -> int:
        """V."""

    def start(self, memory: Any) -> tuple[Tensor, ...]:
        """The state before the first word, tensors (B, …)."""

    def step(self, memory: Any, token: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        """After the last word (B, S) of each hypothesis: what `predict` reads (B, S, E), and the state."""

    def predict(self, states: Tensor) -> Tensor:
        """Log-probabilities (…, V) of the next word, in float32, from (…, E)."""

    def follow(self, state: tuple[Tensor, ...], beam: Tensor) -> tuple[Tensor, ...]:
        """The state of the hypotheses (B, S) that go on, by the number of the one that each continues."""


@dataclass(frozen=True)
class Hypothesis:
    """One translation: its tokens without the end mark, and its length-normalised log-probability (of a `NoisyChannel`,
    plus the channel's share)."""

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
        diversity: λ, what a word costs a group for each hypothesis of an earlier group that goes on with it at the
            same place; hypotheses are chosen so, their scores stay log-probabilities.
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
        if self.length_penalty < 0 or self.diversity < 0:
            raise ModelError(
                f"length_penalty is {self.length_penalty}, diversity {self.diversity}; expected 0 or more of each"
            )


@torch.no_grad()
def beam_search(
    model: Decoder, memory: Any, settings: BeamSettings, begin: int, end: int, max_length: int | Tensor
) -> list[list[Hypothesis]]:
    """The best translations of each sentence, best first, at most `beam_size` of them.

    Of diverse beams the best of each comes first, then the second of each: what follows the best is another beam's.

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
    state = model.follow(model.start(memory), torch.zeros(count, groups, dtype=torch.long, device=device))
    limits = torch.as_tensor(max_length).cpu().expand(count)
    for length in range(1, int(limits.max()) + 1):
        states, state = model.step(memory, tokens[:, :, -1], state)
        left = (limits[alive] - length).to(device)[:, None]
        parts, penalties = [], None
        for group, (seen, score) in enumerate(zip(states.chunk(groups, 1), scores.chunk(groups, 1), strict=True)):
            best, flat = _continue(model, score, seen, 2 * width, penalties)
            origin = flat // model.vocabulary_size + group * score.shape[1]  # the group's hypotheses begin there
            word = flat % model.vocabulary_size
            is_end = word == end
            is_end[:, :width] |= left == 0  # nothing may go on: what is in the beam ends here
            is_end &= left >= 0  # its sentence is done, though still in the batch
            found = [ended[sentence][group] for sentence in alive.tolist()]
            _collect(found, tokens, best, origin, word, is_end[:, :width], length, settings, end)
            # The best `width` that go on; ended ones are pushed behind them by sorting on (ended, place).
            keep = (is_end.long() * best.shape[1] + torch.arange(best.shape[1], device=device)).argsort(1)[:, :width]
            going = best.gather(1, keep).masked_fill(is_end.gather(1, keep), -torch.inf)
            parts.append((going, origin.gather(1, keep), word.gather(1, keep)))
            if group + 1 < groups:
                if penalties is None:
                    penalties = torch.zeros(len(tokens), model.vocabulary_size, device=device)
                is_open = torch.tensor([[len(hypotheses) < width] for hypotheses in found], device=device)
                penalties.scatter_add_(1, parts[-1][2], settings.diversity * is_open * torch.ones_like(going))
        scores, beam, word = (torch.cat(part, 1) for part in zip(*parts, strict=True))
        tokens = torch.cat([follow(tokens, beam), word[..., None]], -1)
        state = model.follow(state, beam)
        full = [all(len(group) == width for group in ended[sentence]) for sentence in alive.tolist()]
        open_ = ~torch.tensor(full) & (limits[alive] > length)
        if not open_.any():
            break
        if open_.sum() <= 0.75 * len(open_):  # leaving costs a copy of the memory: worth it by the quarter
            rows = open_.nonzero()[:, 0].to(device)
            alive, memory = alive[open_], memory.select(rows)
            tokens, scores, state = tokens[rows], scores[rows], tuple(part[rows] for part in state)
    return [_in_order(sentence) for sentence in ended]


def _in_order(groups: Sequence[Sequence[Hypothesis]]) -> list[Hypothesis]:
    """The best hypothesis of each group by score, then the second of each, and so on."""
    ranks = zip_longest(*(sorted(group, key=lambda one: -one.score) for group in groups))
    return [one for rank in ranks for one in sorted(filter(None, rank), key=lambda one: -one.score)]


def follow(tensor: Tensor, beam: Tensor) -> Tensor:
    """What belongs to the hypotheses (B, S) that go on, of a tensor (B, S', …)."""
    rows = beam + tensor.shape[1] * torch.arange(len(beam), device=beam.device)[:, None]
    return tensor.flatten(0, 1).index_select(0, rows.flatten()).unflatten(0, beam.shape)


def _continue(
    model: Decoder, scores: Tensor, states: Tensor, count: int, costs: Tensor | None
) -> tuple[Tensor, Tensor]:
    """The best continuations of each sentence's hypotheses, and their places among all S · V of them.

    A few sentences at a time: no tensor of all of them times the vocabulary.

    Args:
        model: the translator.
        scores: (rows, S) log-probabilities of the hypotheses.
        states: (rows, S, E) what `predict` reads.
        count: how many of each sentence.
        costs: (rows, V) what each word costs in the choice, not in the score.
    """
    several, parts = rows_at_a_time(scores, scores.shape[1] * model.vocabulary_size), []
    for start in range(0, len(scores), several):
        some = slice(start, start + several)
        total = model.predict(states[some]).add_(scores[some, :, None])
        if costs is None:
            parts.append(top(total.flatten(1), count))
        else:
            places = top((total - costs[some, None]).flatten(1), count)[1]
            parts.append((total.flatten(1).gather(1, places), places))
    return torch.cat([best for best, _ in parts]), torch.cat([places for _, places in parts])


def _collect(
    ended: list[list[Hypothesis]], tokens: Tensor, best: Tensor, origin: Tensor, word: Tensor, is_end: Tensor,
    length: int, settings: BeamSettings, end: int,
) -> None:  # fmt: skip
    """Move hypotheses that end among a group's best (rows, S) to the list of their row, while it has room."""
    row, place = is_end.nonzero(as_tuple=True)
    histories, lasts = tokens[row, origin[row, place], 1:].tolist(), word[row, place].tolist()
    for hypotheses, score, history, last in zip(
        (ended[number] for number in row.tolist()), best[row, place].tolist(), histories, lasts, strict=True
    ):
        if len(hypotheses) < is_end.shape[1] and score > -torch.inf:
            words = history if last == end else [*history, last]
            hypotheses.append(Hypothesis(words, score / length**settings.length_penalty))


def top(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` largest of each row (R, L) and their places, or all; `topk`, which sorts whole rows, in a fifth.

    The largest are in the blocks with the largest maxima.
    """
    rows, length = values.shape
    count, blocks = min(count, length), length // _BLOCK
    if count >= blocks:
        return values.topk(count, dim=1)
    whole = blocks * _BLOCK
    chosen = values[:, :whole].unflatten(1, (blocks, _BLOCK)).amax(2).topk(count, dim=1)[1]
    places = torch.arange(length, device=values.device)
    places = torch.cat([(chosen[..., None] * _BLOCK + places[:_BLOCK]).flatten(1), places[whole:].expand(rows, -1)], 1)
    best, where = values.gather(1, places).topk(count, dim=1)
    return best, places.gather(1, where)
