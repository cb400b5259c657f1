"""An index in several files: built one at a time, mapped from the disk, searched one after another."""

import json
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from modules.errors import ModelError
from modules.index import VectorIndex

ABOUT = "shards.json"


class ShardedIndex:
    """Vectors of several indexes, numbered through.

    Args:
        shards: in their order.
    """

    def __init__(self, shards: Sequence[VectorIndex]) -> None:
        self.shards = list(shards)

    def __len__(self) -> int:
        """Count the vectors."""
        return sum(map(len, self.shards))

    def search(self, queries: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Find the best k for each query, as `VectorIndex.search` does; rows are counted over all shards."""
        scores, rows, start = [], [], 0
        for shard in self.shards:
            found, places = shard.search(queries, k)
            scores.append(found)
            rows.append(torch.where(places < 0, places, places + start))
            start += len(shard)
        if len(scores) == 1:
            return scores[0], rows[0]
        best = torch.cat(scores, 1).topk(min(k, len(self)), 1)
        return best.values, torch.cat(rows, 1).gather(1, best.indices)

    @classmethod
    def load(cls, folder: Path, made_of: str, gpu: int | None = None) -> "ShardedIndex":
        """Open the shards of a folder, `0`, `1` …, each as `VectorIndex.load` does.

        Raises:
            ModelError: one is missing or damaged, or another checkpoint's.
        """
        try:
            count = int(json.loads((folder / ABOUT).read_text(encoding="utf-8"))["shards"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ModelError(f"index {folder}: not readable ({error!r}); build it again") from None
        return cls([VectorIndex.load(folder / str(number), made_of, gpu) for number in range(count)])
