"""An index finds what all products find, whole or by lists of codes, and a folder that does not fit is one line."""

import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import faiss
import numpy
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import modules.search.index as index_module
from modules.errors import ModelError
from modules.search.index import VectorIndex

COUNT, DIM = 12_000, 32


def clustered(seed: int = 0) -> tuple[Tensor, Tensor]:
    """Vectors around 600 centres, and queries near some of them."""
    generator = torch.Generator().manual_seed(seed)
    centres = torch.randn(600, DIM, generator=generator)
    noise = torch.randn(COUNT, DIM, generator=generator)
    gallery = F.normalize(centres[torch.arange(COUNT) % 600] + 0.4 * noise, dim=1)
    return gallery, F.normalize(gallery[:200] + 0.05 * torch.randn(200, DIM, generator=generator), dim=1)


@pytest.fixture(scope="module")
def coded() -> VectorIndex:
    return VectorIndex(clustered()[0], "ivf-pq")


@pytest.fixture(scope="module")
def narrow() -> VectorIndex:
    """Looks into one list of many."""
    return VectorIndex(clustered()[0], "ivf-pq", nlist=256, nprobe=1, parts=4)


def recall(found: Tensor, expected: Tensor) -> float:
    """Share of the expected rows (Q, K) that were found."""
    return (expected[:, :, None] == found[:, None, :]).any(2).float().mean().item()


def test_a_flat_index_finds_the_best() -> None:
    generator = torch.Generator().manual_seed(0)
    gallery, queries = torch.randn(50, 8, generator=generator).half(), torch.randn(6, 8, generator=generator)
    index = VectorIndex(gallery, gpu=-1)
    scores, rows = index.search(queries, 5)
    expected = (queries @ gallery.float().T).topk(5)
    torch.testing.assert_close(scores, expected.values)
    assert torch.equal(rows, expected.indices)
    assert (len(index), index.dim) == (50, 8)
    assert index.search(queries, 99)[0].shape == (6, 50)
    assert torch.equal(index.vectors(), gallery.float())


def test_lists_of_codes_find_nearly_all_and_score_it_by_the_vectors(coded: VectorIndex) -> None:
    gallery, queries = clustered()
    exact = (queries @ gallery.T).topk(10)
    scores, rows = coded.search(queries, 10)
    assert recall(rows, exact.indices) > 0.95
    assert (scores.diff(dim=1) <= 0).all()
    torch.testing.assert_close(scores, (queries[:, None] * gallery[rows]).sum(2), atol=2e-3, rtol=0)
    assert recall(coded.search(queries, 1)[1], exact.indices[:, :1]) > 0.95
    torch.testing.assert_close(coded.vectors(), gallery, atol=1e-3, rtol=0)


def test_settings_are_taken(coded: VectorIndex, narrow: VectorIndex) -> None:
    gallery, queries = clustered()
    exact = (queries @ gallery.T).topk(100).indices  # of several centres
    assert recall(narrow.search(queries, 100)[1], exact) < 0.8 * recall(coded.search(queries, 100)[1], exact)


def test_a_list_that_is_short_is_filled_with_nothing(narrow: VectorIndex) -> None:
    scores, rows = narrow.search(clustered()[1], 1000)
    nothing = rows < 0
    assert nothing.any(1).all()
    assert scores[nothing].isneginf().all()
    assert scores[~nothing].isfinite().all()


@pytest.mark.parametrize("kind", ["flat", "ivf-pq"])
def test_a_saved_index_finds_the_same(kind: str, coded: VectorIndex, tmp_path: Path) -> None:
    gallery, queries = clustered()
    index = coded if kind == "ivf-pq" else VectorIndex(gallery, gpu=-1)
    index.save(tmp_path / "new" / "index", "a1")
    again = VectorIndex.load(tmp_path / "new" / "index", "a1", gpu=-1)
    for one, other in zip(index.search(queries, 7), again.search(queries, 7), strict=True):
        assert torch.equal(one, other)
    assert torch.equal(index.vectors(), again.vectors())
    about = json.loads((tmp_path / "new" / "index" / "index.json").read_text())
    assert (about["format"], about["kind"], about["vectors"], about["dim"]) == (1, kind, COUNT, DIM)
    assert about["made_of"] == "a1"


def saved(folder: Path) -> Path:
    VectorIndex(torch.eye(5), gpu=-1).save(folder, "a1")
    return folder


def test_an_index_of_another_checkpoint_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError) as caught:
        VectorIndex.load(saved(tmp_path), "b2")
    expected = f"index {tmp_path}: built from another checkpoint (a1 instead of b2); build it again"
    assert str(caught.value) == expected


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def one_byte_changed(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)


def of_another_format(path: Path) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": 7}))


def a_list(path: Path) -> None:
    path.write_text("[]")


