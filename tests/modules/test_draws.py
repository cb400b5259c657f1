"""Random numbers belong to a caption, a step and a purpose, wherever the caption stands."""

import pytest
import torch

from modules.draws import draws


def test_they_go_with_the_caption_whatever_the_batch() -> None:
    keys = torch.tensor([5, 900, 2])
    whole = draws(keys, (7, 3), 4, "uniform")
    assert torch.equal(draws(keys[[2, 0]], (7, 3), 4, "uniform"), whole[[2, 0]])
    others = draws(keys, (7, 4), 4, "uniform"), draws(keys, (7, 3), 4, "uniform", 1)
    assert all(not torch.isclose(whole, other).any() for other in others)


@pytest.mark.parametrize(("kind", "mean", "deviation"), [("uniform", 0.5, 12**-0.5), ("normal", 0.0, 1.0)])
def test_they_are_distributed_as_named(kind, mean: float, deviation: float) -> None:
    found = draws(torch.arange(200), (1,), 200, kind)
    assert found.mean() == pytest.approx(mean, abs=0.02)
    assert found.std() == pytest.approx(deviation, abs=0.02)
    if kind == "uniform":
        assert 0 <= float(found.min()) < float(found.max()) < 1
