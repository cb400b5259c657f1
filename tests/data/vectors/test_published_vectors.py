"""Published word vectors: which rows are read, and what is refused in one line that names file and line."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from data.errors import DataError
from data.text.text_inputs import WordVocabulary
from data.vectors.published_vectors import read_vectors

ROWS = "the 1 2 3\nHund 0.5 -0.5 1e-2\nhund 4 5 6\nKatze 7 8 9\n, 0 1 0\n"
WORDS = {"hund": 5, "katze": 3, "zebra": 4, ",": 9}


def write(folder: Path, content: str | bytes, name: str = "wiki.de.vec") -> Path:
    path = folder / name
    raw = content.encode() if isinstance(content, str) else content
    path.write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
    return path


def as_dict(path: Path, words: dict[str, int] = WORDS) -> dict[int, list[float]]:
    found = read_vectors(path, words, 3)
    assert found.vectors.dtype == np.float32
    assert not found.warnings
    return dict(zip(found.numbers.tolist(), found.vectors.round(4).tolist(), strict=True))


@pytest.mark.parametrize(
    ("content", "name"),
    [
        (ROWS, "wiki.vec"),
        ("5 3\n" + ROWS, "wiki.vec"),
        ("5 3\n" + ROWS, "wiki.multi.de.vec.gz"),
        ("5 3\n" + ROWS.replace("\n", " \n"), "trailing spaces, as fastText writes them.vec"),
        ("\ufeff5 3\r\n" + ROWS.replace("\n", "\r\n"), "windows.vec"),
        (ROWS.replace(" ", "  ").rstrip() + "\n\n", "two spaces, an empty line.vec"),
        ("5 3\n" + ROWS.rstrip(), "no last newline.vec"),
    ],
)
def test_rows_of_the_vocabulary_are_read_with_a_header_and_without(tmp_path: Path, content: str, name: str) -> None:
    found = as_dict(write(tmp_path, content, name))
    assert found == {5: [4, 5, 6], 3: [7, 8, 9], 9: [0, 1, 0]}  # `hund` before `Hund`, `Katze` as `katze` is missing


def test_a_line_ends_at_a_newline_alone_and_a_word_at_a_space(tmp_path: Path) -> None:
    odd = ["\u2028", "\u0085", "a\u00a0b", "\x0b", "\x1c", ""]
    path = write(tmp_path, f"{len(odd) + 1} 3\n" + "".join(f"{word} 1 1 1\n" for word in odd) + "hund 1 2 3\n")
    assert as_dict(path) == {5: [1, 2, 3]}


def test_nothing_of_the_vocabulary_in_it(tmp_path: Path) -> None:
    found = read_vectors(write(tmp_path, ROWS), {"giraffe": 2}, 3)
    assert found.numbers.shape == (0,)
    assert found.vectors.shape == (0, 3)


def test_of_two_rows_of_a_word_the_first_counts_and_one_line_counts_the_others(tmp_path: Path) -> None:
    content = "hund 1 1 1\n, 2 2 2\nhund 3 3 3\nthe 1 1 1\nthe 1 1 1\nhund 4 4 4\n, 5 5 5\n"
    found = read_vectors(write(tmp_path, content), WORDS, 3)
    assert found.vectors.tolist() == [[1, 1, 1], [2, 2, 2]]
    (warning,) = found.warnings
    assert "wiki.de.vec:3: a word that has a row before, as 3 rows of words of the vocabulary" in warning


def test_a_few_rows_that_are_not_utf8_are_left_out_with_one_warning(tmp_path: Path) -> None:
    rows = b"".join(b"w%d 1 2 3\n" % number for number in range(2000))
    found = read_vectors(write(tmp_path, rows + b"hund 1 2 3\n\xed\xa0\xbd 1 2 3\n"), WORDS, 3)
    assert found.numbers.tolist() == [5]
    (warning,) = found.warnings
    assert "wiki.de.vec:2002: not UTF-8, as 1 of 2,002 rows; they are left out" in warning


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("2 4\na 1 2 3 4\nb 1 2 3 4\n", r":1: vectors of 4 numbers, but vse\.word_dim is 3; set vse\.word_dim=4"),
        ("a 1 2 3 4\nb 1 2 3 4\n", r":1: vectors of 4 numbers, but vse\.word_dim is 3"),
        ("3 3\na 1 2 3\nb 1 2 3\n", r":1: 3 rows by the first line, but the file is cut short, it has 2; get it again"),
        ("1 3\na 1 2 3\nb 1 2 3\n", r":1: 1 rows by the first line, but the file has 2"),
        ("2 3\na 1 2 3\nb 1 2", r":3: 2 numbers behind the word; expected 3 .* the file is cut short: get it again"),
        ("a 1 2 3\nb", r":2: 0 numbers behind the word; expected 3"),
        ("a 1 2 3\nb 1 2 3 4\nc 1 2 3\n", r":2: 4 numbers behind the word; expected 3"),
        ("no vectors\n", r":1: vectors of 1 numbers"),
        ("text\n", r":1: 0 numbers behind the word"),
        ("a 1 2 3\nhund 1 x 3\n", r":2: 'x' is not a number"),
        ("a 1 2 3\nhund 1  2\n", r":2: 2 numbers behind the word; expected 3"),
        ("hund 1 0_5 3\n", r":1: '0_5' is not a number"),
        ("hund 1 inf 3\n", r":1: 'inf' is not a number"),
        ("a 1 2 3\nHund 1 2 nan\n", r":2: 'nan' is not a number"),
        ("hund 1 2 1e39\n", r":1: a number is too large"),  # of single precision
        ("a 1 2 3\nhündin 1 2 3\n".encode("latin-1"), r":2: not UTF-8, as 1 of 2 rows; convert the file to UTF-8"),
        ("", r": no word vectors in it"),
        ("2 3\n", r":1: 2 rows by the first line, but the file is cut short, it has 0"),
    ],
)
def test_bad_input_is_one_line_that_names_file_and_line(tmp_path: Path, content: str | bytes, said: str) -> None:
    path = write(tmp_path, content)
    with pytest.raises(DataError, match=said) as error:
        read_vectors(path, WORDS, 3)
    assert str(error.value).startswith(f"{path}:")
    assert "\n" not in str(error.value)


def test_a_file_that_is_missing_or_not_wholly_packed(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none.vec: no such file; expected word vectors \(.vec, .vec.gz, .bin\)"):
        read_vectors(tmp_path / "none.vec", WORDS, 3)
    path = write(tmp_path, ROWS * 50, "wiki.vec.gz")
    path.write_bytes(path.read_bytes()[:-12])
    with pytest.raises(DataError, match=r"wiki.vec.gz: not a whole gzip file"):
        read_vectors(path, WORDS, 3)
    path.write_bytes(ROWS.encode())
    with pytest.raises(DataError, match=r"wiki.vec.gz: not a whole gzip file"):
        read_vectors(path, WORDS, 3)


def test_the_words_of_a_language() -> None:
    words = ["<pad>", "<unk>", "de:hund", "en:a", "de:10:30", "en:hund", ":"]
    assert WordVocabulary(words, shared=False).words_of("de") == {"hund": 2, "10:30": 4}
    assert WordVocabulary(words, shared=False).words_of("en") == {"a": 3, "hund": 5}
    assert WordVocabulary(words).words_of("de") == {word: number for number, word in enumerate(words) if number > 1}
