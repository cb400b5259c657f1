"""Jobs side by side leave what jobs one after the other leave, and survive the loss of a process."""

import multiprocessing
import os
import signal
import threading
import time
from pathlib import Path

import pytest

from pipeline.jobs.side_by_side import processes_for
from pipeline.jobs.workspace import read_manifest
from pipeline.recipes.loading import load_recipe
from tests.pipeline.tiny import Tiny


def kill_a_worker(root: Path) -> None:
    """Kill one of the processes as soon as an MT has its first checkpoint."""
    until = time.monotonic() + 120
    while time.monotonic() < until and not [*root.glob("jobs/mt-*/*.partial/checkpoints/*")]:
        time.sleep(0.02)
    os.kill(multiprocessing.active_children()[0].pid, signal.SIGKILL)


@pytest.mark.slow
def test_jobs_side_by_side_are_those_of_one_after_the_other(tiny: Tiny, fresh: Tiny, capfd) -> None:
    """A process is killed on the way; the same command continues."""
    killer = threading.Thread(target=kill_a_worker, args=(fresh.workspace.root,), daemon=True)
    killer.start()
    first = fresh.main("all", "--jobs", "2")
    killer.join()
    assert first == 1
    assert "a process has ended; the same command continues" in " ".join(capfd.readouterr().err.split())
    assert fresh.main("all", "--jobs", "2") == 0
    printed = capfd.readouterr().out
    manifests = sorted((tiny.workspace.root / "jobs").glob("*/*/manifest.json"))
    assert manifests
    for path in manifests:
        own = fresh.workspace.root / path.relative_to(tiny.workspace.root)
        if not own.is_file():  # of another test that shares the fixture
            continue
        assert path.parent.parent.name in printed
        assert read_manifest(own.parent)["metrics"] == read_manifest(path.parent)["metrics"]
        for weights in path.parent.glob("*.safetensors"):
            assert (own.parent / weights.name).read_bytes() == weights.read_bytes()
    assert {one.name for one in (fresh.workspace.root / "jobs").iterdir()} <= {
        path.parent.parent.name for path in manifests
    }


@pytest.mark.parametrize(
    ("overrides", "many"),
    [
        ([], True),
        (["--trainer.threads=null"], False),
        (["--trainer.devices=2"], False),
        (["--trainer.threads=999"], False),
    ],
)
def test_as_many_jobs_as_their_threads_leave_room_for(overrides: list[str], many: bool) -> None:
    cores = len(os.sched_getaffinity(0))
    recipe = load_recipe("scenes", ["--trainer.accelerator=cpu", *overrides])
    assert processes_for(recipe) == (cores if many else 1)
