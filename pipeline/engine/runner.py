"""Running jobs: in order or side by side, what each needs before it; says what becomes of each."""

import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from data.processes import require_main_guard
from pipeline.engine.artifacts import source_digest
from pipeline.engine.console import Message, debug, flag, info, unsaid
from pipeline.engine.executors import JobExecutor, LocalProcesses, gpus_of, processes_for, trains_alone
from pipeline.engine.job import Job, topological_order
from pipeline.engine.machine import process_rank, started_together
from pipeline.engine.machine_errors import explained
from pipeline.engine.perform import keep_old, perform
from pipeline.engine.progress import Progress
from pipeline.engine.workspace import Workspace
from pipeline.errors import RecipeError
from pipeline.recipes.settings import Recipe

_ARRIVAL = 60.0  # seconds that a file written on another machine may take to be seen here
_MOST_JOBS = 1024
_LOOK = 1.0  # seconds between looks at the executor


@dataclass(frozen=True)
class Processes:
    """Other processes that perform jobs.

    Attributes:
        list_jobs: all of its jobs in a workspace; a function that the processes can import, for jobs themselves cannot
            be sent there.
    """

    executor: JobExecutor
    recipe: Recipe
    list_jobs: Callable[[Recipe, Workspace], list[Job]]


class Runner:
    """Runs jobs.

    Args:
        processes: perform independent jobs side by side; None: one job after the other, in this process.
    """

    def __init__(self, workspace: Workspace, processes: Processes | None = None) -> None:
        self.workspace, self._processes, self._warned = workspace, processes, False
        self._progress = Progress(1 if processes is None else processes.executor.at_once)

    def expect(self, jobs: Iterable[Job], force: bool = False) -> None:
        """Say which jobs this run is about to perform, so that each one's line tells how much is left.

        Args:
            jobs: in any order; one may be named several times.
        """
        named = list(jobs)
        wanted = [job for job in named if force or not self.workspace.done(job)]
        if process_rank() == 0:
            self._progress.line_up(named)
            if wanted:
                self._progress.expect(wanted, self.workspace.manifests_of_this_machine())
        if self._processes is not None and len(wanted) > 1:
            self._processes.executor.expect()

    def run(self, jobs: Iterable[Job], force: bool = False) -> None:
        """Run jobs and, before them, the inputs that are not done; `force` applies to the jobs themselves.

        Raises:
            DataError: a process that is being started begins anew what this one does.
            RecipeError: a job cannot be done, or what performs it has ended.
        """
        require_main_guard()
        named = list(jobs)
        keys = {job.key for job in named}
        wanted = [job for job in topological_order(named) if job.key in keys or not self.workspace.done(job)]
        undone = [job for job in wanted if not self.workspace.done(job) or (force and job.key in keys)]
        processes = self._processes
        if processes is None or started_together() or not (len(undone) > 1 or processes.executor.remote):
            for job in wanted:
                with explained(job.stage):
                    performed = perform(job, self.workspace, force and job.key in keys)
                self._say(job, performed)
            return
        for job in wanted:
            if job not in undone:
                self._say(job, performed=False)
        for job, messages in self._side_by_side(processes, undone, keys if force else ()):
            for message in messages:
                info(*message)
            self._await(job)
            self._say(job, performed=True)

    def _side_by_side(
        self, processes: Processes, jobs: Sequence[Job], forced: Collection[str]
    ) -> Iterator[tuple[Job, list[Message]]]:
        """Perform jobs, each when what it needs is done and a process is free; yield each, done, with its messages."""
        waiting, running = list(jobs), dict[Future[list[Message]], Job]()
        undone, executor, work = {job.key for job in jobs}, processes.executor, self._progress.work_from(jobs)
        try:
            while waiting or running:
                ready = [job for job in waiting if not undone & {needed.key for needed in job.inputs.values()}]
                ready.sort(key=lambda job: -work[job.key])  # a long chain must not begin last
                for job in ready if executor.remote else ready[: executor.at_once - len(running)]:
                    waiting.remove(job)
                    task = (processes.recipe, processes.list_jobs, self.workspace.root, job.name, job.key)
                    running[executor.submit(_perform, *task, job.key in forced)] = job
                for future in wait(running, timeout=_LOOK, return_when=FIRST_COMPLETED).done:
                    job = running.pop(future)
                    messages = future.result()
                    undone.remove(job.key)
                    yield job, messages
                executor.check()
        except BaseException as error:
            executor.stop()
            for job in (job for job in jobs if job.key in forced):
                keep_old(job, self.workspace)
            if (line := executor.lost(error)) is None:
                raise
            raise RecipeError(line) from None

    def _await(self, job: Job) -> None:
        """Wait for the files of a job that another process has finished: a network's file system shows them later."""
        until, folder = time.monotonic() + _ARRIVAL, self.workspace.folder(job)
        while not self.workspace.done(job) and time.monotonic() < until:
            with suppress(OSError):
                list(folder.parent.iterdir())  # makes NFS look again
            time.sleep(0.1)
        if not self.workspace.done(job):
            raise RecipeError(
                f"{job.name}: another process has done it, but {folder} is not here; all must see the same folders "
                "under the same paths"
            )

    def _say(self, job: Job, performed: bool) -> None:
        """Say what has become of a job, on rank 0."""
        if process_rank() > 0:
            return
        manifest = self.workspace.manifest(job)
        figure = job.headline(manifest.get("metrics", {}))
        if performed:
            info(self._progress.finish(job, manifest, figure))
            used = f"{manifest['cpu_s']:.0f} s of CPU time, {manifest['peak_memory_mb']:.0f} MB at most"
            debug(f"  {used}: {self.workspace.folder(job)}")
        else:
            info(self._progress.skip(job, figure), colour="dim")
        if not self._warned and manifest.get("source") != source_digest():
            self._warned = True
            info(f"at least one of these jobs ran with other source code; {flag('--force')} of a stage runs them again",
                 colour="yellow")  # fmt: skip


