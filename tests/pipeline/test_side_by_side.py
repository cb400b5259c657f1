"""Jobs side by side leave what jobs one after the other leave, and survive Ctrl-C and the loss of a process."""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Collection
from pathlib import Path

import pytest

from pipeline.engine.artifacts import read_manifest
from pipeline.engine.job import topological_order
from pipeline.stages import jobs_of
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
    names = require_equal(tiny, fresh)
    assert names == {one.name for one in (fresh.workspace.root / "jobs").iterdir()}
    assert all(name in printed for name in names)


TABLE = """
tables:
  "1":
    title: two systems
    systems:
      plain: {vse: {}, rows: [human]}
      dan: {vse: {model: dan, options: {steps: 1}}, rows: [human, mmt-fb]}
"""


@pytest.mark.slow
def test_the_systems_of_a_table_are_trained_side_by_side(tiny: Tiny, tmp_path: Path, capfd) -> None:
    serial, parallel = (tiny.without(tmp_path / name, "vse-*") for name in ("serial", "parallel"))
    for one in (serial, parallel):
        one.yaml.write_text(one.yaml.read_text() + TABLE)
    assert serial.main("table", "--table=1", "--jobs=1") == 0
    capfd.readouterr()
    both = ("vse-san-human-1", "vse-dan-human-1")
    watcher = threading.Thread(target=see_both, args=(parallel.workspace.root, both), daemon=True)
    watcher.start()
    assert parallel.main("table", "--table=1", "--jobs=2") == 0
    printed = capfd.readouterr().out
    assert {"vse-san-human-1", "vse-dan-human-1", "vse-dan-mmt-fb-1"} <= require_equal(serial, parallel)
    assert "two systems" in printed
    watcher.join(1)
    assert not watcher.is_alive()


def see_both(root: Path, names: Collection[str]) -> None:
    """Come back when jobs are under way at the same time."""
    while not all([*root.glob(f"jobs/{name}/*.partial")] for name in names):
        time.sleep(0.01)


@pytest.mark.slow
def test_after_ctrl_c_nothing_runs_and_the_same_command_continues(tiny: Tiny, tmp_path: Path) -> None:
    here = tiny.without(tmp_path / "tiny", "vse-*")
    run = here.start("vse", "--jobs=2")
    while not [*here.workspace.root.glob("jobs/vse-*/*.partial/checkpoints/last.ckpt")]:
        time.sleep(0.01)
    os.killpg(run.pid, signal.SIGINT)
    printed = run.communicate(timeout=120)[0]  # which ends when no process holds the pipe
    assert run.returncode == 130
    assert printed.rstrip().endswith("stopped; the same command continues from where it was stopped")
    assert "Traceback" not in printed
    assert here.start("vse", "--jobs=2").wait(300) == 0
    assert len([name for name in require_equal(tiny, here) if name.startswith("vse-")]) >= 2


@pytest.mark.slow
def test_after_ctrl_c_the_results_that_were_to_be_replaced_are_there(tiny: Tiny, tmp_path: Path) -> None:
    here = tiny.without(tmp_path / "tiny", "report-*")
    run = here.start("vse", "--jobs=2", "--force")
    while not [*here.workspace.root.glob("jobs/vse-*/*.partial/checkpoints/last.ckpt")]:
        time.sleep(0.01)
    os.killpg(run.pid, signal.SIGINT)
    run.communicate(timeout=120)
    assert run.returncode == 130
    assert len([name for name in require_equal(tiny, here) if name.startswith("vse-")]) >= 2
    assert not [*here.workspace.root.glob("jobs/*/*.before")]
    assert here.main("export", "--output", str(tmp_path / "model")) == 0


def require_equal(one: Tiny, other: Tiny) -> set[str]:
    """The names of the jobs that both have done, after comparing their figures and weights."""
    names = set()
    for path in (one.workspace.root / "jobs").glob("*/*/manifest.json"):
        own = other.workspace.root / path.relative_to(one.workspace.root)
        if not own.is_file():  # of another test that shares the fixture
            continue
        names.add(path.parent.parent.name)
        assert read_manifest(own.parent)["metrics"] == read_manifest(path.parent)["metrics"]
        for weights in path.parent.glob("*.safetensors"):
            assert (own.parent / weights.name).read_bytes() == weights.read_bytes()
    assert names
    return names


def test_another_process_finds_each_job_of_a_command(tiny: Tiny) -> None:
    recipe, workspace = tiny.recipe(), tiny.workspace
    for stage in ("prepare", "mmt", "augment", "vse", "rerank"):
        wanted = {job.key for job in jobs_of("all", recipe, workspace) if job.stage == stage}
        assert wanted <= {job.key for job in topological_order(jobs_of(stage, recipe, workspace))}
    names = {job.name for job in topological_order(jobs_of("draw", recipe, workspace))}
    assert {"corpus", "vse-san-human-1", "draw-san-human-1"} <= names
