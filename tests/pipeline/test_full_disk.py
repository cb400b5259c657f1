"""A disk that is full or closed is told in one line, and breaks nothing: with room, the same command ends the same."""

from pathlib import Path

import pytest

from pipeline.cli import main
from tests.pipeline.kills import Kills, Moment
from tests.pipeline.tiny import Tiny

STAGE_OF = {
    "corpus": "prepare", "mmt-de-en": "mmt", "synthetic-mmt-en-de-en": "augment", "vse-san-mmt-fb-1": "vse"
}  # fmt: skip
# Each kind of writer, in the midst of its file.
SHORT = [
    ("vse-san-mmt-fb-1", "open *last.ckpt.tmp"),
    ("mmt-de-en", "open *weights.safetensors"),
    ("corpus", "open *regions.npy"), ("corpus", "open *pictures/*"), ("vse-san-mmt-fb-1", "open *words.json"),
    ("vse-san-mmt-fb-1", "open *ranks-de.npz"),
    ("corpus", "table *captions.parquet"), ("corpus", "open *about.json"), ("mmt-de-en", "open *best.ckpt.tmp"),
    ("mmt-de-en", "table *test.parquet"), ("mmt-de-en", "open *manifest.json*"),
    ("synthetic-mmt-en-de-en", "table *captions.parquet"), ("synthetic-mmt-en-de-en", "open *examples.html"),
    ("vse-san-mmt-fb-1", "open *twins-en.npy"),
]  # fmt: skip


def fails_and_goes_on(tiny: Tiny, server: Kills, folder: Path, job: str, moment: Moment) -> str:
    """The line of the run that fails; the next one must end as if nothing had been."""
    other = tiny.without(folder, job)
    (failed,) = server.run(folder, STAGE_OF[job], moment=moment)
    assert failed.status == 1, failed.said
    lines = [line for line in failed.said.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1, failed.said
    assert "Traceback" not in failed.said
    assert not list((other.workspace.root / "jobs" / job).glob("*/manifest.json"))
    (again,) = server.run(folder, STAGE_OF[job])
    assert again.status == 0, again.said
    for path in tiny.job(job).rglob("*"):
        if path.is_file() and path.name != "manifest.json":
            assert (other.job(job) / path.relative_to(tiny.job(job))).read_bytes() == path.read_bytes()
    assert other.metrics(job) == tiny.metrics(job)
    return lines[0]


@pytest.mark.slow
@pytest.mark.parametrize(("job", "event"), SHORT)
def test_a_file_that_does_not_fit(tiny: Tiny, server: Kills, tmp_path: Path, job: str, event: str) -> None:
    line = fails_and_goes_on(tiny, server, tmp_path, job, Moment(event, what="short"))
    assert "allow larger files (`ulimit -f unlimited`), then the same command continues" in line  # as `short` ends it


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("ENOSPC", ("No space left on device", "make room")),
        ("EROFS", ("Read-only file system", "allow it")),
        ("EACCES", ("Permission denied", "allow it")),
    ],
)
def test_a_file_that_cannot_be_opened(
    tiny: Tiny, server: Kills, tmp_path: Path, what: str, words: tuple[str, str]
) -> None:
    line = fails_and_goes_on(tiny, server, tmp_path, "mmt-de-en", Moment("open *last.ckpt.tmp", what=what))
    assert all(word in line for word in (*words, "last.ckpt.tmp"))


@pytest.mark.slow
def test_a_folder_that_is_closed_from_the_start(tiny: Tiny, server: Kills, tmp_path: Path) -> None:
    line = fails_and_goes_on(tiny, server, tmp_path, "vse-san-mmt-fb-1", Moment("open *", what="EROFS"))
    assert "cannot be written (Read-only file system); set BILDWORT_ARTIFACTS" in line


def test_another_error_of_the_system_is_not_hidden(fresh: Tiny, monkeypatch) -> None:
    def lacks(recipe, workspace):
        raise FileNotFoundError("a slip of ours")

    monkeypatch.setattr("pipeline.graph.corpus_job", lacks)
    with pytest.raises(FileNotFoundError, match="a slip of ours"):
        main(["prepare", "--recipe", str(fresh.yaml)])
