"""XTD10: made-up files in the official layout, and every complaint."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from data.corpora import Corpus
from data.corpora.xtd10 import Xtd10Settings, read, sources
from data.errors import DataError
from data.findings.report import data_report
from data.pictures.regions import write_regions
from tests.data.layouts import XTD10, XTD10_TEXTS, write_xtd10
from tests.data.official import pack

LIST = Path("xtd10/XTD10/test_image_names.txt")
IDS = [name.removesuffix(".jpg") for name in XTD10]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_xtd10(tmp_path)
    return tmp_path


def load(root: Path, **changed) -> Corpus:
    return read(Xtd10Settings(**{"pictures": "coco"} | changed), root, root)


def captions(root: Path, code: str) -> Path:
    """The file of a language, as the official layout calls it."""
    (path,) = (root / "xtd10").glob(f"*/test_1kcaptions_{code}.txt")
    return path


def store(root: Path, ids: list[str]) -> None:
    box = np.array([[0, 0, 1, 1]])
    write_regions(root / "regions", ids, [(np.full((1, 3), number + 1.0), box) for number in range(len(ids))])


def test_every_language_and_picture(root: Path) -> None:
    corpus = load(root)
    codes = sorted({"ja" if code == "jp" else code for code in XTD10_TEXTS})
    assert [(c.image_id, c.language) for c in corpus.captions] == [(name, code) for name in IDS for code in codes]
    assert {(c.split, c.source) for c in corpus.captions} == {("test", "human")}
    assert len({c.caption_id for c in corpus.captions}) == len(corpus.captions)
    assert (corpus.label, corpus.task, corpus.pairs, corpus.regions) == ("XTD10", "test", [], None)
    assert corpus.pictures == {IDS[k]: root / "coco" / XTD10[k].split("_")[1] / XTD10[k] for k in range(len(XTD10))}
    assert data_report(corpus, None).findings == []


def test_captions_are_those_of_their_line(root: Path) -> None:
    corpus = load(root, languages=["ja", "en"])
    assert [c.text for c in corpus.captions] == [
        XTD10_TEXTS[code].format(number) for number in range(len(XTD10)) for code in ("jp", "en")
    ]
    last = corpus.captions[-2]
    assert corpus.place
    assert corpus.place(last, "ja") == f"{captions(root, 'jp')}:{len(XTD10)}"


def test_lines_may_end_like_those_of_windows_and_the_last_one_without(root: Path) -> None:
    before = load(root).captions
    path = captions(root, "es")
    path.write_bytes(path.read_bytes().rstrip().replace(b"\n", b"\r\n"))
    assert load(root).captions == before


def test_a_language_lies_in_whatever_folder(root: Path) -> None:
    before = load(root).captions
    captions(root, "en").rename(root / "xtd10/MIC/test_1kcaptions_en.txt")
    assert load(root).captions == before


def test_pictures_lie_in_one_folder_too_or_are_not_read(root: Path) -> None:
    (root / "all").mkdir()
    for path in (root / "coco").glob("*/*.jpg"):
        shutil.copy(path, root / "all")
    assert load(root, pictures="all").pictures == {name: root / "all" / f"{name}.jpg" for name in IDS}
    assert load(root, pictures=None).pictures == {}


def test_a_region_store_with_more_images(root: Path) -> None:
    store(root, ["COCO_val2014_000000000009", *IDS])
    corpus = load(root, pictures=None, regions="regions")
    regions = corpus.open_regions()
    assert regions
    assert regions.rows(IDS).tolist() == [1, 2, 3, 4]


def test_sources_are_what_is_read(root: Path) -> None:
    store(root, IDS)
    text = {LIST.name} | {f"test_1kcaptions_{code}.txt" for code in XTD10_TEXTS}
    stored = {"regions.npy", "boxes.npy", "ids.txt"}
    for changed, others in (
        ({}, set()), ({"pictures": "coco"}, {*XTD10}), ({"pictures": "coco", "regions": "regions"}, stored),
    ):  # fmt: skip
        assert {path.name for path in sources(Xtd10Settings(**changed), root)} == text | others
    english = sources(Xtd10Settings(languages=["en"]), root)
    assert {path.name for path in english} == {LIST.name, "test_1kcaptions_en.txt"}


def test_no_data_root(tmp_path: Path) -> None:
    for function in (lambda: read(Xtd10Settings(), None, tmp_path), lambda: sources(Xtd10Settings(), None)):
        with pytest.raises(DataError, match=r"^xtd10: no data root; set BILDWORT_DATA=FOLDER or pass --corpus\.root"):
            function()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"text": "away"}, r"away: no such folder; expected the files of https.*; set corpus\.text to their folder$"),
        ({"text": "coco"}, r"coco: no captions; expected XTD10/test_1kcaptions_en\.txt … of https.*; get them"),
        ({"languages": ["en", "jp"]}, r"^xtd10: languages has 'jp', but .*xtd10 has files of de, en, es, ja, zh; name"),
        ({"languages": ["en", "de", "en"]}, r"^xtd10: languages are en, de, en; expected each once; leave one out$"),
        ({"pictures": "away"}, r"away: no such folder; expected COCO's train2014 and val2014; set corpus\.pictures"),
        ({"pictures": "xtd10"}, r"xtd10: none of the 4 pictures, expected 'COCO_train2014_000000000001\.jpg'"),
        ({"regions": "away"}, r"away/ids\.txt: no such file"),
    ],
)
def test_settings_that_do_not_fit(root: Path, changed: dict, message: str) -> None:
    with pytest.raises(DataError, match=message):
        load(root, **changed)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], r"names\.txt: no lines"),
        ([*XTD10[:3], ""], r"names\.txt:4: empty line, expected an image file name"),
        ([*XTD10[:3], XTD10[1]], r"names\.txt:4: image 'COCO_.*002\.jpg' stands twice, first in .*names\.txt:2"),
        ([*XTD10[:3], "../4.jpg"], r"names\.txt:4: '\.\./4\.jpg', expected a file name of COCO 2014 like COCO_val2014"),
        ([*XTD10[:3], IDS[3]], r"names\.txt:4: 'COCO_\w+', expected .*; get the file again from https"),
        (XTD10[:3], r"test_1kcaptions_de\.txt: 4 lines, expected 3, one for each image of .*names\.txt; get the file"),
    ],
)
def test_lists_that_do_not_fit(root: Path, lines: list[str], message: str) -> None:
    pack(root / LIST, lines)
    with pytest.raises(DataError, match=message):
        load(root)


def test_a_list_that_is_missing(root: Path) -> None:
    (root / LIST).unlink()
    with pytest.raises(DataError, match=r"names\.txt: no such file; expected the images' file names, .*; get it from"):
        load(root)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["ein Hund"] * 3, r"captions_de\.txt: 3 lines, expected 4, one for each image of .*names\.txt; get the file"),
        (["ein Hund"] * 5, r"captions_de\.txt: 5 lines, expected 4"),
        (
            ["ein Hund", "eine Katze", " ", "ein Ball"],
            r"captions_de\.txt:3: empty line, expected the caption of line 3",
        ),
    ],
)
def test_captions_that_do_not_fit(root: Path, lines: list[str], message: str) -> None:
    pack(captions(root, "de"), lines)
    with pytest.raises(DataError, match=message):
        load(root)
    assert load(root, languages=["en"]).captions


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("xx", r"STAIR/test_1kcaptions_xx\.txt: unknown language 'xx'; expected a code of ISO 639-1 like en; rename"),
        ("ja", r"captions_jp\.txt: captions in 'ja', as .*captions_ja\.txt has; expected a file a language; move"),
    ],
)
def test_files_of_languages_that_do_not_fit(root: Path, name: str, message: str) -> None:
    shutil.copy(captions(root, "jp"), root / f"xtd10/STAIR/test_1kcaptions_{name}.txt")
    with pytest.raises(DataError, match=message):
        load(root)


def test_an_image_without_picture(root: Path) -> None:
    (root / "coco/val2014" / XTD10[2]).unlink()
    with pytest.raises(DataError) as caught:
        load(root)
    assert str(caught.value) == (
        f"{root / LIST}:3: no picture 'val2014/{XTD10[2]}' in {root / 'coco'} (missing in all: 1 of 4); get it from "
        "https://cocodataset.org and put it there"
    )


def test_an_image_without_regions(root: Path) -> None:
    store(root, IDS[:3])
    with pytest.raises(DataError, match=rf"regions: 1 of 4 images have no regions, first '{IDS[3]}'; expected a store"):
        load(root, pictures=None, regions="regions")


def test_a_line_that_is_not_utf_8(root: Path) -> None:
    path = captions(root, "zh")
    path.write_bytes(path.read_bytes().replace(b"1", b"\xff"))
    with pytest.raises(DataError, match=r"captions_zh\.txt:2: not UTF-8"):
        load(root)
