"""The region store: written, mapped, checked, and mapped again in a worker."""

import errno
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
from torch.utils.data import DataLoader, Dataset

from data.errors import DataError
from data.pictures.regions import RegionStore, standardise, write_regions

IDS = ["b.jpg", "a.jpg", "c.jpg"]
R, D = 4, 6


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    items = [(rng.normal(size=(R, D)), rng.random((R, 4))) for _ in IDS]
    write_regions(tmp_path / "store", IDS, items)
    return tmp_path / "store"


class Rows(Dataset):
    """Region vectors by row, as a DataLoader's worker reads them."""

    def __init__(self, store: RegionStore) -> None:
        self.store = store

    def __len__(self) -> int:
        return len(self.store)

    def __getitem__(self, row: int) -> np.ndarray:
        return np.array(self.store.regions[row])


def test_a_store_gives_zeros_for_no_image(folder: Path) -> None:
    store = RegionStore(folder)
    rows = store.rows([None, store.ids[2]])
    assert rows.tolist() == [-1, 2]
    taken = store.take(rows)
    assert not taken[0].any()
    assert np.array_equal(taken[1], store.regions[2])


def test_what_is_written_is_read(folder: Path) -> None:
    rng = np.random.default_rng(0)
    vectors, corners = rng.normal(size=(R, D)), rng.random((R, 4))
    store = RegionStore(folder)
    assert (len(store), store.num_regions, store.dim, store.ids) == (3, R, D, IDS)
    assert store.regions.dtype == np.float16
    assert store.boxes.dtype == np.float32
    np.testing.assert_array_equal(store.regions[0], vectors.astype(np.float16))
    np.testing.assert_array_equal(store.boxes[0], corners.astype(np.float32))


def test_rows_are_in_the_order_asked_for(folder: Path) -> None:
    store = RegionStore(folder)
    assert store.rows(["c.jpg", "b.jpg", "c.jpg"]).tolist() == [2, 0, 2]
    assert "a.jpg" in store
    assert "d.jpg" not in store


def test_an_unknown_image_is_named(folder: Path) -> None:
    with pytest.raises(DataError, match=r"image 'd\.jpg' has no regions"):
        RegionStore(folder).rows(["a.jpg", "d.jpg"])


def test_a_pickled_store_is_its_folder_and_maps_again(folder: Path) -> None:
    store = RegionStore(folder)
    pickled = pickle.dumps(store)
    assert len(pickled) < 1000  # the arrays stay on disk
    again = pickle.loads(pickled)
    assert isinstance(again.regions, np.memmap)
    np.testing.assert_array_equal(again.regions, store.regions)
    assert again.rows(["c.jpg"]).tolist() == [2]


@pytest.mark.whole
def test_a_spawned_worker_opens_the_store_itself(folder: Path) -> None:
    store = RegionStore(folder)
    loader = DataLoader(Rows(store), batch_size=3, num_workers=1, multiprocessing_context="spawn")
    np.testing.assert_array_equal(next(iter(loader)).numpy(), store.regions)


@pytest.mark.parametrize("name", ["regions.npy", "boxes.npy", "ids.txt"])
def test_a_missing_file_is_named(name: str, folder: Path) -> None:
    (folder / name).unlink()
    with pytest.raises(DataError, match=f"{name}: no such file"):
        RegionStore(folder)


@pytest.mark.parametrize("damage", ["empty", "cut", "no array", "pickle", "npz"])
def test_a_damaged_array_is_refused(damage: str, folder: Path) -> None:
    path = folder / "regions.npy"
    whole = path.read_bytes()
    if damage == "npz":
        with path.open("wb") as file:
            np.savez(file, regions=np.ones((3, R, D)))
    elif damage == "pickle":
        np.save(path, np.array([{}], dtype=object))
    else:
        path.write_bytes({"empty": b"", "cut": whole[:-3], "no array": b"hello" * 9}[damage])
    with pytest.raises(DataError, match=r"regions\.npy: not a readable \.npy file"):
        RegionStore(folder)


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        ("regions.npy", np.ones((3, R, D), np.float32), "type float32, expected float16"),
        ("regions.npy", np.ones((3, D), np.float16), r"shape \(3, 6\), expected \(images, regions, features\)"),
        ("regions.npy", np.ones((3, 0, D), np.float16), "expected .images, regions, features"),
        ("boxes.npy", np.ones((3, R, 5), np.float32), r"shape \(3, 4, 5\), expected \(3, 4, 4\)"),
        ("boxes.npy", np.ones((2, R, 4), np.float32), r"shape \(2, 4, 4\), expected \(3, 4, 4\)"),
    ],
)
def test_types_and_shapes_must_fit(name: str, array: np.ndarray, message: str, folder: Path) -> None:
    np.save(folder / name, array)
    with pytest.raises(DataError, match=message):
        RegionStore(folder)


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (b"b.jpg\na.jpg\n", "2 ids for 3 rows"),
        (b"b.jpg\n\nc.jpg\n", r"ids\.txt:2: empty line"),
        (b"b.jpg\nc.jpg\nb.jpg\n", r"ids\.txt:3: 'b\.jpg' stands on line 1 already"),
        (b"b.jpg\n\xff.jpg\nc.jpg\n", r"ids\.txt:2: not UTF-8"),
    ],
)
def test_ids_must_be_unique_and_one_a_row(ids: bytes, message: str, folder: Path) -> None:
    (folder / "ids.txt").write_bytes(ids)
    with pytest.raises(DataError, match=message):
        RegionStore(folder)


