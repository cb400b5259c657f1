"""The workspace: jobs' artifacts on disk.

    artifacts/jobs/<job>/<key>/          finished: whole, and never written again
    artifacts/jobs/<job>/<key>.partial/  running or interrupted: continues from its last checkpoint
    artifacts/jobs/<job>/<key>.before/   what --force is replacing, until the new one is whole
    artifacts/<recipe>/<stage>.json      which keys a recipe uses

The manifest goes in last and the folder is renamed when it is whole, so a folder with its final name is complete.
"""

import json
import os
import platform
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from pipeline.engine.artifacts import FORMAT, read_manifest, source_digest, write_manifest
from pipeline.engine.console import debug, info, status
from pipeline.engine.distributed import rank, run_id, started_together
from pipeline.engine.files import digests, fingerprint, rename_atomically, write_atomically
from pipeline.engine.job import Job, topological_order
from pipeline.engine.locks import barrier, ending_with_rank_0, lock, lock_file, wait_for_rank_0
from pipeline.engine.machine import Cost, library_versions, same_machine, this_machine
from pipeline.engine.progress import Progress
from pipeline.engine.side_by_side import SideBySide
from pipeline.errors import RecipeError

_BEGUN = "started.json"
_ARRIVAL = 60.0  # seconds that a file written on another machine may take to be seen here


