"""Regions found in pixels: their shapes, that they hit the objects, and any picture a user may have."""

import random
from collections import deque
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from data.corpora.scenes.corpus import draw_things
from data.corpora.scenes.grammar import COLOURS, SIZES, Thing
from data.corpora.scenes.render import render
from data.errors import DataError
from data.pictures.extractor import Extractor, ExtractorSettings
from data.pictures.images import picture_in
from data.pictures.objects import DIM, _components, _overlap, _steps
from data.pictures.regions import RegionStore

SETTINGS = ExtractorSettings()
EXTRACTOR = Extractor(SETTINGS)


def check(regions: np.ndarray, boxes: np.ndarray, count: int = SETTINGS.regions) -> None:
    assert regions.shape == (count, DIM)
    assert boxes.shape == (count, 4)
    assert regions.dtype == boxes.dtype == np.float32
    assert np.isfinite(regions).all()
    assert np.abs(regions).max() < 10
    assert ((boxes >= 0) & (boxes <= 1)).all()
    assert (boxes[:, :2] < boxes[:, 2:]).all()
    assert boxes[0].tolist() == [0, 0, 1, 1]


def scene(seed: int) -> tuple[Image.Image, np.ndarray]:
    return render(draw_things(random.Random(seed)), seed)


def test_proposals_hit_the_objects() -> None:
    hits = []
    for seed in range(150):
        image, true = scene(seed)
        regions, boxes = EXTRACTOR.extract(image)
        check(regions, boxes)
        hits += [max(_overlap(tuple(box), tuple(other)) for other in boxes[1:]) > 0.5 for box in true]
    assert np.mean(hits) >= 0.97


def test_the_middle_and_the_size_of_a_box_stand_out_in_single_numbers() -> None:
    """A linear layer reads them: of each group of steps one is highest, and it moves with the box."""
    boxes = np.array([[0.4, 0.4, 0.6, 0.6], [0.1, 0.4, 0.2, 0.6], [0.05, 0.05, 0.95, 0.95]], np.float32)
    across, down, side = np.split(_steps(boxes), [5, 10], axis=1)
    assert across.argmax(1).tolist() == [2, 0, 2]
    assert down.argmax(1).tolist() == [2, 2, 2]
    assert side.argmax(1).tolist() == [2, 2, 7]
    assert ((_steps(boxes) >= 0) & (_steps(boxes) <= 1)).all()


def nearest(things: list[Thing], seed: int) -> np.ndarray:
    """The descriptor of the region that fits the first object best."""
    image, true = render(things, seed)
    regions, boxes = EXTRACTOR.extract(image)
    return regions[int(np.argmax([_overlap(tuple(true[0]), tuple(box)) for box in boxes]))]


@pytest.mark.parametrize("senses", [("bat.animal", "bat.club"), ("nut.food", "nut.hex"), ("seal.wax", "seal.animal")])
def test_a_linear_rule_tells_senses_apart(senses: tuple[str, str]) -> None:
    rng = random.Random(0)

    def sample(sense: str, seed: int) -> np.ndarray:
        return nearest([Thing(sense, rng.choice(list(COLOURS)), rng.choice(list(SIZES)), "left")], seed)

    first, second = (np.stack([sample(sense, seed) for seed in range(32)]) for sense in senses)
    direction = first[:20].mean(0) - second[:20].mean(0)
    middle = (first[:20].mean(0) + second[:20].mean(0)) / 2
    right = np.concatenate([(first[20:] - middle) @ direction > 0, (second[20:] - middle) @ direction < 0])
    assert right.mean() >= 0.95


@pytest.mark.parametrize("count", [1, 2, 6, 9, 40])
def test_any_number_of_regions(count: int) -> None:
    check(*Extractor(ExtractorSettings(regions=count)).extract(scene(0)[0]), count)


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "YCbCr", "HSV", "I", "F", "I;16"])
def test_modes(mode: str) -> None:
    image = scene(1)[0]
    if mode == "I;16":
        changed = Image.fromarray(np.asarray(image.convert("L")).astype(np.uint16) * 256)
    else:
        changed = image.convert("L").convert(mode) if mode in ("I", "F", "LA") else image.convert(mode)
    assert changed.mode == mode
    regions, boxes = EXTRACTOR.extract(changed)
    check(regions, boxes)
    if mode == "I;16":  # not cut off at 255: the shapes of the whole picture are still there
        assert regions[0, :392] @ EXTRACTOR.extract(image.convert("L"))[0][0, :392] > 0.98


