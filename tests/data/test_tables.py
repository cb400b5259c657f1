"""Tables of captions as people have them: TABs or commas, a header or not, quoted as spreadsheets do or not."""

from pathlib import Path

import pytest

from data.corpora.folder import FolderSettings, read
from data.errors import DataError
from data.tables import columns_of, is_missing, read_table
from tests.data.layouts import write_folder


def table(folder: Path, text: str, name: str = "captions.tsv") -> list[list[str]]:
    (folder / name).write_text(text, encoding="utf-8")
    return [cells for _, cells in read_table(folder / name, "captions").rows]


def test_what_a_spreadsheet_quotes_is_read_as_it_was_typed(tmp_path: Path) -> None:
    assert table(tmp_path, 'p1.png\t"a ""stop"" sign"\r\np2.png\ta dog\r\n') == [
        ["p1.png", 'a "stop" sign'], ["p2.png", "a dog"],
    ]  # fmt: skip
    assert table(tmp_path, '"p1.png"\t"a dog"\n"p2.png"\t"two\nlines"\n') == [
        ["p1.png", "a dog"], ["p2.png", "two lines"],
    ]  # fmt: skip
    text = 'image,caption\np1.png,"a dog, running"\np2.png,"says ""hi"""\n'
    assert table(tmp_path, text, "captions.txt")[1:] == [["p1.png", "a dog, running"], ["p2.png", 'says "hi"']]
    assert table(tmp_path, "image;caption\np1.png;ein Hund, laufend\n", "captions.csv")[1] == [
        "p1.png", "ein Hund, laufend",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "line",
    ['p1.png\ta 12" pipe', 'p1.png\t"Stop" says the sign', 'p1.png\tsays "hi"', 'p1.png\t"open', 'p1.png\t"a\tb"'],
)
def test_other_quotation_marks_are_kept_and_told(line: str, tmp_path: Path) -> None:
    (tmp_path / "captions.tsv").write_text(f'{line}\np2.png\t"a ""red"" dog"\n')
    found = read_table(tmp_path / "captions.tsv", "captions")
    assert [cells for _, cells in found.rows] == [line.split("\t"), ["p2.png", '"a ""red"" dog"']]
    assert 2 in found.half_quoted


def test_rows_keep_the_numbers_of_their_lines(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('image,caption\n\np1.png,"two\nlines"\np2.png,one\n')
    assert [number for number, _ in read_table(tmp_path / "a.csv", "captions").rows] == [1, 3, 5]


def test_quotation_marks_that_do_not_match_are_told(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('image,caption\np1.png,"a dog\np2.png,one\n')
    with pytest.raises(DataError, match=r"a\.csv:2: its quotation marks do not match"):
        read_table(tmp_path / "a.csv", "captions")


def test_a_header_says_what_columns_hold() -> None:
    assert columns_of(["image", "caption"]) == ["picture", "caption"]
    assert columns_of(["image_name", "comment_number", "comment"]) == ["picture", "-", "caption"]
    assert columns_of(["Caption", "language", "FILE"]) == ["caption", "language", "picture"]
    assert columns_of(["dog.jpg", "a dog"]) is None


def test_nothing_is_written_in_several_ways() -> None:
    assert all(map(is_missing, ["", "  ", "NA", "null", "NaN", "None"]))
    assert not any(map(is_missing, ["a", "nano", "nothing"]))


@pytest.mark.parametrize(
    ("name", "text", "settings"),
    [
        ("captions.csv", 'image,caption\n0.png,"A dog, running"\n', {"languages": ["en"]}),
        ("captions.txt", 'image,caption\n0.png,"A dog, running"\n', {"languages": ["en"]}),
        ("captions.tsv", "A dog, running\t0.png\n", {"languages": ["en"], "columns": ["caption", "picture"]}),
        ("captions.tsv", "caption\timage\nA dog, running\t0.png\n", {"languages": ["en"]}),
        ("captions.tsv", "0\ten\tA dog, running\n", {}),
        ("captions.tsv", '"0.png#3"\t"en"\t"A dog, running"\n', {}),
        ("captions.tsv", "split\tlanguage\tpath\ttext\n\ten\t0.png\tA dog, running\n", {}),
    ],
)
def test_forms_of_captions(name: str, text: str, settings: dict, tmp_path: Path) -> None:
    write_folder(tmp_path, size=3)
    (tmp_path / name).write_text(text)
    (caption,) = read(FolderSettings(captions=name, **settings), tmp_path, tmp_path).captions
    assert (caption.image_id, caption.language, caption.text) == ("0.png", "en", "A dog, running")


def test_a_picture_s_own_name_may_have_a_number_sign(tmp_path: Path) -> None:
    write_folder(tmp_path, size=3)
    (tmp_path / "pictures" / "0.png").rename(tmp_path / "pictures" / "Scan #1.png")
    (tmp_path / "captions.tsv").write_text("Scan #1.png\ten\tA dog\nScan #1.png#1\ten\tA cat\n")
    corpus = read(FolderSettings(), tmp_path, tmp_path)
    assert {one.image_id for one in corpus.captions} == {"Scan #1.png"}
    assert len(corpus.captions) == 2
    assert corpus.unnamed == ["1.png", "2.png"]


def test_columns_that_do_not_fit_are_one_line(tmp_path: Path) -> None:
    write_folder(tmp_path, size=3)
    for columns in (["caption"], ["picture", "caption", "colour"], ["picture", "caption", "caption"]):
        with pytest.raises(DataError, match=r"columns are .*; expected picture and caption"):
            read(FolderSettings(columns=columns), tmp_path, tmp_path)
    (tmp_path / "captions.csv").write_text("image,caption\n0.png,A dog, running\n")
    with pytest.raises(DataError, match=r"captions\.csv:2: 3 fields, .*; write a text with commas in quotation marks"):
        read(FolderSettings(captions="captions.csv", languages=["en"]), tmp_path, tmp_path)
    (tmp_path / "captions.csv").write_text("image,caption\n0.png,A dog\n")
    with pytest.raises(DataError, match=r"no column of languages; set corpus\.languages"):
        read(FolderSettings(captions="captions.csv"), tmp_path, tmp_path)


def test_copies_of_a_picture_are_in_one_split(tmp_path: Path) -> None:
    write_folder(tmp_path, size=60)
    pictures = tmp_path / "pictures"
    for number in range(60):
        (pictures / f"copy-{number}.png").write_bytes((pictures / f"{number}.png").read_bytes())
    lines = [f"{prefix}{number}.png\ten\tA dog {number}" for number in range(60) for prefix in ("", "copy-")]
    (tmp_path / "captions.tsv").write_text("\n".join([*lines[:-1], f"{lines[-1]}\ttest"]))
    split_of = {one.image_id: one.split for one in read(FolderSettings(), tmp_path, tmp_path).captions}
    assert all(split_of[f"{number}.png"] == split_of[f"copy-{number}.png"] for number in range(60))
    assert split_of["59.png"] == "test"  # as its copy, which has a split
    assert len({*split_of.values()}) == 3
