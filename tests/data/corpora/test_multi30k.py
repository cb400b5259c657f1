"""Multi30K: made-up files in the official layout, every complaint, and the real thing where it is at hand."""

import gzip
import os
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from data.captions.table import Pair
from data.corpora.multi30k import ORIGINALS, Multi30kSettings, read, sources
from data.errors import DataError
from data.pictures.regions import write_regions
from tests.data.official import LANGUAGES, pack, write_text

IMAGES = {"train": ["t1.jpg", "t2.jpg", "t3.jpg", "t4.jpg"], "val": ["v1.jpg", "v2.jpg"], "test": ["e1.jpg", "e2.jpg"]}


def split_lists(folder: Path, **images: list[str]) -> str:
    """Lists of images in folder/splits; those not in `images` have one of their own."""
    for split, other in (("train", "t4.jpg"), ("val", "v2.jpg"), ("test", "e2.jpg")):
        pack(folder / "splits" / f"{split}.txt", images.get(split, [other]))
    return "splits"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A data root: eight images, sentences that say where they stand (`task2 en3 of t1.jpg`)."""
    write_text(tmp_path, IMAGES, lambda task, language, number, image: f" {task} {language}{number} of {image} ")
    return tmp_path


def test_official_split_task2(root: Path) -> None:
    corpus = read(Multi30kSettings(), root, root)
    assert Counter((c.split, c.language) for c in corpus.captions) == {
        (split, language): 5 * len(images) for split, images in IMAGES.items() for language in ("en", "de")
    }
    first = corpus.captions[0]
    assert (first.caption_id, first.text, first.source) == ("t1.jpg#en1", "task2 en1 of t1.jpg", "human")
    assert len({c.caption_id for c in corpus.captions}) == len(corpus.captions)
    assert [(p.split, p.image_id) for p in corpus.pairs] == [(s, i) for s, images in IMAGES.items() for i in images]
    assert corpus.pairs[0].texts == {"en": "task1 en of t1.jpg", "de": "task1 de of t1.jpg"}
    assert (corpus.task, corpus.label, corpus.regions, corpus.pictures) == ("task2", "Multi30K", None, {})


def test_hidden_files_decide_nothing(root: Path) -> None:
    settings = Multi30kSettings(splits=split_lists(root))
    before = sources(settings, root)
    for place in ("multi30k/.DS_Store", "multi30k/.git/config", "splits/.swp"):
        (root / place).parent.mkdir(exist_ok=True)
        (root / place).write_text("hidden")
    assert sources(settings, root) == before
    (root / "multi30k" / "shown").write_text("not hidden")
    assert len(sources(settings, root)) == len(before) + 1


def test_task1_in_four_languages(root: Path) -> None:
    corpus = read(Multi30kSettings(task="task1", languages=["en", "de", "fr", "cs"]), root, root)
    assert len(corpus.captions) == 4 * 8
    assert corpus.captions[2].caption_id == "t1.jpg#fr1"
    assert set(corpus.pairs[0].texts) == {"en", "de", "fr", "cs"}


def test_task1_never_opens_task2(root: Path) -> None:
    for path in (root / "multi30k" / "task2" / "raw").iterdir():
        path.unlink()
    assert len(read(Multi30kSettings(task="task1"), root, root).captions) == 2 * 8


def test_one_language_has_no_pairs(root: Path) -> None:
    corpus = read(Multi30kSettings(languages=["de"]), root, root)
    assert corpus.pairs == []
    assert {c.language for c in corpus.captions} == {"de"}


def test_the_first_validation_images_select_and_the_others_are_the_test(root: Path) -> None:
    corpus = read(Multi30kSettings(validation_images=1), root, root)
    split_of = {caption.image_id: caption.split for caption in corpus.captions}
    assert split_of == dict.fromkeys(IMAGES["train"], "train") | {"v1.jpg": "val", "v2.jpg": "test"}
    assert {(pair.image_id, pair.split) for pair in corpus.pairs} == set(split_of.items())  # e1, e2 train nothing


def test_own_lists_find_captions_in_any_official_file_and_leak_nothing(root: Path) -> None:
    splits = split_lists(root, train=["t1.jpg"], val=["t2.jpg", "v1.jpg"], test=["e1.jpg", "t3.jpg"])
    corpus = read(Multi30kSettings(splits=splits), root, root)
    of_image = {c.image_id: c.split for c in corpus.captions}
    assert of_image == {"t1.jpg": "train", "t2.jpg": "val", "v1.jpg": "val", "e1.jpg": "test", "t3.jpg": "test"}
    assert [c.text for c in corpus.captions if c.caption_id == "t3.jpg#de5"] == ["task2 de5 of t3.jpg"]
    # t4 is official training text without a region; v2 and e2 are official val and test and in no list: nobody's.
    assert {p.image_id: p.split for p in corpus.pairs} == of_image | {"t4.jpg": "train"}
    trained = " ".join(" ".join(p.texts.values()) for p in corpus.pairs if p.split == "train")
    assert not any(image_id in trained for image_id in ("t2", "t3", "v1", "v2", "e1", "e2"))


def test_regions_and_pictures(root: Path) -> None:
    pack(root / "pictures" / "t1.jpg", ["not looked at"])
    pack(root / "pictures" / "other.jpg", ["not looked at"])
    corpus = read(Multi30kSettings(regions="features", pictures="pictures"), root, root)
    assert corpus.regions == root / "features"
    assert corpus.pictures == {"t1.jpg": root / "pictures" / "t1.jpg"}


def test_parallel_text_is_about_no_image(root: Path) -> None:
    pack(root / "tatoeba" / "x.tsv.gz", ["Hi.\tHallo!", "\tNichts.", "Run!\tLauf!\tCC-BY by someone"])
    corpus = read(Multi30kSettings(parallel="tatoeba/x.tsv.gz"), root, root)
    assert [p for p in corpus.pairs if p.image_id is None] == [
        Pair("tatoeba#1", None, "train", "tatoeba", {"en": "Hi.", "de": "Hallo!"}),
        Pair("tatoeba#3", None, "train", "tatoeba", {"en": "Run!", "de": "Lauf!"}),
    ]


def test_captions_of_training_images_as_rows_of_one_side(root: Path) -> None:
    """For back-translation: none about an image that is held out, whatever its official split."""
    splits = split_lists(root, train=["t1.jpg", "v1.jpg"], val=["t2.jpg"], test=["e1.jpg", "t3.jpg"])
    pack(root / "multi30k" / "task2" / "raw" / "val.2.de.gz", ["  ", "etwas"])
    whole, plain = (read(Multi30kSettings(splits=splits, monolingual=said), root, root) for said in (["de"], []))
    rows = [pair for pair in whole.pairs if pair.origin == "task2"]
    assert [pair for pair in whole.pairs if pair not in rows] == plain.pairs
    assert Counter(pair.image_id for pair in rows) == {"t1.jpg": 5, "t4.jpg": 5, "v1.jpg": 4}
    assert rows[1] == Pair("task2#t1.jpg#de2", "t1.jpg", "train", "task2", {"de": "task2 de2 of t1.jpg"})
    raw = root / "multi30k" / "task2" / "raw"
    assert whole.place(rows[-1], "de") == f"{raw / 'val.5.de.gz'}:1"
    assert f"{raw / 'val.2.de.gz'}:1" in whole.empty


def test_only_a_newline_ends_a_line(root: Path) -> None:
    odd = ["a\u2028b", "c\x85d", "e\x0cf\r", "g"]
    pack(root / "multi30k" / "task2" / "raw" / "train.1.en.gz", odd)
    corpus = read(Multi30kSettings(), root, root)
    texts = [c.text for c in corpus.captions if c.split == "train" and c.caption_id.endswith("#en1")]
    assert texts == [line.strip() for line in odd]


def test_empty_captions_are_left_out(root: Path) -> None:
    pack(root / "multi30k" / "task2" / "raw" / "val.2.de.gz", ["  ", "etwas"])
    pack(root / "multi30k" / "task1" / "raw" / "val.de.gz", ["", "etwas"])
    corpus = read(Multi30kSettings(), root, root)
    assert [c.caption_id for c in corpus.captions if c.image_id == "v1.jpg" and c.language == "de"] == [
        f"v1.jpg#de{number}" for number in (1, 3, 4, 5)
    ]
    assert [p.image_id for p in corpus.pairs if p.split == "val"] == ["v2.jpg"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"task": "task3"}, "task 'task3' is unknown; expected task1 or task2"),
        ({"languages": ["en", "fr"]}, "task2 has no captions in 'fr'; it has en, de"),
        ({"languages": ["en", "en"]}, "each once"),
        ({"languages": []}, "one or more"),
        ({"languages": ["de"], "parallel": "x.tsv"}, "parallel is English and German"),
        (
            {"task": "task1", "languages": ["en", "fr"], "monolingual": ["fr"]},
            "monolingual has 'fr'; expected some of en",
        ),
        ({"languages": ["en"], "monolingual": ["de"]}, "monolingual has 'de'; expected some of en"),
        ({"pictures": "nowhere"}, "nowhere: no such folder"),
        ({"validation_images": 2}, "validation_images is 2; expected 1 to 1, for the official validation split has 2"),
        ({"validation_images": 1, "splits": "splits"}, "splits and validation_images are both set; leave one out"),
        ({"splits": "nowhere"}, r"nowhere/train\.txt: no such file"),
        ({"parallel": "nowhere.tsv"}, r"nowhere\.tsv: no such file"),
    ],
)
def test_settings_that_do_not_fit(settings: dict, message: str, root: Path) -> None:
    with pytest.raises(DataError, match=message):
        read(Multi30kSettings(**settings), root, root)


def test_no_data_root(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"set BILDWORT_DATA=FOLDER or pass --corpus\.root"):
        read(Multi30kSettings(), None, tmp_path)


def test_a_missing_file_says_where_the_originals_are(root: Path) -> None:
    (root / "multi30k" / "task2" / "raw" / "test_2016.4.de.gz").unlink()
    with pytest.raises(DataError, match=rf"test_2016\.4\.de\.gz: no such file.*{ORIGINALS}"):
        read(Multi30kSettings(), root, root)
    (root / "multi30k" / "task2" / "image_splits" / "train_images.txt").unlink()
    with pytest.raises(DataError, match=rf"train_images\.txt: no such file.*{ORIGINALS}"):
        read(Multi30kSettings(), root, root)


def test_a_region_store_of_other_images_is_refused(root: Path) -> None:
    write_regions(root / "features", ["t1"], [(np.ones((1, 2)), np.array([[0, 0, 1, 1]]))])
    with pytest.raises(DataError, match=r"features: no image of the lists, first 't1.jpg'; the first .* is 't1'"):
        read(Multi30kSettings(regions="features", without_regions="text"), root, root)


def test_files_with_other_line_counts(root: Path) -> None:
    pack(root / "multi30k" / "task2" / "raw" / "train.3.en.gz", ["only", "two"])
    with pytest.raises(DataError, match=r"train\.3\.en\.gz: 2 lines for 4 images in image_splits/train_images\.txt"):
        read(Multi30kSettings(), root, root)


def test_not_utf8_names_the_line(root: Path) -> None:
    path = root / "multi30k" / "task1" / "raw" / "train.de.gz"
    path.write_bytes(gzip.compress("gut\ngut\nM\u00e4nner\ngut\n".encode("latin-1")))
    with pytest.raises(DataError, match=r"train\.de\.gz:3: not UTF-8"):
        read(Multi30kSettings(), root, root)


@pytest.mark.parametrize("raw", [b"no gzip at all", gzip.compress(b"cut short\n" * 99, mtime=0)[:-12]])
def test_a_damaged_gzip_file(raw: bytes, root: Path) -> None:
    (root / "multi30k" / "task1" / "raw" / "val.en.gz").write_bytes(raw)
    with pytest.raises(DataError, match=r"val\.en\.gz: not a whole gzip file"):
        read(Multi30kSettings(), root, root)


def test_parallel_text_without_a_tab(root: Path) -> None:
    pack(root / "x.tsv", ["Hi.\tHallo!", "Run! Lauf!"])
    with pytest.raises(DataError, match=r"x\.tsv:2: no TAB"):
        read(Multi30kSettings(parallel="x.tsv"), root, root)


@pytest.mark.parametrize(
    ("lists", "message"),
    [
        ({"val": ["t1.jpg", "x.jpg"]}, r"val\.txt:2: image 'x\.jpg' is in no official list"),
        ({"val": ["t1.jpg", "t1.jpg"]}, r"val\.txt:2: image 't1\.jpg' stands twice, first in .*val\.txt:1"),
        ({"train": ["t2.jpg", "t1.jpg"], "test": ["t1.jpg"]}, r"test\.txt:1: image 't1\.jpg' .*train\.txt:2"),
        ({"val": []}, r"val\.txt: no lines"),
        ({"train": ["t1.jpg", ""]}, r"train\.txt:2: empty line"),
    ],
)
def test_split_lists_that_do_not_fit(lists: dict, message: str, root: Path) -> None:
    with pytest.raises(DataError, match=message):
        read(Multi30kSettings(splits=split_lists(root, **lists)), root, root)


def test_an_official_image_that_stands_twice(root: Path) -> None:
    pack(root / "multi30k" / "task2" / "image_splits" / "val_images.txt", ["v1.jpg", "t1.jpg"])
    with pytest.raises(DataError, match=r"val_images\.txt:2: image 't1\.jpg' stands twice.*train_images\.txt:1"):
        read(Multi30kSettings(), root, root)


@pytest.mark.parametrize("task", ["task1", "task2"])
def test_lists_of_the_two_tasks_must_be_the_same(task: str, root: Path) -> None:
    """Else a sentence of task 1 would belong to another image, perhaps to one for testing."""
    pack(root / "multi30k" / "task1" / "image_splits" / "val.txt", ["v1.jpg"])
    for language in LANGUAGES["task1"]:
        pack(root / "multi30k" / "task1" / "raw" / f"val.{language}.gz", ["one"])
    if task == "task2":
        with pytest.raises(DataError, match=r"task1/image_splits/val\.txt: 1 images, but 2 in .*val_images\.txt"):
            read(Multi30kSettings(task=task), root, root)
    else:  # which needs no other list
        assert sum(pair.split == "val" for pair in read(Multi30kSettings(task=task), root, root).pairs) == 1


needs_real = pytest.mark.skipif(
    not (Path(os.environ.get("BILDWORT_DATA", "nowhere")) / "multi30k").is_dir(),
    reason=f"needs BILDWORT_DATA=FOLDER with multi30k/ in it, from {ORIGINALS}",
)


@needs_real
def test_real_official_split() -> None:
    root = Path(os.environ["BILDWORT_DATA"])
    corpus = read(Multi30kSettings(), root, root)
    images = Counter(split for split, _ in {(c.split, c.image_id) for c in corpus.captions})
    assert images == {"train": 29000, "val": 1014, "test": 1000}
    assert Counter(p.split for p in corpus.pairs) == images


@needs_real
def test_real_overlap_split_leaks_nothing() -> None:
    root = Path(os.environ["BILDWORT_DATA"])
    if not (root / "flickr8k_overlap").is_dir():
        pytest.skip("needs lists of the Flickr8K overlap in BILDWORT_DATA/flickr8k_overlap/splits")
    corpus = read(Multi30kSettings(splits="flickr8k_overlap/splits"), root, root)
    images = Counter(split for split, _ in {(c.split, c.image_id) for c in corpus.captions})
    assert images == {"train": 5478, "val": 500, "test": 1000}
    assert Counter(c.language for c in corpus.captions if c.split == "train") == {"en": 27390, "de": 27390}
    held_out = {c.image_id for c in corpus.captions if c.split != "train"}
    trained = {p.image_id for p in corpus.pairs if p.split == "train"}
    assert len(trained) == 29000 - 757 - 258  # less the official training images that our test and val lists hold
    assert not trained & held_out
