"""Tables of captions as people have them: TABs or commas, a header or not, quoted as spreadsheets do or not."""

import csv
import io
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data.captions.tables import captions_in, columns_of, is_missing, read_table
from data.corpora.folder import FolderSettings, read
from data.errors import BadLinesError, DataError
from data.lines import byte_lines, read_lines
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


@pytest.mark.parametrize(
    ("header", "columns"),
    [
        ("image,English,German", "picture,caption:en,caption:de"), ("image,Text-DE", "picture,caption:de"),
        ("caption_1,caption_2,image,split", "caption,caption,picture,split"), ("image,texts", "picture,caption"),
        ("image,caption,caption_de", "picture,caption,caption:de"), ("image,caption_id,caption", "picture,-,caption"),
        ("image,caption,en", "picture,caption,-"), ("image,caption,caption_2", "picture,caption,-"),
        ("image,caption_no,caption", "picture,-,caption"), ("image,sentence_no,raw", "picture,-,caption"),
        ("image,caption_en,caption_no", "picture,caption:en,caption:no"), ("picture,en,de", None),
        ("image,comment,comments,alt_text", "picture,caption,-,-"), ("image,texts,alt_text", None),
        ("image,id,size", None), ("image,no", None), ("caption_en,caption_de", None),
        ("image,caption,description", None),
    ],
)  # fmt: skip
def test_a_header_may_have_several_columns_of_captions(header: str, columns: str | None) -> None:
    assert columns_of(header.split(",")) == (columns and columns.split(","))


def test_nothing_is_written_in_several_ways() -> None:
    assert all(map(is_missing, ["", "  ", "NA", "null", "NaN", "None"]))
    assert not any(map(is_missing, ["a", "nano", "nothing"]))


@pytest.mark.parametrize(
    ("name", "text", "options"),
    [
        ("captions.csv", 'image,caption\n0.png,"A dog, running"\n', {"languages": ["en"]}),
        ("captions.txt", 'image,caption\n0.png,"A dog, running"\n', {"languages": ["en"]}),
        ("captions.tsv", "A dog, running\t0.png\n", {"languages": ["en"], "columns": ["caption", "picture"]}),
        ("captions.tsv", "caption\timage\nA dog, running\t0.png\n", {"languages": ["en"]}),
        ("captions.tsv", "0\ten\tA dog, running\n", {}),
        ("results.csv", "image_name| comment_number| comment\n0.png| 0| A dog, running\n", {"languages": ["en"]}),
        ("Flickr8k.token.txt", "0.png#0\tA dog, running\n", {"languages": ["en"]}),
        ("captions.csv", 'file,text\n0.png,"A dog, running"\n', {"languages": ["en"]}),
        ("captions.csv", 'raw,id,filename\n"[""A dog, running""]",7,0.png\n', {"languages": ["en"]}),
        ("captions.tsv", '"0.png#3"\t"en"\t"A dog, running"\n', {}),
        ("captions.tsv", "split\tlanguage\tpath\ttext\n\ten\t0.png\tA dog, running\n", {}),
    ],
)
def test_forms_of_captions(name: str, text: str, options: dict, tmp_path: Path) -> None:
    write_folder(tmp_path, size=3)
    (tmp_path / name).write_text(text)
    (caption,) = read(FolderSettings(captions=name, **options), tmp_path, tmp_path).captions
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


