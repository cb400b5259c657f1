"""FAISS indexes for inner-product search: exhaustive (`flat`) or compressed and approximate (`ivf-pq`).

`ivf-pq` is for millions of vectors. Vectors are rotated at random, so that all their parts have similar variance, and
assigned to `nlist` lists by k-means. A query searches the `nprobe` nearest lists: it finds the best 256 candidates by
codes of a few bytes and scores them again by their float16 vectors, so scores are correct to three digits.
"""

import errno
import hashlib
import json
import math
import re
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any, Literal, get_args

import faiss
import torch
from torch import Tensor

from modules.errors import ModelError

Kind = Literal["flat", "ivf-pq"]
GPU_MAX_K = 2048  # limit of FAISS on a GPU
CANDIDATES = 256  # candidates of each query that are scored again; more for a large k
LEAST, MOST = 39, 64  # training vectors for each k-means centre: FAISS warns about fewer; more only take time
CODES = 16  # k-means centres for each part of a vector, as a code of half a byte
BLOCK = 2**16  # vectors checked and added at a time, which limits memory in addition to the index
FORMAT = 1
_INDEX, _ABOUT = "index.faiss", "index.json"
_NO_LOCK: AbstractContextManager = nullcontext()  # on a CPU several threads may search at once


class VectorIndex:
    """An index of N vectors for inner-product search; `flat` runs on a GPU if FAISS finds one, `ivf-pq` on the CPU.

    Args:
        vectors: (N, H), of any float type and device; `flat` stores float32, `ivf-pq` float16.
        kind: `flat`, exhaustive and exact, or `ivf-pq`.
        gpu: number of the GPU; None: that of the vectors, else the first one, if FAISS finds any; -1: the CPU.
        nlist: number of `ivf-pq` lists; None: the power of two nearest to √N (1,024 for a million).
        nprobe: number of lists that a query searches, at most all; None: a quarter of them, but at least 128.
        parts: number of parts of a vector's code, half a byte each; a divisor of H; None: the largest divisor up to
            H / 4 (32 bytes for 256 dimensions).

    Raises:
        ModelError: the vectors are not a matrix, one is not finite, there are too few to train `ivf-pq`, or a
            setting is invalid for them.

    Examples:
        >>> index = VectorIndex(torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]]), gpu=-1)
        >>> scores, rows = index.search(torch.tensor([[0.0, 1.0]]), k=2)
        >>> rows.tolist(), [round(score, 2) for score in scores[0].tolist()]
        ([[2, 1]], [1.0, 0.8])
        >>> index.search(torch.tensor([[0.0, 1.0]]), k=9)[1].tolist()  # there are three
        [[2, 1, 0]]
    """

    def __init__(
        self, vectors: Tensor, kind: Kind = "flat", gpu: int | None = None, nlist: int | None = None,
        nprobe: int | None = None, parts: int | None = None,
    ) -> None:  # fmt: skip
        vectors = torch.as_tensor(vectors)  # NumPy's too
        if vectors.ndim != 2:
            raise ModelError(f"vectors to index have shape {tuple(vectors.shape)}, expected (N, H)")
        wrong = (~torch.cat([part.float().isfinite().all(dim=1) for part in vectors.split(BLOCK)])).nonzero()
        if len(wrong):
            raise ModelError(f"vector {int(wrong[0])} to index is not finite; expected finite values only")
        if kind not in get_args(Kind):
            raise ModelError(f"index of kind {kind!r}; expected one of {', '.join(get_args(Kind))}")
        self.kind, self._lock = kind, _NO_LOCK
        if kind == "flat":
            self._index: Any = faiss.IndexFlatIP(vectors.shape[1])
            self._to_gpu((vectors.device.index or 0) if gpu is None else gpu)
        else:
            self._index = _trained(vectors, nlist, nprobe, parts)
        for part in vectors.split(BLOCK):
            with self._lock:
                self._index.add(_float32(part))

    def __len__(self) -> int:
        """Return the number of vectors."""
        return int(self._index.ntotal)

    @property
    def dim(self) -> int:
        """H, size of a vector."""
        return int(self._index.d)

    def search(self, queries: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Find the best k for each query.

        Args:
            queries: (Q, H), of any float type and device.
            k: number of results; at most the number of vectors, and 2,048 on a GPU.

        Returns:
            scores (Q, k) float32 in descending order and rows (Q, k) int64 of the index, both on the CPU. If the
            searched lists of `ivf-pq` hold fewer than k vectors, the remaining rows are -1 and their scores -inf.

        Raises:
            ModelError: the queries do not have the size of the vectors or are not finite, or k is below 1.
        """
        queries = torch.as_tensor(queries)
        if queries.ndim != 2 or queries.shape[1] != self.dim:
            raise ModelError(f"queries have shape {tuple(queries.shape)}, expected (Q, {self.dim}) for this index")
        if k < 1 or k != int(k):
            raise ModelError(f"k is {k}; expected a whole number, 1 or more")
        if len(wrong := (~queries.float().isfinite().all(dim=1)).nonzero()):
            raise ModelError(f"query {int(wrong[0])} is not finite; expected finite values only")
        k = min(int(k), len(self), GPU_MAX_K if self._on_gpu else len(self))
        if k == 0:
            return torch.empty(len(queries), 0), torch.empty(len(queries), 0, dtype=torch.int64)
        parameters = None
        if self.kind == "ivf-pq":
            parameters = faiss.IndexRefineSearchParameters()
            parameters.k_factor = max(4, CANDIDATES / k)
        with self._lock:
            scores, rows = self._index.search(_float32(queries), k, params=parameters)
        row_numbers = torch.from_numpy(rows)
        return torch.from_numpy(scores).masked_fill(row_numbers < 0, -torch.inf), row_numbers

    def vectors(self) -> Tensor:
        """Return all stored vectors (N, H), float32 on the CPU."""
        stored = self._index if self.kind == "flat" else self._index.refine_index
        with self._lock:
            return torch.from_numpy(stored.reconstruct_n(0, len(self)))

    def save(self, folder: str | Path, made_of: str) -> None:
        """Write `index.faiss` and its description `index.json`.

        Args:
            folder: created if missing.
            made_of: fingerprint of the checkpoint that encoded the vectors.

        Raises:
            OSError: the disk is full.
        """
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        index = faiss.index_gpu_to_cpu(self._index) if self._on_gpu else self._index
        try:
            faiss.write_index(index, str(folder / _INDEX))
        except RuntimeError as error:  # FAISS does not give the system's error number
            reason = re.split(r"[:(] *", str(error).rstrip(") \n"))[-1]  # … 77779 != 235520 (No space left on device)
            raise OSError(errno.ENOSPC, reason, str(folder / _INDEX)) from None
        about = {
            "format": FORMAT, "kind": self.kind, "vectors": len(self), "dim": self.dim, "made_of": made_of,
            "sha256": _digest(folder / _INDEX),
        }  # fmt: skip
        (folder / _ABOUT).write_text(json.dumps(about, indent=1), encoding="utf-8")

    @classmethod
    def load(cls, folder: str | Path, made_of: str, gpu: int | None = None) -> "VectorIndex":
        """Load an index that `save` wrote.

        Args:
            folder: the folder given to `save`.
            made_of: fingerprint of the checkpoint that will encode the queries.
            gpu: as for the class.

        Raises:
            ModelError: a file is missing or damaged, or the vectors are from another checkpoint.
        """
        folder = Path(folder)
        try:
            about = json.loads((folder / _ABOUT).read_text(encoding="utf-8"))
            kind, checkpoint, digest = about["kind"], about["made_of"], about["sha256"]
            if about["format"] != FORMAT:
                raise ValueError(f"format {about['format']}, this code reads {FORMAT}")
            if checkpoint != made_of:
                raise ModelError(
                    f"index {folder}: built from another checkpoint ({checkpoint} instead of {made_of}); build it again"
                )
            if _digest(folder / _INDEX) != digest:  # before FAISS reads it without checks
                raise ValueError(f"{_INDEX} does not match its checksum")
            index = faiss.read_index(str(folder / _INDEX), faiss.IO_FLAG_MMAP_IFC)  # memory-mapped
        except ModelError:
            raise
        except (OSError, ValueError, KeyError, TypeError, RuntimeError) as error:  # RecursionError too
            raise ModelError(f"index {folder}: not readable ({error!r}); build it again") from None
        self = cls.__new__(cls)
        self.kind, self._index, self._lock = kind, index, _NO_LOCK
        if kind == "flat":
            self._to_gpu(gpu or 0)
        return self

    @property
    def _on_gpu(self) -> bool:
        return self._lock is not _NO_LOCK

    def _to_gpu(self, gpu: int) -> None:
        """Move the index to the GPU with this number, if it is not below 0 and FAISS finds any GPU."""
        if gpu >= 0 and faiss.get_num_gpus():
            memory, self._lock = _memory_on(gpu)
            self._index = faiss.index_cpu_to_gpu(memory, gpu, self._index)


@cache
def _memory_on(gpu: int) -> tuple[Any, AbstractContextManager]:
    """FAISS's working memory on a GPU, for all indexes there, and its lock: only one may use it at a time."""
    return faiss.StandardGpuResources(), Lock()


def _trained(vectors: Tensor, nlist: int | None, nprobe: int | None, parts: int | None) -> faiss.Index:
    """Return an empty IVF-PQ index trained on a sample of the vectors; ModelError if a setting is invalid."""
    count, dim = vectors.shape
    nlist = 2 ** round(math.log2(max(1, count)) / 2) if nlist is None else nlist
    nprobe = max(128, nlist // 4) if nprobe is None else nprobe
    if parts is None:
        parts = max(size for size in range(1, max(1, dim // 4) + 1) if dim % size == 0)
    if min(nlist, nprobe, parts) < 1 or dim % parts:
        raise ModelError(
            f"ivf-pq of vectors of {dim} dimensions: nlist is {nlist}, nprobe {nprobe}, parts {parts}; expected 1 or "
            f"more, and parts a divisor of {dim}"
        )
    centres = max(nlist, CODES)
    if count < LEAST * centres:
        raise ModelError(
            f"ivf-pq needs {LEAST * centres} vectors to train {centres} centres, found {count}; use a flat index"
        )
    index = faiss.index_factory(dim, f"RR{dim},IVF{nlist},PQ{parts}x4fs,Refine(SQfp16)", faiss.METRIC_INNER_PRODUCT)
    faiss.extract_index_ivf(index).nprobe = min(nprobe, nlist)
    sample = torch.randperm(count, generator=torch.Generator().manual_seed(0))[: MOST * centres]
    index.train(_float32(vectors[sample.to(vectors.device)]))
    return index


def _float32(vectors: Tensor) -> Any:
    """Return vectors as a contiguous float32 array on the CPU, as FAISS requires."""
    return vectors.detach().to("cpu", torch.float32).contiguous().numpy()


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
