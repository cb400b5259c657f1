"""Karpathy's JSON: made-up files, captions in a second language, every complaint, and memory at COCO's size."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data.corpora.coco.karpathy import ORIGINALS, KarpathySettings, read, sources
from data.errors import DataError
from data.findings.report import data_report
from data.pictures.regions import RegionStore
from tests.data.layouts import SIZES, entries, sentence, write_json, write_karpathy
from tests.data.memory import least_peak
from tests.data.official import pack

BOTH = {"languages": ["en", "ja"], "translated": {"ja": "ja.tsv"}}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_karpathy(tmp_path)
    return tmp_path


def load(root: Path, **changed):
    return read(KarpathySettings(**({"captions": "dataset.json", "regions": "regions"} | changed)), root, root)


def test_captions_in_the_order_of_the_file_and_restval_is_train(root: Path) -> None:
    corpus = load(root)
    images = list(dict.fromkeys(caption.image_id for caption in corpus.captions))
    assert images == [f"{split}{number}" for split, size in SIZES.items() for number in range(size)]
    assert Counter(caption.split for caption in corpus.captions) == {"train": 16, "val": 8, "test": 20}
    first = corpus.captions[0]
    assert (first.caption_id, first.language, first.text) == ("train0#en1", "en", sentence("train0", 0))
    assert (corpus.regions, corpus.pairs, corpus.label, corpus.task) == (root / "regions", [], "Flickr30K", "karpathy")
    assert data_report(corpus, RegionStore(corpus.regions)).findings == []


def test_restval_can_be_left_out(root: Path) -> None:
    captions = load(root, restval=False, **BOTH).captions
    assert Counter(caption.split for caption in captions) == {"train": 18, "val": 12, "test": 30}
    assert not any(caption.image_id.startswith("restval") for caption in captions)


def test_ids_can_be_those_of_multi30k(root: Path) -> None:
    assert load(root, keep_suffix=True).captions[0].image_id == "train0.jpg"


@pytest.mark.parametrize("form", ["{cocoid}", "{filename}", "id"])
def test_another_language_names_images_in_three_ways_and_follows_their_order(root: Path, form: str) -> None:
    names = [image["filename"][:-4] if form == "id" else form.format(**image) for image in entries()]
    pack(root / "ja.tsv.gz", [f"{name}\t {name}の犬 " for name in reversed(names)])
    captions = load(root, languages=["en", "ja"], translated={"ja": "ja.tsv.gz"}).captions
    japanese = [caption for caption in captions if caption.language == "ja"]
    assert [caption.text for caption in japanese] == [f"{name}の犬" for name in names]
    assert [caption.image_id for caption in captions[:3]] == ["train0"] * 3
    assert japanese[0].caption_id == f"train0#ja{len(names)}"  # it stands on the last line
    only = load(root, languages=["ja"], translated={"ja": "ja.tsv.gz"}).captions
    assert [caption.image_id for caption in only] == [caption.image_id for caption in japanese]


def test_the_place_of_a_caption_is_in_its_own_file(root: Path) -> None:
    corpus = load(root, **BOTH)
    english, japanese = (
        next(c for c in corpus.captions if c.caption_id.startswith(f"val1#{x}")) for x in ("en2", "ja")
    )
    position = next(number for number, image in enumerate(entries()) if image["filename"] == "val1.jpg")
    assert corpus.place(english, "en") == f"{root / 'dataset.json'}: images[{position}].sentences[1].raw"
    assert json.loads((root / "dataset.json").read_text())["images"][position]["sentences"][1]["raw"] == english.text
    line = (root / "ja.tsv").read_text().splitlines().index(f"{100 + position}\t{japanese.text}") + 1
    assert corpus.place(japanese, "ja") == f"{root / 'ja.tsv'}:{line}"


def test_empty_sentences_are_left_out_with_their_places(root: Path) -> None:
    images = entries()
    images[3]["sentences"][1]["raw"] = "  "
    write_json(root / "dataset.json", images)
    pack(root / "ja.tsv", [*(f"{image['cocoid']}\t犬" for image in images[:4]), "104\t "])
    corpus = load(root, **BOTH)
    assert corpus.empty == [f"{root / 'ja.tsv'}:5", f"{root / 'dataset.json'}: images[3].sentences[1].raw"]
    assert [c.caption_id for c in corpus.captions if c.image_id == "train3"] == ["train3#en1", "train3#ja4"]


def test_pictures_are_looked_for_in_the_folder_and_in_the_one_that_the_file_names(root: Path) -> None:
    for name in ("pictures/train2014/train0.jpg", "pictures/test0.jpg", "pictures/train2014/test1.jpg"):
        pack(root / name, ["not looked at"])
    assert load(root, pictures="pictures").pictures == {
        "train0": root / "pictures/train2014/train0.jpg",
        "test0": root / "pictures/test0.jpg",
    }


def test_sources_are_what_is_read(root: Path) -> None:
    names = {"captions": "dataset.json", "regions": "regions"}
    stored = [root / "regions" / name for name in ("boxes.npy", "ids.txt", "regions.npy")]
    english = KarpathySettings(**names, translated={"ja": "ja.tsv"})
    assert sources(english, root) == [root / "dataset.json", *stored]
    assert sources(KarpathySettings(**names, **BOTH), root) == [root / "dataset.json", root / "ja.tsv", *stored]
    (root / "regions" / ".DS_Store").write_bytes(b"\0")
    assert sources(english, root) == [root / "dataset.json", *stored]
    (root / "seen").mkdir()
    (root / "seen" / "train1.jpg").write_bytes(b"\0")
    from_pixels = KarpathySettings(captions="dataset.json", regions=None, pictures="seen")
    assert sources(from_pixels, root) == [root / "dataset.json", root / "seen" / "train1.jpg"]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"captions": "nowhere.json"}, rf"nowhere\.json: no such file; expected Karpathy's JSON.*{ORIGINALS}"),
        ({"languages": []}, "one or more"),
        ({"languages": ["en", "en"]}, "each once"),
        ({"languages": ["en", "zh"]}, r"no captions in 'zh', there are en; name their file as corpus\.translated\.zh"),
        ({"translated": {"en": "x.tsv"}}, "translated names 'en'"),
        ({"drawn_seed": 2}, "drawn_seed is 2, but nothing is drawn"),
        ({"languages": ["ja"], "translated": {"ja": "nowhere.tsv"}}, r"nowhere\.tsv: no such file; .*'ja'"),
        ({"pictures": "nowhere"}, "nowhere: no such folder"),
        ({"pictures": "regions"}, r"regions: none of the 22 pictures, expected 'train0\.jpg'"),
    ],
)
def test_settings_that_do_not_fit(root: Path, changed: dict, message: str) -> None:
    with pytest.raises(DataError, match=message):
        load(root, **changed)


def test_no_data_root(tmp_path: Path) -> None:
    for function in (lambda: read(KarpathySettings(), None, tmp_path), lambda: sources(KarpathySettings(), None)):
        with pytest.raises(DataError, match=r"set BILDWORT_DATA=FOLDER or pass --corpus\.root"):
            function()


def spoiled(path: list, value: object) -> Callable[[list], object]:
    """A change of one value of the list of images; None takes its key away."""

    def change(images: list) -> object:
        inner = images
        for key in path[:-1]:
            inner = inner[key]
        if value is None:
            del inner[path[-1]]
        else:
            inner[path[-1]] = value
        return images

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (spoiled([2, "filename"], None), r"images\[2\]: no text 'filename'; expected Karpathy's JSON"),
        (spoiled([2, "split"], None), r"images\[2\]: no text 'split'"),
        (spoiled([2, "sentences", 1, "raw"], None), r"images\[2\]\.sentences\[1\]: no text 'raw'"),
        (spoiled([2, "sentences"], None), r"images\[2\] \('train2\.jpg'\): no sentences"),
        (spoiled([2, "sentences"], []), r"images\[2\] \('train2\.jpg'\): no sentences"),
        (spoiled([2, "sentences"], ["a dog"]), r"images\[2\]\.sentences\[0\]: no text 'raw'"),
        (spoiled([2, "split"], "trian"), r"images\[2\]\.split: 'trian' is unknown; .* train, restval, val, test"),
        (spoiled([2, "filename"], "val1.png"), r"images\[9\]: image 'val1' stands twice, first in images\[2\]"),
        (spoiled([2, "filename"], " "), r"images\[2\]\.filename: ' ' is no file name"),
        (spoiled([2, "filename"], "photo .jpg"), r"images\[2\]\.filename: 'photo .jpg' is no file name"),
        (spoiled([2, "filename"], "a\nb.jpg"), r"images\[2\]\.filename: 'a\\nb.jpg' is no file name"),
        (spoiled([2, "filepath"], 3), r"images\[2\]: no text 'filepath'"),
        (spoiled([2, "sentences", 0, "raw"], "a \ud83d"), r"images\[2\]\.sentences\[0\]\.raw: .* half a character"),
        (spoiled([2], "train2.jpg"), r"images\[2\]: no text 'split'"),
        (lambda images: [], "no list of `images`"),
        (lambda images: {"train": images}, "no list of `images`"),
    ],
)
def test_entries_that_do_not_fit(root: Path, change: Callable, message: str) -> None:
    write_json(root / "dataset.json", change(entries()))
    with pytest.raises(DataError, match=message) as caught:
        load(root)
    assert str(caught.value).startswith(str(root / "dataset.json"))


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ('{"images": [\n{"filename": "a.jpg", "spl', r"\.json:2: not whole JSON \(Unterminated string.*character 23"),
        ("", r"\.json:1: not whole JSON \(Expecting value"),
        ("image,caption\n1,a dog\n", r"\.json:1: not whole JSON"),
        ("[" * 100_000, "not JSON that can be read"),
        (f'{{"images": {"1" * 5000}}}', "not JSON that can be read"),
        ("[1]", "no list of `images`"),
        ('{"annotations": []}', "no list of `images`"),
    ],
)
def test_files_that_are_not_karpathys(root: Path, raw: str, message: str) -> None:
    (root / "dataset.json").write_text(raw)
    with pytest.raises(DataError, match=message):
        load(root)


@pytest.mark.parametrize(("name", "settings"), [("dataset.json", {}), ("ja.json", {"translated": {"ja": "ja.json"}})])
def test_a_file_that_is_missing_is_not_called_bad_json(root: Path, name: str, settings: dict) -> None:
    (root / name).unlink(missing_ok=True)
    with pytest.raises(DataError, match=rf"^\S+{name}: no such file; ") as caught:
        load(root, **(BOTH | settings))
    assert str(caught.value).count(name) == 1


def test_a_language_that_is_none_is_refused(root: Path) -> None:
    with pytest.raises(DataError, match="language is 'english', expected a code like en or de"):
        load(root, language="english", languages=["english"])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("100 犬", r"ja\.tsv:2: no TAB, expected `image TAB caption`"),
        ("100\tja\t犬", r"ja\.tsv:2: 3 cells, expected `image TAB caption`"),
        ("999\t犬", r"ja\.tsv:2: image '999' is not in the JSON"),
        ("\t犬", r"ja\.tsv:2: image '' is not in the JSON"),
    ],
)
def test_lines_of_another_language_that_do_not_fit(root: Path, line: str, message: str) -> None:
    pack(root / "ja.tsv", ["100\t犬", line])
    with pytest.raises(DataError, match=message):
        load(root, **BOTH)


def test_a_name_that_two_images_have_is_refused(root: Path) -> None:
    images = entries()
    images[0]["filename"], images[1]["cocoid"] = "7.jpg", 7
    write_json(root / "dataset.json", images)
    pack(root / "ja.tsv", ["7.jpg\t犬", "7\t犬"])
    with pytest.raises(DataError, match=r"ja\.tsv:2: '7' is the id, file name or COCO number of '7' and"):
        load(root, **BOTH)


NAMES = st.sampled_from(["images", "filename", "filepath", "split", "cocoid", "sentences", "raw", "train", "test", "x"])
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | NAMES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=8,
)


@settings(max_examples=300, deadline=None)
@given(number=st.integers(0, 5), key=NAMES, value=ANYTHING, cut=st.none() | st.integers(0, 2000))
def test_whatever_stands_in_the_file_is_read_or_refused_in_one_line(
    tmp_path_factory: pytest.TempPathFactory, number: int, key: str, value: object, cut: int | None
) -> None:
    path = tmp_path_factory.getbasetemp() / "any" / "any.json"  # not among all that other tests leave
    path.parent.mkdir(exist_ok=True)
    images = entries({"train": 4, "test": 2})
    images[number] = images[number] | {key: value} if key != "images" else value
    path.write_text(json.dumps({"images": images})[:cut])
    told = ""
    try:
        corpus = read(KarpathySettings(captions=path.name, pictures="."), path.parent, path.parent)
        assert data_report(corpus, None).captions
    except DataError as error:
        told = str(error)
    assert told == "" or told.startswith((str(path), f"{path.parent}: none of the"))
    assert "\n" not in told


@pytest.mark.whole
def test_memory_is_that_of_the_text_and_the_captions(tmp_path: Path) -> None:
    """A fiftieth of COCO: if the tokens were held until all is read, it would be more than twice as much."""
    sentences = [{"tokens": [f"{k}word{n}" for n in range(11)], "raw": sentence("x", k), "sentid": k} for k in range(5)]
    image = entries({"test": 1})[0] | {"sentences": sentences}
    write_json(tmp_path / "dataset.json", [image | {"filename": f"{number}.jpg"} for number in range(2460)])
    size = (tmp_path / "dataset.json").stat().st_size
    assert len(load(tmp_path, regions=None).captions) == 12_300
    assert (
        least_peak(lambda: load(tmp_path, regions=None).captions) < 4 * size
    )  # measured: 2.7, and 6.6 with the tokens
