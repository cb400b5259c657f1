"""Beam search over a batch: one tensor step for all sentences and hypotheses; finished sentences are removed.

Examples:
    >>> from types import SimpleNamespace as Made
    >>> logs = torch.tensor([0.0, 0.0, 0.4, 0.6]).log()  # of <pad>, <s>, </s> and a word, whatever stands before
    >>> model = Made(vocabulary_size=4, start=lambda memory: (), step=lambda memory, token, state: (token, state))
    >>> model.predict, model.follow = lambda states: logs.expand(*states.shape, 4).clone(), lambda state, beam: ()
    >>> found = beam_search(model, Made(mask=torch.ones(1, 1)), BeamSettings(beam_size=2), 1, 2, max_length=9)
    >>> [(best.tokens, round(best.score, 2)) for best in found[0]]  # stops when two have ended
    [([3], -0.71), ([], -0.92)]
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from modules.errors import ModelError
from modules.layers.static import is_static
from modules.losses.cross_entropy import rows_at_a_time

_STEPS = 8  # of a search on a GPU, between looks at what has ended, for which it waits; diverse groups look each time
_BLOCK = 128  # scores in one block of `top`, which first compares the maxima of blocks


class Decoder(Protocol):
    """The interface of translators for search. The encoder memory has a `mask` (B, J) and a method `select`."""

    @property
    def vocabulary_size(self) -> int:
        """V, size of the vocabulary."""

    def start(self, memory: Any) -> tuple[Tensor, ...]:
        """Return the decoder state before the first word, tensors (B, …)."""

    def step(self, memory: Any, token: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Read the last word (B, S) of each hypothesis; return the input of `predict` (B, S, E) and the new state."""

    def predict(self, states: Tensor) -> Tensor:
        """Return log-probabilities (…, V) of the next word, in float32, from states (…, E)."""

    def follow(self, state: tuple[Tensor, ...], beam: Tensor) -> tuple[Tensor, ...]:
        """Return the state of the new hypotheses; `beam` (B, S) is the index of the hypothesis that each continues."""


@dataclass(frozen=True)
class Hypothesis:
    """One translation.

    Attributes:
        tokens: without the end token.
        score: its length-normalised log-probability; of a `Reranker` the weighted sum of its features.
        features: by name; empty without a `Reranker`.
    """

    tokens: list[int]
    score: float
    features: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class BeamSettings:
    """Settings of beam search.

    Attributes:
        beam_size: hypotheses kept for each sentence; 1 is greedy search.
        length_penalty: α of score = log p / length^α, including the end token; 0 does not normalise.
        max_ratio: a translation is at most max_ratio · N + 10 tokens long, N the length of its source.
        groups: number of groups that beam_size is divided into (diverse beam search; Vijayakumar et al. 2018).
        diversity: λ, the penalty of a word for each hypothesis of an earlier group that has it at the same position; it
            affects which hypotheses are chosen, not their scores.
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
    """Return the best translations of each sentence, best first, at most `beam_size` of them.

    With diverse beam search the best hypothesis of each group comes first, then the second of each group, and so on.

    A sentence is finished when `beam_size` hypotheses have ended, or at `max_length`, which ends all hypotheses.

    Args:
        model: the translator.
        memory: encoder memory of the B source sentences.
        settings: beam size and length normalisation.
        begin: id of the begin-of-sentence token.
        end: id of the end-of-sentence token.
        max_length: maximum number of predictions, including the end token; a number, or (B,) one for each sentence, so
            that a translation does not depend on the rest of the batch.
    """
    count, groups, width = len(memory.mask), settings.groups, settings.beam_size // settings.groups
    device = memory.mask.device
    ended: list[list[list[Hypothesis]]] = [[[] for _ in range(groups)] for _ in range(count)]
    alive = torch.arange(count)  # sentence of each row that is still searched
    tokens = torch.full((count, groups, 1), begin, device=device)
    scores = torch.zeros(count, groups, device=device)
    state = model.follow(model.start(memory), torch.zeros(count, groups, dtype=torch.long, device=device))
    limits = torch.as_tensor(max_length).cpu().expand(count)
    left, longest = limits.to(device), max(limits.tolist(), default=0)
    every, waiting = _STEPS if groups == 1 and is_static(tokens) else 1, list[_Ended]()
    for length in range(1, longest + 1):
        states, state = model.step(memory, tokens[:, :, -1], state)
        parts, penalty = [], None
        for group, (part, score) in enumerate(zip(states.chunk(groups, 1), scores.chunk(groups, 1), strict=True)):
            best, flat = _continue(model, score, part, 2 * width, penalty)
            origin = flat // model.vocabulary_size + group * score.shape[1]  # index of the group's first hypothesis
            word = flat % model.vocabulary_size
            is_end = _ends(word, end, left - length, width)
            waiting.append(_Ended(group, tokens, best, origin, word, is_end[:, :width], length))
            if length % every == 0 or length == longest:
                _collect(ended, alive, waiting, settings, end)
            parts.append(_unfinished(best, origin, word, is_end, width))
            if group + 1 < groups:
                if penalty is None:
                    penalty = best.new_zeros(len(tokens), model.vocabulary_size)
                is_open = [[len(ended[sentence][group]) < width] for sentence in alive.tolist()]
                cost = settings.diversity * torch.tensor(is_open, device=device) * torch.ones_like(parts[-1][0])
                penalty.scatter_add_(1, parts[-1][2], cost)
        scores, beam, word = (torch.cat(column, 1) for column in zip(*parts, strict=True))
        tokens = torch.cat([follow(tokens, beam), word[..., None]], -1)
        state = model.follow(state, beam)
        if length % every:
            continue
        full = [all(len(group) == width for group in ended[sentence]) for sentence in alive.tolist()]
        open_ = ~torch.tensor(full) & (limits[alive] > length)
        if not open_.any():
            break
        if open_.sum() <= 0.75 * len(open_):  # removing sentences copies the memory: done when a quarter is finished
            rows = open_.nonzero()[:, 0].to(device)
            alive, left, memory = alive[open_], left[rows], memory.select(rows)
            tokens, scores, state = tokens[rows], scores[rows], tuple(part[rows] for part in state)
    return [_interleaved(sentence) for sentence in ended]


def _ends(word: Tensor, end: int, remaining: Tensor, width: int) -> Tensor:
    """Which continuations (rows, C) end, of sentences that may have so many more words (rows,), below 0 if finished."""
    is_end = word == end
    is_end[:, :width] |= remaining[:, None] == 0  # length limit: all hypotheses end here
    return is_end & (remaining[:, None] >= 0)  # finished sentences may still be in the batch


def _unfinished(
    best: Tensor, origin: Tensor, word: Tensor, is_end: Tensor, width: int
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Scores, origins and words of the best `width` of the continuations (rows, C) that go on; −∞ where they end."""
    order = is_end.long() * best.shape[1] + torch.arange(best.shape[1], device=best.device)  # ended ones last
    keep = order.argsort(1)[:, :width]
    kept = best.gather(1, keep).masked_fill(is_end.gather(1, keep), -torch.inf)
    return kept, origin.gather(1, keep), word.gather(1, keep)


