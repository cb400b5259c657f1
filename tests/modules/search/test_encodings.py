"""Encodings of many items: what comes out is what went in, padded only where it is read."""

import pytest
import torch

from modules.search.encodings import Encodings


def items(lengths: list[int], seed: int = 0) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(length, 3, generator=generator) for length in lengths]


def padded(some: list[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.nn.utils.rnn.pad_sequence(some, batch_first=True), torch.nn.utils.rnn.pad_sequence(
        [torch.ones(len(one), dtype=torch.bool) for one in some], batch_first=True
    )


def same(one: tuple[torch.Tensor, torch.Tensor], other: tuple[torch.Tensor, torch.Tensor]) -> None:
    assert torch.equal(one[0], other[0])
    assert torch.equal(one[1], other[1])


@pytest.mark.parametrize("lengths", [[1, 1, 1, 1], [2, 5, 1, 3], [4, 4, 4, 4]])
def test_rows_are_padded_when_they_are_read(lengths: list[int]) -> None:
    whole = items(lengths)
    encodings = Encodings.of(padded(whole))
    assert len(encodings) == 4
    same(encodings[:], padded(whole))
    same(encodings[1:3], padded(whole[1:3]))
    rows = torch.tensor([3, 0, 3])
    same(encodings[rows], padded([whole[3], whole[0], whole[3]]))
    chosen = encodings.select(rows)
    assert chosen.vectors is encodings.vectors
    same(chosen.select(torch.tensor([1]))[:], padded([whole[0]]))
    for part, expected in zip(chosen.parts(), [whole[3], whole[0], whole[3]], strict=True):
        assert torch.equal(part, expected)


def test_joined_encodings_keep_their_order_and_what_was_selected() -> None:
    first, second = items([2, 1]), items([3, 1, 2], 1)
    joined = Encodings.joined([Encodings.of(padded(first)), Encodings.of(padded(second)).select(torch.tensor([2, 0]))])
    same(joined[:], padded([*first, second[2], second[0]]))
    three = Encodings.joined([Encodings.of(padded(part)) for part in (first, second, first)])
    same(three[:], padded([*first, *second, *first]))
    assert len(Encodings.joined([])) == 0


def test_single_vectors_are_not_copied_unless_they_are_chosen() -> None:
    encodings = Encodings.of(padded(items([1, 1, 1])))
    assert encodings.single() is encodings.vectors
    assert torch.equal(encodings.select(torch.tensor([2, 0])).single(), encodings.vectors[[2, 0]])
    assert torch.equal(encodings.select(slice(1, 3)).single(), encodings.vectors[1:])


def test_a_value_that_is_not_finite_stays_in_its_item() -> None:
    vectors = torch.full((3, 2), torch.nan)
    vectors[1:] = 1
    padded_rows, mask = Encodings.behind_each_other(vectors, torch.tensor([1, 1, 1]))[1:]
    assert padded_rows.isfinite().all()
    assert mask.all()
    uneven, _ = Encodings.behind_each_other(vectors, torch.tensor([2, 1]))[:]
    assert uneven[1, 1].tolist() == [0, 0]


def test_none_of_some_items() -> None:
    vectors, mask = Encodings.of((torch.ones(2, 1, 4), torch.ones(2, 1, dtype=torch.bool)))[:0]
    assert (tuple(vectors.shape), tuple(mask.shape)) == ((0, 1, 4), (0, 1))