class Workspace:
    """The artifacts on disk.

    Args:
        root: the folder; null is BILDWORT_ARTIFACTS or `artifacts`.
        side_by_side: performs independent jobs at once; None: one job after the other, in this process.
        read_only: nothing is written, so no job can be performed.
        tells: says what becomes of each job, unless another process does.
    """

    def __init__(
        self, root: Path | None = None, side_by_side: SideBySide | None = None, read_only: bool = False,
        tells: bool = True,
    ) -> None:  # fmt: skip
        self.root = root or Path(os.environ.get("BILDWORT_ARTIFACTS", "artifacts"))
        self._read_only, self._tells, self._warned = read_only, tells, False
        self._progress = Progress(1 if side_by_side is None else side_by_side.executor.at_once)
        self._side_by_side = side_by_side

    def folder(self, job: Job) -> Path:
        """Where the finished job's artifact lies or will lie."""
        return self.root / "jobs" / job.name / job.key

    def done(self, job: Job) -> bool:
        """Is the job's artifact there?"""
        return (self.folder(job) / "manifest.json").is_file()

    def begun(self, job: Job) -> bool:
        """Has a run begun the job that it has not finished, so that the next one continues from there?"""
        return bool(_begun(_partial(self.folder(job))))

    def fingerprint(self, paths: list[Path]) -> str:
        """A digest of the contents of files, for a job's key; unchanged files are not read again."""
        return fingerprint(paths, self.root / "fingerprints.json", keep=not self._read_only)

    def digests(self, paths: Iterable[Path]) -> dict[Path, str]:
        """SHA-256 of files, without those that cannot be read; those that `fingerprint` knows are not read again."""
        return digests(paths, self.root / "fingerprints.json")

    def manifest(self, job: Job) -> dict[str, Any]:
        """The manifest of a finished job.

        Raises:
            RecipeError: it is damaged, or of another format.
        """
        return read_manifest(self.folder(job))

    def require(self, job: Job) -> Path:
        """The folder of a job that must have been done.

        Raises:
            RecipeError: it has not; the message says which command does it.
        """
        if not self.done(job):
            raise RecipeError(
                f"{job.name}: not done yet (no {self.folder(job)}); run `make stage-{job.stage}` with the same recipe "
                "and settings"
            )
        self.manifest(job)  # refuses another format
        return self.folder(job)

    def expect(self, jobs: Iterable[Job], force: bool = False) -> None:
        """Say which jobs this run is about to perform, so that each one's line tells how much is left.

        Args:
            jobs: in any order; one may be named several times.
            force: those that are done will be done again.
        """
        named = list(jobs)
        wanted = [job for job in named if force or not self.done(job)]
        if rank() == 0:
            self._progress.line_up(named)
            self._progress.expect(wanted, self.manifests_of_this_machine() if wanted else ())

    def perform(self, job: Job, force: bool = False) -> Path:
        """Run a job unless it is done; its inputs must be done.

        Returns:
            its folder.

        Raises:
            RecipeError: an input is missing, or the folder cannot be written.
        """
        assert not self._read_only
        inputs = {name: self.require(other) for name, other in job.inputs.items()}
        final = self.folder(job)
        partial, before = _partial(final), final.with_name(final.name + ".before")
        if self.done(job) and not force and not before.exists():
            self._say_done(job)
            return final
        if force and started_together():
            raise RecipeError(f"{job.name}: --force does not work under torchrun or SLURM; delete {final} instead")
        if rank() > 0:
            if force:
                barrier()
            with ending_with_rank_0(lambda: self.done(job)):
                return self._follow(job, inputs)
        with lock(lock_file(final), job.name):
            if self.done(job) and not force:  # by another process while we waited, or by one killed while it cleared up
                _delete(before)
                self._say_done(job)
                return final
            for copy in final.parent.glob(f"{partial.name}-*"):  # of ranks that were killed
                if not copy.name.startswith(f"{partial.name}-{run_id()}-"):
                    shutil.rmtree(copy, ignore_errors=True)
            if force:
                if not _begun(partial).get("forced"):
                    shutil.rmtree(partial, ignore_errors=True)
                if self.done(job):  # kept until the new one is whole
                    _delete(before)
                    final.rename(before)
                barrier()
            try:
                self._work(job, inputs, partial, final, force)
            except BaseException:
                if (before / "manifest.json").is_file() and not final.exists():
                    before.rename(final)
                raise
            _delete(before)
        return final

    def perform_all(self, job: Job, force: bool = False) -> Path:
        """Run a job and, before it, the inputs that are not done; `force` applies to the job itself."""
        self.perform_many([job], force)
        return self.folder(job)

    def perform_many(self, jobs: Iterable[Job], force: bool = False) -> None:
        """Run jobs and, before them, the inputs that are not done; side by side if this workspace can.

        `force` applies to the jobs themselves.
        """
        named = list(jobs)
        keys = {job.key for job in named}
        wanted = [job for job in topological_order(named) if job.key in keys or not self.done(job)]
        undone = [job for job in wanted if not self.done(job) or (force and job.key in keys)]
        away = self._side_by_side
        if away is None or started_together() or not (len(undone) > 1 or away.executor.remote):
            for job in wanted:
                self.perform(job, force and job.key in keys)
            return
        for job in wanted:
            if job not in undone:
                self._say_done(job)
        for job, messages in away.perform(undone, self, keys if force else ()):
            for message in messages:
                info(*message)
            self._say_finished(job, self._arrived(job))

    def _arrived(self, job: Job) -> dict[str, Any]:
        """The manifest of a job that another process has finished; a network's file system shows it a little later."""
        until = time.monotonic() + _ARRIVAL
        while not self.done(job) and time.monotonic() < until:
            with suppress(OSError):
                list(self.folder(job).parent.iterdir())  # makes NFS look again
            time.sleep(0.1)
        if not self.done(job):
            raise RecipeError(f"{job.name}: another process has done it, but {self.folder(job)} is not here; all must "
                              "see the same folders under the same paths")  # fmt: skip
        return self.manifest(job)

    def _work(self, job: Job, inputs: dict[str, Path], partial: Path, final: Path, forced: bool) -> None:
        """Run a job in `partial`, and rename the folder when it is complete."""
        shutil.rmtree(final, ignore_errors=True)  # a folder without a manifest is no artifact
        resumed = partial.exists()
        partial.mkdir(parents=True, exist_ok=True)
        if not (partial / "manifest.json").is_file():  # else it was stopped just before it got its name
            debug(f"{job.key} {'continues' if resumed else 'starts'}", job.name)
            description, cost = self._describe(job), Cost()
            _note_beginning(partial, description["source"], forced)
            with status(f"{job.name} …"):
                figures = job.run(partial, inputs)
            spent = cost.stop()
            finished = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            manifest = description | spent | {"finished": finished, "resumed": resumed, "metrics": figures}
            write_manifest(partial, manifest)
            self._say_finished(job, manifest)
        shutil.rmtree(partial / "checkpoints", ignore_errors=True)  # no sooner: without them it would train again
        (partial / _BEGUN).unlink(missing_ok=True)
        rename_atomically(partial, final)

    def note(self, recipe: str, stage: str, jobs: Mapping[str, Job]) -> None:
        """Write down which keys a recipe uses for a stage."""
        assert not self._read_only
        if rank() == 0:
            path = self.root / recipe / f"{stage}.json"
            _write_json(path, {name: {"key": job.key, "folder": str(self.folder(job))} for name, job in jobs.items()})

    def _describe(self, job: Job) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "job": job.name,
            "stage": job.stage,
            "key": job.key,
            "version": job.version,
            "settings": dict(job.settings),
            "inputs": {name: {"job": other.name, "key": other.key} for name, other in job.inputs.items()},
            "python": platform.python_version(),
            "libraries": library_versions(),
            "source": source_digest(),
            "runtime": dict(job.runtime),
            "machine": this_machine(),
        }

    def manifests_of_this_machine(self) -> Iterator[dict[str, Any]]:
        """Of all finished jobs, whatever recipe they are of; those that cannot be read are left out."""
        here = this_machine()
        for path in self.root.glob("jobs/*/*/manifest.json"):
            with suppress(RecipeError):
                manifest = read_manifest(path.parent)
                if same_machine(manifest.get("machine"), here):
                    yield manifest

    def _say_finished(self, job: Job, manifest: Mapping[str, Any]) -> None:
        if self._tells:
            figure, whole = job.headline(manifest["metrics"]), not manifest["resumed"]
            info(self._progress.finish(job, manifest["wall_s"], figure, whole))
            used = f"{manifest['cpu_s']:.0f} s of CPU time, {manifest['peak_memory_mb']:.0f} MB at most"
            debug(f"  {used}: {self.folder(job)}")

    def _say_done(self, job: Job) -> None:
        manifest = self.manifest(job)
        if self._tells:
            info(self._progress.skip(job, job.headline(manifest.get("metrics", {}))), colour="dim")
        if self._tells and not self._warned and manifest.get("source") != source_digest():
            self._warned = True
            info(
                "the source has changed since at least one of these jobs ran; ARGS=--force runs them again",
                colour="yellow",
            )

    def _follow(self, job: Job, inputs: dict[str, Path]) -> Path:
        """What ranks above 0 do: take part in collective work, then wait until rank 0 has finished the folder."""
        final = self.folder(job)
        partial = _partial(final)
        if job.collective:
            wait_for_rank_0(lambda: self.done(job) or _begun(partial).get("run") == run_id(), final, job.name)
            if not (partial / "manifest.json").is_file() and not self.done(job):
                # A copy of its own: rank 0 may rename its folder while we still write.
                own = partial.with_name(f"{partial.name}-{run_id()}-{rank()}")
                shutil.rmtree(own, ignore_errors=True)
                own.mkdir()
                (own / "checkpoints").symlink_to((partial / "checkpoints").absolute())
                job.run(own, inputs)
                shutil.rmtree(own)
        wait_for_rank_0(lambda: self.done(job), final, job.name)
        return final


