"""Performing one job in this process: one run at a time works on it, the others wait for it through the file system."""

import os
import platform
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from pipeline.engine.artifacts import FORMAT, source_digest, write_manifest
from pipeline.engine.console import debug, error_line, info, info_aside, status
from pipeline.engine.files import delete_folder, is_held, lock, rename_atomically
from pipeline.engine.job import Job
from pipeline.engine.machine import Cost, library_versions, process_rank, run_id, started_together, this_machine
from pipeline.engine.workspace import Workspace
from pipeline.errors import RecipeError

PATIENCE = 300.0  # seconds that ranks above 0 wait for a rank 0 that shows no sign of life
GRACE = 5.0  # seconds that ranks above 0 have to end by themselves once rank 0 is gone
_RANK_0 = "BILDWORT_RANK_0"  # the process that starts the others: one of them may look for it when it is gone


def perform(job: Job, workspace: Workspace, force: bool = False) -> bool:
    """Perform a job in this process unless it is done; its inputs must be done.

    Returns:
        whether it was performed; False: it was done before, or another process did it meanwhile.

    Raises:
        RecipeError: an input is missing, a file that it reads has changed since the command began, or the folder cannot
            be written.
    """
    assert not workspace.read_only
    inputs = {name: workspace.require(needed) for name, needed in job.inputs.items()}
    final, before = workspace.folder(job), workspace.before(job)
    if workspace.done(job) and not force and not before.exists():
        return False
    if force and started_together():
        raise RecipeError(f"{job.name}: --force does not work under torchrun or SLURM; delete {final} instead")
    if process_rank() > 0:
        if force:
            _barrier()
        with _ending_with_rank_0(lambda: workspace.done(job)):
            _take_part(job, workspace, inputs)
        return True
    os.environ[_RANK_0] = str(os.getpid())
    with lock(_lock_file(final), job.name):
        if workspace.done(job) and not force:  # by another process while we waited, or one killed while clearing up
            _delete(before)
            return False
        workspace.require_unchanged(job)
        _clear_up(job, workspace, force)
        if force:
            _barrier()
        try:
            if (begun := _begin(job, workspace, force)) is not None:  # else it was stopped just before it got its name
                cost = Cost()
                with status(f"{job.name} …"):
                    figures = job.run(workspace.partial(job), inputs)
                _describe(job, workspace, begun | cost.stop() | {"metrics": dict(figures)})
            _settle(job, workspace)
        except BaseException:
            keep_old(job, workspace)
            raise
        _delete(before)
    return True


def keep_old(job: Job, workspace: Workspace) -> None:
    """After a stop, give what `force` was replacing its name again, if the new one is not whole."""
    before, final = workspace.before(job), workspace.folder(job)
    if (before / "manifest.json").is_file() and not final.exists():
        before.rename(final)


def _clear_up(job: Job, workspace: Workspace, force: bool) -> None:
    """Delete what killed ranks left; with `force` what is there is kept aside until the new one is whole."""
    final, partial = workspace.folder(job), workspace.partial(job)
    for copy in final.parent.glob(f"{partial.name}-*"):
        if not copy.name.startswith(f"{partial.name}-{run_id()}-"):
            shutil.rmtree(copy, ignore_errors=True)
    if force:
        if not workspace.beginning(job).get("forced"):
            _delete(partial)
        if workspace.done(job):
            _delete(workspace.before(job))
            final.rename(workspace.before(job))
    _delete(final)  # a folder without a manifest is no artifact


def _begin(job: Job, workspace: Workspace, forced: bool) -> dict[str, Any] | None:
    """Make a job's partial folder, and write down how it was begun and which run works on it.

    Returns:
        what the manifest tells of it: does it go on from a stopped run, and a digest of the source; None: it is whole.

    Raises:
        RecipeError: it was begun in another format.
    """
    partial = workspace.partial(job)
    resumed = partial.exists()
    partial.mkdir(parents=True, exist_ok=True)
    if (partial / "manifest.json").is_file():
        return None
    debug(f"{job.key} {'continues' if resumed else 'starts'}", job.name)
    source, before = source_digest(), workspace.beginning(job)
    if before and before.get("format") != FORMAT:
        raise RecipeError(f"{partial}: begun in format {before.get('format')}, this code writes {FORMAT}; delete it")
    if before and before.get("source") != source:
        info(f"the source has changed since this was begun; delete {partial} to begin again", colour="yellow")
    workspace.note_beginning(job, {"format": FORMAT, "source": source, "forced": forced, **before, "run": run_id()})
    return {"resumed": resumed, "source": source}


