"""Every job, killed at moments of all kinds and run again, leaves what an undisturbed run leaves, and does it once."""

import json
import random
import shutil
import signal
import time
from pathlib import Path

import pytest
import torch

from tests.pipeline.kills import Ended, Kills, Moment, but_one
from tests.pipeline.tiny import Tiny

pytestmark = pytest.mark.whole

KILLED = (-signal.SIGKILL, -signal.SIGXFSZ)
STAGE_OF = {
    "corpus": "prepare", "nmt-de-en": "mmt", "mmt-de-en": "mmt", "synthetic-mmt-en-de-en": "augment",
    "vse-san-mmt-fb-1": "vse", "report": "report",
}  # fmt: skip
# In their order, the last after nearly everything is done; `*` stands for the job's folder.
TRAINING = [
    Moment("open *.lock"),
    Moment("step"),
    Moment("open *best.ckpt*", what="cut"),  # the first checkpoint
    Moment("open *last.ckpt*", what="cut"),
    Moment("rename *last.ckpt*"),  # one file of two is new
    Moment("step", 3),  # in the second epoch of translators
    Moment("open *last.ckpt*", what="cut"),  # there is one already
    Moment("rename *last.ckpt*"),
    Moment("open *weights.safetensors", what="cut"),
]
MOMENTS = {
    "corpus": [
        Moment("open *pictures/*", 3, "cut"), Moment("table *captions.parquet", what="cut"),
        Moment("table *pairs.parquet"), Moment("open *regions.npy", what="cut"), Moment("open *standard.npz"),
    ],
    "nmt-de-en": [*TRAINING, Moment("open *network.json")],
    "mmt-de-en": [*TRAINING, Moment("table *val.parquet", what="cut"), Moment("table *twins.parquet")],
    "synthetic-mmt-en-de-en": [
        Moment("open *.lock"), Moment("table *captions.parquet"), Moment("table *captions.parquet", what="cut"),
        Moment("open *examples.html", what="cut"),
    ],
    "vse-san-mmt-fb-1": [
        Moment("open *words.json", what="cut"), *TRAINING[:5], Moment("step", 8), Moment("step", 8), *TRAINING[6:],
        Moment("open *ranks-en.npz", what="cut"), Moment("open *twins-de.npy"),
    ],
    "report": [
        Moment("open *results.jsonl*", what="cut"), Moment("rename *results.jsonl*"),
        Moment("open *report.md*", what="cut"), Moment("rename *report.md*"), Moment("open *report.html*", what="cut"),
    ],
}  # fmt: skip
AFTER_TRAINING = [
    Moment("rmtree *checkpoints"), Moment("remove *.ckpt"), Moment("remove *.ckpt", 2), Moment("open *manifest.json*"),
    Moment("open *manifest.json*", what="cut"), Moment("rename *manifest.json*"), Moment("rename *.partial"),
]  # fmt: skip
FORCED = [
    Moment("rmtree *.partial"), Moment("rename jobs/*/????????????"),  # the old artifact is there, then set aside
    Moment("step", 8), Moment("open *weights.safetensors", what="cut"), Moment("rename *.partial"),
    Moment("remove *.before/*"), Moment("remove *.before/*", 3),  # the new one is there
]  # fmt: skip
FORCE_ONE = {  # a forced stage does all its jobs again: what leaves the others out
    "corpus": [], "synthetic-mmt-en-de-en": ["--augment.paths=[mmt:en-de-en]"],
    "vse-san-mmt-fb-1": ["--vse.only=[mmt-fb]"],
}  # fmt: skip
TRAINED = ("nmt-de-en", "mmt-de-en", "vse-san-mmt-fb-1")


class Undisturbed(dict[str, tuple[Path, list[str]]]):
    """For each job a folder where it was done in one go, and the events of that; done when it is first asked for."""

    def __init__(self, tiny: Tiny, server: Kills, folder: Path) -> None:
        self.tiny, self.server, self.folder = tiny, server, folder

    def __missing__(self, job: str) -> tuple[Path, list[str]]:
        folder = again(self.tiny, self.folder / job, job)
        (ended,) = self.server.run(folder.folder, STAGE_OF[job])
        assert ended.status == 0, ended.said
        self[job] = folder.folder, ended.events
        return self[job]


@pytest.fixture(scope="module")
def undisturbed(tiny: Tiny, server: Kills, tmp_path_factory) -> Undisturbed:
    return Undisturbed(tiny, server, tmp_path_factory.mktemp("undisturbed"))


def some_slow(moments: list[Moment]) -> list:
    """Of four moments three are for the long tests, which try all events too."""
    return [pytest.param(one, marks=pytest.mark.slow if place % 4 else ()) for place, one in enumerate(moments)]


