"""The scale of contrastive losses: bounded, as CLIP's is, and learned below its bound."""

import math

import pytest
import torch

from modules.losses.contrastive import contrastive_loss
from modules.losses.registry import RankingLoss
from tests.modules.losses.test_losses import a_batch


def test_the_scale_is_bounded() -> None:
    similarity, *masks, types = a_batch(8)
    loss_of = RankingLoss("infonce", 0.2)
    loss_of.log_scale.data.fill_(9.0)
    bounded = loss_of(similarity, *masks, types)
    torch.testing.assert_close(bounded, contrastive_loss(similarity, *masks, torch.tensor(100.0)))


@pytest.mark.parametrize("kind", ["infonce", "one-to-k"])
def test_a_scale_comes_back_from_its_bound(kind: str) -> None:
    """A step too far upwards, then scores that want a smaller one."""
    similarity, *masks, types = a_batch(8)
    loss_of = RankingLoss(kind, 0.2)
    optimizer = torch.optim.SGD(loss_of.parameters(), 1e-3)
    loss_of.log_scale.data.fill_(math.log(100) + 0.5)
    for _ in range(3):
        optimizer.zero_grad()
        loss_of(similarity.detach(), *masks, types).backward()
        assert loss_of.log_scale.grad != 0
        optimizer.step()
    assert loss_of.bounded_scale() < math.log(100)
