"""What performs independent jobs: how many at once, on which GPU, in which order, and that nothing outlives the run."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import psutil
import pytest

from data.processes import cores
from pipeline.cli import main
from pipeline.commands import stages
from pipeline.engine import executors, runner
from pipeline.engine import machine as cost
from pipeline.engine.console import info
from pipeline.engine.executors import JobExecutor, LocalProcesses, processes_for
from pipeline.engine.job import Job
from pipeline.engine.runner import Processes, Runner, executor_for
from pipeline.engine.workspace import Workspace
from pipeline.errors import RecipeError
from pipeline.recipes.loading import load_recipe
from tests.pipeline.tiny import ROOT, Tiny

pytestmark = pytest.mark.whole

CORES = cores()


class Threads(ThreadPoolExecutor, JobExecutor):
    """Two at once; counts what it is sent."""

    at_once = 2

    def __init__(self) -> None:
        super().__init__(2)
        self.sent = 0

    def submit(self, *args, **kwargs):
        self.sent += 1
        return super().submit(*args, **kwargs)


class Work:
    """Jobs `one` and `two`, which are done only if both run at once, and `third`, which needs both."""

    def __init__(self) -> None:
        self.meet, self.runs = threading.Barrier(2), list[str]()
        first = [Job(name, "vse", 1, {}, {}, self.together(name)) for name in ("one", "two")]
        third = Job("third", "vse", 1, {}, {job.name: job for job in first}, self.alone)
        self.jobs = [third, *first]

    def together(self, name: str):
        def run(folder: Path, inputs: dict[str, Path]) -> dict:
            self.meet.wait(20)
            self.runs.append(name)
            return {}

        return run

    def alone(self, folder: Path, inputs: dict[str, Path]) -> dict:
        assert sorted(inputs) == ["one", "two"]
        self.runs.append("third")
        return {}

    def listed(self, recipe: object, workspace: Workspace) -> list[Job]:
        return self.jobs


def _free_memory(monkeypatch: pytest.MonkeyPatch, size: float) -> None:
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=size))


@pytest.mark.parametrize(
    ("overrides", "many"),
    [
        ([], True),
        (["--trainer.threads=null"], False),
        (["--trainer.devices=2"], False),
        (["--trainer.threads=999"], False),
    ],
)
def test_as_many_jobs_as_their_threads_leave_room_for(overrides: list[str], many: bool, monkeypatch) -> None:
    _free_memory(monkeypatch, 1e12)
    recipe = load_recipe("scenes", ["--trainer.accelerator=cpu", *overrides])
    assert processes_for(recipe, []) == (CORES if many else 1)


def test_one_job_for_each_gpu_and_no_more_than_the_memory_holds(monkeypatch) -> None:
    recipe = load_recipe("scenes", ["--trainer.threads=null"])
    monkeypatch.setattr(executors, "cores", lambda: 8)
    _free_memory(monkeypatch, 1e12)
    assert processes_for(recipe, ["0", "1", "2"]) == 3
    assert processes_for(recipe, ["0"]) == 1
    assert processes_for(load_recipe("scenes", ["--trainer.devices=2"]), ["0", "1", "2"]) == 1
    _free_memory(monkeypatch, 3.1e9)
    assert processes_for(recipe, ["0", "1", "2"]) == 2
    _free_memory(monkeypatch, 0.2e9)
    assert processes_for(recipe, ["0", "1", "2"]) == 1


@pytest.fixture(scope="module")
def two_with_gpus() -> Iterator[LocalProcesses]:
    with LocalProcesses(2, ["5", "7"]) as processes:
        yield processes


def seen_gpu(together: str) -> str:
    """The GPU of a process, once two processes have begun."""
    Path(together, str(os.getpid())).touch()
    while len([*Path(together).iterdir()]) < 2:
        time.sleep(0.01)
    return os.environ["CUDA_VISIBLE_DEVICES"]


def test_each_process_sees_the_next_gpu(two_with_gpus: LocalProcesses, tmp_path: Path) -> None:
    seen = [two_with_gpus.submit(seen_gpu, str(tmp_path)) for _ in range(2)]
    assert {one.result(60) for one in seen} == {"5", "7"}


def test_the_gpus_are_those_that_cuda_shows(monkeypatch) -> None:
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert executors.gpus_of(load_recipe("scenes", [])) == ["0", "1"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,GPU-ab")
    assert executors.gpus_of(load_recipe("scenes", [])) == ["3", "GPU-ab"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3")  # of a machine that has two: CUDA shows those that are there
    assert executors.gpus_of(load_recipe("scenes", [])) == ["0", "1"]
    assert executors.gpus_of(load_recipe("scenes", ["--trainer.accelerator=cpu"])) == []


def test_a_job_runs_as_soon_as_what_it_needs_is_done(tmp_path: Path, capsys) -> None:
    work = Work()
    with Threads() as threads:
        run = Runner(Workspace(tmp_path), Processes(threads, None, work.listed)).run
        run(work.jobs[:1])  # and what it needs
        assert sorted(work.runs[:2]) == ["one", "two"]
        assert work.runs[2:] == ["third"]
        assert threads.sent == 3
        capsys.readouterr()
        run(work.jobs)
        assert threads.sent == 3
        assert capsys.readouterr().out.count("is up to date") == 3
        run(work.jobs[1:], force=True)
        assert sorted(work.runs[3:]) == ["one", "two"]


def warning(recipe: object, workspace: Workspace) -> list[Job]:
    """Two jobs that say something."""

    def run(folder: Path, inputs: dict[str, Path]) -> dict:
        info(f"look at {folder.parent.name}", colour="yellow")
        return {}

    return [Job(name, "vse", 1, {}, {}, run) for name in ("one", "two")]


def test_what_jobs_say_in_other_processes_is_printed_here(
    two_with_gpus: LocalProcesses, tmp_path: Path, capsys
) -> None:
    """Before the line of the job, which is printed once."""
    Runner(Workspace(tmp_path), Processes(two_with_gpus, None, warning)).run(warning(None, Workspace(tmp_path)))
    printed = [line.split("  ")[0] for line in capsys.readouterr().out.splitlines()]
    assert sorted([printed[:2], printed[2:]]) == [["look at one", "one"], ["look at two", "two"]]


def test_a_job_whose_files_have_changed_meanwhile_is_said_in_a_line(tmp_path: Path) -> None:
    jobs = [Job(name, "vse", 1, {}, {}, lambda folder, inputs: {}) for name in ("one", "two")]
    said = r"^(one|two): its key is no longer .*run the same command again$"
    with pytest.raises(RecipeError, match=said), Threads() as threads:
        Runner(Workspace(tmp_path), Processes(threads, None, lambda *_: [])).run(jobs)


def test_what_another_machine_has_done_in_a_folder_of_its_own_is_said_in_a_line(tmp_path: Path, monkeypatch) -> None:
    class Elsewhere(Threads):
        def submit(self, *args, **kwargs):
            return super().submit(list)

    monkeypatch.setattr(runner, "_ARRIVAL", 0.3)
    jobs = [Job(name, "vse", 1, {}, {}, lambda folder, inputs: {}) for name in ("one", "two")]
    said = r"another process has done it, but .* is not here; all must see the same"
    with pytest.raises(RecipeError, match=said), Elsewhere() as threads:
        Runner(Workspace(tmp_path), Processes(threads, None, lambda *_: jobs)).run(jobs)


@pytest.mark.parametrize("remote", [False, True])
def test_a_single_job_is_performed_here_unless_others_perform_all(tmp_path: Path, remote: bool) -> None:
    job = Job("single", "vse", 1, {}, {}, lambda folder, inputs: {})
    with Threads() as threads:
        threads.remote = remote
        Runner(Workspace(tmp_path), Processes(threads, None, lambda *_: [job])).run([job])
        assert threads.sent == int(remote)


def test_an_error_of_a_job_stays_what_it_is(tmp_path: Path) -> None:
    def fails(folder: Path, inputs: dict[str, Path]) -> dict:
        raise RecipeError("no such word")

    jobs = [Job(name, "vse", 1, {}, {}, fails) for name in ("one", "two")]
    with pytest.raises(RecipeError, match=r"^no such word$"), Threads() as threads:
        Runner(Workspace(tmp_path), Processes(threads, None, lambda *_: jobs)).run(jobs)


def test_an_error_ends_the_processes_whatever_they_are_at() -> None:
    began = time.monotonic()
    with suppress(KeyboardInterrupt), LocalProcesses(1) as processes:
        processes.submit(time.sleep, 600)
        while not processes._processes:
            time.sleep(0.01)
        (child,) = processes._processes.values()
        raise KeyboardInterrupt
    assert not child.is_alive()
    assert time.monotonic() - began < 60


WAITING = """
import time
from pipeline.engine.executors import LocalProcesses
if __name__ == "__main__":
    with LocalProcesses(2) as processes:
        if {started}:  # else some of them are still importing
            for one in [processes.submit(time.sleep, 1) for _ in range(2)]:
                one.result()
        waiting = [processes.submit(time.sleep, 600) for _ in range(2)]
        time.sleep({after})
        print(*processes._processes, flush=True)
        try:
            waiting[0].result()
        finally:
            time.sleep(1)  # in which the others could print