def executor_for(
    recipe: Recipe, jobs: int | None = None, cluster: str | None = None, imported: Sequence[str] = ()
) -> JobExecutor | None:  # fmt: skip
    """What performs a recipe's jobs side by side; None: one after the other, in this process.

    Args:
        jobs: processes of this machine; None: BILDWORT_JOBS, else as many as suit it (`processes_for`).
        cluster: address of a Dask scheduler, whose workers perform the jobs instead.
        imported: as for `LocalProcesses`.

    Raises:
        RecipeError: both are given, the number is not positive, trainings run in several processes, or the cluster
            cannot be reached.
    """
    if jobs is not None and cluster is not None:
        raise RecipeError("--jobs counts processes of this machine and --cluster uses other ones; give one of them")
    option = "--jobs" if jobs is not None else "BILDWORT_JOBS"
    if jobs is None and cluster is None and (wanted := os.environ.get(option)):
        jobs = int(wanted) if wanted.isdecimal() and len(wanted) < 10 else 0
    if jobs is not None and not 1 <= jobs <= _MOST_JOBS:
        given = jobs if option == "--jobs" else repr(os.environ[option])
        raise RecipeError(f"{option} is {given}; expected 1 to {_MOST_JOBS} processes; without {option} their number "
                          "is chosen")  # fmt: skip
    if (cluster is not None or (jobs or 1) > 1) and (started_together() or not trains_alone(recipe)):
        option = "--cluster" if cluster is not None else f"{option}={jobs}"
        raise RecipeError(
            f"{option} performs each job in one process, but trainings run in several here; set trainer.devices and "
            f"trainer.num_nodes to 1, without torchrun or srun, or leave {option} out"
        )
    if cluster is not None:
        from pipeline.engine.cluster import Cluster

        return Cluster(cluster, recipe)
    if jobs == 1 or started_together():
        return None
    gpus = gpus_of(recipe)
    many = processes_for(recipe, gpus) if jobs is None else jobs
    return LocalProcesses(many, gpus, imported) if many > 1 else None


def _perform(
    recipe: Recipe, list_jobs: Callable[[Recipe, Workspace], list[Job]], root: Path, name: str, key: str, force: bool
) -> list[Message]:
    """In another process: perform one job, which is found by its key; returns what it said."""
    workspace = Workspace(root)
    job = next((job for job in topological_order(list_jobs(recipe, workspace)) if job.key == key), None)
    if job is None:
        raise RecipeError(
            f"{name}: its key is no longer {key}, so a file that it reads has changed since the command began, or is "
            "another one where the job runs; run the same command again"
        )
    with explained(job.stage):
        perform(job, workspace, force)
    return unsaid()