def again(tiny: Tiny, folder: Path, job: str) -> Tiny:
    """All but this job is done."""
    return tiny.without(folder, job)


def artifact(folder: Path, job: str) -> dict[str, object]:
    """What a job left, by file: bytes, and of manifests and the report all but times."""
    if job == "report":
        place = folder / "artifacts" / "tiny" / "report"
    else:
        (place,) = (path for path in (folder / "artifacts" / "jobs" / job).iterdir() if path.suffix != ".lock")
    return contents(place)


def contents(place: Path) -> dict[str, object]:
    """What `artifact` says of one folder."""
    found: dict[str, object] = {
        str(path.relative_to(place)): path.read_bytes()
        for path in place.rglob("*")
        if path.is_file() and path.suffix != ".tmp"  # what a killed report leaves
    }
    if "report.md" in found and "results.jsonl" in found:
        found["report.md"] = found["report.md"].decode().partition("**Cost**")[0]
    elif "manifest.json" in found:
        manifest = json.loads(found["manifest.json"])
        times = ("wall_s", "cpu_s", "peak_memory_mb", "finished", "resumed", "sha256")
        found["manifest.json"] = {name: value for name, value in manifest.items() if name not in times}
    return found


def trained(folder: Path, job: str) -> dict[str, torch.Tensor]:
    """Weights after the last epoch, which need not be the best one."""
    (last,) = (folder / "artifacts" / "jobs" / job).glob("*/checkpoints/last.ckpt")
    return torch.load(last, weights_only=True)["state_dict"]


def lost(run: Ended) -> int:
    """Steps that a killed run took after its last checkpoint: the next one must take them again."""
    since = 0
    for number, event in enumerate(run.events):
        since += event == "step"
        if event.startswith("rename") and event.endswith("last.ckpt.tmp") and number < len(run.events) - 1:
            since = 0
    return since


def check(undisturbed, job: str, folder: Path, killed: list[Ended], last: Ended) -> None:
    """The artifact is that of an undisturbed run, and no finished step or job was done twice."""
    assert last.status == 0, last.said
    before, events = undisturbed[job]
    ours, theirs = artifact(folder, job), artifact(before, job)
    assert ours.keys() == theirs.keys()
    assert [name for name in ours if ours[name] != theirs[name]] == []
    assert last.said.count(" starts") + last.said.count(" continues") <= 1
    assert sum(run.steps - lost(run) for run in killed) + last.steps == events.count("step")


def moments_of(events: list[str], job: str) -> list[Moment]:
    """A kill before every event, and one in the middle of what it writes."""
    seen: dict[str, int] = {}
    moments = []
    for event in events:
        seen[event] = seen.get(event, 0) + 1
        for what in ("kill", "cut") if event.startswith(("open", "table")) and ".lock" not in event else ("kill",):
            moments.append(Moment(event, seen[event], what))
    if job == "corpus":  # a run takes seconds, and pictures are many
        moments = [moment for moment in moments if "pictures" not in moment.event or moment.event.endswith("0.png")]
    return moments


def kill(server: Kills, folder: Path, job: str, moment: Moment) -> Ended:
    (ended,) = server.run(folder, STAGE_OF[job], moment=moment)
    assert ended.status in KILLED, (str(moment), ended.said)
    return ended


@pytest.mark.slow
@pytest.mark.parametrize("job", STAGE_OF)
def test_killed_again_and_again(tiny: Tiny, server: Kills, undisturbed: Undisturbed, tmp_path: Path, job: str) -> None:
    folder = again(tiny, tmp_path, job).folder
    killed = [kill(server, folder, job, moment) for moment in MOMENTS[job]]
    if job in TRAINED:
        killed.append(kill(server, folder, job, Moment("rmtree *checkpoints")))
        whole = again(tiny, tmp_path / "whole", job).folder
        kill(server, whole, job, Moment("rmtree *checkpoints"))
        ours, theirs = trained(folder, job), trained(whole, job)
        assert [name for name in theirs if not torch.equal(ours[name], theirs[name])] == []
    (last,) = server.run(folder, STAGE_OF[job], "-v")
    check(undisturbed, job, folder, killed, last)
    if job in TRAINED:
        assert last.steps == 0  # it was killed after training
    (done,) = server.run(folder, STAGE_OF[job], "-v")
    assert " starts" not in done.said
    assert " continues" not in done.said


