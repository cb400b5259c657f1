"""The job of sentence vectors, killed at each of its writings and run again, leaves what an undisturbed run leaves."""

import signal
from pathlib import Path

import pytest
import torch

from tests.modules.text_models import save
from tests.pipeline.kills import Kills, Moment
from tests.pipeline.test_killed import contents
from tests.pipeline.tiny import Tiny

MOMENTS = [
    Moment("open *checkpoints/*.half"), Moment("open *checkpoints/*.half", what="cut"), Moment("rename *.half"),
    Moment("open *vectors.npy"), Moment("open *vectors.npy", what="cut"),
    Moment("table *sentences.parquet", what="cut"), Moment("open *manifest.json*", what="cut"),
    Moment("rmtree *checkpoints"), Moment("rename *sentences-corpus/*.partial"),
]  # fmt: skip


@pytest.fixture(scope="module")
def arguments(tmp_path_factory) -> list[str]:
    torch.manual_seed(0)
    bert = save("bert", tmp_path_factory.mktemp("bert"), ["a", "red", "ball", "bat", "ein"])
    return [
        "vse", "--vse.model=vse++", f"--vse.pretrained={bert}", "--vse.pretrained_vectors=sentences", "--vse.epochs=1",
        "--vse.only=[human]", "--vse.decay_epoch=1", "--vse.reranker.model=null",
    ]  # fmt: skip


@pytest.fixture(scope="module")
def whole(tiny: Tiny, server: Kills, arguments: list[str], tmp_path_factory) -> Tiny:
    made = tiny.without(tmp_path_factory.mktemp("whole"), "vse-*")
    (ended,) = server.run(made.folder, *arguments)
    assert ended.status == 0, ended.said
    return made


@pytest.mark.slow
@pytest.mark.parametrize("moment", MOMENTS)
def test_killed_it_ends_with_the_same_bytes(
    tiny: Tiny, server: Kills, arguments: list[str], whole: Tiny, tmp_path: Path, moment: Moment
) -> None:
    made = tiny.without(tmp_path, "vse-*")
    (ended,) = server.run(made.folder, *arguments, moment=moment)
    assert ended.status in (-signal.SIGKILL, -signal.SIGXFSZ), ended.said
    assert not list((made.workspace.root / "jobs").glob("vse-*"))  # nothing is trained on vectors that are not whole
    (ended,) = server.run(made.folder, *arguments)
    assert ended.status == 0, ended.said
    for name in ("sentences-corpus", "vse-vse++-human-1"):
        ours, theirs = contents(made.job(name)), contents(whole.job(name))
        assert ours.keys() == theirs.keys()
        assert [file for file in ours if ours[file] != theirs[file]] == []
