"""Jobs of stage rerank, killed at moments of all kinds and run again, leave what an undisturbed run leaves.

Only lists of translations are kept while a job runs (`nbest-…`): other jobs that were killed are done again from their
start, those that were done stay.
"""

import shutil
from pathlib import Path

import pytest

from tests.pipeline.kills import Ended, Kills, Moment
from tests.pipeline.test_killed import KILLED, artifact, moments_of
from tests.pipeline.tiny import Tiny

RERANK = (
    "rerank", "--mmt.directions=[en-de]", "--augment.paths=[]", "--mmt.systems=[mt,mt+picture]",
    "--mmt.rerank.systems={picture: [logp, length, image, source]}", "--mmt.rerank.retrieval={row: both, epochs: 2}",
    "--mmt.rerank.list_size=4", "--mmt.rerank.passes=3", "--mmt.rerank.seeds=[1,2]", "--report.resamples=100",
    "--vse.rows={both: [en/human, de/human]}", "--vse.only=[both]", "-v",
)  # fmt: skip
JOBS = ("nbest-mt-en-de", "mt+picture-en-de", "ablation-mt-en-de")
# In their order, each in a job that the run before it left undone; `*` stands for the job's folder.
MOMENTS = [
    Moment("open *nbest-mt-en-de/*val.lists", what="cut"),
    Moment("table *nbest-mt-en-de/*test.parquet", what="cut"),
    Moment("rename *nbest-mt-en-de/*.partial"),
    Moment("open *mt+picture-en-de/*retrieval/weights.safetensors", what="cut"),
    Moment("open *mt+picture-en-de/*tuning.json", what="cut"),
    Moment("table *mt+picture-en-de/*test.parquet"),
    Moment("open *ablation.json", what="cut"),
    Moment("open *ablation-mt-en-de/*manifest.json*", what="cut"),
]


@pytest.fixture(scope="module")
def undisturbed(tiny: Tiny, server: Kills, tmp_path_factory) -> tuple[Path, Ended]:
    """A folder where the stage was done in one go, and how that went; the retrieval model had been trained."""
    whole = tiny.without(tmp_path_factory.mktemp("undisturbed") / "whole", "nothing").folder
    (first,) = server.run(whole, *RERANK)
    assert first.status == 0, first.said
    folder = before(whole, whole.with_name("again"))
    (ended,) = server.run(folder, *RERANK)
    assert ended.status == 0, ended.said
    assert [name for name in JOBS if artifact(folder, name) != artifact(whole, name)] == []
    return folder, ended


def before(whole: Path, folder: Path) -> Path:
    """A copy in which no job of the stage has been run."""
    shutil.copytree(whole, folder)
    for name in JOBS:
        shutil.rmtree(folder / "artifacts" / "jobs" / name)
    return folder


def kill(server: Kills, folder: Path, moment: Moment) -> None:
    (ended,) = server.run(folder, *RERANK, moment=moment)
    assert ended.status in KILLED, (str(moment), ended.said)


def check(server: Kills, folder: Path, whole: Path) -> None:
    """The next run leaves the same bytes."""
    (last,) = server.run(folder, *RERANK)
    assert last.status == 0, last.said
    for name in JOBS:
        ours, theirs = artifact(folder, name), artifact(whole, name)
        assert ours.keys() == theirs.keys()
        assert [file for file in ours if ours[file] != theirs[file]] == []


@pytest.mark.slow
def test_killed_again_and_again(server: Kills, undisturbed: tuple[Path, Ended], tmp_path: Path) -> None:
    whole, _ = undisturbed
    folder = before(whole, tmp_path / "killed")
    for moment in MOMENTS:
        kill(server, folder, moment)
    check(server, folder, whole)
    (done,) = server.run(folder, *RERANK)
    assert " starts" not in done.said
    assert " continues" not in done.said


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("job", JOBS)
def test_killed_at_every_event(server: Kills, undisturbed: tuple[Path, Ended], tmp_path: Path, job: str) -> None:
    whole, ended = undisturbed
    events = [event for event in ended.events if f"jobs/{job}" in event]
    for number, moment in enumerate(moments_of(events, job)):
        folder = before(whole, tmp_path / str(number))
        kill(server, folder, moment)
        check(server, folder, whole)
        shutil.rmtree(folder)