@pytest.mark.parametrize(
    ("heading", "separator"), [("Bild", ";"), ("Bild", ","), ("Bild", "\t"), ("Foto, das erste", "\t")]
)
def test_an_unknown_heading_is_told_and_hides_no_other_line(heading: str, separator: str, tmp_path: Path) -> None:
    write_folder(tmp_path, size=3)
    rows = [[heading, "Text auf Deutsch"], ["0.png", "Ein Hund"], ["gone.png", "Ein Hund"], ["1.png"]]
    (tmp_path / "captions.csv").write_text("\n".join(map(separator.join, rows)))
    with pytest.raises(BadLinesError) as caught:
        read(FolderSettings(captions="captions.csv", languages=["de"]), tmp_path, tmp_path)
    first, second, third = caught.value.told
    assert f"captions.csv:1: no picture {heading!r} in {tmp_path}/pictures; name it by its path" in first
    assert "or leave the line out; or, for a heading, call its columns picture (or image, file, " in first
    assert ", path) and caption (or captions, text, " in first
    assert "captions.csv:3: no picture 'gone.png'" in second
    name = {"\t": "TAB", ",": "COMMA", ";": "SEMICOLON"}[separator]
    assert f"captions.csv:4: 1 fields, expected picture {name} caption, and if wanted {name} split" in third


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


@pytest.mark.parametrize(
    ("cell", "captions"),
    [
        ('["a dog", "a \\"cat\\""]', ["a dog", 'a "cat"']),
        ("['a dog', \"it's a cat\"]", ["a dog", "it's a cat"]),
        ("['a dog'\n 'a cat']", ["a dog", "a cat"]),  # NumPy's
        ('["a \\ud83d\\ude00", null]', ["a \U0001f600"]),
        ("[None, 'two\\nlines']", ["two lines"]),
        ("[]", []),
        ("[a dog]", ["[a dog]"]),
        ("[1, 2]", ["[1, 2]"]),
        ("['a dog", ["['a dog"]),
        ("['a \\ud83d']", ["['a \\ud83d']"]),  # half a character
        ("['\\x']", ["['\\x']"]),
        ("a dog", ["a dog"]),
    ],
)
def test_a_cell_may_hold_a_list_of_captions(cell: str, captions: list[str]) -> None:
    assert captions_in(cell) == captions


TEXT = st.text(st.characters(exclude_categories=["Cs"]))


@given(st.lists(TEXT))
def test_any_captions_come_back_from_a_list(texts: list[str]) -> None:
    wanted = [" ".join(text.split()) for text in texts]
    assert captions_in(json.dumps(texts)) == captions_in(json.dumps(texts, ensure_ascii=False)) == wanted
    assert captions_in(repr(texts)) == wanted


LINE = TEXT.map(lambda text: " ".join(text.split()))


@settings(deadline=None)
@given(
    texts=st.lists(LINE, min_size=1, max_size=5), separator=st.sampled_from(",;|"), ends=st.sampled_from(["\n", "\r\n"])
)
def test_any_captions_come_back_from_a_csv(tmp_path_factory, texts: list[str], separator: str, ends: str) -> None:
    held = io.StringIO()
    writer = csv.writer(held, delimiter=separator, lineterminator=ends)
    writer.writerows([["image", "caption"], *[[f"{number}.png", text] for number, text in enumerate(texts)]])
    path = tmp_path_factory.getbasetemp() / "any.csv"
    path.write_bytes(held.getvalue().encode())
    rows = [cells for _, cells in read_table(path, "captions").rows]
    assert rows == [["image", "caption"], *[[f"{number}.png", text] for number, text in enumerate(texts)]]


@settings(deadline=None)
@given(lines=st.lists(st.lists(LINE, min_size=2, max_size=3), min_size=1, max_size=4))
def test_line_breaks_in_quotation_marks_are_spaces(tmp_path_factory, lines: list[list[str]]) -> None:
    """Of a CSV, and of a TSV all of whose cells a spreadsheet has quoted."""
    for separator, name in (",", "any.csv"), ("\t", "any.tsv"):
        held = io.StringIO()
        writer = csv.writer(held, delimiter=separator, quoting=csv.QUOTE_ALL)
        writer.writerows(
            [["image", "caption"], *[[f"{number}.png", "\n".join(some)] for number, some in enumerate(lines)]]
        )
        path = tmp_path_factory.getbasetemp() / name
        path.write_bytes(held.getvalue().encode())
        texts = [cells[1] for _, cells in read_table(path, "captions").rows[1:]]
        assert texts == [" ".join(some).strip() for some in lines]


