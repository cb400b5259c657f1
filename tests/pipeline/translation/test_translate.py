"""`translate`: line n of the output belongs to line n of the input, whatever stands in it."""

import io
import json
from pathlib import Path

import pytest

from data.translators.nbest import read_nbest
from pipeline.translation.evaluation import read_translations
from pipeline.translation.translating import Translated, translate_all
from tests.pipeline.tiny import Tiny

NO_TRANSLATOR = ["--mmt.systems=[]", "--mmt.directions=[]", "--augment.paths=[]", "--vse.only=[none]"]
LOOKS = ["--with", "mmt:en-de", "--input", "in.txt"]


class Stdin:
    """A standard input of this text."""

    def __init__(self, text: str | bytes) -> None:
        self.buffer = io.BytesIO(text if isinstance(text, bytes) else text.encode())


def write(path: Path, lines: list[str]) -> str:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return str(path)


def test_lines_of_all_kinds_stay_in_their_places(tiny: Tiny, tmp_path: Path, capsys) -> None:
    rows = read_translations(tiny.job("mt-en-de"), "test")
    lines = [
        rows[0]["source"], "", "red", "   ", "ΩЖ漢字", " ".join(["red"] * 100), " ".join(["blue ball"] * 2500),
        rows[1]["source"], rows[0]["source"], "\x00", "ΨЩ犬猫",
    ]  # fmt: skip
    arguments = ["--with", "mt:en-de", "--input", write(tmp_path / "in.txt", lines), "--output", str(tmp_path / "out")]
    assert tiny.main("translate", *arguments) == 0
    told = capsys.readouterr().err
    found = (tmp_path / "out").read_text(encoding="utf-8").split("\n")
    assert len(found) == len(lines) + 1
    assert found[-1] == ""
    assert found[0] == found[8] == rows[0]["hypothesis"]
    assert found[7] == rows[1]["hypothesis"]
    assert found[1] == found[3] == found[9] == ""
    assert found[4] == found[10] == ""  # nobody knows these characters
    assert "line 5: 3 of 3 words unknown: ΩЖ, 漢, 字; this translator reads English; not translated\n" in told
    assert (
        "11 lines by mt:en-de; 3 empty lines, left empty; 2 lines with unknown words; 2 lines of unknown words" in told
    )
    assert "lines cut at 100 sub-words" in told


def test_several_best_and_paths_of_more_hops(tiny: Tiny, tmp_path: Path, capsys, monkeypatch) -> None:
    source = read_translations(tiny.job("mt-en-de"), "test")[0]["source"]
    monkeypatch.setattr("sys.stdin", Stdin(f"{source}\n\n"))
    assert tiny.main("translate", "--with", "mt:en-de", "--n-best", "2") == 0
    first, empty = map(json.loads, capsys.readouterr().out.splitlines())
    assert (first["line"], empty) == (1, {"line": 2, "translations": []})
    scores = [one["score"] for one in first["translations"]]
    assert len(scores) == 2
    assert scores == sorted(scores, reverse=True)
    for hops in range(1, 5):
        way = "-".join(["en", "de"] * 3)[: 2 + 3 * hops]
        monkeypatch.setattr("sys.stdin", Stdin(source))
        assert tiny.main("translate", "--with", f"mt:{way}") == 0
        assert len(capsys.readouterr().out.splitlines()) == 1


def test_lists_in_moses_format_have_the_translations_of_the_others(tiny: Tiny, tmp_path: Path) -> None:
    source = read_translations(tiny.job("mt-en-de"), "test")[0]["source"]
    path = write(tmp_path / "in.txt", [source, "", source])
    arguments = ["--with", "mt:en-de", "--n-best", "2", "--input", path]
    assert tiny.main("translate", *arguments, "--output", str(tmp_path / "json")) == 0
    assert tiny.main("translate", *arguments, "--output", str(tmp_path / "lists"), "--moses") == 0
    lines = map(json.loads, (tmp_path / "json").read_text().splitlines())
    for line, some in zip(lines, read_nbest(tmp_path / "lists", 3), strict=True):
        wanted = line["translations"] or [{"text": "", "score": 0}]
        assert [(one.text, one.features["logp"]) for one in some] == [
            (" ".join(one["text"].split()), pytest.approx(one["score"], abs=1e-4)) for one in wanted
        ]


def test_unknown_words_are_named_and_a_line_of_them_alone_stays_empty(tiny: Tiny, capsys, monkeypatch) -> None:
    def translated(text: str, *arguments: str) -> tuple[str, str]:
        monkeypatch.setattr("sys.stdin", Stdin(text))
        assert tiny.main("translate", "--with", "mt:en-de", *arguments) == 0
        return tuple(capsys.readouterr())

    out, told = translated("a red ball\nqwertz uiop\na red qwertz\n")
    assert [bool(line) for line in out.split("\n")] == [True, False, True, False]
    lines = told.splitlines()
    assert lines[0] == "line 2: 2 of 2 words unknown: qwertz, uiop; this translator reads English; not translated"
    assert lines[1] == "line 3: 1 of 3 words unknown: qwertz; this translator reads English"
    assert lines[2].endswith("2 lines with unknown words; 1 line of unknown words alone, not translated")
    out, _ = translated("a red ball\nqwertz uiop\n", "--n-best", "2")
    first, second = map(json.loads, out.splitlines())
    assert "unknown" not in first
    assert second == {"line": 2, "translations": [], "unknown": ["qwertz", "uiop"]}
    _, told = translated("qwertz\n" * 30)
    assert len(told.splitlines()) == 6  # the first five, and the summary


