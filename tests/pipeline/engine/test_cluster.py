"""Jobs on a Dask cluster: where they work, what comes back, and what is said when workers or the scheduler go."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from pipeline.cli import main
from pipeline.engine import cluster
from pipeline.engine.artifacts import read_manifest
from pipeline.engine.cluster import Cluster
from pipeline.errors import RecipeError
from pipeline.recipes.loading import load_recipe
from tests.pipeline.tiny import ROOT, Tiny

pytestmark = pytest.mark.whole

distributed = pytest.importorskip("distributed")
ON_CPU = ["--trainer.accelerator=cpu"]


@pytest.fixture(autouse=True)
def no_number_of_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BILDWORT_JOBS", raising=False)


@pytest.fixture
def dask() -> Iterator["distributed.LocalCluster"]:
    """A scheduler and a worker in this process."""
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=2, processes=False, dashboard_address=None, protocol="tcp"
    ) as here:
        yield here


@pytest.fixture
def jobs(dask: "distributed.LocalCluster") -> Iterator[Cluster]:
    with Cluster(dask.scheduler_address, load_recipe("scenes", ON_CPU)) as here:
        yield here


def test_a_job_works_in_a_process_of_its_own_in_the_same_folder(
    jobs: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (jobs.at_once, jobs.remote) == (2, True)
    monkeypatch.chdir(tmp_path)
    for name in ("BILDWORT_DATA", "SLURM_PROCID", "RANK", "PMI_RANK"):
        monkeypatch.setenv(name, "7")
    call = "open('seen', 'w').write(repr((__import__('os').getpid(), dict(__import__('os').environ)))), print('noise')"
    jobs.submit(eval, call).result(60)
    process, environment = eval((tmp_path / "seen").read_text())
    assert process != os.getpid()
    assert environment["BILDWORT_DATA"] == "7"
    assert environment["OMP_WAIT_POLICY"] == "PASSIVE"
    assert not environment.keys() & {"SLURM_PROCID", "RANK", "PMI_RANK"}


def test_settings_of_this_shell_go_to_the_worker(jobs: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of Weights & Biases too, which the documentation names; its key does not."""
    monkeypatch.setattr(cluster, "perform_apart", lambda call, folder, named: named)
    for name in ("BILDWORT_DATA", "WANDB_MODE", "WANDB_PROJECT", "WANDB_API_KEY", "HOME"):
        monkeypatch.setenv(name, "7")
    sent = jobs.submit(len, "").result(60)
    assert {name for name in sent if not name.startswith("BILDWORT_")} == {"WANDB_MODE", "WANDB_PROJECT"}
    assert sent["BILDWORT_DATA"] == "7"


@pytest.mark.parametrize(
    ("call", "error", "line"),
    [
        ("1 / 0", ZeroDivisionError, "division by zero"),
        ("(_ for _ in ()).throw(type('Own', (Exception,), {})(3))", RuntimeError, "^Own: 3$"),
        ("__import__('os').kill(__import__('os').getpid(), 9)", RecipeError, r"has ended \(-9\); its log says why"),
    ],
)
def test_what_a_job_raises_comes_back(jobs: Cluster, call: str, error: type[Exception], line: str) -> None:
    with pytest.raises(error, match=line):
        jobs.submit(eval, call).result(60)


def test_what_a_job_returns_comes_back(jobs: Cluster) -> None:
    assert jobs.submit(divmod, 17, 5).result(60) == (3, 2)


def test_a_worker_without_the_folder_is_said_in_a_line(jobs: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster.Path, "cwd", lambda: Path("/nowhere/at/all"))
    with pytest.raises(RecipeError, match=r"cannot work in /nowhere/at/all \(No such .*\); workers and this command"):
        jobs.submit(divmod, 17, 5).result(60)


def test_a_process_that_ends_before_it_has_read_its_call_is_said_in_a_line(
    jobs: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster.sys, "executable", shutil.which("false"))
    with pytest.raises(RecipeError, match=r"a process of the worker .* has ended \(1\); its log says why"):
        jobs.submit(len, "x" * 1_000_000).result(60)


