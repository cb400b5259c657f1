"""Processes that share a job: ranks of a distributed run, and runs that meet at one folder."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import pytorch_lightning as pl
import torch
from filelock import FileLock
from pytorch_lightning.demos.boring_classes import BoringModel

from pipeline.engine.job import Job
from pipeline.engine.machine import process_rank, run_id, started_together
from pipeline.engine.workspace import Workspace
from pipeline.errors import RecipeError
from pipeline.recipes.trainer_settings import TrainerSettings
from pipeline.training.trainer import make_trainer
from tests.pipeline.engine.test_jobs import Work, make
from tests.pipeline.tiny import ran

pytestmark = pytest.mark.whole

ROOT = Path(__file__).parents[2]


_OTHER_PROCESS = """
import sys, time
from pathlib import Path
from pipeline.engine.workspace import Workspace
from pipeline.engine.job import Job
from pipeline.engine.runner import Runner

def run(folder, inputs):
    with open(sys.argv[2], "a") as calls:
        calls.write("call\\n")
    (folder / "started").touch()
    time.sleep(1.0)
    return {}

Runner(Workspace(Path(sys.argv[1]))).run([Job("work", "mmt", 1, {"rate": 0.1}, {}, run)])
"""


def test_two_processes_at_once_do_the_work_once_and_the_second_waits(
    workspace: Workspace, tmp_path: Path, capsys
) -> None:
    calls, work = tmp_path / "calls.txt", Work()
    arguments = [sys.executable, "-c", _OTHER_PROCESS, str(workspace.root), str(calls)]
    process = subprocess.Popen(arguments, cwd=ROOT, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    job = make(run=work)
    started = workspace.folder(job).with_name(job.key + ".partial") / "started"
    while not started.exists():
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.01)
    folder = ran(workspace, job)
    assert process.wait(30) == 0
    assert "another process is working on it" in capsys.readouterr().out
    assert work.calls == 0
    assert calls.read_text() == "call\n"
    assert (folder / "started").exists()


def test_force_is_refused_where_ranks_start_by_themselves(workspace: Workspace, monkeypatch) -> None:
    folder, work = ran(workspace, make(run=Work())), Work()
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "one")
    with pytest.raises(RecipeError, match=r"torchrun or SLURM; delete"):
        ran(workspace, make(run=work), force=True)
    assert work.calls == 0
    assert (folder / "manifest.json").is_file()


def test_a_rank_above_0_takes_part_in_its_own_copy_and_leaves_the_folder_alone(
    workspace: Workspace, monkeypatch
) -> None:
    job = Job("work", "mmt", 1, {}, {}, lambda folder, inputs: _take_part(workspace, job, folder), collective=True)
    partial = workspace.folder(job).with_name(job.key + ".partial")
    (partial / "checkpoints").mkdir(parents=True)
    (partial / "checkpoints" / "last.ckpt").write_text("step 5")
    (partial / "weights").write_text("of rank 0")
    monkeypatch.setenv("LOCAL_RANK", "1")
    (partial / "started.json").write_text(json.dumps({"format": 1, "run": run_id()}))
    ran(workspace, job)
    assert (workspace.folder(job) / "weights").read_text() == "of rank 0"
    assert [path.name for path in workspace.folder(job).parent.iterdir()] == [job.key]


def _take_part(workspace: Workspace, job: Job, folder: Path) -> dict:
    assert (folder / "checkpoints" / "last.ckpt").read_text() == "step 5"  # goes on from where rank 0 does
    partial = workspace.folder(job).with_name(job.key + ".partial")
    (partial / "manifest.json").write_text("{}")
    partial.rename(workspace.folder(job))  # rank 0 is done first
    (folder / "weights").write_text("of rank 1")
    return {}


@pytest.mark.parametrize("collective", [True, False])
def test_a_rank_above_0_gives_up_when_rank_0_is_gone(
    workspace: Workspace, monkeypatch, collective: bool, capsys
) -> None:
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setattr("pipeline.engine.perform.PATIENCE", 0.3)
    with pytest.raises(RecipeError, match="rank 0 has not worked on it"):
        ran(workspace, Job("work", "mmt", 1, {}, {}, lambda folder, inputs: {}, collective=collective))
    assert capsys.readouterr().err.count("and waits for rank 0; unset these variables") == 1


def test_a_rank_above_0_is_patient_while_rank_0_works(workspace: Workspace, monkeypatch) -> None:
    job = Job("work", "mmt", 1, {}, {}, lambda folder, inputs: {})
    final = workspace.folder(job)
    final.parent.mkdir(parents=True)

    def rank_0() -> None:
        time.sleep(1)  # three times its patience
        final.mkdir()
        (final / "manifest.json").write_text("{}")

    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setattr("pipeline.engine.perform.PATIENCE", 0.3)
    with FileLock(final.with_name(final.name + ".lock")):
        thread = threading.Thread(target=rank_0)
        thread.start()
        assert ran(workspace, job) == final
        thread.join()


def test_a_rank_above_0_does_not_join_another_run(workspace: Workspace, monkeypatch) -> None:
    job = Job("work", "mmt", 1, {}, {}, lambda folder, inputs: pytest.fail("it joined"), collective=True)
    partial = workspace.folder(job).with_name(job.key + ".partial")
    partial.mkdir(parents=True)
    (partial / "started.json").write_text(json.dumps({"format": 1, "run": "of another"}))
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setattr("pipeline.engine.perform.PATIENCE", 0.3)
    with pytest.raises(RecipeError, match="rank 0 has not worked on it"):
        ran(workspace, job)


def test_copies_of_ranks_that_were_killed_are_cleared_away(workspace: Workspace) -> None:
    final = workspace.folder(make())
    copies = [final.with_name(f"{final.name}.partial-{run}") for run in ("1-1", f"{run_id()}-1")]
    for copy in copies:
        copy.mkdir(parents=True)
    ran(workspace, make())
    assert [copy.exists() for copy in copies] == [False, True]  # the other one is of a rank of this run


_RANK_0 = """
import os, time
from pipeline.engine import perform

