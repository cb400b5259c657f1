"""GXN's jobs, killed at moments of all kinds and run again, leave what an undisturbed run leaves.

Its training has several optimizers and starts from the weights of two others; captions that it writes, objects in what
it draws and the senses of twins are jobs after it.
"""

from pathlib import Path

import pytest

from tests.pipeline.kills import Kills, Moment
from tests.pipeline.test_killed import KILLED, contents
from tests.pipeline.tiny import GXN, Tiny

# In their order; `*` stands for a job's folder. Three trainings have one name: `i2t`, `t2i`, what starts from both.
FIRST = [
    Moment("step", 4),  # an update for captions, not yet one for ranking
    Moment("open *best.ckpt*", what="cut"),
    Moment("rename *last.ckpt*"),
    Moment("open *weights.safetensors", what="cut"),
    Moment("rename *.partial"),
]
SECOND = [
    Moment("step", 8),  # between the discriminator and the generator
    Moment("open *last.ckpt*", what="cut"),
    Moment("rmtree *checkpoints"),
]
BOTH = [
    Moment("open *words.json", what="cut"),
    Moment("step", 7),
    Moment("rename *best.ckpt*"),
    Moment("open *last.ckpt*", 2, "cut"),
    Moment("step", 9),  # with rewards, from the epoch's start
    Moment("open *ranks-en.npz", what="cut"),
    Moment("open *manifest.json*", what="cut"),
]
AFTER = [
    Moment("open *generated-gxn-both-1/*captions.jsonl*", what="cut"),
    Moment("open *generated-en.npz"),
    Moment("open *recognised-de.npz", what="cut"),
    Moment("open *senses-de.npz", what="cut"),
    Moment("rename *senses-gxn-both-1/*.partial"),
]


@pytest.fixture(scope="module")
def whole(tiny: Tiny, server: Kills, tmp_path_factory) -> Tiny:
    """All jobs done in one go."""
    made = tiny.without(tmp_path_factory.mktemp("whole"), "vse-*")
    (ended,) = server.run(made.folder, "vse", *GXN)
    assert ended.status == 0, ended.said
    return made


def artifacts(made: Tiny) -> dict[str, dict[str, object]]:
    """What the jobs left, by folder."""
    jobs = made.workspace.root / "jobs"
    names = ("vse-gxn-*", "generated-gxn-*", "recognised-gxn-*", "senses-gxn-*")
    folders = [path for name in names for path in jobs.glob(f"{name}/*") if path.is_dir()]
    return {str(path.relative_to(jobs)): contents(path) for path in folders}


@pytest.mark.slow
def test_killed_again_and_again(tiny: Tiny, server: Kills, whole: Tiny, tmp_path: Path) -> None:
    made = tiny.without(tmp_path / "killed", "vse-*")
    for moment in [*FIRST, *SECOND, *BOTH, *AFTER]:
        (ended,) = server.run(made.folder, "vse", *GXN, moment=moment)
        assert ended.status in KILLED, (str(moment), ended.said)
    (last,) = server.run(made.folder, "vse", *GXN, "-v")
    assert last.status == 0, last.said
    assert last.steps == 0  # it was killed after training
    ours, theirs = artifacts(made), artifacts(whole)
    assert len(theirs) == 6
    assert ours.keys() == theirs.keys()
    for job, files in theirs.items():
        assert ours[job].keys() == files.keys()
        assert [name for name in files if ours[job][name] != files[name]] == [], job
