"""Bounds of what the data report finds."""

from pathlib import Path

import numpy as np
import pytest

from data.captions.table import Caption
from data.pictures.regions import RegionStore, write_regions
from tests.data.findings.test_report import IMAGES, caption, clean, data_report, found, pair


def store(folder: Path, regions: list[np.ndarray], boxes: np.ndarray) -> RegionStore:
    write_regions(folder, list(IMAGES), ((one, boxes) for one in regions))
    return RegionStore(folder)


def test_features_of_many_zeros_or_below_zero_are_usual(tmp_path: Path) -> None:
    sparse, negative = np.zeros((2, 30)), np.full((2, 30), -1.0)
    sparse[:, 0] = 1
    regions = store(tmp_path, [sparse, negative, sparse, negative], np.array([[0, 0, 1, 1], [0.2, 0.1, 1, 1]]))
    assert data_report(clean(), [], regions).findings == []


def test_negative_numbers_too_small_for_float16_are_told(tmp_path: Path) -> None:
    tiny, usual = np.full((2, 3), -1e-6), np.ones((2, 3))
    regions = store(tmp_path, [usual, tiny, usual, usual], np.zeros((2, 4)))
    (finding,) = data_report(clean(), [], regions).findings
    assert "float16" in finding.what
    assert finding.examples == ["b (row 1, largest 1.0e-06)"]


@pytest.mark.parametrize(("box", "count"), [([0, 0, 1.1, 1], 4), ([-0.1, 0, 1, 1], 4), ([0, 0, 1.0005, 1], 0)])
def test_boxes_that_reach_over_one_edge_are_told(tmp_path: Path, box: list[float], count: int) -> None:
    regions = store(tmp_path, [np.ones((2, 3))] * 4, np.array([[0, 0, 1, 1], box]))
    assert [one.count for one in data_report(clean(), [], regions).findings] == [4] * (count > 0)


@pytest.mark.parametrize(("words", "level"), [(100, []), (101, ["warning"])])
def test_pairs_of_more_than_100_words_are_odd(words: int, level: list[str]) -> None:
    report = data_report([], [pair(None, "train", " ".join(f"w{n}" for n in range(words)), "kurz")], None)
    assert [finding[0] for finding in found(report)] == level


def test_the_sentence_of_most_images_is_the_first_example() -> None:
    two = [caption(image, "a red ball lies here", "train") for image in "ab"]
    three = [caption(image, "a dog runs over grass", "train") for image in "cde"]
    (finding,) = [one for one in data_report(two + three, [], None).findings if "several" in one.what]
    assert [example.split("’")[0] for example in finding.examples] == [
        "‘a dog runs over grass",
        "‘a red ball lies here",
    ]


def test_lengths_are_those_of_captions() -> None:
    captions = [Caption("a", f"{n}", "en", " ".join(["w"] * n), "train") for n in range(1, 101)]
    assert data_report(captions, [], None).lengths == [{"language": "en", "median": 50, "95 %": 95, "longest": 100}]


def test_what_was_left_out_is_told_as_a_warning() -> None:
    left = {name: [f"{name} line"] for name in ("missing", "stray", "unreadable", "half_quoted", "unnamed", "empty")}
    report = data_report(clean(), [], None, **left)
    assert {finding[0] for finding in found(report)} == {"warning"}
    assert sorted(one.examples[0] for one in report.findings) == sorted(f"{name} line" for name in left)
