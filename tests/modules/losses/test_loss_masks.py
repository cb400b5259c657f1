"""What is given to losses: masks and types of the form of the scores."""

import pytest
import torch
from torch import Tensor

from modules.errors import ModelError
from modules.losses.registry import LOSSES, RankingLoss


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