def test_what_says_nothing_on_the_way_is_translated_no_further(tiny: Tiny, capsys, monkeypatch) -> None:
    source, hops = read_translations(tiny.job("mt-en-de"), "test")[0]["source"], []

    def first_is_empty(network, bpe, sentences, *arguments):
        found = translate_all(network, bpe, sentences, *arguments)
        hops.append(len(found))
        return found if len(hops) > 1 else [[Translated(text, "", 0.0)] for text in ("", "ein ball")]

    monkeypatch.setattr("pipeline.export.translate.translate_all", first_is_empty)
    for n_best, empty in (("1", ""), ("2", '{"line": 1, "translations": []}')):
        monkeypatch.setattr("sys.stdin", Stdin(f"{source}\n{source}\n"))
        assert tiny.main("translate", "--with", "mt:en-de-en", "--n-best", n_best) == 0
        printed = capsys.readouterr()
        assert printed.out.splitlines()[0] == empty
        assert "2 lines by mt:en-de-en; 1 line with an empty translation" in printed.err
        assert hops == [2, 1]
        hops.clear()


def test_lines_of_standard_input_may_end_as_on_macs(tiny: Tiny, capsys, monkeypatch) -> None:
    monkeypatch.setattr("sys.stdin", Stdin("a red ball\ra blue bat\r"))
    assert tiny.main("translate", "--with", "mt:en-de") == 0
    assert "2 lines by mt:en-de" in capsys.readouterr().err


def test_what_is_too_long_on_the_way_is_counted(tiny: Tiny, capsys, monkeypatch) -> None:
    def long(network, bpe, sentences, *arguments):
        assert max(map(len, sentences)) <= 100
        return [[Translated("ein roter ball " * 60, "", 0.0)] for _ in sentences]

    monkeypatch.setattr("pipeline.export.translate.translate_all", long)
    monkeypatch.setattr("sys.stdin", Stdin("a red ball\n\na blue bat\n"))
    assert tiny.main("translate", "--with", "mt:en-de-en") == 0
    told = capsys.readouterr().err
    assert "3 lines by mt:en-de-en; 1 empty line, left empty; 2 lines cut at 100 sub-words\n" in told


def test_images_of_lines_that_say_nothing_are_not_asked_for(tiny: Tiny, tmp_path: Path) -> None:
    row = read_translations(tiny.job("mmt-en-de"), "test")[0]
    source, images = write(tmp_path / "in.txt", ["\x00", row["source"], " "]), tmp_path / "images.txt"
    images.write_bytes(f"nowhere\r\n{row['image_id']}\r\n\r\n".encode())
    arguments = ["--with", "mmt:en-de", "--input", source, "--output", str(tmp_path / "out"), "--images", str(images)]
    assert tiny.main("translate", *arguments) == 0
    assert (tmp_path / "out").read_text(encoding="utf-8") == f"\n{row['hypothesis']}\n\n"


def test_a_translator_that_looks_is_shown_the_picture_of_each_line(tiny: Tiny, tmp_path: Path) -> None:
    rows = read_translations(tiny.job("mmt-en-de"), "test")
    images = write(tmp_path / "images.txt", [row["image_id"] for row in rows])
    source = write(tmp_path / "in.txt", [row["source"] for row in rows])
    output = tmp_path / "new" / "out.txt"
    arguments = ["--with", "mmt:en-de", "--input", source, "--output", str(output), "--images", images]
    assert tiny.main("translate", *arguments) == 0
    assert output.read_text(encoding="utf-8").splitlines() == [row["hypothesis"] for row in rows]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "--with is missing"),
        (["--with", "mt:en-de@wide"], "'mt:en-de@wide' names a search"),
        (["--with", "mt:en-de", "--output", "."], "--output .: is a folder"),
        (["--with", "mt:xx-de"], "mt:xx-de, which recipe"),
        (["--with", "mt:en"], "'mt:en' needs"),
        (["--with", "lstm:en-de"], "its systems: nmt, mt, mmt"),
        (["--with", "mt:en-de", *NO_TRANSLATOR], "it has no translators"),
        (["--with", "mt:en-de", "--n-best", "0"], "--n-best is 0"),
        (["--with", "mt:en-de", "--augment.beam_size=0"], "beam_size is 0"),
        (["--with", "mt:en-de", "--input", "nowhere.txt"], "nowhere.txt: no such file"),
        (LOOKS, "mmt reads regions; give --images"),
        (
            ["--with", "mmt:en-de", "--input", "in.txt", "--images", "in.txt"],
            "in.txt:1: image 'a red ball' has no regions",
        ),
        (["--with", "mmt:en-de", "--input", "in.txt", "--images", "two.txt"], "2 images for 1 lines"),
    ],
)
def test_what_cannot_be_translated_is_one_line(tiny: Tiny, capsys, arguments: list[str], words: str) -> None:
    write(tiny.folder / "in.txt", ["a red ball"])
    write(tiny.folder / "two.txt", ["a", "b"])
    assert tiny.main("translate", *arguments) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert words in line


def test_standard_input_that_is_no_text_is_one_line(tiny: Tiny, capsys, monkeypatch) -> None:
    monkeypatch.setattr("sys.stdin", Stdin(b"a red ball\n\xff\n"))
    assert tiny.main("translate", "--with", "mt:en-de") == 1
    assert "standard input:2: not UTF-8" in capsys.readouterr().err


def test_images_are_nothing_to_a_translator_of_text_which_is_said(tiny: Tiny, tmp_path: Path, capsys) -> None:
    source, images = write(tmp_path / "in.txt", ["a red ball"]), write(tmp_path / "images.txt", ["nowhere"])
    arguments = ["--with", "mt:en-de", "--input", source, "--output", str(tmp_path / "out"), "--images", images]
    assert tiny.main("translate", *arguments) == 0
    assert "mt reads no pictures, so --images is not used" in " ".join(capsys.readouterr().err.split())