def test_stopping_ends_the_processes_of_all_jobs(
    dask: "distributed.LocalCluster", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    call = "open('process', 'w').write(str(__import__('os').getpid())), __import__('time').sleep(600)"
    with suppress(KeyboardInterrupt), Cluster(dask.scheduler_address, load_recipe("scenes", ON_CPU)) as jobs:
        jobs.submit(eval, call)
        while not (path := tmp_path / "process").exists() or not path.read_text():
            time.sleep(0.05)
        raise KeyboardInterrupt
    until = time.monotonic() + 30
    while psutil.pid_exists(int(path.read_text())) and time.monotonic() < until:
        time.sleep(0.05)
    assert not psutil.pid_exists(int(path.read_text()))


@pytest.mark.parametrize(("accelerator", "places"), [("auto", 1), ("cpu", 2)])
def test_a_job_takes_a_gpu_where_workers_declare_some(accelerator: str, places: int) -> None:
    with (
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=2, processes=False, dashboard_address=None, protocol="tcp",
            resources={"GPU": 1},
        ) as dask,
        Cluster(dask.scheduler_address, load_recipe("scenes", [f"--trainer.accelerator={accelerator}"])) as jobs,
    ):  # fmt: skip
        assert jobs.at_once == places
        (worker,), most = dask.workers.values(), 0
        done = [jobs.submit(eval, "__import__('time').sleep(0.5)") for _ in range(2)]
        while not all(one.done() for one in done):
            most = max(most, len(worker.state.executing))
            time.sleep(0.02)
        assert most == places


def test_the_loss_of_the_last_worker_is_said_in_a_line(
    dask: "distributed.LocalCluster", jobs: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "PATIENCE", 0.2)
    jobs.check()
    dask.scale(0)
    while jobs._workers():
        time.sleep(0.05)
    time.sleep(0.3)
    with pytest.raises(RecipeError, match=r"no worker is left at tcp://.*; start some, then the same command"):
        jobs.check()


def test_the_loss_of_the_scheduler_is_said_in_a_line(
    dask: "distributed.LocalCluster", jobs: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "PATIENCE", 1.0)
    begun = tmp_path / "begun"
    future = jobs.submit(eval, f"open({str(begun)!r}, 'w'), __import__('time').sleep(600)")
    while not begun.exists():
        time.sleep(0.05)
    dask.sync(dask.workers[0].close, executor_wait=False)  # else it waits half a minute for the job
    dask.close()
    with pytest.raises(BaseException) as raised:
        future.result(60)
    assert "the scheduler at tcp://" in (jobs.lost(raised.value) or "")


def test_a_cluster_that_is_away_is_said_in_a_line(fresh: Tiny, capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "_CONNECT", 1)
    assert fresh.main("all", "--cluster=tcp://127.0.0.1:9") == 1
    said = " ".join(capsys.readouterr().err.split())
    assert said.startswith("error: --cluster: no Dask scheduler answers at 'tcp://127.0.0.1:9' (")
    assert said.endswith("expected the address that `dask scheduler` prints, tcp://HOST:8786")


def test_what_is_no_address_is_said_in_a_line(fresh: Tiny, capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "_CONNECT", 1)
    assert fresh.main("all", "--cluster=ftp://there") == 1
    assert "no Dask scheduler answers at 'ftp://there'" in " ".join(capsys.readouterr().err.split())


