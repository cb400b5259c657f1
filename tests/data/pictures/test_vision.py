"""Regions by networks of `transformers`, tiny and with random weights: shapes, boxes, batches, errors."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import AutoConfig, AutoModelForObjectDetection, DetrImageProcessorPil

from data.errors import DataError
from data.pictures.extractor import Extractor, ExtractorSettings
from data.pictures.vision import VisionNetwork, copy_network
from tests.data.networks import BACKBONES, DETECTORS, make_network

SIZES = [(80, 50), (33, 90), (1, 1), (3, 1), (1, 400), (640, 480)]


@pytest.fixture(scope="module")
def networks(tmp_path_factory) -> dict[str, str]:
    """A folder of each kind."""
    root = tmp_path_factory.mktemp("networks")
    return {name: str(make_network(name, root / name)) for name in (*BACKBONES, *DETECTORS)}


def picture(size: tuple[int, int], seed: int = 0) -> Image.Image:
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    return Image.fromarray(pixels)


@pytest.mark.parametrize("name", [*BACKBONES, *DETECTORS])
def test_pictures_of_any_size_alone_as_together(networks: dict[str, str], name: str) -> None:
    """No picture of a batch changes another, be it by padding."""
    extractor = Extractor(ExtractorSettings(regions=5, model=networks[name]))
    pictures = [picture(size, seed) for seed, size in enumerate([*SIZES, (80, 50)])]
    together = extractor._described([extractor._look(one) for one in pictures])
    for one, (regions, boxes) in zip(pictures, together, strict=True):
        assert regions.shape == (5, 32)
        assert boxes.shape == (5, 4)
        assert regions.dtype == boxes.dtype == np.float32
        assert ((boxes >= 0) & (boxes <= 1)).all()
        assert (boxes[:, :2] <= boxes[:, 2:]).all()
        alone = extractor.extract(one)
        np.testing.assert_allclose(alone[0], regions, atol=1e-5)
        np.testing.assert_allclose(alone[1], boxes, atol=1e-5)
    assert np.abs(together[0][0] - together[-1][0]).max() > 1e-4  # other pixels, other regions


@pytest.mark.parametrize("name", BACKBONES)
def test_a_cell_is_described_by_its_own_pixels(name: str, tmp_path: Path) -> None:
    """Without layers that mix patches, a change in one corner reaches the regions whose boxes lie over it, no other."""
    network = VisionNetwork(str(make_network(name, tmp_path / name, layers=0)), 17)
    before = picture((32, 32))
    after = before.copy()
    after.paste((255, 0, 0), (24, 0, 32, 8))  # the upper right one of 4×4 patches
    (old, boxes), (new, _) = network([before]) + network([after])
    changed = np.abs(old - new).max(1) > 1e-5
    over = (boxes[:, 2] > 0.75) & (boxes[:, 1] < 0.25)
    assert over.sum() == 2  # it, and the whole picture
    assert changed[1:].tolist() == over[1:].tolist()
    assert boxes[0].tolist() == [0, 0, 1, 1]
    corners = np.sort(boxes[1:], axis=0)
    assert corners[0].tolist() == [0, 0, 0.25, 0.25]
    assert corners[-1].tolist() == [0.75, 0.75, 1, 1]


def test_a_coarser_grid_is_the_mean_of_its_patches(networks: dict[str, str]) -> None:
    fine = VisionNetwork(networks["siglip"], 17)([picture((50, 70))])[0][0]
    coarse = VisionNetwork(networks["siglip"], 5)([picture((50, 70))])[0][0]
    np.testing.assert_allclose(coarse[0], fine[0], atol=1e-6)
    cells = fine[1:].reshape(2, 2, 2, 2, -1).mean((1, 3)).reshape(4, -1)
    np.testing.assert_allclose(coarse[1:], cells, atol=1e-5)


@pytest.mark.parametrize("name", DETECTORS)
def test_the_surest_boxes_come_first_with_their_own_states(networks: dict[str, str], name: str) -> None:
    """Against the plain reading of the network's answer, query by query."""
    network = VisionNetwork(networks[name], 4)
    one = picture((60, 60))
    regions, boxes = network([one])[0]
    with torch.inference_mode():
        seen = network._network(pixel_values=network._pixels(one))
    answers = []
    for query in range(seen.logits.shape[1]):
        logits = seen.logits[0, query]
        sure = logits.softmax(0)[:-1].max() if name in ("detr", "yolos") else logits.sigmoid().max()
        x, y, width, height = seen.pred_boxes[0, query].tolist()
        box = np.clip([x - width / 2, y - height / 2, x + width / 2, y + height / 2], 0, 1)
        state = seen.last_hidden_state[0, seen.last_hidden_state.shape[1] - seen.logits.shape[1] + query]
        answers.append((float(sure), box, state.numpy()))
    answers.sort(key=lambda answer: -answer[0])
    for place, (_, box, state) in enumerate(answers[:4]):
        np.testing.assert_allclose(boxes[place], box, atol=1e-5)
        np.testing.assert_allclose(regions[place], state, atol=1e-5)


