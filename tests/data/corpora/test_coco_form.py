"""JSON of COCO's own form, and of Karpathy's in another language than English, are read as Karpathy's corpus."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from data.corpora.coco.form import id_of
from data.corpora.coco.karpathy import KarpathySettings, read
from data.errors import DataError
from data.findings.checks import pictures_in_two_splits
from tests.data.layouts import entries, write_json


def write_coco(root: Path, images: list[dict], annotations: Any) -> None:
    (root / "coco.json").write_text(json.dumps({"info": {}, "images": images, "annotations": annotations}))


def images(count: int) -> list[dict]:
    return [{"id": 100 + number, "file_name": f"sub/{number}.jpg", "height": 3} for number in range(count)]


def annotations(count: int) -> list[dict]:
    return [{"id": k, "image_id": 100 + k % count, "caption": f" A dog {k} \n"} for k in range(2 * count)]


def load(root: Path, **changed):
    return read(KarpathySettings(**({"captions": "coco.json", "drawn": 2} | changed)), root, root)


def test_captions_are_read_with_their_places_and_a_drawn_split(tmp_path: Path) -> None:
    (tmp_path / "pictures" / "sub").mkdir(parents=True)
    for number in range(9):
        (tmp_path / "pictures" / "sub" / f"{number}.jpg").touch()
    some = annotations(8)
    write_coco(tmp_path, images(9), [*some[:3], some[3] | {"caption": " "}, *some[4:]])
    corpus = load(tmp_path, pictures="pictures")
    first = corpus.captions[0]
    assert (first.image_id, first.caption_id, first.text) == ("sub/0", "sub/0#en1", "A dog 0")
    assert corpus.place(first, "en") == f"{tmp_path}/coco.json: annotations[0].caption"
    assert corpus.place(corpus.captions[1], "en") == f"{tmp_path}/coco.json: annotations[8].caption"
    assert corpus.empty == [f"{tmp_path}/coco.json: annotations[3].caption"]
    assert len({one.image_id for one in corpus.captions}) == 8  # the ninth has no caption
    split_of = {caption.image_id: caption.split for caption in corpus.captions}
    assert Counter(split_of.values()) == {"train": 4, "val": 2, "test": 2}
    assert corpus.pictures["sub/3"] == tmp_path / "pictures" / "sub" / "3.jpg"


def test_copies_of_a_picture_are_drawn_together_and_not_where_one_lacks_a_language(tmp_path: Path) -> None:
    """Of 20 images each two have one picture; of the last four pairs one image alone has a Czech caption."""
    (tmp_path / "pictures" / "sub").mkdir(parents=True)
    for number in range(20):
        (tmp_path / "pictures" / "sub" / f"{number}.jpg").write_text(f"picture {number // 2:02d}")
    write_coco(tmp_path, images(20), annotations(20))
    (tmp_path / "cs.tsv").write_text("".join(f"{100 + k}\tpes {k}\n" for k in [*range(12), *range(12, 20, 2)]))
    both = {"languages": ["en", "cs"], "translated": {"cs": "cs.tsv"}, "pictures": "pictures"}
    for seed in range(1, 9):
        corpus = load(tmp_path, drawn=3, drawn_seed=seed, **both)
        split_of = {caption.image_id: caption.split for caption in corpus.captions}
        assert Counter(split_of.values()) == {"train": 12, "val": 4, "test": 4}  # 3 at least
        assert [*pictures_in_two_splits(corpus)] == []
    with pytest.raises(DataError, match="only 12 images have captions in en, cs; draw fewer"):
        load(tmp_path, drawn=7, **both)


@pytest.mark.parametrize("write", [str, float, "{:012d}".format, "{}.0".format, " {} ".format])
@pytest.mark.parametrize("of", ["images", "annotations"])
def test_an_id_is_the_same_however_it_is_written(write, of: str, tmp_path: Path) -> None:
    found, told = images(9), annotations(9)
    write_coco(tmp_path, found, told)
    plain = load(tmp_path).captions
    for one, key in [(one, "id") for one in found] if of == "images" else [(one, "image_id") for one in told]:
        one[key] = write(one[key])
    write_coco(tmp_path, found, told)
    assert load(tmp_path).captions == plain


@pytest.mark.parametrize(("value", "same"), [("x7", "x7"), ("0", "0"), ("007", "7"), (True, None), (1.5, None)])
def test_what_is_no_number_is_an_id_as_it_stands(value: object, same: str | None) -> None:
    assert id_of(value) == same


def test_the_json_may_be_in_another_language(tmp_path: Path) -> None:
    write_json(tmp_path / "dataset.json", entries())
    (tmp_path / "en.tsv").write_text("train0\tA dog\n")
    own = {"captions": "dataset.json", "drawn": 0, "language": "cs"}
    corpus = load(tmp_path, **own, languages=["cs"])
    assert {one.language for one in corpus.captions} == {"cs"}
    assert corpus.captions[0].caption_id == "train0#cs1"
    assert corpus.place(corpus.captions[0], "cs").endswith("dataset.json: images[0].sentences[0].raw")
    both = load(tmp_path, **own, languages=["cs", "en"], translated={"en": "en.tsv"})
    (english,) = [one for one in both.captions if one.language == "en"]
    assert both.place(english, "en") == f"{tmp_path}/en.tsv:1"
    with pytest.raises(DataError, match="translated names 'cs', but cs is in the JSON"):
        load(tmp_path, **own, languages=["cs"], translated={"cs": "en.tsv"})


@pytest.mark.parametrize(
    ("first", "second", "changed", "told"),
    [
        ([{"id": 1}], annotations(1), {}, r"images\[0\]: no `id` or `file_name`"),
        (images(1) * 2, annotations(1), {}, r"images\[1\]\.id: 100 stands twice"),
        (images(2), [{"image_id": 100}], {}, r"annotations\[0\]: no `image_id` or `caption`"),
        (images(2), annotations(3), {}, r"annotations\[2\]\.image_id: no image 102 in `images`"),
        (
            [{"id": 9, "file_name": "undescribed.jpg"}, *images(2), {"id": 300, "file_name": "sub/0.jpg"}],
            [*annotations(2), {"image_id": 300, "caption": "A dog"}], {},
            r"images\[3\]: image 'sub/0' stands twice, first in images\[1\]",
        ),
        (images(2), [], {}, r"coco\.json: no list of `annotations`"),
        (images(9), annotations(9), {"drawn": 0}, "COCO's form has no split; set corpus.drawn"),
        (images(9), annotations(9), {"drawn": 5}, "only 9 images have captions in en"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_named(first: list, second: list, changed: dict, told: str, tmp_path: Path) -> None:
    write_coco(tmp_path, first, second)
    with pytest.raises(DataError, match=told) as caught:
        load(tmp_path, **changed)
    assert "\n" not in str(caught.value)
