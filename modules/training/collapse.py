"""Detects a training that has collapsed: its loss stays at the value for equal scores, and matching pairs score no more
than others."""

import torch
from torch import Tensor

from modules.layers.recurrent import widen

TOLERANCE = 0.02  # share of the value for equal scores
SEPARATION = 0.05  # of positives from negatives, in standard deviations; of a model that begins to learn it is above
LEAST = 20  # steps that are judged together


class CollapseWatch:
    """Compares the ranking loss of each step with its value if all scores were equal.

    With hardest negatives, a model that gives everything the same vector has a loss of 2α a pair, and a gradient that
    does not lead away from it. Each step's distance counts, so a loss that only passes the value is not taken for one
    that stays. A model that learns can have the same loss: at its start, when its scores are small next to the margin,
    and later, where the hardest negatives are as good as the positives. On average its positives score more than its
    negatives do; of a collapsed model they do not.

    Args:
        judgements: how many in a row must find the loss there; a contrastive loss may learn slowly at first.
    """

    def __init__(self, judgements: int = 1) -> None:
        self._judgements, self._in_a_row = judgements, 0
        self._steps: list[Tensor] = []

    @staticmethod
    def seen(loss: Tensor, equal: Tensor, scores: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
        """What is judged of a step (3,): its loss, the value for equal scores, and the separation.

        Args:
            loss: of the step.
            equal: what it would be if all scores were equal.
            scores: (I, C).
            positives: (I, C) bool.
            negatives: (I, C) bool.
        """
        apart = separation(scores.detach(), positives, negatives)
        return torch.stack([loss.detach(), equal.detach().to(loss), apart.to(loss)])

    def add(self, seen: Tensor) -> None:
        """Note what was seen of a step."""
        self._steps.append(seen)

    def stays_at(self) -> float | None:
        """Judge the steps since the last judgement, if they are enough, at the end of an epoch.

        Returns:
            the mean value for equal scores if the loss stayed there, as often as it takes; else None.
        """
        if len(self._steps) < LEAST:
            return None
        losses, equal, apart = torch.stack(self._steps).unbind(1)
        self._steps = []
        mean = float(equal.mean())
        stays = float((losses - equal).abs().mean()) <= TOLERANCE * mean
        collapsed = mean > 0 and stays and float(apart.mean()) <= SEPARATION
        self._in_a_row = self._in_a_row + 1 if collapsed else 0
        return mean if self._in_a_row >= self._judgements else None


def separation(scores: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
    """Return how far the mean positive score is above the mean negative one, in standard deviations of all scores.

    Args:
        scores: (I, C).
        positives: (I, C) bool.
        negatives: (I, C) bool.

    Returns:
        A scalar; 0 where all scores are equal.
    """
    scores = widen(scores)
    gap = _mean_of(scores, positives) - _mean_of(scores, negatives)
    rounding = 1e-5 * scores.abs().max()
    return gap / torch.maximum(scores.std(correction=0), rounding).clamp(min=1e-12)


def _mean_of(scores: Tensor, those: Tensor) -> Tensor:
    return torch.where(those, scores, 0).sum() / those.sum().clamp(min=1)