"""


@pytest.mark.parametrize(
    ("number", "started", "after"),
    [(signal.SIGINT, True, 0), (signal.SIGINT, False, 0.2), (signal.SIGINT, False, 0.5), (signal.SIGKILL, True, 0)],
)
def test_no_process_outlives_a_run_that_is_stopped(tmp_path: Path, number: int, started: bool, after: float) -> None:
    (tmp_path / "waiting.py").write_text(WAITING.format(started=started, after=after))
    run = subprocess.Popen(
        [sys.executable, "waiting.py"], cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    assert run.stdout is not None
    children = [int(word) for word in run.stdout.readline().split()]
    assert children
    # a terminal sends Ctrl-C to all of them
    (os.killpg if number == signal.SIGINT else os.kill)(run.pid, number)
    printed = run.communicate(timeout=60)[1]  # which ends when no process holds the pipe
    assert run.returncode not in (0, None)
    assert printed.count("Traceback") == (number == signal.SIGINT)  # the run's own


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (["--jobs=0"], "--jobs is 0; expected 1 to 1024 processes; without --jobs their number is chosen"),
        (["--jobs", "-2"], "--jobs is -2; expected 1 to 1024"),
        (["--jobs=2", "--cluster=tcp://a:1"], "--jobs counts processes of this machine and --cluster uses other ones"),
        (["--jobs=2", "--trainer.devices=2"], "--jobs=2 performs each job in one process, but trainings run"),
        (["--cluster=tcp://a:1", "--vse.trainer.num_nodes=2"], "--cluster performs each job in one process"),
    ],
)
@pytest.mark.parametrize("command", ["vse", "table"])
def test_options_that_cannot_be_are_refused_in_a_line(
    fresh: Tiny, command: str, options: list[str], line: str, capsys, monkeypatch
) -> None:
    monkeypatch.setenv("BILDWORT_JOBS", "3")  # options come first
    assert fresh.main(command, *options) == 1
    said = " ".join(capsys.readouterr().err.split())
    assert said.startswith(f"error: {line}")


@pytest.mark.parametrize(
    ("named", "options", "line"),
    [
        ("two", [], "BILDWORT_JOBS is 'two'; expected 1 to 1024 processes; without BILDWORT_JOBS"),
        ("0", [], "BILDWORT_JOBS is '0'; expected 1 to 1024"),
        ("2", ["--trainer.devices=2"], "BILDWORT_JOBS=2 performs each job in one process, but trainings run"),
        ("2", ["--cluster=ftp://there"], "--cluster: no Dask scheduler answers at 'ftp://there'"),
    ],
)
def test_the_variable_is_named_where_it_cannot_be_and_gives_way_to_options(
    fresh: Tiny, named: str, options: list[str], line: str, capsys, monkeypatch
) -> None:
    monkeypatch.setenv("BILDWORT_JOBS", named)
    assert fresh.main("vse", *options) == 1
    assert " ".join(capsys.readouterr().err.split()).startswith(f"error: {line}")


def test_the_variable_gives_the_number_of_processes(monkeypatch) -> None:
    recipe = load_recipe("scenes", ["--trainer.accelerator=cpu"])
    monkeypatch.setenv("BILDWORT_JOBS", "3")
    assert executor_for(recipe).at_once == 3
    assert executor_for(recipe, 2).at_once == 2
    monkeypatch.setenv("BILDWORT_JOBS", "1")
    assert executor_for(recipe) is None


def test_the_cpu_time_of_the_whole_run_is_asked_before_its_processes_end(monkeypatch, capsys) -> None:
    asked = []

    @contextmanager
    def runs(*_, **__):
        yield None, mock.Mock()
        asked.append("ended")

    monkeypatch.setattr(stages, "runner_for", runs)
    for name in ("pipeline.stages.all_jobs", "pipeline.stages.run_stages", "pipeline.commands.summary.summary"):
        monkeypatch.setattr(name, lambda *_: None)
    monkeypatch.setattr(cost, "cpu_seconds", lambda running: asked.append(f"running: {running}") or 7.0)
    assert main(["all", "scenes"]) == 0
    assert asked == ["running: True", "ended"]
    assert capsys.readouterr().out.rstrip().endswith("(7 s of CPU time)")


def test_what_starts_all_ranks_together_goes_on_alone(monkeypatch) -> None:
    monkeypatch.delenv("BILDWORT_JOBS", raising=False)
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "here")
    recipe = load_recipe("scenes", ["--trainer.accelerator=cpu"])
    assert executor_for(recipe) is None
    assert executor_for(recipe, 1) is None
    with pytest.raises(RecipeError, match="without torchrun or srun"):
        executor_for(recipe, 2)
