"""What random rankings find."""

import pytest
import torch

from modules.errors import ModelError
from modules.metrics.retrieval import RetrievalRanks, guessed_mean_recall, recall_at, retrieval_scores

EACH = [
    [1] * 4,
    [2] * 12,
    [5] * 15,
    [2, 1, 2, 1, 2, 2],
    [0, 1, 0, 1, 1],
    [0, 2, 1, 0, 2, 2, 0],
    [3, 3, 2, 2, 2, 3, 3, 2],
]
"""Captions of each image."""


@pytest.mark.parametrize("each", EACH)
def test_the_expectation_is_the_mean_over_random_rankings(each: list[int]) -> None:
    torch.manual_seed(0)
    of = torch.repeat_interleave(torch.arange(len(each)), torch.tensor(each))
    found = []
    for _ in range(1500):
        to_image = torch.randint(1, len(each) + 1, (len(of),))
        places = torch.randperm(len(of)) + 1
        to_text = torch.tensor([int(places[of == image].min()) if count else 0 for image, count in enumerate(each)])
        found.append(retrieval_scores(RetrievalRanks(to_image, to_text, of))["mean_recall"])
    guessed = guessed_mean_recall(len(each), len(of), sum(map(bool, each)))
    assert guessed == pytest.approx(sum(found) / len(found), abs=0.7)


def test_a_recall_is_at_one_or_more() -> None:
    with pytest.raises(ModelError, match="k is 0; expected 1 or more"):
        recall_at(torch.tensor([1, 2]), 0)
