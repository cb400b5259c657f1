"""One fault at a time in otherwise good data: each is named with its file, and with the line where there is one."""

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from data.corpora.multi30k import Multi30kSettings, read
from data.errors import DataError
from data.findings.report import data_report
from data.pictures.regions import RegionStore
from tests.data import faults_files, faults_text
from tests.data.official import write_data
from tests.data.spoiling import PARTS, Copy

FAULTS = faults_text.fault | faults_files.fault
REAL = Path(os.environ.get("BILDWORT_DATA", "nowhere"))
ALL = 10**9  # examples with a finding: every one


def complaints(data: Copy) -> list[str]:
    """What is said of the data: the error that stops reading, or all findings, a line each."""
    try:
        corpus = read(data.settings(), data.root, data.root)
        report = data_report(corpus, RegionStore(corpus.regions), examples=ALL)
    except DataError as error:
        return [f"error: {error}"]
    return [f"{one.level}: {one.what} ({one.where}): {one.count} {'; '.join(one.examples)}" for one in report.findings]


def tells(complaint: str, words: tuple[object, ...]) -> bool:
    """Whether all words stand in one complaint; a line number is not the start of a longer one."""
    return "\n" not in complaint and all(re.search(re.escape(str(word)) + r"(?!\d)", complaint) for word in words)


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("good")
    write_data(root)
    return root


@pytest.fixture(scope="module")
def said_of_good(good: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return complaints(Copy(good, tmp_path_factory.mktemp("copy")))


def test_nothing_is_said_of_good_data(said_of_good: list[str]) -> None:
    assert said_of_good == []


def test_there_are_thirty_faults_and_more() -> None:
    assert len(FAULTS) >= 30


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_named(name: str, good: Path, tmp_path: Path) -> None:
    data = Copy(good, tmp_path)
    words = FAULTS[name](data)
    said = complaints(data)
    assert any(tells(complaint, words) for complaint in said), (words, said)


needs_real = pytest.mark.skipif(
    not all((REAL / part).is_dir() for part in PARTS),
    reason=f"needs BILDWORT_DATA=FOLDER with {', '.join(PARTS)} in it",
)


@pytest.fixture(scope="module")
def said_of_real(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return complaints(Copy(REAL, tmp_path_factory.mktemp("real")))


@pytest.fixture
def real_copy(tmp_path: Path) -> Iterator[Copy]:
    yield Copy(REAL, tmp_path / "data")
    shutil.rmtree(tmp_path / "data")  # links and spoiled files, up to 100 MB


@needs_real
@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_in_real_data_is_named(name: str, real_copy: Copy, said_of_real: list[str]) -> None:
    words = FAULTS[name](real_copy)
    assert not any(tells(complaint, words) for complaint in said_of_real)
    said = [complaint for complaint in complaints(real_copy) if complaint not in said_of_real]
    assert any(tells(complaint, words) for complaint in said), (words, [complaint[:300] for complaint in said])


@needs_real
def test_the_report_on_real_data_is_what_is_known_of_it(said_of_real: list[str], tmp_path: Path) -> None:
    assert not [complaint for complaint in said_of_real if complaint.startswith("error")]
    data = Copy(REAL, tmp_path)
    report = data_report(read(data.settings(), data.root, data.root), None)
    images = {row["split"]: row["images"] for row in report.captions if row["language"] == "en"}
    assert images == {"train": 5478, "val": 500, "test": 1000}
    assert {"split": "train", "origin": "tatoeba", "languages": "de, en", "pairs": 169813} in report.pairs


@needs_real
def test_real_lines_of_fewer_than_three_words() -> None:
    """All of task 2, official split: 324 of its 310,140 lines."""
    report = data_report(read(Multi30kSettings(), REAL, REAL), None)
    short = [one for one in report.findings if one.what == "captions of fewer than 3 words"]
    assert sum(one.count for one in short) == 324
    assert {(one.where, one.count) for one in short} == {("de", 301), ("en", 23)}
    assert report.errors == []
