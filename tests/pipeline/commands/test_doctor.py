"""`doctor`: what it prints, its exit status, and that it writes nothing; and the findings at the end of `prepare`."""

import gzip
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from data.captions.table import Pair
from data.corpora import multi30k
from pipeline.cli import main
from tests.data.official import write_data
from tests.data.spoiling import Copy

TINY = """
base: scenes
corpus: {train: 6, retrieval: 4, validation: 2, test: 2, twins: 2, captions: 1, text_pairs: 4}
regions: {regions: 3, size: 32}
"""


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Copy:
    """Good data, which a recipe finds by BILDWORT_DATA; artifacts would go into a folder beside it."""
    write_data(tmp_path / "good")
    monkeypatch.setenv("BILDWORT_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("BILDWORT_ARTIFACTS", str(tmp_path / "artifacts"))
    return Copy(tmp_path / "good", tmp_path / "data")


def run(capsys: pytest.CaptureFixture, *arguments: str) -> tuple[int, str]:
    capsys.readouterr()
    status = main([*arguments, "--recipe=multi30k-flickr8k"])
    return status, "".join(capsys.readouterr())


def test_good_data(data: Copy, capsys) -> None:
    status, printed = run(capsys, "doctor")
    assert status == 0
    assert "data report: 0 errors, 0 warnings" in printed
    assert all(title in printed for title in ("Captions", "Parallel text", "Lengths in words"))
    assert ["train", "de", "human", "4", "20"] in [line.split() for line in printed.splitlines()]
    assert not (data.root.parent / "artifacts").exists()


def test_a_warning_has_its_place_and_does_not_change_the_status(data: Copy, capsys) -> None:
    place = data.say(data.image("train"), "Dog.")
    status, printed = run(capsys, "doctor")
    assert status == 0
    assert "data report: 0 errors, 1 warning" in printed
    assert f"warning: captions of fewer than 3 words (en): 1× t1.jpg#en2 ({place})" in printed


def test_examples_are_as_many_as_asked_for(data: Copy, capsys) -> None:
    path = data.raw("train", "en", 3)
    data.write(path, ["Dog."] * 6)
    for asked, shown in ((1, 1), (2, 2), (9, 5)):  # five of the six images are in our lists
        _, printed = run(capsys, "doctor", f"--examples={asked}")
        line = next(line for line in printed.splitlines() if "captions of fewer than 3 words" in line)
        assert line.count(path.name) == shown
        assert line.endswith("…") == (shown < 5)


def test_an_error_is_shown_and_the_status_is_one(data: Copy, capsys) -> None:
    data.change("regions", lambda array: array[2].fill(0))
    status, printed = run(capsys, "doctor")
    assert status == 1
    assert "error: images whose regions are all zero" in printed
    assert "1× t3.jpg (row 2)" in printed
    assert printed.splitlines()[-1].startswith("error: multi30k: images whose regions are all zero; they would spoil")


@pytest.mark.parametrize("stage", ["doctor", "prepare"])
def test_a_pair_that_tells_a_translator_the_answer_is_named_with_its_line(data, monkeypatch, capsys, stage) -> None:
    def leaking(*arguments) -> list[Pair]:
        return [replace(pair, split="train") if pair.split == "test" else pair for pair in pairs(*arguments)]

    pairs = multi30k._task1_pairs
    monkeypatch.setattr(multi30k, "_task1_pairs", leaking)
    status, printed = run(capsys, stage)
    assert status == 1
    lines = [line for line in printed.splitlines() if line.startswith("error: training pairs about test images")]
    assert len(lines) == 1
    assert re.search(r"task1#\w+\.jpg \(\S+\.gz:\d+\)", lines[0])


def test_data_that_cannot_be_read_is_one_line(data: Copy, capsys) -> None:
    path = data.raw("val", "de", 4)
    data.write(path, gzip.compress(b"only one line\n"))
    status, printed = run(capsys, "doctor")
    assert status == 1
    assert printed == f"error: {path}: 1 lines for 3 images in image_splits/val_images.txt\n"


def test_neither_regions_nor_pictures(data: Copy, capsys) -> None:
    status, printed = run(capsys, "doctor", "--corpus.regions=null", "--corpus.pictures=null")
    assert status == 1
    assert printed == "error: multi30k: neither regions nor pictures; set corpus.regions or corpus.pictures\n"


def test_a_corpus_that_is_made_is_made_elsewhere(tmp_path: Path, monkeypatch, capsys) -> None:
    (tmp_path / "tiny.yaml").write_text(TINY)
    monkeypatch.setenv("BILDWORT_ARTIFACTS", str(tmp_path / "artifacts"))
    assert main(["doctor", "--recipe", str(tmp_path / "tiny.yaml")]) == 0
    assert "data report: 0 errors" in capsys.readouterr().out
    assert [path.name for path in tmp_path.iterdir()] == ["tiny.yaml"]


def test_prepare_ends_with_the_findings_even_if_it_was_done_before(data: Copy, capsys) -> None:
    place = data.say(data.image("train"), "Dog.")
    for _ in range(2):
        status, printed = run(capsys, "prepare", "-v")
        assert status == 0
        assert "data report: 0 errors, 1 warning" in printed
        assert printed.splitlines()[-1] == f"warning: captions of fewer than 3 words (en): 1× t1.jpg#en2 ({place})"


def test_prepare_counts_the_findings_of_a_kind_and_names_the_file_with_all(data: Copy, capsys) -> None:
    for language in ("en", "de"):
        data.write(data.raw("train", language, 3), ["Dog."] * 6)
    _, printed = run(capsys, "prepare", "-v")
    each = [line for line in printed.splitlines() if line.startswith("warning: captions of fewer than 3 words (")]
    assert len(each) == 2  # a language each
    _, printed = run(capsys, "prepare")
    lines = printed.splitlines()
    (counted,) = [line for line in lines if "fewer than 3 words" in line]
    assert counted == "warning: captions of fewer than 3 words: 10×"  # five of each six images are in our lists
    (head,) = [line for line in lines if line.startswith("data report: 0 errors, ")]
    report = Path(head.partition(" warnings: ")[2])
    assert report.read_text().count("captions of fewer than 3 words") == 2


def test_prepare_names_rows_that_no_caption_needs(data: Copy, capsys) -> None:
    """The report is of the corpus's own store: the copy that is made has no such rows."""
    for name in ("regions", "boxes"):
        array = data.array(name)
        data.write(data.features / f"{name}.npy", np.concatenate([array, array[:1]]))
    data.write(data.ids, [*data.lines(data.ids), "other.jpg"])
    status, printed = run(capsys, "prepare", "-v")
    assert status == 0
    assert f"warning: images without captions ({data.ids}): 1× other.jpg (line 10)" in printed


def test_prepare_prints_all_findings_before_it_gives_up(data: Copy, capsys) -> None:
    data.edit(data.ids, 2, "other.jpg")
    status, printed = run(capsys, "prepare")
    assert status == 1
    assert "data report: 1 error, 1 warning" in printed
    assert "error: multi30k: images without regions (1×, train" in printed.splitlines()[-1]