@pytest.mark.parametrize("moment", some_slow(AFTER_TRAINING), ids=str)
def test_killed_between_training_and_the_name(tiny, server, undisturbed, tmp_path: Path, moment: Moment) -> None:
    folder = again(tiny, tmp_path, "mmt-de-en").folder
    killed = kill(server, folder, "mmt-de-en", moment)
    (last,) = server.run(folder, "mmt", "-v")
    check(undisturbed, "mmt-de-en", folder, [killed], last)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("job", STAGE_OF)
def test_killed_at_every_event(tiny: Tiny, server: Kills, undisturbed, tmp_path: Path, job: str) -> None:
    moments = moments_of(undisturbed[job][1], job)
    for number, moment in enumerate(moments):
        folder = again(tiny, tmp_path / str(number), job).folder
        killed = kill(server, folder, job, moment)
        (last,) = server.run(folder, STAGE_OF[job], "-v")
        try:
            check(undisturbed, job, folder, [killed], last)
        except AssertionError as error:
            raise AssertionError(str(moment)) from error
        shutil.rmtree(folder)
    print(f"{job}: {len(moments)} moments")


@pytest.mark.slow
@pytest.mark.parametrize("job", STAGE_OF)
def test_killed_at_random_times(tiny: Tiny, undisturbed, tmp_path: Path, job: str) -> None:
    times = random.Random(job)
    whole = again(tiny, tmp_path / "whole", job)
    started = time.monotonic()
    assert whole.start(STAGE_OF[job]).wait(300) == 0
    took = time.monotonic() - started
    for number in range(5):
        folder = again(tiny, tmp_path / str(number), job)
        process = folder.start(STAGE_OF[job])
        time.sleep(times.uniform(0.3, 1.0) * took)  # before that it imports
        process.kill()
        process.communicate()
        process = folder.start(STAGE_OF[job])
        said, _ = process.communicate(timeout=300)
        assert process.returncode == 0, said
        ours, theirs = artifact(folder.folder, job), artifact(undisturbed[job][0], job)
        assert [name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name)] == []


@pytest.mark.parametrize(
    "job",
    [
        pytest.param("mmt-de-en", marks=pytest.mark.slow),
        "vse-san-mmt-fb-1",
        pytest.param("report", marks=pytest.mark.slow),
    ],
)
def test_two_runs_at_once_do_the_work_once(tiny: Tiny, server: Kills, undisturbed, tmp_path: Path, job: str) -> None:
    folder = again(tiny, tmp_path, job).folder
    runs = server.run(folder, STAGE_OF[job], times=2)
    assert [run.status for run in runs] == [0, 0], [run.said for run in runs]
    assert sum(run.steps for run in runs) == undisturbed[job][1].count("step")
    if job != "report":
        assert sum("another process is working on it; waiting" in run.said for run in runs) == 1
    assert artifact(folder, job) == artifact(undisturbed[job][0], job)


def check_forced(server: Kills, undisturbed, tmp_path: Path, job: str, moment: Moment) -> None:
    """Of a done job that is forced and killed the old or the new artifact is whole, and runs end as undisturbed."""
    arguments = STAGE_OF[job], *FORCE_ONE[job]
    folder, expected = tmp_path / "killed", artifact(undisturbed[job][0], job)
    shutil.copytree(undisturbed[job][0], folder)
    (ended,) = server.run(folder, *arguments, "--force", moment=moment)
    assert ended.status in KILLED, (str(moment), ended.said)
    left = [path for path in (folder / "artifacts" / "jobs" / job).iterdir() if path.is_dir()]
    assert expected in [contents(path) for path in left], (str(moment), left)
    for number, more in enumerate(([], ["--force"])):
        again = shutil.copytree(folder, tmp_path / str(number))
        (last,) = server.run(again, *arguments, *more, "-v")
        assert last.status == 0, (str(moment), last.said)
        assert artifact(again, job) == expected, (str(moment), more)


@pytest.mark.parametrize("moment", but_one(FORCED, -1), ids=str)
def test_forced_and_killed(server: Kills, undisturbed, tmp_path: Path, moment: Moment) -> None:
    check_forced(server, undisturbed, tmp_path, "vse-san-mmt-fb-1", moment)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("job", FORCE_ONE)
def test_forced_and_killed_at_every_event(server: Kills, undisturbed, tmp_path: Path, job: str) -> None:
    whole = shutil.copytree(undisturbed[job][0], tmp_path / "whole")
    (ended,) = server.run(whole, STAGE_OF[job], *FORCE_ONE[job], "--force")
    assert ended.status == 0, ended.said
    events = [event for event in ended.events if event == "step" or job in event]
    for number, moment in enumerate(moments_of(events, job)):
        check_forced(server, undisturbed, tmp_path / str(number), job, moment)
        shutil.rmtree(tmp_path / str(number))
