"""Size augmentation: what stays was there, in its order; something always stays; shares are those asked for."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from modules.layers.augmentation import drop_regions, drop_words

SHARES = st.floats(0, 0.99)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000), items=st.integers(1, 6), regions=st.integers(1, 8), share=SHARES)
def test_some_real_regions_stay(seed: int, items: int, regions: int, share: float) -> None:
    torch.manual_seed(seed)
    mask = torch.rand(items, regions) < 0.5
    mask[:, torch.randint(regions, ())] = True
    before = mask.clone()
    kept = drop_regions(mask, share)
    assert kept.dtype == torch.bool
    assert not (kept & ~mask).any()
    assert kept.any(1).all()
    assert torch.equal(mask, before)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000), items=st.integers(1, 6), words=st.integers(1, 8), share=SHARES)
def test_some_words_stay_in_their_order_without_gaps(seed: int, items: int, words: int, share: float) -> None:
    torch.manual_seed(seed)
    lengths = torch.randint(1, words + 1, (items,))
    tokens = torch.arange(1, words + 1).repeat(items, 1) * (torch.arange(words) < lengths[:, None])
    shorter, left = drop_words(tokens, lengths, share)
    assert shorter.shape == tokens.shape
    assert left.device.type == "cpu"
    for row, (n, before) in enumerate(zip(left.tolist(), lengths.tolist(), strict=True)):
        said = shorter[row, :n].tolist()
        assert 1 <= n <= before
        assert said == sorted(set(said))  # words are their places: each at most once, in order
        assert set(said) <= set(range(1, before + 1))
        assert not shorter[row, n:].any()


def test_nothing_asked_for_changes_nothing() -> None:
    mask, tokens, lengths = torch.rand(3, 4) < 0.5, torch.randint(1, 9, (3, 4)), torch.tensor([4, 4, 4])
    state = torch.get_rng_state()
    assert drop_regions(mask, 0.0) is mask
    assert drop_words(tokens, lengths, 0.0) == (tokens, lengths)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("share", [0.2, 0.5, 0.9])
def test_the_share_is_that_asked_for_whatever_the_place(share: float) -> None:
    torch.manual_seed(0)
    kept = drop_regions(torch.ones(4000, 60, dtype=torch.bool), share)
    tokens, lengths = drop_words(torch.arange(1, 61).repeat(4000, 1), torch.full((4000,), 60), share)
    assert kept.float().mean().item() == pytest.approx(1 - share, abs=0.01)
    assert (kept.float().mean(0) - (1 - share)).abs().max() < 0.04
    assert lengths.float().mean().item() / 60 == pytest.approx(1 - share, abs=0.01)
    of_words = torch.bincount(tokens.flatten(), minlength=61)[1:] / 4000
    assert (of_words - (1 - share)).abs().max() < 0.04
    assert (kept[0] != kept[1]).any()  # each item has its own draw


def test_the_one_that_stays_of_few_is_any_of_them() -> None:
    torch.manual_seed(0)
    kept = drop_regions(torch.tensor([[True, True, False]]).repeat(2000, 1), 0.99)
    assert kept[:, :2].float().mean(0).tolist() == pytest.approx([0.5, 0.5], abs=0.05)
    assert not kept[:, 2].any()
