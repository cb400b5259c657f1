"""Pictures as a dual encoder reads them: stored, read again, of any shape; what cannot be read is one line."""

import json
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from transformers import AutoImageProcessor

from data.errors import DataError
from data.pictures.network_pixels import NetworkPixels, write_network_pixels
from data.pictures.pixels import PixelStore, open_images
from tests.data.networks import make_network
from tests.modules.dual_networks import PATCH, SIDE, save

SHAPES = {"wide": (20, 30, 3), "high": (64, 16, 3), "small": (3, 4, 3), "grey": (20, 20), "clear": (20, 20, 4)}
EXTREME = [(1, 1), (1, 700), (700, 1), (2, 3000), (900, 13)]
NUMBERS = {"clip": 3 * SIDE**2, "siglip": 3 * SIDE**2, "siglip2": 6 * 3 * PATCH**2 + 2}


@pytest.fixture(scope="module")
def networks(tmp_path_factory) -> dict[str, Path]:
    return {kind: save(kind, tmp_path_factory.mktemp("networks") / kind) for kind in NUMBERS}


@pytest.fixture
def pictures(tmp_path: Path) -> dict[str, Path]:
    found, generator = {}, np.random.default_rng(0)
    for name, shape in SHAPES.items():
        found[name] = tmp_path / f"{name}.png"
        Image.fromarray(generator.integers(0, 256, shape, dtype=np.uint8)).save(found[name])
    return found


@pytest.mark.parametrize("kind", NUMBERS)
def test_a_store_has_what_a_picture_alone_is_read_as(
    networks: dict[str, Path], pictures: dict[str, Path], kind: str, tmp_path: Path
) -> None:
    reader = NetworkPixels(str(networks[kind]))
    assert reader.size == NUMBERS[kind]
    write_network_pixels(tmp_path / "store", reader, list(pictures), list(pictures.values()), 1)
    store = open_images(tmp_path / "store")
    assert isinstance(store, PixelStore)
    assert (store.ids, store.num_regions, store.dim) == (list(SHAPES), 1, NUMBERS[kind])
    assert store.regions.dtype == np.uint8
    for row, path in enumerate(pictures.values()):
        numbers, boxes = reader.extract(path)
        assert np.array_equal(numbers, store.regions[row])
        assert np.array_equal(boxes, [[0, 0, 1, 1]])
    copy = pickle.loads(pickle.dumps(store))  # for a worker process
    assert np.array_equal(copy.regions, store.regions)
    look = pickle.loads(pickle.dumps(reader._look))  # for a process that reads pictures
    assert np.array_equal(look(pictures["wide"])[0], store.regions[0])


@pytest.mark.parametrize("kind", NUMBERS)
def test_numbers_are_those_of_the_network_s_processor(
    networks: dict[str, Path], pictures: dict[str, Path], kind: str
) -> None:
    reader = NetworkPixels(str(networks[kind]))
    processor = AutoImageProcessor.from_pretrained(networks[kind], backend="pil")
    mean, deviation = np.array(processor.image_mean), np.array(processor.image_std)
    for name in ("wide", "high", "small"):
        read = processor(Image.open(pictures[name]), return_tensors="np")
        numbers = reader.extract(pictures[name])[0][0]
        if kind == "siglip2":
            high, wide = read["spatial_shapes"][0]
            assert numbers[-2:].tolist() == [high, wide]
            patches = numbers[:-2].reshape(6, -1, 3)
            ours, theirs = (patches / 255 - mean) / deviation, read["pixel_values"][0].reshape(6, -1, 3)
            count = high * wide
            assert 0 < count <= 6
            assert not patches[count:].any()
            np.testing.assert_allclose(ours[:count], theirs[:count], atol=1e-5)
        else:
            ours = (numbers.reshape(3, SIDE, SIDE) / 255 - mean[:, None, None]) / deviation[:, None, None]
            np.testing.assert_allclose(ours, read["pixel_values"][0], atol=1e-5)


@pytest.mark.parametrize("kind", NUMBERS)
@pytest.mark.parametrize("shape", EXTREME, ids=str)
def test_a_picture_of_any_shape_is_read(networks: dict[str, Path], kind: str, shape: tuple[int, int]) -> None:
    reader = NetworkPixels(str(networks[kind]))
    picture = Image.fromarray(np.full((*shape, 3), 200, dtype=np.uint8))
    numbers = reader.extract(picture)[0]
    assert numbers.shape == (1, NUMBERS[kind])
    if kind == "siglip2":
        high, wide = (int(number) for number in numbers[0, -2:])
        assert 0 < high * wide <= 6
        assert high == wide or (high > wide) == (shape[0] > shape[1])
        numbers = numbers[:, : high * wide * 3 * PATCH**2]
    assert (numbers == 200).all()


def test_a_picture_that_cannot_be_read_is_one_line(
    networks: dict[str, Path], pictures: dict[str, Path], tmp_path: Path
) -> None:
    reader = NetworkPixels(str(networks["clip"]))
    pictures["small"].write_bytes(b"no picture")
    pictures["grey"].unlink()
    for name in ("small", "grey"):
        with pytest.raises(DataError) as error:
            write_network_pixels(tmp_path / "store", reader, [name], [pictures[name]], 1)
        assert str(error.value).startswith(f"{pictures[name]}: ")
        assert "\n" not in str(error.value)
    with pytest.raises(DataError):
        reader.extract(pictures["small"])


@pytest.mark.parametrize("damage", ["none", "text", "cut", "lacking"])
def test_what_reads_no_pictures_is_one_line(networks: dict[str, Path], damage: str, tmp_path: Path) -> None:
    folder = tmp_path / "network"
    if damage == "text":
        make_network("text", folder)
    elif damage == "cut":
        shutil.copytree(networks["clip"], folder)
        (folder / "preprocessor_config.json").write_text("{")
    elif damage == "lacking":
        shutil.copytree(networks["clip"], folder)
        (folder / "preprocessor_config.json").unlink()
    with pytest.raises(DataError) as error:
        NetworkPixels(str(folder))
    assert str(error.value).startswith(f"vse.pretrained '{folder}': no image processor of transformers there (")
    assert "\n" not in str(error.value)
    assert ("copy that of the network that it was trained from" in str(error.value)) == (damage in ("text", "lacking"))


def test_more_patches_than_a_byte_counts_are_one_line(networks: dict[str, Path], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(networks["siglip2"], tmp_path / "network"))
    path = folder / "preprocessor_config.json"
    settings = json.loads(path.read_text())
    for patches, fits in ((2000, True), (4096, False)):
        path.write_text(json.dumps(settings | {"max_num_patches": patches}))
        target = Path(shutil.copytree(folder, tmp_path / str(patches)))
        if fits:
            picture = Image.fromarray(np.full((20, 640, 3), 200, dtype=np.uint8))
            numbers = NetworkPixels(str(target)).extract(picture)[0][0]
            assert int(numbers[-2]) * int(numbers[-1]) > 1900
        else:
            with pytest.raises(DataError, match=r"^vse\.pretrained '\S+': reads 4,096 patches of a picture; expected"):
                NetworkPixels(str(target))