@pytest.mark.parametrize(
    ("ids", "read"),
    [
        (b"\xef\xbb\xbfb.jpg\r\n a.jpg \r\nc.jpg\r\n", IDS),  # as Windows writes it
        (b"b.jpg\na.jpg\nc.jpg", IDS),
        ("b\u2028.jpg\na\x85.jpg\nc\x0c.jpg\n".encode(), ["b\u2028.jpg", "a\x85.jpg", "c\x0c.jpg"]),
    ],
)
def test_only_a_newline_ends_an_id(ids: bytes, read: list[str], folder: Path) -> None:
    (folder / "ids.txt").write_bytes(ids)
    assert RegionStore(folder).ids == read


@pytest.mark.parametrize("name", ["regions.npy", "boxes.npy"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_values_that_are_not_finite_are_found(name: str, value: float, folder: Path, monkeypatch) -> None:
    monkeypatch.setattr("data.pictures.regions._BLOCK", 2)  # the bad row is in the second block
    array = np.load(folder / name)
    array[2, 1, 3] = value
    np.save(folder / name, array)
    with pytest.raises(DataError, match=rf"{name}: NaN or infinity in row 2 \(image 'c\.jpg'\)"):
        RegionStore(folder)
    assert len(RegionStore(folder, check_values=False)) == 3


@pytest.mark.parametrize("shape", [(R - 1, D), (1, D), (R, D + 1)])
def test_images_with_other_regions_are_not_written(shape: tuple[int, int], tmp_path: Path) -> None:
    items = [(np.ones((R, D)), np.ones((R, 4))), (np.ones(shape), np.ones((shape[0], 4)))]
    with pytest.raises(DataError, match="image 'y' has regions and boxes"):
        write_regions(tmp_path, ["x", "y"], items)


@pytest.mark.parametrize("count", [1, 3])
def test_ids_and_items_must_be_as_many(count: int, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="zip"):
        write_regions(tmp_path, ["x", "y"], [(np.ones((R, D)), np.ones((R, 4)))] * count)


def test_without_training_images_there_is_no_scale(tmp_path):
    write_regions(tmp_path, ["x"], [(np.ones((R, D)), np.ones((R, 4)))])
    with pytest.raises(DataError, match="no training image"):
        standardise(tmp_path, [])


def test_standardise_brings_each_number_to_unit_scale_by_training_images_alone(tmp_path):
    generator = np.random.default_rng(0)
    spread = np.array([20.0, 2.0, 1.0, 0.0])  # the last number never moves
    arrays = [(5 + spread * generator.standard_normal((3, 4)), np.zeros((3, 4))) for _ in range(40)]
    ids = [f"image{n}" for n in range(40)]
    write_regions(tmp_path, ids, arrays)
    before = RegionStore(tmp_path).regions.astype(np.float64)
    standardise(tmp_path, ids[:30])
    after = RegionStore(tmp_path).regions.astype(np.float64)
    mean, deviation = before[:30].mean((0, 1)), before[:30].std((0, 1))
    floor = 0.1 * np.sqrt((deviation**2).mean())
    assert deviation[2] > floor > deviation[3]
    scale = np.maximum(deviation, floor)
    np.testing.assert_allclose(after, (before - mean) / scale, atol=1e-2)
    np.testing.assert_allclose(after[:30].std((0, 1))[:3], 1, atol=1e-2)
    with np.load(tmp_path / "standard.npz") as kept:
        np.testing.assert_allclose(kept["mean"], mean, rtol=1e-3)
        np.testing.assert_allclose(kept["scale"], scale, rtol=1e-3)


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="no way here to take space beforehand")
def test_space_is_taken_before_the_first_row_so_that_a_full_disk_is_an_error_and_no_crash(
    tmp_path: Path, monkeypatch
) -> None:
    taken = []

    def full(file: int, start: int, size: int) -> None:
        taken.append(size)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match="No space left"):
        write_regions(tmp_path, IDS, [(np.ones((R, D)), np.ones((R, 4)))] * 3)
    assert taken[0] > 3 * R * D * 2
    assert not np.load(tmp_path / "regions.npy").any()


def test_a_number_that_float16_cannot_hold_is_not_written(tmp_path: Path) -> None:
    boxes = np.tile([0.0, 0.0, 1.0, 1.0], (2, 1))
    for number in (7e4, np.nan):
        with pytest.raises(DataError, match=r"image 'b' has a number that is not finite, or beyond ±65504"):
            write_regions(tmp_path / "store", ["a", "b"], [(np.ones((2, 3)), boxes), (np.full((2, 3), number), boxes)])
