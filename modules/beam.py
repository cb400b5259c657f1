"""Beam search over a batch: all sentences and hypotheses in one tensor step, finished sentences leave the batch."""

from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from modules.cross_entropy import PART
from modules.errors import ModelError
from modules.recurrent import widen

_BLOCK = 128  # scores of which only the largest is looked at, at first


class Decoder(Protocol):
    """A translator, as the search sees it. Its memory has a `mask` (B, J) and can `select` sentences.

    Attributes:
        words: the output matrix (V, E).
        output_bias: (V,).
    """

    words: nn.Embedding
    output_bias: nn.Parameter

    def start(self, memory: Any) -> tuple[Tensor, ...]:
        """The state before the first word, tensors (B, …)."""

    def step(self, memory: Any, token: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        """After the last word (B, S) of each hypothesis: what the output matrix reads (B, S, E), and the state."""

    def follow(self, state: tuple[Tensor, ...], beam: Tensor) -> tuple[Tensor, ...]:
        """The state of the hypotheses (B, S) that go on, by the number of the one that each continues."""


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
        attentional, state = model.step(memory, tokens[:, :, -1], state)
        best, flat = _continue(scores, attentional, model.words.weight, model.output_bias, 2 * width)
        origin, word = flat // len(model.output_bias), flat % len(model.output_bias)
        is_end = word == end
        left = (limits[alive] - length).to(device)[:, None]
        is_end[:, :width] |= left == 0  # nothing may go on: what is in the beam ends here
        is_end &= left >= 0  # its sentence is done, though still in the batch
        _collect(ended, alive, tokens, best, origin, word, is_end, length, settings, end)
        # The best `width` that go on; ended ones are pushed behind them by sorting on (ended, place).
        keep = (is_end.long() * best.shape[1] + torch.arange(best.shape[1], device=device)).argsort(1)[:, :width]
        scores = best.gather(1, keep).masked_fill(is_end.gather(1, keep), -torch.inf)
        beam = origin.gather(1, keep)
        tokens = torch.cat([follow(tokens, beam), word.gather(1, keep)[..., None]], -1)
        state = model.follow(state, beam)
        going = torch.tensor([len(ended[sentence]) < width for sentence in alive.tolist()]) & (limits[alive] > length)
        if not going.any():
            break
        if going.sum() <= 0.75 * len(going):  # leaving costs a copy of the memory: worth it by the quarter
            rows = going.nonzero()[:, 0].to(device)
            alive, memory = alive[going], memory.select(rows)
            tokens, scores, state = tokens[rows], scores[rows], tuple(part[rows] for part in state)
    return [sorted(hypotheses, key=lambda h: -h.score)[:width] for hypotheses in ended]


def follow(tensor: Tensor, beam: Tensor) -> Tensor:
    """What belongs to the hypotheses (B, S) that go on, of a tensor (B, S', …)."""
    rows = beam + tensor.shape[1] * torch.arange(len(beam), device=beam.device)[:, None]
    return tensor.flatten(0, 1).index_select(0, rows.flatten()).unflatten(0, beam.shape)


def _continue(scores: Tensor, states: Tensor, weight: Tensor, bias: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The best continuations of each sentence's hypotheses, and their places among all S · V of them.

    A few sentences at a time: no tensor of all of them times the vocabulary.

    Args:
        scores: (rows, S) log-probabilities of the hypotheses.
        states: (rows, S, E) what the output matrix reads.
        weight: that matrix (V, E).
        bias: (V,).
        count: how many of each sentence.
    """
    several, parts = max(1, PART // (scores.shape[1] * len(weight))), []
    for score, state in zip(scores.split(several), states.split(several), strict=True):
        logs = widen(F.linear(state, weight, bias)).log_softmax(-1)
        parts.append(top(logs.add_(score[..., None]).flatten(1), count))
    best, places = zip(*parts, strict=True)
    return torch.cat(best), torch.cat(places)


def _collect(
    ended: list[list[Hypothesis]], alive: Tensor, tokens: Tensor, best: Tensor, origin: Tensor, word: Tensor,
    is_end: Tensor, length: int, settings: BeamSettings, end: int,
) -> None:  # fmt: skip
    """Move hypotheses that end among the best `beam_size` to their sentence's list, while it has room."""
    width = settings.beam_size
    row, place = is_end[:, :width].nonzero(as_tuple=True)
    histories, lasts = tokens[row, origin[row, place], 1:].tolist(), word[row, place].tolist()
    for sentence, score, history, last in zip(
        alive[row.cpu()].tolist(), best[row, place].tolist(), histories, lasts, strict=True
    ):
        if len(ended[sentence]) < width and score > -torch.inf:
            words = history if last == end else [*history, last]
            ended[sentence].append(Hypothesis(words, score / length**settings.length_penalty))


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
