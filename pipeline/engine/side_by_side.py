"""Independent jobs side by side, each in a process of its own; their figures are those of one after the other."""

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.engine.console import Message, unsaid
from pipeline.engine.distributed import started_together
from pipeline.engine.executors import JobExecutor, LocalProcesses, gpus_of, processes_for, trains_alone
from pipeline.engine.job import Job, topological_order
from pipeline.errors import RecipeError
from pipeline.recipes.settings import Recipe

if TYPE_CHECKING:
    from pipeline.engine.workspace import Workspace

ListJobs = Callable[[Recipe, "Workspace"], list[Job]]
_MOST_JOBS = 1024
_LOOK = 1.0  # seconds between looks at the executor


def executor_for(recipe: Recipe, jobs: int | None = None, cluster: str | None = None) -> JobExecutor | None:
    """What performs a recipe's jobs side by side; None: one after the other, in this process.

    Args:
        recipe: whose jobs.
        jobs: processes of this machine; None: BILDWORT_JOBS, else as many as suit it (`processes_for`).
        cluster: address of a Dask scheduler, whose workers perform the jobs instead.

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
    return LocalProcesses(many, gpus) if many > 1 else None


class SideBySide:
    """A recipe's jobs, performed by an executor.

    Args:
        recipe: whose jobs.
        list_jobs: all of them, by recipe and workspace; a function that another process can import.
        executor: performs them.
    """

    def __init__(self, recipe: Recipe, list_jobs: ListJobs, executor: JobExecutor) -> None:
        self.recipe, self.list_jobs, self.executor = recipe, list_jobs, executor

    def perform(
        self, jobs: Sequence[Job], workspace: "Workspace", forced: Collection[str]
    ) -> Iterator[tuple[Job, list[Message]]]:
        """Perform jobs, each as soon as what it needs is done; yield each when it is done, with its messages.

        Args:
            jobs: with all that they need and that is not done.
            workspace: their artifacts.
            forced: keys of those that are performed although they are done.

        Raises:
            RecipeError: a job cannot be done, or what performs it has ended.
        """
        waiting, running = list(jobs), dict[Future[list[Message]], Job]()
        undone = {job.key for job in jobs}
        try:
            while waiting or running:
                for job in [one for one in waiting if not undone & {other.key for other in one.inputs.values()}]:
                    waiting.remove(job)
                    task = (self.recipe, self.list_jobs, workspace.root, job.name, job.key, job.key in forced)
                    running[self.executor.submit(_perform, *task)] = job
                for future in wait(running, timeout=_LOOK, return_when=FIRST_COMPLETED).done:
                    job = running.pop(future)
                    messages = future.result()
                    undone.remove(job.key)
                    yield job, messages
                self.executor.check()
        except Exception as error:
            if (line := self.executor.lost(error)) is None:
                raise
            raise RecipeError(line) from None


def _perform(recipe: Recipe, list_jobs: ListJobs, root: Path, name: str, key: str, force: bool) -> list[Message]:
    """Perform one job, found by its key, as jobs themselves cannot be sent to another process; what it said."""
    from pipeline.engine.machine_errors import explained
    from pipeline.engine.workspace import Workspace

    workspace = Workspace(root, tells=False)
    job = next((one for one in topological_order(list_jobs(recipe, workspace)) if one.key == key), None)
    if job is None:
        raise RecipeError(
            f"{name}: its key is no longer {key}, so a file that it reads has changed since the command began, or is "
            "another one where the job runs; run the same command again"
        )
    with explained(job.stage):
        workspace.perform(job, force)
    return unsaid()
