"""The data report: each finding provoked by a tiny corpus, and silence on a clean one."""

import json
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from data.captions.table import Caption, Pair
from data.corpora import Corpus
from data.findings.report import DataReport
from data.findings.report import data_report as report_of
from data.pictures.regions import RegionStore, write_regions
from data.text.sentences import RULE, normalise_sentence, sentence_hash

IMAGES = {"a": "train", "b": "train", "c": "val", "d": "test"}


def caption(image: str, text: str, split: str | None = None, language: str = "en", number: int = 1) -> Caption:
    return Caption(image, f"{image}#{language}{number}", language, text, split or IMAGES[image])


def pair(image: str | None, split: str, english: str = "only in a pair", german: str = "nur in einem Paar") -> Pair:
    return Pair(f"p#{image}", image, split, "task1", {"en": english, "de": german})


def clean() -> list[Caption]:
    """Two captions an image in two languages, all different."""
    return [
        caption(image, f"{language} {number} of image {image}", language=language, number=number)
        for image in IMAGES
        for language in ("en", "de")
        for number in (1, 2)
    ]


def data_report(captions: list[Caption], pairs: list[Pair], regions: RegionStore | None, **more) -> DataReport:
    return report_of(Corpus(captions, pairs, more.pop("pictures", {}), None, "task", "label", **more), regions)


def found(report: DataReport) -> list[tuple[str, str, str, int]]:
    return [(finding.level, finding.what, finding.where, finding.count) for finding in report.findings]


@pytest.fixture
def regions(tmp_path: Path) -> RegionStore:
    write_regions(tmp_path, list(IMAGES), [(np.ones((2, 3)), np.ones((2, 4)))] * 4)
    return RegionStore(tmp_path)


def test_a_clean_corpus_has_no_findings(regions: RegionStore) -> None:
    report = data_report(clean(), [pair("a", "train"), pair("c", "val", "en val", "de val")], regions)
    assert report.findings == []
    assert report.errors == []


def test_counts_and_lengths(regions: RegionStore) -> None:
    report = data_report([*clean(), caption("a", "one two", language="fr")], [pair("a", "train")], regions)
    row = {"split": "train", "language": "en", "source": "human", "images": 2, "captions": 4}
    assert row in report.captions
    assert report.pairs == [{"split": "train", "origin": "task1", "languages": "de, en", "pairs": 1}]
    assert report.lengths[0] == {"language": "de", "median": 5, "95 %": 5, "longest": 5}


def test_images_without_regions_are_errors_and_regions_without_captions_are_not(regions: RegionStore) -> None:
    captions = [c for c in clean() if c.image_id != "b"]
    captions += [caption("x", f"{k} of image x", "test", k[:2], int(k[2])) for k in ("en1", "en2", "de1", "de2")]
    report = data_report(captions, [], regions)
    assert found(report) == [
        ("error", "images without regions", f"test, {regions.folder / 'ids.txt'}", 1),
        ("warning", "images without captions", str(regions.folder / "ids.txt"), 1),
    ]
    assert [finding.examples for finding in report.findings] == [["x"], ["b (line 2)"]]
    assert data_report(captions, [], None).findings == []


def test_splits_and_languages_that_nobody_reads_are_errors() -> None:
    captions = [caption("a", "first of a", "validation"), caption("b", "first of b", "train", language="english")]
    what = "captions whose split is not train, val, test, or language no code"
    assert found(data_report(captions, [], None)) == [("error", what, "captions", 2)]


def test_two_captions_with_one_id_are_an_error() -> None:
    one, other = caption("a", "first of a", "train"), caption("a", "second of a", "train")
    report = data_report([one, replace(other, caption_id=one.caption_id)], [], None)
    assert found(report) == [("error", "captions with the id of another caption", "captions", 1)]


def test_an_image_in_two_splits_is_an_error() -> None:
    report = data_report([caption("a", "first of a", "train"), caption("a", "second of a", "test")], [], None)
    assert found(report) == [("error", "images in two splits", "captions: test + train", 1)]


def test_a_training_pair_about_a_held_out_image_is_an_error() -> None:
    pairs = [pair("a", "train"), pair("d", "train"), pair(None, "train")]
    report = data_report(clean(), pairs, None)
    assert found(report) == [("error", "training pairs about test images", "pairs", 1)]
    assert report.errors[0].examples == ["p#d"]


