"""Many vectors, searched whole and by lists of codes: time to build, bytes, time to search, and what is found.

The vectors lie around 20,000 centres. As in SAN's space (512 numbers) on real pictures, their variance falls from
direction to direction, so that 90 % of it lies in the first 70. Queries are copies of some vectors with as much noise
as vector. Machines differ and drift: only ratios count.
"""

import statistics
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from modules.search.index import VectorIndex

pytestmark = pytest.mark.benchmark
CENTRES, QUERIES = 20_000, 500


def noisy(vectors: Tensor, noise: float, spread: Tensor, generator: torch.Generator) -> Tensor:
    """Unit vectors and noise of that length, as one unit vector each."""
    return F.normalize(vectors + noise * spread * torch.randn(vectors.shape, generator=generator), dim=1)


def gallery_and_queries(count: int, dim: int) -> tuple[Tensor, Tensor, Tensor]:
    """Vectors (N, H), queries (Q, H) and the row (Q,) that each is a copy of."""
    generator = torch.Generator().manual_seed(0)
    spread = F.normalize(torch.exp(-torch.arange(dim) / 60), dim=0)
    centres = F.normalize(spread * torch.randn(CENTRES, dim, generator=generator), dim=1)
    gallery = torch.empty(count, dim)
    for part in gallery.split(50_000):
        chosen = torch.randint(CENTRES, (len(part),), generator=generator)
        part.copy_(noisy(centres[chosen], 0.7, spread, generator))
    right = torch.randperm(count, generator=generator)[:QUERIES]
    return gallery, noisy(gallery[right], 1.0, spread, generator), right


def seconds(index: VectorIndex, batches: Sequence[Tensor]) -> list[float]:
    """Of each batch, in ascending order."""
    spent = []
    for batch in batches:
        start = time.perf_counter()
        index.search(batch, 10)
        spent.append(time.perf_counter() - start)
    return sorted(spent)


@pytest.mark.parametrize(("count", "dim"), [(1_000_000, 256), (100_000, 1024)])
def test_many_vectors(count: int, dim: int, tmp_path: Path, capsys) -> None:
    gallery, queries, right = gallery_and_queries(count, dim)
    found, one, many = {}, {}, {}
    for kind in ("flat", "ivf-pq"):
        start = time.perf_counter()
        index = VectorIndex(gallery, kind, gpu=-1)
        built = time.perf_counter() - start
        batches = queries.split(100)
        found[kind] = torch.cat([index.search(batch, 10)[1] for batch in batches])
        single = seconds(index, queries[:200].split(1))
        one[kind], worst = statistics.median(single), single[-2]
        many[kind] = statistics.median(seconds(index, batches[:3]))
        index.save(tmp_path / kind, "benchmark")
        size = (tmp_path / kind / "index.faiss").stat().st_size
        (tmp_path / kind / "index.faiss").unlink()
        recalls = [100 * (found[kind][:, :k] == right[:, None]).any(1).float().mean().item() for k in (1, 5, 10)]
        with capsys.disabled():
            recall = " ".join(f"{value:.1f}" for value in recalls)
            print(f"\n{kind}, {count:,} vectors of {dim} numbers: built in {built:.0f} s, {size / count:.0f} bytes a "
                  f"vector ({size / 1e6:.0f} MB); one query p50 {1e3 * one[kind]:.1f} ms, p99 {1e3 * worst:.1f} ms, "
                  f"100 queries {1e3 * many[kind]:.0f} ms; R@1/5/10 {recall}")  # fmt: skip
        del index
    recall = (found["flat"][:, :, None] == found["ivf-pq"][:, None]).any(2).float().mean().item()
    with capsys.disabled():
        print(f"ivf-pq finds {100 * recall:.1f} % of flat's first 10; one query {one['flat'] / one['ivf-pq']:.0f} "
              f"times as fast, 100 queries {many['flat'] / many['ivf-pq']:.0f} times")  # fmt: skip
    assert recall >= 0.95
    assert one["ivf-pq"] < one["flat"]
    assert many["ivf-pq"] < many["flat"]