@pytest.mark.parametrize("size", [(1, 1), (2, 1), (1, 300), (3, 3), (17, 5), (2000, 30), (640, 480)])
@pytest.mark.parametrize("kind", ["constant", "noise"])
def test_tiny_constant_and_noisy_pictures(size: tuple[int, int], kind: str) -> None:
    shape = (size[1], size[0], 3)
    pixels = np.full(shape, 7) if kind == "constant" else np.random.default_rng(0).integers(0, 256, shape)
    check(*EXTRACTOR.extract(Image.fromarray(pixels.astype(np.uint8))))


def test_exif_turn(tmp_path: Path) -> None:
    image = scene(2)[0].crop((0, 0, 128, 96))
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was turned: show it turned by 90 degrees clockwise
    image.save(tmp_path / "turned.png", exif=exif)
    upright = image.transpose(Image.Transpose.ROTATE_270)
    uploaded = picture_in((tmp_path / "turned.png").read_bytes(), "turned.png")  # opened before it is extracted
    for picture in (tmp_path / "turned.png", uploaded):
        for mine, theirs in zip(EXTRACTOR.extract(picture), EXTRACTOR.extract(upright), strict=True):
            assert np.array_equal(mine, theirs)


def test_the_picture_itself_is_left_alone() -> None:
    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (600, 500, 3)).astype(np.uint8))
    before = image.tobytes()
    EXTRACTOR.extract(image)
    assert image.size == (500, 600)
    assert image.tobytes() == before


@pytest.fixture
def pictures(tmp_path: Path) -> dict[str, Path]:
    found = {}
    for seed in (5, 3, 4, 1):
        found[f"image {seed}"] = tmp_path / f"{seed}.png"
        scene(seed)[0].save(found[f"image {seed}"])
    return found


def test_store_is_the_same_for_any_number_of_workers(pictures: dict[str, Path], tmp_path: Path) -> None:
    for workers in (0, 2):
        EXTRACTOR.extract_all(pictures, tmp_path / str(workers), workers)
    store = RegionStore(tmp_path / "0")
    assert store.ids == list(pictures)
    assert (store.num_regions, store.dim) == (SETTINGS.regions, DIM)
    for name in ("regions.npy", "boxes.npy", "ids.txt"):
        assert (tmp_path / "0" / name).read_bytes() == (tmp_path / "2" / name).read_bytes()


@pytest.mark.parametrize("workers", [1, 2])
def test_an_unreadable_picture_is_named(pictures: dict[str, Path], tmp_path: Path, workers: int) -> None:
    bad = pictures["image 4"]
    bad.write_bytes(bad.read_bytes()[:500])
    with pytest.raises(DataError, match=r"4\.png: not a readable picture") as caught:
        EXTRACTOR.extract_all(pictures, tmp_path / "store", workers)
    assert "\n" not in str(caught.value)


def test_other_errors(tmp_path: Path) -> None:
    text = tmp_path / "text.png"
    text.write_text("no picture")
    with pytest.raises(DataError, match=r"text\.png: not a readable picture"):
        EXTRACTOR.extract(text)
    with pytest.raises(DataError, match=r"gone\.png: no such file"):
        EXTRACTOR.extract(tmp_path / "gone.png")
    with pytest.raises(DataError, match="no pictures"):
        EXTRACTOR.extract_all({}, tmp_path / "store", 0)
    with pytest.raises(DataError, match="regions 0"):
        Extractor(ExtractorSettings(regions=0))


def flood(mask: np.ndarray) -> list[tuple[int, int, int, int]]:
    """The slow, obvious twin of `_components`."""
    left = {(int(y), int(x)) for y, x in zip(*np.nonzero(mask), strict=True)}
    boxes = []
    while left:
        queue, part = deque([left.pop()]), []
        while queue:
            y, x = queue.popleft()
            part.append((y, x))
            for near in [(y + dy, x + dx) for dy in (-1, 0, 1) for dx in (-1, 0, 1)]:
                if near in left:
                    left.remove(near)
                    queue.append(near)
        ys, xs = zip(*part, strict=True)
        boxes.append((min(xs), min(ys), max(xs) + 1, max(ys) + 1))
    return boxes


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 14), st.integers(1, 14), st.floats(0, 1), st.integers(0, 10**6))
def test_components_equal_a_flood_fill(height: int, width: int, density: float, seed: int) -> None:
    mask = np.random.default_rng(seed).random((height, width)) < density
    assert sorted(_components(mask)) == sorted(flood(mask))