def test_what_stands_in_two_splits_for_training_is_no_finding() -> None:
    captions = [caption("a", f"{number} of a", split) for number, split in enumerate(("train", "translation"))]
    pairs = [pair("b", "translation"), pair("c", "train")]
    assert found(data_report(captions, pairs, None)) == []
    captions.append(caption("a", "2 of a", "val"))
    assert found(data_report(captions, pairs, None))[0] == (
        "error", "images in two splits", "captions: train + translation + val", 1,
    )  # fmt: skip


def test_images_that_lack_a_caption_are_named() -> None:
    captions = [c for c in clean() if c.caption_id not in ("a#de2", "b#en1", "b#en2")]
    captions += [
        caption("e", f"{language} {k} of e", "train", language, k) for language in ("en", "de") for k in (1, 2)
    ]
    assert found(data_report(captions, [], None)) == [
        ("warning", "images with fewer than 2 captions in 'de'", "train, de, human", 1),
        ("warning", "images with fewer than 2 captions in 'en'", "train, en, human", 1),
    ]


def test_a_sentence_on_several_images_counts_images_of_its_split_and_language() -> None:
    captions = [*clean(), caption("a", "A dog, running!", number=3), caption("b", "a dog running", number=3)]
    report = data_report(captions, [], None)
    assert found(report) == [("warning", "sentences on several images (100.0% of the images)", "train, en", 1)]
    assert report.findings[0].examples == ["‘a dog running’: a#en3, b#en3"]


def test_a_sentence_twice_on_one_image_is_no_sentence_on_several() -> None:
    captions = [*clean(), caption("a", "a dog running", number=3), caption("a", "A dog running.", number=4)]
    captions += [caption("b", f"b {k} more", number=k) for k in (3, 4)]
    assert found(data_report(captions, [], None)) == [("warning", "sentences twice on one image", "train, en", 1)]
    captions[-3] = caption("a", "A dog running.", language="de", number=3)
    report = data_report(captions, [], None)
    assert ("warning", "sentences twice on one image", "train, en + de", 1) in found(report)
    assert report.findings[-1].examples == ["‘a dog running’: a#en3, a#de3"]


def test_a_sentence_in_two_splits_whether_caption_or_pair() -> None:
    captions = [*clean(), caption("c", "Two dogs run.", number=3), caption("d", "two dogs run", number=3)]
    assert found(data_report(captions, [], None)) == [("warning", "sentences in two splits", "en: test + val", 1)]
    leak = [pair(None, "train", "EN: 1 of image d")]
    assert found(data_report(clean(), leak, None)) == [("warning", "sentences in two splits", "en: test + train", 1)]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("too short", "captions of fewer than 3 words"),
        (" ".join(map(str, range(101))), "captions of more than 100 words"),
        ("a tab\there is odd", "captions with control characters, line breaks or U+FFFD"),
        ("a man &amp; a dog", "captions with HTML (`&amp;`, `<p>`)"),
        ("a man <b>on</b> a dog", "captions with HTML (`&amp;`, `<p>`)"),
        ("M\ufffdnner stehen herum", "captions with control characters, line breaks or U+FFFD"),
    ],
)
def test_odd_captions(text: str, what: str) -> None:
    report = data_report([caption("a", text)], [], None)
    assert found(report) == [("warning", what, "en", 1)]
    assert report.findings[0].examples == ["a#en1"]


def test_the_place_of_a_sentence_stands_with_it() -> None:
    captions = [caption("a", "too short"), caption("b", "Two dogs run."), caption("d", "two dogs run")]
    pairs = [pair(None, "train", german="ein \x07 Paar")]
    report = data_report(captions, pairs, None, place=lambda item, language: f"{item.split}.{language}:7")
    assert [finding.examples for finding in report.findings] == [
        ["‘two dogs run’: b#en1 (train.en:7), d#en1 (test.en:7)"],
        ["a#en1 (train.en:7)"],
        ["p#None (train.de:7)"],
    ]


def test_empty_lines_are_counted_with_their_places() -> None:
    report = data_report(clean(), [], None, empty=["train.en:3", "train.de:4"])
    assert found(report) == [("warning", "lines left out, as a sentence is empty", "text", 2)]
    assert report.findings[0].examples == ["train.en:3", "train.de:4"]


def draw(pictures: dict[str, Path]) -> None:
    """No two alike."""
    for number, path in enumerate(pictures.values()):
        Image.new("RGB", (3, 2), (number, 0, 0)).save(path)


