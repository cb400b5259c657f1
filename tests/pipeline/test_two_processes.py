"""The stages on two processes: they leave what one leaves, and when one is killed the other ends and says so."""

import contextlib
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from pipeline.retrieval.ranks import read_ranks
from pipeline.translation.evaluation import read_translations
from tests.pipeline.test_killed import artifact
from tests.pipeline.tiny import Tiny

pytestmark = pytest.mark.whole

ON_TWO = ("--trainer.devices=2", "--trainer.accelerator=cpu")


def ended(process: subprocess.Popen, seconds: float) -> str:
    """What the processes of a run printed, once all of them have ended (each holds the pipe)."""
    try:
        return process.communicate(timeout=seconds)[0]
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def run_on_two(folder: Tiny, stage: str, *arguments: str) -> str:
    process = folder.start(stage, *ON_TWO, *arguments)
    printed = ended(process, 180)
    assert process.returncode == 0, printed
    assert "GLOBAL_RANK: 1, MEMBER: 2/2" in printed or "2 processes" in printed
    return printed


def flat(figures: dict, *names: str) -> dict[tuple[str, ...], object]:
    parts = [flat(value, *names, key) if isinstance(value, dict) else {(*names, key): value}
             for key, value in figures.items()]  # fmt: skip
    return {key: value for part in parts for key, value in part.items()}


NO_DROPOUT = {  # each process draws masks of its own
    "mmt": [
        "--mmt.dropout=0",
        "--mmt.pretrain.steps=0",
        "--mmt.directions=[en-de]",
        "--augment.paths=[mmt:en-de]",
        "--vse.only=[human]",
    ],
    "vse": ["--vse.dropout=0", "--vse.folds=2", "--vse.only=[human]"],
}


@pytest.fixture(scope="module")
def vse_on_two(tiny: Tiny, tmp_path_factory) -> Tiny:
    """Synthetic captions that two processes have written, and retrieval models that they have trained."""
    made = tiny.without(tmp_path_factory.mktemp("two"), "synthetic-*")
    for path in (made.workspace.root / "jobs").glob("vse-*"):
        shutil.rmtree(path)
    run_on_two(made, "all", *NO_DROPOUT["vse"])
    return made


@pytest.fixture(scope="module")
def mmt_on_two(tiny: Tiny, tmp_path_factory) -> Tiny:
    """Translators that two processes have trained."""
    made = tiny.without(tmp_path_factory.mktemp("two"), "m*t-*")
    run_on_two(made, "mmt", *NO_DROPOUT["mmt"])
    return made


@pytest.mark.slow  # tests/modules/training/test_distributed.py compares a training in seconds
@pytest.mark.parametrize(("stage", "pattern"), [("mmt", "m*t-*"), ("vse", "vse-*")])
def test_two_processes_give_the_figures_of_one(
    request: pytest.FixtureRequest, tiny: Tiny, tmp_path: Path, stage: str, pattern: str
) -> None:
    one, two = tiny.without(tmp_path / "one", pattern), request.getfixturevalue(f"{stage}_on_two")
    assert one.main(stage, *NO_DROPOUT[stage]) == 0
    jobs = [path.name for path in (one.workspace.root / "jobs").glob(pattern)]
    assert len(jobs) == {"mmt": 2, "vse": 1}[stage]
    for name in jobs:
        assert two.job(name).name == one.job(name).name  # the same key
        files = [{file.name for file in folder.job(name).iterdir()} for folder in (one, two)]
        assert files[0] == files[1]
        assert [file for file in two.job(name).parent.iterdir() if ".partial" in file.name] == []
        ours, theirs = flat(two.metrics(name)), flat(one.metrics(name))
        assert ours.keys() == theirs.keys()
        for key, value in theirs.items():
            assert ours[key] == (value if isinstance(value, str) else pytest.approx(value, abs=1e-4)), key
        ours, theirs = (load_file(folder.job(name) / "weights.safetensors") for folder in (two, one))
        assert all(torch.allclose(ours[key], theirs[key], rtol=0, atol=2e-3) for key in theirs)  # a fifth of a step
    if stage == "mmt":  # every sentence once, whichever process translated it
        rows = [read_translations(folder.job("mmt-en-de"), "test") for folder in (one, two)]
        assert [(row["pair_id"], row["hypothesis"]) for row in rows[0]] == [
            (row["pair_id"], row["hypothesis"]) for row in rows[1]
        ]
    else:
        ours, theirs = (flat(folder.metrics("folds-2-san-human-1")) for folder in (two, one))
        assert ours == pytest.approx(theirs, abs=1e-4)
        ranks = [read_ranks(folder.job("vse-san-human-1"), "de") for folder in (one, two)]
        assert torch.equal(ranks[0].text_to_image, ranks[1].text_to_image)
        assert torch.equal(ranks[0].image_to_text, ranks[1].image_to_text)


