"""Multi30K's two tasks in one caption table: English and German x5 of task 2, French and Czech x1 of task 1."""

import os
from collections import Counter
from pathlib import Path

import pytest

from data.corpora.multi30k import Multi30kSettings, read
from data.errors import DataError
from data.findings.report import data_report
from tests.data.official import pack, write_text

IMAGES = {"train": ["t1.jpg", "t2.jpg", "t3.jpg"], "val": ["v1.jpg", "v2.jpg"], "test": ["e1.jpg", "e2.jpg"]}
FOUR = {"languages": ["en", "de", "fr", "cs"], "tasks": {"fr": "task1", "cs": "task1"}}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A data root: seven images, sentences that say where they stand (`task2 en3 of t1.jpg`)."""
    write_text(tmp_path, IMAGES, lambda task, language, number, image: f" {task} {language}{number} of {image} ")
    return tmp_path


def test_each_language_has_the_captions_of_its_task(root: Path) -> None:
    corpus = read(Multi30kSettings(**FOUR), root, root)
    each = {"en": 5, "de": 5, "fr": 1, "cs": 1}
    assert Counter((c.split, c.language) for c in corpus.captions) == {
        (split, language): count * len(images) for split, images in IMAGES.items() for language, count in each.items()
    }
    assert [c.text for c in corpus.captions[:12]] == [
        *(f"task2 {language}{number} of t1.jpg" for language in ("en", "de") for number in range(1, 6)),
        "task1 fr of t1.jpg", "task1 cs of t1.jpg",
    ]  # fmt: skip
    assert (corpus.task, corpus.tasks) == ("task2", {"fr": "task1", "cs": "task1"})
    assert corpus.captions[10].caption_id == "t1.jpg#fr1"
    raw = root / "multi30k" / "task1" / "raw"
    french = next(c for c in corpus.captions if c.image_id == "v2.jpg" and c.language == "fr")
    assert corpus.place(french, "fr") == f"{raw / 'val.fr.gz'}:2"
    assert corpus.pairs[0].texts == {one: f"task1 {one} of t1.jpg" for one in FOUR["languages"]}
    assert [one.what for one in data_report(corpus, None).errors] == []


def test_own_lists_find_captions_of_both_tasks_and_leak_nothing(root: Path) -> None:
    for split, images in (("train", ["t1.jpg", "v1.jpg"]), ("val", ["t2.jpg"]), ("test", ["e1.jpg", "t3.jpg"])):
        pack(root / "splits" / f"{split}.txt", images)
    corpus = read(Multi30kSettings(splits="splits", **FOUR), root, root)
    of_czech = {c.text: c.split for c in corpus.captions if c.language == "cs"}
    assert of_czech == {f"task1 cs of {image}": split for image, split in (
        ("t1.jpg", "train"), ("v1.jpg", "train"), ("t2.jpg", "val"), ("e1.jpg", "test"), ("t3.jpg", "test")
    )}  # fmt: skip
    trained = {pair.image_id for pair in corpus.pairs if pair.split == "train"}
    assert trained == {"t1.jpg", "v1.jpg"}


def test_an_empty_caption_of_task_1_is_left_out_with_its_place(root: Path) -> None:
    path = root / "multi30k" / "task1" / "raw" / "val.fr.gz"
    pack(path, ["", "quelque chose"])
    corpus = read(Multi30kSettings(**FOUR), root, root)
    assert [c.image_id for c in corpus.captions if c.split == "val" and c.language == "fr"] == ["v2.jpg"]
    assert corpus.empty == [f"{path}:1"]


def test_lists_of_the_tasks_must_be_the_same_for_one_language_too(root: Path) -> None:
    pack(root / "multi30k" / "task1" / "image_splits" / "train.txt", ["t1.jpg", "t3.jpg", "t2.jpg"])
    with pytest.raises(DataError, match=r"task1/image_splits/train\.txt:2: image 't3\.jpg', but 't2\.jpg' in"):
        read(Multi30kSettings(languages=["fr"], tasks={"fr": "task1"}), root, root)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"languages": ["en", "fr"]},
            r"task2 has no captions in 'fr'; it has en, de; for those of task1 set corpus\.tasks\.fr=task1",
        ),
        ({"languages": ["en", "ja"]}, "task2 has no captions in 'ja'; it has en, de$"),
        ({"tasks": {"de": "task3"}}, "task 'task3' is unknown; expected task1 or task2"),
        ({"tasks": {"fr": "task1"}}, r"tasks names 'fr', but languages are \['en', 'de'\]; add it or leave it out"),
    ],
)
def test_languages_and_tasks_that_do_not_fit(settings: dict, message: str, root: Path) -> None:
    with pytest.raises(DataError, match=message):
        read(Multi30kSettings(**settings), root, root)


@pytest.mark.skipif(
    not (Path(os.environ.get("BILDWORT_DATA", "nowhere")) / "flickr8k_overlap").is_dir(),
    reason="needs BILDWORT_DATA=FOLDER with multi30k/ and flickr8k_overlap/ in it",
)
def test_real_overlap_in_four_languages() -> None:
    root = Path(os.environ["BILDWORT_DATA"])
    corpus = read(Multi30kSettings(splits="flickr8k_overlap/splits", **FOUR), root, root)
    found = Counter((c.split, c.language) for c in corpus.captions)
    assert {language: found["test", language] for language in FOUR["languages"]} == {
        "en": 5000, "de": 5000, "fr": 1000, "cs": 1000,
    }  # fmt: skip
    assert (found["train", "cs"], found["val", "fr"]) == (5478, 500)
    held_out = {c.image_id for c in corpus.captions if c.split != "train"}
    assert not held_out & {pair.image_id for pair in corpus.pairs if pair.split == "train"}