def test_a_list_in_a_cell_is_several_captions_of_its_line(tmp_path: Path) -> None:
    write_folder(tmp_path, size=3)
    (tmp_path / "captions.csv").write_text(
        "image,caption\n0.png,\"['A dog', 'Ein Hund ist auf dem Bild', None]\"\n1.png,[]\n2.png,A cat\n"
    )
    corpus = read(FolderSettings(captions="captions.csv", languages=["en", "de"]), tmp_path, tmp_path)
    assert [(one.caption_id, one.language, one.text) for one in corpus.captions] == [
        ("0.png#2", "en", "A dog"), ("0.png#2.2", "de", "Ein Hund ist auf dem Bild"), ("2.png#4", "en", "A cat"),
    ]  # fmt: skip
    assert corpus.place(corpus.captions[1], "de") == f"{tmp_path}/captions.csv:2"
    assert corpus.empty == [f"{tmp_path}/captions.csv:3"]


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
@pytest.mark.parametrize(("separator", "name"), [(",", "captions.csv"), ("\t", "captions.tsv")])
def test_lines_in_a_cell_are_captions_of_its_picture(ends: str, separator: str, name: str, tmp_path: Path) -> None:
    write_folder(tmp_path, size=3)
    rows = ["image#caption", '0.png#"A dog,', " running", "", 'A ""cat"""', '1.png#"A bird"']
    (tmp_path / name).write_text(ends.join(rows).replace("#", separator), newline="")
    corpus = read(FolderSettings(captions=name, languages=["en"]), tmp_path, tmp_path)
    assert [(one.caption_id, one.text) for one in corpus.captions] == [
        ("0.png#2", "A dog,"), ("0.png#2.2", "running"), ("0.png#2.3", 'A "cat"'), ("1.png#6", "A bird"),
    ]  # fmt: skip
    assert corpus.place(corpus.captions[1], "en") == f"{tmp_path}/{name}:2"
    assert corpus.empty == []


def test_a_space_behind_a_comma_is_none_of_the_caption(tmp_path: Path) -> None:
    write_folder(tmp_path, size=2)
    (tmp_path / "captions.csv").write_text('image, caption\n0.png, "A dog, big"\n1.png,  a bird\n')
    corpus = read(FolderSettings(captions="captions.csv", languages=["en"]), tmp_path, tmp_path)
    assert [one.text for one in corpus.captions] == ["A dog, big", "a bird"]


def test_behind_a_bar_and_a_space_quotation_marks_are_of_the_caption(tmp_path: Path) -> None:
    write_folder(tmp_path, size=2)
    rows = '0.png| 0| "Stop" says a sign\n1.png| 0| "A bird .\n1.png| 1| a sign says "go"\n'
    (tmp_path / "results.csv").write_text(f"image_name| comment_number| comment\n{rows}")
    corpus = read(FolderSettings(captions="results.csv", languages=["en"]), tmp_path, tmp_path)
    assert [one.text for one in corpus.captions] == ['"Stop" says a sign', '"A bird .', 'a sign says "go"']


@pytest.mark.parametrize("separator", ["\t", ","])
def test_lines_may_end_as_on_macs(separator: str, tmp_path: Path) -> None:
    (tmp_path / "1.tsv").write_bytes(f"1.jpg{separator}a dog\r2.jpg{separator}a cat\r".encode())
    assert read_table(tmp_path / "1.tsv", "captions").rows == [(1, ["1.jpg", "a dog"]), (2, ["2.jpg", "a cat"])]
    (tmp_path / "1.txt").write_bytes(b"\xef\xbb\xbfa dog\ra cat")
    assert read_lines(tmp_path / "1.txt", "captions") == ["a dog", "a cat"]
    assert [line.rstrip() for line in byte_lines(tmp_path / "1.txt", "")] == [b"\xef\xbb\xbfa dog", b"a cat"]
    (tmp_path / "1.txt").write_bytes(b"one\rtwo\nthree\r")
    assert [*byte_lines(tmp_path / "1.txt", "")] == [b"one\rtwo\n", b"three\r"]