def _describe(job: Job, workspace: Workspace, run: Mapping[str, Any]) -> None:
    """Write the manifest of a job that has ended, with what its run tells of itself."""
    description = {
        "job": job.name,
        "stage": job.stage,
        "key": job.key,
        "version": job.version,
        "settings": dict(job.settings),
        "inputs": {name: {"job": needed.name, "key": needed.key} for name, needed in job.inputs.items()},
        "python": platform.python_version(),
        "libraries": library_versions(),
        "runtime": dict(job.runtime),
        "machine": this_machine(),
        "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    write_manifest(workspace.partial(job), {**description, **run})


def _settle(job: Job, workspace: Workspace) -> None:
    """Give the folder of a job that has ended its name."""
    partial = workspace.partial(job)
    shutil.rmtree(partial / "checkpoints", ignore_errors=True)  # no sooner: without them it would train again
    workspace.note_beginning(job, None)
    rename_atomically(partial, workspace.folder(job))


def _delete(artifact: Path) -> None:
    """Delete an artifact if it is there; its manifest first, so that half of one is not taken for complete.

    Of a link to one, which may be another person's, only the link is deleted.
    """
    with suppress(OSError):
        if not artifact.is_symlink():
            (artifact / "manifest.json").unlink(missing_ok=True)
        delete_folder(artifact)


def _lock_file(final: Path) -> Path:
    return final.with_name(f"{final.name}.lock")


def _take_part(job: Job, workspace: Workspace, inputs: Mapping[str, Path]) -> None:
    """What ranks above 0 do: take part in collective work, then wait until rank 0 has finished the folder."""
    partial = workspace.partial(job)
    if job.collective:
        _wait_for_rank_0(lambda: workspace.done(job) or workspace.beginning(job).get("run") == run_id(), workspace, job)
        if not (partial / "manifest.json").is_file() and not workspace.done(job):
            # A copy of its own: rank 0 may rename its folder while we still write.
            own = partial.with_name(f"{partial.name}-{run_id()}-{process_rank()}")
            shutil.rmtree(own, ignore_errors=True)
            own.mkdir()
            (own / "checkpoints").symlink_to((partial / "checkpoints").absolute())
            job.run(own, dict(inputs))
            shutil.rmtree(own)
    _wait_for_rank_0(lambda: workspace.done(job), workspace, job)


def _barrier() -> None:
    """Wait until all ranks are here, so that none takes what --force deletes for done; nothing before they are one."""
    import torch.distributed

    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.barrier()


@contextmanager
def _ending_with_rank_0(done: Callable[[], bool]) -> Iterator[None]:
    """On a rank above 0: end soon after Lightning's rank 0, the parent, if that leaves work undone.

    This one may be waiting for it elsewhere, for hours. (Rank 0 ends when another one does: Lightning looks after
    that, as torchrun and SLURM do after all ranks.)
    """
    parent, over = psutil.Process().parent(), threading.Event()
    is_rank_0 = parent is not None and str(parent.pid) == os.environ.get(_RANK_0, str(parent.pid))

    def watch() -> None:
        """End the process once the parent is gone and the time for ending by itself has passed."""
        while is_rank_0 and parent is not None and _runs(parent):
            if over.wait(1):
                return
        if not over.wait(GRACE) and not done():
            error_line("rank 0 has ended; the same command continues from the last checkpoint")
            os._exit(1)

    if not started_together():
        threading.Thread(target=watch, daemon=True).start()
    try:
        yield
    finally:
        over.set()


def _runs(process: psutil.Process) -> bool:
    """Has a process not ended?"""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _wait_for_rank_0(ready: Callable[[], bool], workspace: Workspace, job: Job) -> None:
    """Sleep until `ready`.

    Rank 0 holds the job's lock while it works, so a lock that is free for long means that it has died.

    Raises:
        RecipeError: nobody has worked on the job for `PATIENCE` seconds.
    """
    seen = looked = time.monotonic()
    who = f"{job.name}: this is rank {process_rank()} by RANK, SLURM_PROCID or LOCAL_RANK of the environment"
    told = False
    while not ready():
        time.sleep(0.1)
        now = time.monotonic()
        if now - looked > PATIENCE / 60:
            looked = now
            if is_held(_lock_file(workspace.folder(job))):
                seen = now
            elif now - seen > PATIENCE and not ready():
                raise RecipeError(f"{who}, and rank 0 has not worked on it for {PATIENCE:.0f} s; start all ranks "
                                  "again, or unset these variables")  # fmt: skip
            elif now - seen > PATIENCE / 30 and not told:
                told = True
                info_aside(f"{who}, and waits for rank 0; unset these variables if you have started it by hand")
