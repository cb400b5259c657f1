"""An index in several parts (shards), which are built, memory-mapped and searched one after another."""

import json
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from modules.errors import ModelError
from modules.search.index import VectorIndex

ABOUT = "shards.json"


class ShardedIndex:
    """Several indexes searched as one; rows are numbered over all shards.

    Args:
        shards: the indexes, in the order of their rows.

    Examples:
        >>> index = ShardedIndex([VectorIndex(torch.eye(3)[:2], gpu=-1), VectorIndex(torch.eye(3)[2:], gpu=-1)])
        >>> index.search(torch.tensor([[0.1, 0.0, 0.9]]), k=2)[1].tolist()  # row 2 is the first of the second shard
        [[2, 0]]
    """

    def __init__(self, shards: Sequence[VectorIndex]) -> None:
        self.shards = list(shards)

    def __len__(self) -> int:
        """Return the number of vectors."""
        return sum(map(len, self.shards))

    def search(self, queries: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Find the best k for each query like `VectorIndex.search`; rows are numbered over all shards."""
        scores, rows, start = [], [], 0
        for shard in self.shards:
            shard_scores, shard_rows = shard.search(queries, k)
            scores.append(shard_scores)
            rows.append(torch.where(shard_rows < 0, shard_rows, shard_rows + start))
            start += len(shard)
        if len(scores) == 1:
            return scores[0], rows[0]
        found = torch.cat(scores, 1)
        best = found.topk(min(k, found.shape[1]), 1)
        return best.values, torch.cat(rows, 1).gather(1, best.indices)

    @classmethod
    def load(cls, folder: Path, made_of: str, gpu: int | None = None) -> "ShardedIndex":
        """Load the shards `0`, `1` … of a folder, each with `VectorIndex.load`.

        Raises:
            ModelError: a shard is missing or damaged, or was built from another checkpoint.
        """
        try:
            count = int(json.loads((folder / ABOUT).read_text(encoding="utf-8"))["shards"])
            if count < 1:
                raise ValueError(f"{count} shards")
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise ModelError(f"index {folder}: not readable ({error!r}); build it again") from None
        return cls([VectorIndex.load(folder / str(number), made_of, gpu) for number in range(count)])
