"""Ranks of models that read regions, pictures or vectors are of the same images in the same order."""

from pathlib import Path

import numpy as np
import pytest

from data.captions.table import Caption, write_captions
from data.pictures.regions import write_regions
from pipeline.corpus.prepare import captioned_images
from pipeline.errors import RecipeError
from pipeline.retrieval.ranks import read_runs


def test_images_are_in_the_order_of_the_region_store(tmp_path: Path) -> None:
    splits = {"c": "test", "a": "train", "d": "test", "b": "test"}
    write_captions((Caption(name, f"{name}#0", "en", "a dog", split) for name, split in splits.items()),
                   tmp_path / "captions.parquet")  # fmt: skip
    one = (np.zeros((1, 2)), np.zeros((1, 4)))
    write_regions(tmp_path / "regions", ["b", "x", "d", "a", "c"], [one] * 5)
    assert captioned_images(tmp_path) == ["b", "d", "a", "c"]
    assert captioned_images(tmp_path, "test") == ["b", "d", "c"]


def test_ranks_in_another_order_are_refused(tmp_path: Path) -> None:
    for name, links in (("one", [0, 1]), ("other", [1, 0])):
        (tmp_path / name).mkdir()
        arrays = {
            "text_to_image": np.array([0, 1]),
            "image_to_text": np.array([0, 1]),
            "caption_image": np.array(links),
        }
        np.savez(tmp_path / name / "ranks-en.npz", **arrays)
    with pytest.raises(RecipeError, match="of another test"):
        read_runs([tmp_path / "one", tmp_path / "other"], ["en"])
