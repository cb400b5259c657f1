"""Detects a training that has collapsed: its ranking loss stays at the value for equal scores, and scores are equal."""

import torch
from torch import Tensor

TOLERANCE = 0.02  # share of the value for equal scores
SPREAD = 0.05  # standard deviation of scores that count as equal; of trained models it is several times as much
LEAST = 20  # steps that are judged together


class CollapseWatch:
    """Compares the ranking loss of each step with its value if all scores were equal.

    With hardest negatives, a model that gives everything the same vector has a loss of 2α a pair, and a gradient that
    does not lead away from it. Each step's distance counts, so a loss that only passes the value is not taken for one
    that stays. A trained model can have the same loss, where the hardest negatives are as good as the positives: its
    scores differ.

    Args:
        judgements: how many in a row must find the loss there; a contrastive loss may learn slowly at first.
    """

    def __init__(self, judgements: int = 1) -> None:
        self._judgements, self._in_a_row = judgements, 0
        self._steps: list[tuple[Tensor, Tensor, Tensor]] = []

    def add(self, loss: Tensor, equal: Tensor, scores: Tensor) -> None:
        """Note a step's loss, its value for equal scores, and the scores (I, C)."""
        self._steps.append((loss.detach(), equal.detach(), scores.detach().std()))

    def stays_at(self) -> float | None:
        """Judge the steps since the last judgement, if they are enough, at the end of an epoch.

        Returns:
            the mean value for equal scores if the loss stayed there, as often as it takes; else None.
        """
        if len(self._steps) < LEAST:
            return None
        losses, equal, spread = (torch.stack(side) for side in zip(*self._steps, strict=True))
        self._steps = []
        mean = float(equal.mean())
        stays = float((losses - equal).abs().mean()) <= TOLERANCE * mean
        found = mean > 0 and stays and float(spread.mean()) <= SPREAD
        self._in_a_row = self._in_a_row + 1 if found else 0
        return mean if self._in_a_row >= self._judgements else None