def test_images_without_a_picture_are_errors_where_regions_come_from_pictures(tmp_path: Path) -> None:
    pictures = {image: tmp_path / f"{image}.png" for image in ("a", "c", "d")}
    draw(pictures)
    report = data_report(clean(), [], None, pictures=pictures)
    assert found(report) == [("error", "images without a picture", str(tmp_path), 1)]
    assert report.findings[0].examples == ["b"]
    corpus = Corpus(clean(), [], pictures, tmp_path, "task", "label")
    assert found(report_of(corpus, None)) == [("warning", "images without a picture", str(tmp_path), 1)]


def test_one_picture_under_two_names_must_not_be_in_two_splits(tmp_path: Path) -> None:
    pictures = {image: tmp_path / f"{image}.png" for image in IMAGES}
    draw(pictures)
    corpus = Corpus(clean(), [], pictures, tmp_path, "task", "label")
    assert found(report_of(corpus, None)) == []
    split_of = {caption.image_id: caption.split for caption in clean()}
    held_out = next(image for image in IMAGES if split_of[image] == "test")
    train = next(image for image in IMAGES if split_of[image] == "train")
    pictures[held_out].write_bytes(pictures[train].read_bytes())
    report = report_of(corpus, None)
    assert found(report) == [("error", "one picture in two splits", "pictures: test + train", 1)]
    assert set(report.findings[0].examples[0].split(" = ")) == {held_out, train}


def test_pictures_that_cannot_be_read_are_found_before_regions_are_extracted(tmp_path: Path) -> None:
    pictures = {image: tmp_path / f"{image}.png" for image in IMAGES}
    draw(pictures)
    pictures["c"].write_text("<html>404</html>")
    pictures["d"].unlink()
    pictures["a"].write_bytes(pictures["a"].read_bytes()[:-40])  # its header is whole
    report = data_report(clean(), [], None, pictures=pictures)
    assert found(report) == [("error", "pictures that cannot be read", str(tmp_path), 3)]
    assert f"{pictures['a']}: not a readable picture" in report.findings[0].examples[0]
    assert f"{pictures['c']}: not a readable picture" in report.findings[0].examples[1]
    assert report.findings[0].examples[2] == f"{pictures['d']}: no such file"


def test_an_image_whose_case_differs_is_told_of_the_near_one(regions: RegionStore) -> None:
    captions = [caption("A", "b has no regions", "train"), *(c for c in clean() if c.image_id != "a")]
    report = data_report(captions, [], regions)
    assert report.errors[0].examples == ["A (line 1 has a)"]


def test_numbers_too_small_for_float16_are_told(tmp_path: Path) -> None:
    """Of numbers of 1e-7, float16 keeps one digit or none."""
    regions = [np.full((2, 3), 1.7e-7 if image == [*IMAGES][1] else 1e-3) for image in IMAGES]
    write_regions(tmp_path, list(IMAGES), ((one, np.ones((2, 4))) for one in regions))
    (finding,) = [one for one in data_report(clean(), [], RegionStore(tmp_path)).findings if "float16" in one.what]
    assert (finding.level, finding.count) == ("warning", 1)
    assert finding.examples == [f"{[*IMAGES][1]} (row 1, largest 1.8e-07)"]


def test_regions_that_are_zero_spoil_results_and_odd_boxes_do_not(tmp_path: Path) -> None:
    regions, boxes = [np.ones((2, 3)) for _ in IMAGES], [np.ones((2, 4)) for _ in IMAGES]
    regions[1], boxes[2], boxes[3] = np.zeros((2, 3)), np.array([[0, 0, 1, 1], [0.6, 0, 0.5, 1]]), np.full((2, 4), 1.1)
    write_regions(tmp_path, list(IMAGES), zip(regions, boxes, strict=True))
    report = data_report(clean(), [], RegionStore(tmp_path))
    assert found(report) == [
        ("error", "images whose regions are all zero", str(tmp_path / "regions.npy"), 1),
        ("warning", "images with boxes outside 0…1 or turned round (x2 < x1, y2 < y1)", str(tmp_path / "boxes.npy"), 2),
    ]
    assert [finding.examples for finding in report.findings] == [["b (row 1)"], ["c (row 2)", "d (row 3)"]]
    odd = [*clean(), caption("a", "oh", "train", number=9)]
    before = data_report(odd, [], None)
    assert {finding.level for finding in before.findings} == {"warning"}
    assert before.with_regions(odd, RegionStore(tmp_path)) == data_report(odd, [], RegionStore(tmp_path))


