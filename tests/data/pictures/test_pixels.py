"""Pictures of equal size: stored, read like regions, and read alone."""

import pickle
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from data.errors import DataError
from data.pictures.pixels import PixelExtractor, PixelStore, open_images, write_pixels
from data.pictures.regions import RegionStore, write_regions

SIZE = 8


@pytest.fixture
def pictures(tmp_path: Path) -> dict[str, Path]:
    """Of three sizes."""
    found, generator = {}, np.random.default_rng(0)
    for name, shape in (("wide", (10, 30, 3)), ("high", (40, 20, 3)), ("small", (4, 4, 3))):
        found[name] = tmp_path / f"{name}.png"
        Image.fromarray(generator.integers(0, 256, shape, dtype=np.uint8)).save(found[name])
    return found


def test_pictures_are_read_like_a_region_store_of_one_region(pictures: dict[str, Path], tmp_path: Path) -> None:
    write_pixels(tmp_path / "store", pictures, list(pictures), SIZE, "leave them")
    store = open_images(tmp_path / "store")
    assert isinstance(store, PixelStore)
    assert (len(store), store.num_regions, store.dim) == (3, 1, 3 * SIZE**2)
    assert "wide" in store
    assert store.file("regions.npy") == tmp_path / "store" / "pixels.npy"
    rows = store.rows(["small", "wide"])
    assert np.array_equal(store.take(rows)[:, 0], store.pixels_of(["small", "wide"]).reshape(2, -1))
    assert store.boxes[rows].tolist() == [[[0, 0, 1, 1]]] * 2
    copy = pickle.loads(pickle.dumps(store))  # for a worker process
    assert np.array_equal(copy.regions, store.regions)


def test_a_picture_alone_is_read_as_it_is_stored(pictures: dict[str, Path], tmp_path: Path) -> None:
    write_pixels(tmp_path / "store", pictures, list(pictures), SIZE, "leave them")
    store, extractor = PixelStore(tmp_path / "store"), PixelExtractor(SIZE)
    found = list(extractor.extract_readable([*pictures.values(), tmp_path / "none.png"], workers=1))
    assert found[-1] == f"{tmp_path / 'none.png'}: no such file"
    for row, one in enumerate(found[:-1]):
        assert not isinstance(one, str)
        assert np.array_equal(one[0], store.regions[row])
        assert np.array_equal(one[1], store.boxes[row])


def test_regions_are_opened_as_regions(tmp_path: Path) -> None:
    write_regions(tmp_path, ["a"], [(np.ones((2, 3)), np.zeros((2, 4)))])
    assert type(open_images(tmp_path)) is RegionStore


def test_a_picture_that_is_missing_or_a_store_that_is_damaged_is_one_line(
    pictures: dict[str, Path], tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=r"1 of 2 images have no picture, first 'none'; .*, or leave them$"):
        write_pixels(tmp_path / "store", pictures, ["wide", "none"], SIZE, "leave them")
    write_pixels(tmp_path / "store", pictures, ["wide"], SIZE, "leave them")
    with pytest.raises(DataError, match="image 'high' has no picture"):
        PixelStore(tmp_path / "store").pixels_of(["high"])
    (tmp_path / "store" / "ids.txt").write_text("wide\nhigh\n")
    with pytest.raises(DataError, match="2 ids for an array"):
        PixelStore(tmp_path / "store")
    (tmp_path / "store" / "pixels.npy").write_bytes(b"half")
    with pytest.raises(DataError, match=r"pixels\.npy: not readable"):
        PixelStore(tmp_path / "store")