def test_a_store_leaves_out_nothing_and_names_what_cannot_be_read(networks: dict[str, str], tmp_path: Path) -> None:
    paths = []
    for number in range(20):
        paths.append(tmp_path / f"{number}.png")
        picture((40, 30), number).save(paths[-1])
    paths[7].write_bytes(b"no picture")
    extractor = Extractor(ExtractorSettings(regions=2, model=networks["detr"]))
    found = list(extractor.extract_readable(paths, 2))
    assert [place for place, one in enumerate(found) if isinstance(one, str)] == [7]
    assert "7.png: not a readable picture" in found[7]
    np.testing.assert_allclose(found[9][0], extractor.extract(paths[9])[0], atol=1e-5)


def test_a_copied_network_sees_the_same(networks: dict[str, str], tmp_path: Path) -> None:
    for name in ("clip", "detr"):
        copy_network(networks[name], tmp_path / name)
        old, new = (VisionNetwork(place, 5)([picture((50, 40))])[0] for place in (networks[name], str(tmp_path / name)))
        for one, other in zip(old, new, strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("name", "regions", "told"),
    [
        ("clip", 6, r"6 regions by .*expected one of 1, 2, 5, 10, 17"),
        ("clip", 26, "26 regions by"),
        ("detr", 13, "finds 12 boxes a picture"),
        ("text", 5, "no vision model of transformers there"),
        ("nowhere", 5, "no vision model of transformers there"),
        ("adapted", 5, r"no vision model of transformers there \(adapters are beside its weights; merge them"),
    ],
)
def test_what_does_not_fit_is_told_in_one_line(
    networks: dict[str, str], name: str, regions: int, told: str, tmp_path: Path
) -> None:
    place = networks.get(name) or str(tmp_path / name)
    if name == "text":
        make_network("text", tmp_path / name)
    elif name == "adapted":
        make_network("clip", tmp_path / name)
        (tmp_path / name / "adapter_config.json").write_text("{}")
    with pytest.raises(DataError, match=told) as caught:
        Extractor(ExtractorSettings(regions=regions, model=place))
    assert "\n" not in str(caught.value)
    assert "regions." in str(caught.value)


def test_a_classifier_without_a_pooler_gives_the_same_each_time(tmp_path: Path) -> None:
    """Weights that it lacks would be random, other ones in each process and in the copy of an export."""
    make_network("vit", tmp_path / "vit")
    copy_network(str(tmp_path / "vit"), tmp_path / "copy")
    one, other, copy = (
        VisionNetwork(str(tmp_path / place), 17)([picture((40, 40))])[0][0] for place in ("vit", "vit", "copy")
    )
    np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(one, copy)
    np.testing.assert_allclose(one[0], one[1:].mean(0), atol=1e-5)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("swin", "gives no state for each of its 64 patches"),
        ("masked", "gives no state for each of its 16 patches"),
        ("headless", "its weights lack .*; get one that is whole"),
    ],
)
def test_networks_of_another_kind_are_refused(name: str, told: str, tmp_path: Path) -> None:
    make_network(name, tmp_path / name)
    with pytest.raises(DataError, match=told):
        VisionNetwork(str(tmp_path / name), 5)


@pytest.mark.parametrize("change", [{"d_model": 64}, {"d_model": "wide"}, {"num_queries": None}])
def test_a_damaged_configuration_is_one_line(change: dict, tmp_path: Path) -> None:
    place = make_network("detr", tmp_path / "detr")
    config = json.loads((place / "config.json").read_text())
    (place / "config.json").write_text(json.dumps(config | change))
    with pytest.raises(DataError, match=r"regions\.model") as caught:
        VisionNetwork(str(place), 5)
    assert "\n" not in str(caught.value)


def test_a_detector_of_another_kind_is_one_line(tmp_path: Path) -> None:
    """One that finds lines of text gives a map, no boxes."""
    AutoModelForObjectDetection.from_config(AutoConfig.for_model("pp_ocrv5_mobile_det")).save_pretrained(tmp_path)
    DetrImageProcessorPil(size={"height": 64, "width": 64}).save_pretrained(tmp_path)
    with pytest.raises(DataError, match=r"^regions\.model .*: gives no boxes of a picture \(.*\); expected a detector"):
        VisionNetwork(str(tmp_path), None)