@pytest.mark.parametrize(("swapped", "level"), [(1, "warning"), (30, "error")])
def test_sentences_in_another_language_are_errors_where_they_are_many(swapped: int, level: str) -> None:
    texts = {"en": "the man number {} is with his dog", "de": "der Mann Nummer {} ist mit einem Hund da"}
    captions = [caption("a", texts["en"].format(k), number=k) for k in range(100)]
    captions += [caption("a", texts["de"].format(k), number=100 + k) for k in range(swapped)]
    report = data_report(captions, [pair(None, "train", texts["en"].format(999), texts["en"].format(998))], None)
    assert (level, "sentences that seem to be in 'de'", "train, en", swapped) in found(report)
    assert ("error", "sentences that seem to be in 'en'", "task1, de", 1) in found(report)
    assert len(report.findings) == 2


def test_japanese_counts_characters() -> None:
    report = data_report([caption("a", "犬が草の上を走る", language="ja")], [], None)
    assert report.findings == []
    assert report.lengths[0]["median"] == 8


def test_odd_pairs() -> None:
    report = data_report([], [pair(None, "train", "a \x07 bell", "eine \x07 Glocke")], None)
    assert found(report) == [("warning", "pairs with control characters, line breaks or U+FFFD", "task1", 1)]


def test_errors_come_first_and_all_of_it_can_be_written_down(regions: RegionStore) -> None:
    captions = [caption("a", "a | b"), caption("x", "stands without regions", "train")]
    report = data_report(captions, [pair("a", "train")], regions)
    assert [finding.level for finding in report.findings] == ["error", "warning"]
    assert json.loads(json.dumps(report.as_dict()))["findings"][0]["examples"] == ["x"]
    markdown = report.as_markdown()
    assert "| train | en | human | 2 | 2 |" in markdown
    assert f"| error | images without regions | train, {regions.folder / 'ids.txt'} | 1 | x |" in markdown


def test_an_empty_corpus_is_written_down_too() -> None:
    assert data_report([], [], None).as_markdown().count("none") == 4


def test_examples_are_few() -> None:
    report = data_report([caption("a", f"short {k}", number=k) for k in range(9)], [], None)
    assert (report.findings[0].count, len(report.findings[0].examples)) == (9, 5)


@pytest.mark.slow
def test_a_corpus_of_usual_size_takes_seconds() -> None:
    captions = [
        Caption(f"{k // 5}", f"{k}", "en", f"a man number {k} stands in the street", "train") for k in range(60_000)
    ]
    pairs = [Pair(f"{k}", None, "train", "x", {"en": f"sentence {k}", "de": f"Satz {k}"}) for k in range(200_000)]
    start = time.perf_counter()
    data_report(captions, pairs, None)
    assert time.perf_counter() - start < 15  # 2 s on an idle core


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("  Zwei Männer –  draußen,im T-Shirt! ", "zwei männer draußen im t shirt"),
        ("Ma\u0308nner", "m\u00e4nner"),
        ("“Hi”\u2028_there_", "hi there"),
        ("犬が、走る。", "犬が走る"),
        ("วงกลม สีแดง\u200bเล็ก", "วงกลมสีแดงเล็ก"),
        ("赤い\u3000t シャツ 2", "赤いtシャツ2"),
        ("穿 T 恤、在玩 2 个 red ball", "穿t恤在玩2个red ball"),
        ("हिन्दी।", "हिन्दी"),
        ("3 $ + 4", "3 4"),
        ("Hunde\u00adleine", "hundeleine"),
        ("...", ""),
    ],
)
def test_normalise_sentence(text: str, expected: str) -> None:
    assert normalise_sentence(text) == expected


def test_the_rule_has_another_number_when_it_changes() -> None:
    """Exported models hold hashes of sentences, and the number of the rule by which these were compared."""
    odd = ["Zwei Männer –  draußen,im T-Shirt!", "İstanbul'da ılık", "Straße STRASSE", "赤い 円、四角。", "สีแดง วงกลม",
           "👩‍👧 🐶", "e\u0301", "Ελλάς", "½ cup", "a\u200bb", "don’t", "中文 and 混合", "ﬁsh", "x²", "…"]  # fmt: skip
    found = sum(sentence_hash(text) * 3**place for place, text in enumerate(odd)) % 2**61
    assert (RULE, found) == (4, 1423762775435631880)  # raise RULE where this changes


def test_sentence_hash_is_stable_and_fits_a_signed_64_bit_integer() -> None:
    assert sentence_hash("A dog, running!") == sentence_hash("a  dog running") != sentence_hash("a dog runs")
    assert sentence_hash("a dog running") == 1150286198629142639  # on every machine, in every process
    hashes = [sentence_hash(str(number)) for number in range(1000)]
    assert len(set(hashes)) == 1000
    assert all(0 <= value < 2**63 for value in hashes)
    assert np.array(hashes).dtype == np.int64