perform.GRACE = 0
if os.fork():
    time.sleep(0.5)
    os._exit(0)
os.environ["LOCAL_RANK"] = "1"
with perform._ending_with_rank_0(lambda: {done}):
    time.sleep({seconds})
"""


@pytest.mark.parametrize(
    ("done", "seconds"), [(False, 300), *(pytest.param(*it, marks=pytest.mark.slow) for it in ((True, 2), (False, 0)))]
)
def test_a_rank_above_0_ends_with_its_parent_if_that_leaves_work(done: bool, seconds: int) -> None:
    script = _RANK_0.format(done=done, seconds=seconds) + "time.sleep(2)\n"
    alone = {name: value for name, value in os.environ.items() if name != "BILDWORT_RANK_0"}  # other tests leave it
    command = [sys.executable, "-W", "ignore", "-c", script]
    said = subprocess.run(command, cwd=ROOT, env=alone, stderr=subprocess.PIPE, text=True, timeout=200).stderr
    expected = "error: rank 0 has ended; the same command continues from the last checkpoint\n"
    assert said == (expected if seconds == 300 else "")


SRUN = {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "4", "SLURM_STEP_NUM_TASKS": "4", "SLURM_STEP_ID": "0",
        "SLURM_PROCID": "2", "SLURM_JOB_NAME": "train"}  # fmt: skip
NOT_SRUN = [
    {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "4", "SLURM_JOB_NAME": "train"},  # in an allocation
    {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "4", "SLURM_JOB_NAME": "train", "SLURM_PROCID": "0"},  # in a batch script
    SRUN | {"SLURM_JOB_NAME": "bash"}, SRUN | {"SLURM_JOB_NAME": "interactive"},  # Lightning's word for "by hand"
    SRUN | {"SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0"},  # in the shell that is a step of its own
]  # fmt: skip


def test_srun_starts_all_ranks_at_once(monkeypatch) -> None:
    for name, value in SRUN.items():
        monkeypatch.setenv(name, value)
    assert started_together()
    assert process_rank() == 2
    assert run_id() == "7-0"


@pytest.mark.parametrize("environment", NOT_SRUN)
def test_what_srun_has_not_started_is_one_process(monkeypatch, environment: dict[str, str]) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert not started_together()
    assert process_rank() == 0
    trainer = make_trainer(TrainerSettings(accelerator="cpu", progress=False))
    assert (trainer.world_size, trainer.global_rank) == (1, 0)
    monkeypatch.setenv("LOCAL_RANK", "1")  # one that Lightning has started in there
    assert process_rank() == 1


@pytest.mark.parametrize("environment", [NOT_SRUN[2], {"RANK": "1"}, {"JSM_NAMESPACE_RANK": "1"}])
def test_a_rank_that_is_none_keeps_no_curves_from_lightning(environment: dict[str, str]) -> None:
    """Lightning reads it when it is imported; its loggers would be empty ones."""
    script = "from pipeline.training.trainer import rank_zero_only\nprint(rank_zero_only.rank)"
    said = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, env=os.environ | environment, stdout=subprocess.PIPE, text=True
    ).stdout
    assert said == "0\n"


@pytest.mark.parametrize("environment", [NOT_SRUN[0], {}], ids=["SLURM", "none"])
def test_signals_and_checkpoints_of_slurm_are_not_lightnings(monkeypatch, tmp_path: Path, environment: dict) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hpc_ckpt_1.ckpt").write_text("of another training")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    numbers, seen = (signal.SIGTERM, signal.SIGUSR1), []

    class Look(pl.Callback):
        def on_train_batch_start(self, *_: object) -> None:
            seen.append([signal.getsignal(number) for number in numbers])

    before = [signal.getsignal(number) for number in numbers]
    make_trainer(TrainerSettings(accelerator="cpu", progress=False), max_steps=1, callbacks=[Look()]).fit(BoringModel())
    assert seen == [before]


def test_srun_that_lightning_refuses_is_one_line(monkeypatch) -> None:
    slurm = {"JOB_ID": "1", "NTASKS": "2", "STEP_NUM_TASKS": "2", "PROCID": "0", "STEP_ID": "0", "LOCALID": "0",
             "NODEID": "0", "JOB_NAME": "train", "NODELIST": "a"}  # fmt: skip
    for name, value in slurm.items():
        monkeypatch.setenv(f"SLURM_{name}", value)
    with pytest.raises(RecipeError, match=r"trainer: Lightning refuses these settings: .*--ntasks-per-node=2"):
        make_trainer(TrainerSettings(accelerator="cpu", devices=2, progress=False))
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "x")
    assert not started_together()


def test_a_stage_with_another_number_of_processes_than_the_run_is_refused(monkeypatch) -> None:
    for name, value in {"TORCHELASTIC_RUN_ID": "none", "WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(RecipeError, match=r"2 processes share this run, but trainer\.devices × .* is 1; run the"):
        make_trainer(TrainerSettings(accelerator="cpu", progress=False))


def test_torchrun_or_srun_with_another_number_of_processes_is_one_line(monkeypatch) -> None:
    """Lightning looks only when the training begins; with one device it never does, and each process would train."""
    three = TrainerSettings(accelerator="cpu", devices=3, progress=False)
    with monkeypatch.context() as within:
        for name in ("TORCHELASTIC_RUN_ID", "RANK", "LOCAL_RANK", "GROUP_RANK"):
            within.setenv(name, "0")
        within.setenv("WORLD_SIZE", "2")
        with pytest.raises(RecipeError, match=r"trainer: Lightning refuses these settings: .*world size \(2\)"):
            make_trainer(three)
    for name, value in {**SRUN, "SLURM_LOCALID": "2", "SLURM_NODEID": "0", "SLURM_NTASKS_PER_NODE": "4"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(RecipeError, match=r"trainer: Lightning refuses these settings: .*Set `devices=4`"):
        make_trainer(three)
    with pytest.raises(RecipeError, match=r"4 processes share this run, but trainer\.devices × .* is 1; run the"):
        make_trainer(TrainerSettings(accelerator="cpu", progress=False))


def test_a_stage_on_one_device_behind_one_on_two_is_refused(monkeypatch) -> None:
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    with pytest.raises(RecipeError, match=r"2 processes share this run"):
        make_trainer(TrainerSettings(accelerator="cpu", progress=False))


@pytest.mark.parametrize("strategy", ["ddp_spawn", "ddp_fork", "auto"])
def test_processes_that_end_with_each_training_are_refused(monkeypatch, strategy: str) -> None:
    is_notebook = "pytorch_lightning.trainer.connectors.accelerator_connector._IS_INTERACTIVE"
    monkeypatch.setattr(is_notebook, strategy == "auto")
    with pytest.raises(RecipeError, match=rf"trainer\.devices is 2, but with trainer\.strategy {strategy} the"):
        make_trainer(TrainerSettings(accelerator="cpu", devices=2, strategy=strategy, progress=False))