def test_a_missing_package_is_said_in_a_line(capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    assert main(["vse", "scenes", "--cluster=tcp://127.0.0.1:9"]) == 1
    assert capsys.readouterr().err.count("`make setup EXTRA=cluster`") == 1


def start(folder: Path, module: str, *options: str) -> subprocess.Popen:
    """A part of Dask in a process of its own."""
    command = [sys.executable, "-m", f"distributed.cli.{module}", "--scheduler-file", "scheduler.json", *options]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen([*command, "--no-dashboard"], cwd=folder, env=environment, stderr=subprocess.DEVNULL)


@pytest.fixture
def parts(tmp_path: Path) -> Iterator[list[subprocess.Popen]]:
    """A scheduler and two workers, processes of this machine."""
    worker = ("dask_worker", "--no-nanny", "--nthreads=1")
    made = [
        start(tmp_path, "dask_scheduler", "--host=127.0.0.1", "--port=0"),
        *(start(tmp_path, *worker) for _ in "12"),
    ]
    while not (tmp_path / "scheduler.json").exists() or not (tmp_path / "scheduler.json").read_text():
        time.sleep(0.05)
    yield made
    for one in made:
        one.kill()
        one.wait()


def address(folder: Path) -> str:
    return json.loads((folder / "scheduler.json").read_text())["address"]


def kill_who_trains(root: Path, workers: list[subprocess.Popen]) -> None:
    """Kill the worker of the first training that has a checkpoint."""
    until = time.monotonic() + 300
    while not (found := [*root.glob("jobs/vse-*/*.partial/checkpoints/last.ckpt")]):
        assert time.monotonic() < until
        time.sleep(0.01)
    partial = found[0].parents[1]
    process = json.loads((partial / "started.json").read_text())["run"]  # the worker's child
    parent = psutil.Process(int(process)).ppid()
    (worker,) = [one for one in workers if one.pid == parent]
    worker.send_signal(signal.SIGKILL)


@pytest.mark.slow
def test_a_lost_worker_costs_its_last_minutes_alone(tiny: Tiny, tmp_path: Path, parts: list[subprocess.Popen]) -> None:
    """The other worker goes on from its checkpoint, to the bytes of a run without a cluster."""
    here = tiny.without(tmp_path / "tiny", "vse-*")
    run = here.start("vse", f"--cluster={address(tmp_path)}")
    kill_who_trains(here.workspace.root, parts[1:])
    printed = run.communicate(timeout=500)[0]
    assert run.returncode == 0, printed
    names = {path.name for path in (here.workspace.root / "jobs").glob("vse-*")}
    assert len(names) >= 2
    for name in names:
        assert name in printed
        assert here.metrics(name) == tiny.metrics(name)
        for weights in tiny.job(name).glob("*.safetensors"):
            assert (here.job(name) / weights.name).read_bytes() == weights.read_bytes()
    assert sum(read_manifest(here.job(name))["resumed"] for name in names) == 1


@pytest.mark.slow
def test_a_lost_scheduler_is_said_in_a_line(tiny: Tiny, tmp_path: Path, parts: list[subprocess.Popen]) -> None:
    here = tiny.without(tmp_path / "tiny", "vse-*")
    run = here.start("vse", f"--cluster={address(tmp_path)}")
    while not [*here.workspace.root.glob("jobs/vse-*/*.partial/checkpoints/last.ckpt")]:
        time.sleep(0.01)
    parts[0].send_signal(signal.SIGKILL)
    printed = run.communicate(timeout=300)[0]
    assert run.returncode == 1
    assert " ".join(printed.split()).endswith("the same command continues from the last checkpoints")
    assert "error: --cluster: the scheduler at tcp://127.0.0.1:" in printed


@pytest.mark.slow
def test_a_stop_leaves_what_force_was_replacing(tiny: Tiny, tmp_path: Path, parts: list[subprocess.Popen]) -> None:
    here = tiny.without(tmp_path / "tiny", "no-job")
    before = {path.parent for path in here.workspace.root.glob("jobs/vse-*/*/manifest.json")}
    run = here.start("vse", "--force", f"--cluster={address(tmp_path)}")
    while not [*here.workspace.root.glob("jobs/vse-*/*.partial/checkpoints/last.ckpt")]:
        time.sleep(0.01)
    run.send_signal(signal.SIGINT)
    printed = run.communicate(timeout=300)[0]
    assert run.returncode == 130, printed
    assert {path.parent for path in here.workspace.root.glob("jobs/vse-*/*/manifest.json")} == before
