"""Independent jobs side by side, each in a process of its own; their figures are those of one after the other."""

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from data.extractor import end_with_the_parent
from pipeline.errors import RecipeError
from pipeline.jobs.console import CONSOLE
from pipeline.jobs.cost import cores
from pipeline.jobs.job import Job
from pipeline.recipes.settings import Recipe

if TYPE_CHECKING:
    from pipeline.jobs.workspace import Workspace

ListJobs = Callable[[Recipe, "Workspace"], list[Job]]


def processes_for(recipe: Recipe) -> int:
    """How many jobs fit on this machine's cores at once: 1 unless the recipe's jobs use fewer threads, and no GPU."""
    import torch

    trainers = [recipe.mmt.trainer, recipe.augment.trainer, recipe.vse.trainer]
    threads = [one.threads for one in trainers if one.threads]
    on_cpu = all(one.accelerator == "cpu" or not torch.cuda.is_available() for one in trainers)
    alone = all(one.devices == 1 and one.num_nodes == 1 for one in trainers)
    if len(threads) < len(trainers) or not on_cpu or not alone:
        return 1
    return max(1, cores() // max(threads))


class SideBySide:
    """Processes that perform a recipe's jobs.

    Args:
        recipe: whose jobs.
        list_jobs: all of them, by recipe and workspace; a function that another process can import.
        processes: how many jobs at once.
    """

    def __init__(self, recipe: Recipe, list_jobs: ListJobs, processes: int) -> None:
        self.recipe, self.list_jobs, self.processes = recipe, list_jobs, processes
        self._pool: ProcessPoolExecutor | None = None

    def perform(self, jobs: Sequence[Job], workspace: "Workspace", force: bool) -> Iterator[Job]:
        """Perform jobs, each as soon as what it needs is done; yield each when it is done.

        Raises:
            RecipeError: a job cannot be done, or a process has ended; those that run are ended first.
        """
        self._pool = self._pool or ProcessPoolExecutor(self.processes, multiprocessing.get_context("spawn"), _quietly)
        perform = partial(_perform, self.recipe, self.list_jobs, workspace.root, force=force)
        waiting, running = list(jobs), dict[Future[None], Job]()
        undone = {job.key for job in jobs}
        try:
            while waiting or running:
                for job in [one for one in waiting if not undone & {other.key for other in one.inputs.values()}]:
                    waiting.remove(job)
                    running[self._pool.submit(perform, job.key)] = job
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    job = running.pop(future)
                    future.result()
                    undone.remove(job.key)
                    yield job
        except BrokenProcessPool:
            raise RecipeError("a process has ended; the same command continues from the last checkpoints") from None
        finally:
            if running:
                self._kill()

    def close(self) -> None:
        """End the processes, which are idle."""
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None

    def _kill(self) -> None:
        """End the processes, whatever they are at; their jobs continue from checkpoints."""
        if self._pool is not None:
            for process in list((self._pool._processes or {}).values()):
                process.terminate()
            self.close()


def _quietly() -> None:
    """Begin a process of the pool: it prints nothing, and ends with its parent."""
    from pipeline.jobs.machine_errors import quieten

    quieten()
    end_with_the_parent()
    CONSOLE.quiet = True


def _perform(recipe: Recipe, list_jobs: ListJobs, root: Path, key: str, force: bool) -> None:
    """Perform one job, found by its key: jobs themselves cannot be sent to another process."""
    from pipeline.jobs.machine_errors import explained
    from pipeline.jobs.workspace import Workspace

    workspace = Workspace(root)
    job = next(one for one in list_jobs(recipe, workspace) if one.key == key)
    with explained(job.stage):
        workspace.perform(job, force)
