"""What is given to losses: masks and types of the form of the scores."""

import pytest
import torch
from torch import Tensor

from modules.errors import ModelError
from modules.losses.pairs import Pairs
from modules.losses.registry import LOSSES, RankingLoss, negative_mask


@pytest.mark.parametrize("kind", LOSSES)
@pytest.mark.parametrize("mask", [torch.eye(3), torch.eye(4, dtype=torch.bool)[:3]])
def test_masks_of_another_form_are_refused(kind: str, mask: Tensor) -> None:
    own, types = torch.eye(3, dtype=torch.bool), torch.zeros(3, dtype=torch.long)
    with pytest.raises(ModelError, match=r"negatives are \(3, .\) of \w+; expected a mask of bool \(3, 3\)"):
        RankingLoss(kind, 0.2)(torch.eye(3), own, mask, types)


def test_each_caption_has_a_type() -> None:
    own = torch.eye(3, dtype=torch.bool)
    with pytest.raises(ModelError, match="there are 2 caption types of 3 captions"):
        RankingLoss("hardest", 0.2)(torch.eye(3), own, ~own, torch.zeros(2, dtype=torch.long))


def test_pairs_in_order_are_the_same_pairs_whatever_order_they_came_in() -> None:
    rows = [[2, 0, 1, 0, 2, 2], [5, 9, 5, 3, 4, 5], [1, 0, 2, 0, 1, 0]]
    links, sentences, types = (torch.tensor(row) for row in rows)
    positives, negatives = negative_mask(torch.arange(3), links, sentences)
    vectors, languages = torch.arange(6.0)[:, None, None], torch.tensor([0, 1, 2, 3, 4, 5])
    images = (torch.zeros(3, 1, 1), torch.ones(3, 1).bool())
    pairs = Pairs(images, (vectors, vectors >= 0), links, positives, negatives, types, languages, sentences).in_order()
    order = [3, 1, 2, 4, 5, 0]  # by image, sentence, type
    assert pairs.languages.tolist() == pairs.captions[0].flatten().tolist() == order
    for name, plain in (("caption_image", links), ("sentences", sentences), ("types", types)):
        assert torch.equal(getattr(pairs, name), plain[order]), name
    assert torch.equal(pairs.positives, positives[:, order])
    assert torch.equal(pairs.negatives, negatives[:, order])