@pytest.mark.slow
def test_two_processes_write_each_caption_once(tiny: Tiny, vse_on_two: Tiny) -> None:
    two = vse_on_two
    for path in (tiny.workspace.root / "jobs").glob("synthetic-*"):
        ours, theirs = two.captions(path.name), tiny.captions(path.name)
        assert len({row["caption_id"] for row in ours}) == len(ours) == 12 - two.metrics(path.name)["empty"]
        assert [row | {"score": None} for row in ours] == [row | {"score": None} for row in theirs]
        assert [row["score"] for row in ours] == pytest.approx([row["score"] for row in theirs], abs=1e-5)
        assert flat(two.metrics(path.name)) == flat(tiny.metrics(path.name))


def rank_1_of(process: subprocess.Popen) -> int:
    """The process that Lightning's rank 0 has started."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    (found,) = [int(one) for one in children if b"pipeline" in Path(f"/proc/{one}/cmdline").read_bytes()]
    return found


def killed_on_two(folder: Tiny, victims: list[int], moment: str, stage: str, *arguments: str) -> None:
    """Kill ranks of a run as soon as a job has left a file; whoever is left must end soon, with one line."""
    process = folder.start(stage, *ON_TWO, *arguments)
    deadline = time.monotonic() + 120
    try:
        while not list((folder.workspace.root / "jobs").glob(moment)):
            assert time.monotonic() < deadline
            assert process.poll() is None, process.stdout.read()
            time.sleep(0.002)
        for pid in [(process.pid, rank_1_of(process))[victim] for victim in victims]:
            os.kill(pid, signal.SIGKILL)
    finally:
        said = ended(process, 60)
    assert not list((folder.workspace.root / "jobs").glob(moment.partition("/")[0] + "/*/weights.safetensors"))
    assert "Traceback" not in said
    if victims == [1]:
        assert process.returncode in (1, -signal.SIGKILL)  # by itself, or by Lightning, who looks every few seconds
        assert "another process of this run has ended" in said or "Forcefully terminating" in said, said
    else:
        assert process.returncode == -signal.SIGKILL
        gone = said.count("another process of this run has ended") + said.count("rank 0 has ended")
        assert gone == (0 if 1 in victims else 1), said


TRAINS = "vse-san-human-1/*.partial/checkpoints/last.ckpt"


def goes_on_and_ends_as(whole: Tiny, folder: Tiny, job: str, stage: str, *arguments: str) -> None:
    printed = run_on_two(folder, stage, *arguments, "-v")
    assert f"{job} {whole.job(job).name} continues" in printed
    ours, theirs = artifact(folder.folder, job), artifact(whole.folder, job)  # and nothing beside it
    assert ours.keys() == theirs.keys()
    assert [name for name in ours if ours[name] != theirs[name]] == []


@pytest.mark.slow
def test_one_of_two_processes_is_killed(tiny: Tiny, vse_on_two: Tiny, tmp_path: Path) -> None:
    folder, arguments = tiny.without(tmp_path, "vse-*"), ("vse", *NO_DROPOUT["vse"])
    killed_on_two(folder, [1], TRAINS, *arguments)
    goes_on_and_ends_as(vse_on_two, folder, "vse-san-human-1", *arguments)


@pytest.mark.slow
@pytest.mark.parametrize("victims", [[0], [1], [0, 1]], ids=str)
@pytest.mark.parametrize(
    ("job", "moment", "arguments"),
    [
        ("vse-san-human-1", TRAINS, ["vse", "--vse.only=[human]"]),
        ("vse-san-human-1", "vse-san-human-1/*.partial-*", ["vse", "--vse.only=[human]"]),  # before they have met
        ("synthetic-mt-en-de", "synthetic-mt-en-de/*.partial-*", ["augment", "--augment.paths=[mt:en-de]"]),
    ],
    ids=["training", "start", "augment"],
)
def test_processes_are_killed(
    tiny: Tiny, tmp_path: Path, victims: list[int], job: str, moment: str, arguments: list[str]
) -> None:
    whole, folder = (tiny.without(tmp_path / name, job) for name in ("whole", "killed"))
    run_on_two(whole, *arguments)
    killed_on_two(folder, victims, moment, *arguments)
    goes_on_and_ends_as(whole, folder, job, *arguments)


@pytest.mark.slow
@pytest.mark.parametrize("signalled", [os.kill, os.killpg], ids=["the first", "both"])
def test_two_processes_end_by_sigterm(tiny: Tiny, tmp_path: Path, signalled) -> None:
    folder = tiny.without(tmp_path, "vse-*")
    process = folder.start("vse", *ON_TWO, "--vse.only=[human]", "--vse.epochs=1000")
    try:
        while not list((folder.workspace.root / "jobs").glob(TRAINS)):
            assert process.poll() is None, process.stdout.read()
            time.sleep(0.002)
        signalled(process.pid, signal.SIGTERM)
    finally:
        said = ended(process, 30)
    assert "stopped; the same command continues from where it was stopped" in said
    assert process.returncode in (143, -signal.SIGKILL)  # by itself, or by Lightning, who looks every few seconds
