"""n-best lists in Moses' format."""

from pathlib import Path

import pytest

from data.errors import DataError
from data.translators.nbest import Candidate, nbest_lines, read_nbest

LISTS = """0 ||| ein Ball ||| lm= -2.5 tm= -1 -0.25 ||| -3.75 ||| 0-0 1-1
0 ||| der Ball ||| lm= -3 tm= 1e-1 0 ||| -4
1 |||  ||| tm= 0 0 lm= -9
"""


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_fields_and_features_of_all_kinds_are_read(tmp_path: Path) -> None:
    first, second = read_nbest(write(tmp_path / "lists", LISTS), 2)
    assert first == [
        Candidate("ein Ball", {"lm": -2.5, "tm_0": -1.0, "tm_1": -0.25}),
        Candidate("der Ball", {"lm": -3.0, "tm_0": 0.1, "tm_1": 0.0}),
    ]
    assert second == [Candidate("", {"lm": -9.0, "tm_0": 0.0, "tm_1": 0.0})]
    old = read_nbest(write(tmp_path / "old", "0 ||| a | b ||| d: 0 lm: -2 -3 ||| 1\n"))
    assert old == [[Candidate("a | b", {"d": 0.0, "lm_0": -2.0, "lm_1": -3.0})]]
    bare = read_nbest(write(tmp_path / "bare", "0 ||| a ||| 0.5 -2 ||| 1\n"))
    assert bare == [[Candidate("a", {"F0": 0.5, "F1": -2.0})]]
    tight = read_nbest(write(tmp_path / "tight", "0 ||| a ||| lm=-2 tm=1 3\n"))
    assert tight == [[Candidate("a", {"lm": -2.0, "tm_0": 1.0, "tm_1": 3.0})]]


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    lists = [[Candidate("zwei  ||| Bälle\n", {"logp": -0.5, "length": 2.0})], [Candidate("", {"logp": 0, "length": 0})]]
    text = "\n".join(nbest_lines(lists, [[-0.5], [0.0]]))
    assert text.splitlines()[0] == "0 ||| zwei | | | Bälle ||| logp= -0.5 length= 2 ||| -0.5"
    (one,), (empty,) = read_nbest(write(tmp_path / "lists", text), 2)
    assert one == Candidate("zwei | | | Bälle", {"logp": -0.5, "length": 2.0})
    assert empty.text == ""


def test_what_is_not_used_may_differ(tmp_path: Path) -> None:
    """Sparse features, and dense ones of several lengths."""
    text = "0 ||| a ||| lm= 1 tm= 1 2 x_a= 1\n0 ||| b ||| tm= 1 2 3 lm= 2 x_b= 1 ||| 2\n1 ||| c ||| lm= 3\n"
    lists = write(tmp_path / "lists", text)
    (one, other), (third,) = read_nbest(lists, use=["lm"])
    assert [found.features["lm"] for found in (one, other, third)] == [1, 2, 3]
    with pytest.raises(DataError, match=r"lists:2: features are .*; or name the ones that are used"):
        read_nbest(lists)
    with pytest.raises(DataError, match=r"lists:3: no feature 'tm_0'; it has lm"):
        read_nbest(lists, use=["lm", "tm_0"])


def test_further_features_stand_in_a_file_of_their_own(tmp_path: Path) -> None:
    lists, more = write(tmp_path / "lists", LISTS), write(tmp_path / "more", "image\tsource\n1\t2\n3\t4\n5\t6\n")
    first, second = read_nbest(lists, more=more)
    assert [one.features["image"] for one in [*first, *second]] == [1, 3, 5]
    for text, words in (
        ("image\n1\n2\n", "more: 2 lines of values, but "),
        ("image\n1\n2\nx\n", "more:4: feature image is 'x'; expected a finite number"),
        ("image\n1\n2 2\n3\n", "more:3: 2 values; expected 1: image"),
        ("image image\n1 1\n2 2\n3 3\n", "more:1: features are image, image; expected names, each once"),
        ("", "more:1: features are none"),
        ("lm\n1\n2\n3\n", "more: feature 'lm' stands in "),
    ):
        with pytest.raises(DataError, match=words) as caught:
            read_nbest(lists, more=write(more, text))
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "lists: no line; expected `sentence"),
        ("0 ||| a\n", "lists:1: 2 fields; expected `sentence"),
        ("one ||| a ||| lm= 1\n", "lists:1: sentence 'one'; expected its number"),
        ("-1 ||| a ||| lm= 1\n", "lists:1: sentence '-1'; expected its number"),
        (f"{'9' * 5000} ||| a ||| lm= 1\n", "lists:1: sentence '999"),
        ("1 ||| a ||| lm= 1\n", "lists:1: sentence 1 first; expected 0, each with one"),
        ("0 ||| a ||| lm= 1\n2 ||| a ||| lm= 1\n", "lists:2: sentence 2 after sentence 0"),
        ("0 ||| a ||| lm= 1\n1 ||| a ||| lm= 1\n0 ||| a ||| lm= 1\n", "lists:3: sentence 0 after sentence 1"),
        ("0 ||| a ||| lm= 1\n", "lists: candidates of 1 sentences; expected 2, one list for each"),
        ("0 ||| a ||| lm= nan\n", "lists:1: feature lm is 'nan'; expected a finite number"),
        ("0 ||| a ||| lm= 1 x\n", "lists:1: feature lm is 'x'; expected a finite number"),
        ("0 ||| a ||| 1 x\n", "lists:1: feature F1 is 'x'; expected a finite number"),
        ("0 ||| a ||| lm= 1 ||| inf\n", "lists:1: score is 'inf'; expected a finite number"),
        ("0 ||| a ||| lm= 1 lm= 2\n", "lists:1: feature 'lm' stands twice"),
        ("0 ||| a ||| lm= 1 2 lm_0= 3\n", "lists:1: feature 'lm_0' stands twice"),
        ("0 ||| a ||| lm= tm= 2\n", "lists:1: feature 'lm' has no value"),
        ("0 ||| a |||  ||| 1\n", "lists:1: no feature; expected"),
        ("0 ||| a ||| lm= 1\n0 ||| a ||| lm= 1 2\n", "lists:2: features are lm_0, lm_1; expected those of line 1, lm"),
        ("0 ||| a ||| lm= 1\n0 ||| a ||| \n", "lists:2: features are none; expected those of line 1, lm"),
    ],
)
def test_what_cannot_be_read_is_one_line(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(DataError) as caught:
        read_nbest(write(tmp_path / "lists", text), 2)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file; expected `sentence"):
        read_nbest(tmp_path / "nowhere")