def _delete(artifact: Path) -> None:
    """Delete an artifact if it is there; its manifest first, so that half of one is not taken for complete."""
    with suppress(OSError):
        (artifact / "manifest.json").unlink(missing_ok=True)
        shutil.rmtree(artifact, ignore_errors=True)


def _partial(final: Path) -> Path:
    """Where a job works until its folder is whole."""
    return final.with_name(final.name + ".partial")


def _begun(partial: Path) -> dict[str, Any]:
    """How an interrupted job was begun; empty if it was not."""
    try:
        return dict(json.loads((partial / _BEGUN).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, RecursionError):
        return {}


def _note_beginning(partial: Path, source: str, forced: bool) -> None:
    """Write down how a job was begun and which run works on it, or warn that it was begun by other code.

    Raises:
        RecipeError: it was begun in another format.
    """
    begun = _begun(partial)
    if begun and begun.get("format") != FORMAT:
        raise RecipeError(f"{partial}: begun in format {begun.get('format')}, this code writes {FORMAT}; delete it")
    if begun and begun.get("source") != source:
        info(f"the source has changed since this was begun; delete {partial} to begin again", colour="yellow")
    _write_json(partial / _BEGUN, {"format": FORMAT, "source": source, "forced": forced, **begun, "run": run_id()})


def _write_json(path: Path, content: Any) -> None:
    write_atomically(path, json.dumps(content, indent=1, ensure_ascii=False))
