"""Parts of a corpus's training data are nested, drawn by a seed, and leave what is held out alone."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.captions.table import Caption, Pair
from data.corpora import Corpus
from data.corpora.subset import training_subset
from data.errors import DataError

IMAGES, CAPTIONS = 20, 5


def corpus() -> Corpus:
    """Twenty training images with five captions in two languages, three of each held-out split, and some pairs."""
    captions = [
        Caption(f"{split}{image}", f"{split}{image}#{language}{number}", language, f"{number} of {image}", split)
        for split, count in (("train", IMAGES), ("val", 3), ("test", 3), ("translation", 3))
        for image in range(count)
        for language in ("en", "de")
        for number in range(CAPTIONS)
    ]
    pairs = [
        Pair(str(n), name, "train", "task1", {"en": "a", "de": "b"}) for n, name in enumerate(["train0", "x", None])
    ]
    pictures = {caption.image_id: Path(caption.image_id) for caption in captions}
    return Corpus(captions, pairs, pictures, None, "task", "label")


def training(part: Corpus) -> dict[tuple[str, str], set[str]]:
    """The training captions of each image and language."""
    found: dict[tuple[str, str], set[str]] = {}
    for caption in part.captions:
        if caption.split == "train":
            found.setdefault((caption.image_id, caption.language), set()).add(caption.caption_id)
    return found


@given(images=st.integers(1, IMAGES), captions=st.integers(1, CAPTIONS), seed=st.integers(0, 5))
def test_a_part_has_the_sizes_asked_for_and_lies_in_a_larger_one(images: int, captions: int, seed: int):
    part = training_subset(corpus(), images, captions, seed)
    assert len({image for image, _ in training(part)}) == images
    assert {len(found) for found in training(part).values()} == {captions}
    larger = training(training_subset(corpus(), min(images + 3, IMAGES), min(captions + 1, CAPTIONS), seed))
    assert all(found <= larger[key] for key, found in training(part).items())
    assert [row for row in part.captions if row.split != "train"] == [
        row for row in corpus().captions if row.split != "train"
    ]


def test_what_is_not_asked_for_stays_whole():
    assert training_subset(corpus(), None, None, 1) == corpus()
    assert len(training(training_subset(corpus(), None, 2, 1))) == 2 * IMAGES
    assert training_subset(corpus(), None, CAPTIONS + 9, 1) == corpus()


def test_another_seed_draws_others():
    drawn = {frozenset(training(training_subset(corpus(), 5, 1, seed))) for seed in range(4)}
    assert len(drawn) == 4


def test_pairs_and_pictures_of_images_that_are_left_out_go_with_them():
    kept = next(seed for seed in range(99) if ("train0", "en") in training(training_subset(corpus(), 5, 1, seed)))
    left = next(seed for seed in range(99) if ("train0", "en") not in training(training_subset(corpus(), 5, 1, seed)))
    for seed, expected in ((kept, ["train0", "x", None]), (left, ["x", None])):
        part = training_subset(corpus(), 5, 1, seed)
        assert [pair.image_id for pair in part.pairs] == expected
        assert ("train0" in part.pictures) is ("train0" in expected)
        assert {"val0", "test2", "translation1"} < part.pictures.keys()
        assert len(part.pictures) == 5 + 9


def test_an_image_that_is_held_out_too_keeps_its_picture():
    both = corpus()
    both = replace(both, captions=[*both.captions, replace(both.captions[0], split="val", caption_id="again")])
    for seed in range(9):
        assert "train0" in training_subset(both, 1, 1, seed).pictures


def test_more_images_than_there_are_is_refused():
    with pytest.raises(DataError, match=r"corpus\.images is 21, but the corpus has 20 training images"):
        training_subset(corpus(), 21, None, 1)