@pytest.mark.parametrize(
    ("name", "spoil", "told"),
    [
        ("index.faiss", cut_short, "does not match its checksum"),
        ("index.faiss", one_byte_changed, "does not match its checksum"),
        ("index.faiss", Path.unlink, "No such file"),
        ("index.json", cut_short, "JSONDecodeError"),
        ("index.json", Path.unlink, "No such file"),
        ("index.json", of_another_format, "format 7, this code reads 1"),
        ("index.json", a_list, "TypeError"),
    ],
)
def test_a_folder_that_is_spoiled(tmp_path: Path, name: str, spoil, told: str) -> None:
    spoil(saved(tmp_path) / name)
    with pytest.raises(ModelError, match=rf"not readable .*{told}.*; build it again") as caught:
        VectorIndex.load(tmp_path, "a1")
    assert str(tmp_path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_indexes_on_a_gpu_share_its_memory_and_are_searched_one_at_a_time(monkeypatch) -> None:
    """FAISS's indexes on a GPU allow one search at a time; here a plain one stands for each."""
    inside, most, moved = [0], [0], []

    class OnGpu:
        def __init__(self, index) -> None:
            self._index = index

        def __getattr__(self, name: str):
            return getattr(self._index, name)

        def search(self, *args, **kwargs):
            inside[0] += 1
            most[0] = max(most[0], inside[0])
            time.sleep(0.02)
            inside[0] -= 1
            return self._index.search(*args, **kwargs)

    def to_gpu(memory, gpu: int, index) -> OnGpu:
        moved.append((memory, gpu))
        return OnGpu(index)

    index_module._memory_on.cache_clear()
    monkeypatch.setattr(faiss, "get_num_gpus", lambda: 2)
    monkeypatch.setattr(faiss, "StandardGpuResources", object, raising=False)
    monkeypatch.setattr(faiss, "index_cpu_to_gpu", to_gpu, raising=False)
    one, other, third = VectorIndex(torch.eye(5)), VectorIndex(torch.eye(5)), VectorIndex(torch.eye(5), gpu=1)
    assert [gpu for _, gpu in moved] == [0, 0, 1]
    assert moved[0][0] is moved[1][0] is not moved[2][0]
    assert not VectorIndex(torch.eye(5), gpu=-1)._on_gpu
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda index: index.search(torch.eye(5), 1)[1][:, 0].tolist(), [one, other] * 4))
    assert found == [[0, 1, 2, 3, 4]] * 8
    assert most == [1]
    assert third._on_gpu
    index_module._memory_on.cache_clear()


def test_what_does_not_fit_is_one_line() -> None:
    gallery = clustered()[0]
    with pytest.raises(ModelError, match=r"shape \(5,\), expected \(N, H\)"):
        VectorIndex(torch.ones(5))
    with pytest.raises(ModelError, match="vector 1 to index is not finite"):
        VectorIndex(torch.tensor([[1.0], [torch.inf]]))
    with pytest.raises(ModelError, match=r"needs 2496 vectors to train 64 centres, found 2495; use a flat index"):
        VectorIndex(gallery[:2495], "ivf-pq")
    with pytest.raises(ModelError, match=r"needs 19500 vectors to train 500 centres, found 12000"):
        VectorIndex(gallery, "ivf-pq", nlist=500)
    with pytest.raises(ModelError, match="parts 5; expected 1 or more, and parts a divisor of 32"):
        VectorIndex(gallery, "ivf-pq", parts=5)
    with pytest.raises(ModelError, match="nprobe 0"):
        VectorIndex(gallery, "ivf-pq", nprobe=0)
    index = VectorIndex(torch.eye(5), gpu=-1)
    with pytest.raises(ModelError, match=r"shape \(5,\), expected \(Q, 5\)"):
        VectorIndex(torch.eye(5), gpu=-1).search(torch.ones(5), 1)
    with pytest.raises(ModelError, match=r"shape \(2, 4\), expected \(Q, 5\)"):
        index.search(torch.ones(2, 4), 1)
    with pytest.raises(ModelError, match="k is 0"):
        index.search(torch.ones(2, 5), 0)


def test_an_index_of_nothing_finds_nothing() -> None:
    scores, rows = VectorIndex(torch.zeros(0, 4), gpu=-1).search(torch.ones(2, 4), 3)
    assert scores.shape == rows.shape == (2, 0)
    assert rows.dtype == torch.int64


def test_queries_that_are_not_finite_are_refused_and_k_may_be_numpys() -> None:
    index = VectorIndex(torch.eye(4), gpu=-1)
    assert index.search(torch.eye(4), numpy.int64(1))[1].flatten().tolist() == [0, 1, 2, 3]
    queries = torch.eye(4)
    queries[2, 1] = torch.nan
    with pytest.raises(ModelError, match="query 2 is not finite"):
        index.search(queries, 1)
    with pytest.raises(ModelError, match="query 0 is not finite"):  # in float32
        index.search(torch.tensor([[1e300, 0, 0, 0]], dtype=torch.float64), 1)


def test_arrays_of_numpy_and_names_of_folders_are_taken(tmp_path: Path) -> None:
    index = VectorIndex(torch.eye(3).numpy(), gpu=-1)
    index.save(str(tmp_path / "index"), "here")
    assert VectorIndex.load(str(tmp_path / "index"), "here", gpu=-1).search(torch.eye(3).numpy(), 1)[1].tolist() == [
        [0], [1], [2]
    ]  # fmt: skip
    with pytest.raises(ModelError, match=r"k is 1\.5; expected a whole number"):
        index.search(torch.eye(3), 1.5)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a device that is always full")
def test_a_full_disk_is_told_in_the_words_of_the_system(tmp_path: Path) -> None:
    (tmp_path / index_module._INDEX).symlink_to("/dev/full")
    with pytest.raises(OSError) as raised:
        VectorIndex(F.normalize(torch.randn(2000, 64)), "flat", gpu=-1).save(tmp_path, "model")
    assert raised.value.strerror == "No space left on device"
