"""Sets of sentence pairs with gold scores: what counts, and what is refused in one line."""

import os
from pathlib import Path

import pytest

from data.errors import DataError
from data.evaluation.sts import gold_file, read_sts

PAIRS = "A cat sits.\tA cat is sitting.\nA dog runs.\tRain falls.\nTwo men\ttwo women\n"


def write(folder: Path, pairs: str | bytes = PAIRS, gold: str | bytes = "4.5\n\n0\n", name: str = "images") -> Path:
    path = folder / f"STS2015.input.{name}.txt"
    for file, content in ((path, pairs), (gold_file(path), gold)):
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_pairs_without_a_gold_score_do_not_count(tmp_path: Path) -> None:
    found = read_sts(write(tmp_path))
    assert found.first == ["A cat sits.", "Two men"]
    assert found.second == ["A cat is sitting.", "two women"]
    assert found.gold == [4.5, 0.0]
    assert len(found) == 2


def test_the_files_of_2012_lines_of_windows_and_a_missing_last_newline(tmp_path: Path) -> None:
    path = tmp_path / "STS.input.MSRvid.txt"
    path.write_bytes(b"A man plays.\tA man is playing.\r\nA girl eats.\tA car drives.")
    (tmp_path / "STS.gs.MSRvid.txt").write_bytes(b"5.000\r\n0.200")
    found = read_sts(path)
    assert found.second == ["A man is playing.", "A car drives."]
    assert found.gold == [5.0, 0.2]


@pytest.mark.parametrize(
    ("pairs", "gold", "said"),
    [
        ("a\tb\nc\n", "1\n2\n", r"input.images.txt:2: 1 columns; expected two sentences"),
        ("a\tb\tc\nc\td\n", "1\n2\n", r"input.images.txt:1: 3 columns; expected two sentences"),
        ("a\tb\nc\t \n", "1\n2\n", r"input.images.txt:2: a sentence is empty"),
        ("a\tb\nc\td\n", "1\n", r"gs.images.txt: 1 lines, but STS2015.input.images.txt has 2"),
        ("a\tb\nc\td\n", "1\nx\n", r"gs.images.txt:2: gold score 'x'; expected a number from 0 to 5"),
        ("a\tb\nc\td\n", "5.1\n2\n", r"gs.images.txt:1: gold score '5.1'"),
        ("a\tb\nc\td\n", "1\n-0.1\n", r"gs.images.txt:2: gold score '-0.1'"),
        ("a\tb\nc\td\n", "1\nnan\n", r"gs.images.txt:2: gold score 'nan'"),
        ("a\tb\nc\td\n", "\n\n", r"gs.images.txt: no line has a gold score"),
        ("", "", r"gs.images.txt: no line has a gold score"),
        (b"a\tb\nc\t\xe9\n", "1\n2\n", r"input.images.txt:2: not UTF-8"),
        ("a\tb\nc\td\n", b"1\n\xff\n", r"gs.images.txt:2: not UTF-8"),
    ],
)
def test_bad_input_is_one_line(tmp_path: Path, pairs: str | bytes, gold: str | bytes, said: str) -> None:
    with pytest.raises(DataError, match=said) as error:
        read_sts(write(tmp_path, pairs, gold))
    assert "\n" not in str(error.value)


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    path = write(tmp_path)
    gold_file(path).unlink()
    with pytest.raises(DataError, match=r"gs.images.txt: no such file; expected a gold score for each line of STS2015"):
        read_sts(path)


@pytest.mark.parametrize(("year", "lines"), [("2014", 750), ("2015", 750)])
def test_the_real_sets(year: str, lines: int) -> None:
    path = Path(os.environ.get("BILDWORT_DATA", "")) / "sts" / f"STS{year}.input.images.txt"
    if "BILDWORT_DATA" not in os.environ or not path.is_file():
        pytest.skip("needs SemEval's files in sts/ of BILDWORT_DATA")
    assert len(read_sts(path)) == lines
