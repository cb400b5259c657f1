"""Generated captions and baselines, scored against all captions of their image."""

from pathlib import Path

import numpy as np
import pytest

from data.captions.table import Caption, read_captions, write_captions
from data.pictures.regions import RegionStore, write_regions
from pipeline.analyses.generated import FREQUENT, NEAREST, caption_baselines, generated_scores

TRAINING = {"a": ["A dog runs.", "The dog runs fast!"], "b": ["A cat sleeps", "a dog runs"], "c": ["Two men sit there"]}
TEST = {"x": ["A dog runs", "a brown dog runs fast"], "y": ["two men sit here", "Men sit"]}
DIRECTIONS = {"a": [1, 0], "b": [0, 1], "c": [-1, 0], "x": [5, 1], "y": [-3, 0.5]}


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Captions and regions; x looks like a, y like c."""
    write_captions(
        [
            Caption(image, f"{image}#{number}", "en", text, split)
            for split, images in (("train", TRAINING), ("test", TEST))
            for image, texts in images.items() for number, text in enumerate(texts)
        ]
        + [Caption("x", "x#s", "en", "a synthetic sentence", "test", "mt:de-en")]
        + [Caption("x", "x#d", "de", "ein Hund", "test")],
        tmp_path / "captions.parquet",
    )  # fmt: skip
    boxes = np.tile([0, 0, 1, 1], (2, 1))
    regions = ((np.array([direction, direction]) * [[1.5], [0.5]], boxes) for direction in DIRECTIONS.values())
    write_regions(tmp_path / "regions", list(DIRECTIONS), regions)
    return tmp_path


def test_baselines_are_scored_as_generated_captions_are(corpus: Path) -> None:
    captions = read_captions(corpus / "captions.parquet")
    baselines = caption_baselines(corpus, "en")
    nearest = generated_scores(captions, "en", {"x": ["a", "dog", "runs"], "y": ["two", "men", "sit", "there"]})
    frequent = generated_scores(captions, "en", {"x": ["a", "dog", "runs"], "y": ["a", "dog", "runs"]})
    for name, expected in ((NEAREST, nearest), (FREQUENT, frequent)):
        assert baselines[name].figures() == pytest.approx(expected.figures())
        assert baselines[name].cider.shape == (2,)
    assert baselines[NEAREST].cider[1] > baselines[FREQUENT].cider[1] == 0
    assert baselines[NEAREST].bleu[0] == pytest.approx(100 * 6 / 7)  # all words but `there`
    assert len(RegionStore(corpus / "regions")) == 5


def test_captions_are_scored_in_any_order_and_an_empty_one_scores_nothing(corpus: Path) -> None:
    captions = read_captions(corpus / "captions.parquet")
    one = generated_scores(captions, "en", {"x": ["a", "dog"], "y": []})
    other = generated_scores(captions, "en", {"y": [], "x": ["a", "dog"]})
    assert one.cider.tolist() == other.cider.tolist()[::-1]
    assert one.cider[1] == 0 < one.cider[0]