def _interleaved(groups: Sequence[Sequence[Hypothesis]]) -> list[Hypothesis]:
    """Return the best hypothesis of each group by score, then the second of each group, and so on."""
    ranks = zip_longest(*(sorted(group, key=lambda hypothesis: -hypothesis.score) for group in groups))
    return [hypothesis for rank in ranks for hypothesis in sorted(filter(None, rank), key=lambda item: -item.score)]


def follow(tensor: Tensor, beam: Tensor) -> Tensor:
    """Select the entries of a tensor (B, S', …) by the hypothesis indexes `beam` (B, S)."""
    rows = beam + tensor.shape[1] * torch.arange(len(beam), device=beam.device)[:, None]
    return tensor.flatten(0, 1).index_select(0, rows.flatten()).unflatten(0, beam.shape)


def _continue(
    model: Decoder, scores: Tensor, states: Tensor, count: int, costs: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return the scores of each sentence's best continuations and their indexes among all S · V continuations.

    Sentences are processed in parts, so that there is no tensor of all sentences times the vocabulary.

    Args:
        model: the translator.
        scores: (rows, S) log-probabilities of the hypotheses.
        states: (rows, S, E) input of `predict`.
        count: number of continuations of each sentence.
        costs: (rows, V) penalty of each word, which affects the choice but not the score.
    """
    several, parts = rows_at_a_time(scores, scores.shape[1] * model.vocabulary_size), []
    for start in range(0, len(scores), several):
        some = slice(start, start + several)
        total = model.predict(states[some]).add_(scores[some, :, None])
        if costs is None:
            parts.append(top(total.flatten(1), count))
        else:
            indexes = top((total - costs[some, None]).flatten(1), count)[1]
            parts.append((total.flatten(1).gather(1, indexes), indexes))
    return torch.cat([best for best, _ in parts]), torch.cat([indexes for _, indexes in parts])


class _Ended(NamedTuple):
    """The continuations of one step of a group, of which some end.

    Attributes:
        group: which one.
        tokens: (rows, S, length) of the hypotheses that are continued.
        best: (rows, C) scores of the continuations.
        origin: (rows, C) the hypothesis that each continues.
        word: (rows, C) its next word.
        is_end: (rows, W) bool, which of the first W end.
        length: of the translations.
    """

    group: int
    tokens: Tensor
    best: Tensor
    origin: Tensor
    word: Tensor
    is_end: Tensor
    length: int


def _collect(
    ended: list[list[list[Hypothesis]]], alive: Tensor, waiting: list[_Ended], settings: BeamSettings, end: int
) -> None:
    """Move hypotheses that end to the list of their sentence and group, until it is full; nothing waits any more.

    Args:
        ended: sentence → group → hypotheses.
        alive: (rows,) the sentence of each row.
        waiting: what has ended in the last steps.
        settings: of the search.
        end: id of the end-of-sentence token.
    """
    sentences = alive.tolist()
    for group, tokens, best, origin, word, is_end, length in waiting:
        row, rank = is_end.nonzero(as_tuple=True)
        histories, lasts = tokens[row, origin[row, rank], 1:].tolist(), word[row, rank].tolist()
        for number, score, history, last in zip(row.tolist(), best[row, rank].tolist(), histories, lasts, strict=True):
            hypotheses = ended[sentences[number]][group]
            if len(hypotheses) < is_end.shape[1] and score > -torch.inf:
                words = history if last == end else [*history, last]
                hypotheses.append(Hypothesis(words, score / length**settings.length_penalty))
    waiting.clear()


def top(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the `count` largest values of each row (R, L), or all of them, and their indexes.

    Takes a fifth of the time of `topk`, which sorts whole rows: the largest values are in the blocks with the largest
    maxima.
    """
    rows, length = values.shape
    count, blocks = min(count, length), length // _BLOCK
    if count >= blocks:
        return values.topk(count, dim=1)
    whole = blocks * _BLOCK
    chosen = values[:, :whole].unflatten(1, (blocks, _BLOCK)).amax(2).topk(count, dim=1)[1]
    index = torch.arange(length, device=values.device)
    index = torch.cat([(chosen[..., None] * _BLOCK + index[:_BLOCK]).flatten(1), index[whole:].expand(rows, -1)], 1)
    best, where = values.gather(1, index).topk(count, dim=1)
    return best, index.gather(1, where)
