"""Shards are searched as one index would be."""

import json
from pathlib import Path

import pytest
import torch

from modules.errors import ModelError
from modules.search.index import VectorIndex
from modules.search.shards import ABOUT, ShardedIndex


def sharded(vectors: torch.Tensor, sizes: list[int]) -> ShardedIndex:
    return ShardedIndex([VectorIndex(part, gpu=-1) for part in vectors.split(sizes)])


@pytest.mark.parametrize("sizes", [[10], [4, 6], [1, 1, 8]])
@pytest.mark.parametrize("k", [1, 5, 10, 30])
def test_the_same_rows_and_scores(sizes: list[int], k: int) -> None:
    vectors, queries = torch.randn(10, 6), torch.randn(3, 6)
    scores, rows = VectorIndex(vectors, gpu=-1).search(queries, k)
    found = sharded(vectors, sizes)
    assert len(found) == 10
    others, places = found.search(queries, k)
    torch.testing.assert_close(others, scores)
    assert torch.equal(places, rows)


def test_places_that_hold_nothing_stay_behind() -> None:
    """An `ivf-pq` shard may give fewer than k."""

    class Short:
        def __len__(self) -> int:
            return 3

        def search(self, queries: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
            return torch.tensor([[0.5, -torch.inf, -torch.inf]]), torch.tensor([[2, -1, -1]])

    index = ShardedIndex([VectorIndex(torch.eye(2), gpu=-1), Short()])
    scores, rows = index.search(torch.tensor([[1.0, 0.0]]), 5)
    assert rows.tolist()[0][:3] == [0, 4, 1]
    assert rows.tolist()[0][3:] == [-1, -1]
    assert scores[0, 3] == -torch.inf


def test_what_is_missing_is_told(tmp_path: Path) -> None:
    VectorIndex(torch.eye(3), gpu=-1).save(tmp_path / "0", "a1")
    with pytest.raises(ModelError, match="not readable"):
        ShardedIndex.load(tmp_path, "a1", gpu=-1)
    (tmp_path / ABOUT).write_text(json.dumps({"shards": 2}))
    with pytest.raises(ModelError, match=r"/1: not readable"):
        ShardedIndex.load(tmp_path, "a1", gpu=-1)
    (tmp_path / ABOUT).write_text(json.dumps({"shards": 1}))
    assert len(ShardedIndex.load(tmp_path, "a1", gpu=-1)) == 3
