"""The workspace: jobs' artifacts on disk.

    artifacts/jobs/<job>/<key>/          finished: whole, and never written again
    artifacts/jobs/<job>/<key>.partial/  running or interrupted: continues from its last checkpoint
    artifacts/jobs/<job>/<key>.before/   what --force is replacing, until the new one is whole
    artifacts/<recipe>/<stage>.json      which keys a recipe uses
    artifacts/<recipe>/recipe.txt        the recipe that this folder is of, from artifacts/ on; empty: of the package

The manifest goes in last and the folder is renamed when it is whole, so a folder with its final name is complete.
"""

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from pipeline.engine.artifacts import read_manifest, require_whole
from pipeline.engine.console import stage_command
from pipeline.engine.files import digests, fingerprint, require_linked, write_atomically, writing_to
from pipeline.engine.job import Job
from pipeline.engine.machine import process_rank, same_machine, this_machine
from pipeline.errors import RecipeError, require_readable, whole_path

_BEGUN, _OWNER = "started.json", "recipe.txt"


class Workspace:
    """The artifacts on disk.

    Args:
        root: the folder; null is BILDWORT_ARTIFACTS or `artifacts`.
    """

    def __init__(self, root: str | Path | None = None, read_only: bool = False) -> None:
        named = os.environ.get("BILDWORT_ARTIFACTS") or "artifacts"
        try:
            self.root = Path(root) if root else Path(named).expanduser()
        except RuntimeError as error:  # it begins with ~ and names nobody
            raise RecipeError(f"BILDWORT_ARTIFACTS is {named!r}: {error} Name a whole path") from None
        require_readable(str(self.root))
        if ":" in str(self.root):  # libraries take what stands before it for a protocol
            self.root = whole_path(self.root)
        if "::" in str(self.root):
            raise RecipeError(f"{self.root}: artifacts cannot lie in a folder with :: in its path; name another "
                              "(BILDWORT_ARTIFACTS)")  # fmt: skip
        require_linked(self.root, "make that folder, or name another (BILDWORT_ARTIFACTS)")
        self.read_only = read_only
        self._read = dict[str, tuple[list[Path], Path | None]]()

    def folder(self, job: Job) -> Path:
        """Where the finished job's artifact lies or will lie."""
        return self.root / "jobs" / job.name / job.key

    def partial(self, job: Job) -> Path:
        """Where a job works until its folder is whole."""
        return self.root / "jobs" / job.name / f"{job.key}.partial"

    def before(self, job: Job) -> Path:
        """Where the artifact lies that --force is replacing."""
        return self.root / "jobs" / job.name / f"{job.key}.before"

    def require_settled(self, jobs: Iterable[Job]) -> None:
        """Refuse jobs that --force is replacing: what is made of finished jobs would lack them.

        Raises:
            RecipeError: one of them is being replaced, or a run that did so was killed.
        """
        for job in jobs:
            if not self.done(job) and (self.before(job) / "manifest.json").is_file():
                raise RecipeError(f"{job.name}: another run is replacing it (--force); wait for its end, or, where it "
                                  f"was stopped, run {stage_command(job.stage)}")  # fmt: skip

    def done(self, job: Job) -> bool:
        """Is the job's artifact there?

        Raises:
            RecipeError: its folder, or the one of its name, is a link to what is not there.
        """
        folder = self.folder(job)
        if (folder / "manifest.json").is_file():
            return True
        for path in (folder.parent, folder):
            require_linked(path, "mount its disk, or delete the link")
        return False

    def beginning(self, job: Job) -> dict[str, Any]:
        """What `note_beginning` wrote of a job that a run has begun and not finished; empty: there is none."""
        try:
            return dict(json.loads((self.partial(job) / _BEGUN).read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError, RecursionError):
            return {}

    def note_beginning(self, job: Job, beginning: Mapping[str, Any] | None) -> None:
        """Write down how a job was begun; None: it has ended."""
        path = self.partial(job) / _BEGUN
        if beginning is None:
            path.unlink(missing_ok=True)
        else:
            _write_json(path, beginning)

    def fingerprint(self, paths: list[Path], base: Path | None = None) -> str:
        """As `engine.files.fingerprint`, for a job's key; unchanged files are not read again."""
        digest = fingerprint(paths, self.root / "fingerprints.json", not self.read_only, base)
        self._read[digest] = (paths, base)
        return digest

    def require_unchanged(self, job: Job) -> None:
        """Refuse a job one of whose files has changed since its key was made, maybe hours ago.

        Raises:
            RecipeError: one has, or is gone.
        """
        settings = json.dumps(job.settings)
        for digest, (paths, base) in list(self._read.items()):
            if digest in settings and self.fingerprint(paths, base) != digest:
                raise RecipeError(f"{job.name}: a file that it reads ({paths[0]}{' …' * (len(paths) > 1)}) has changed "
                                  "since the command began; run the same command again")  # fmt: skip

    def digests(self, paths: Iterable[Path]) -> dict[Path, str]:
        """SHA-256 of files, without those that cannot be read; those that `fingerprint` knows are not read again."""
        return digests(paths, self.root / "fingerprints.json")

    def manifest(self, job: Job) -> dict[str, Any]:
        """The manifest of a finished job.

        Raises:
            RecipeError: it is damaged, or of another format, or the job's files are not whole.
        """
        manifest = read_manifest(self.folder(job))
        require_whole(self.folder(job), manifest)
        return manifest

    def require(self, job: Job) -> Path:
        """The folder of a job that must have been done.

        Raises:
            RecipeError: it has not, or its files are not whole; the message says which command does it.
        """
        if not self.done(job):
            raise RecipeError(f"{job.name}: not done yet (no {self.folder(job)}); run {stage_command(job.stage)}")
        self.manifest(job)  # refuses another format, and files that are not whole
        return self.folder(job)

    def of_recipe(self, name: str, file: str) -> Path:
        """The folder of a recipe's model, gallery and report.

        Args:
            file: the recipe's; empty: it is one of the package.

        Raises:
            RecipeError: another recipe of this name has that folder.
        """
        folder, owner = self.root / name, self._owner(name)
        if owner not in (None, self._from_here(file)) and (not owner or (self.root / owner).is_file()):
            whose = (self.root / owner).resolve() if owner else "the recipe of that name in the package"
            raise RecipeError(f"{folder}: belongs to {whose}; rename the file {file or whose}, or set "
                              "BILDWORT_ARTIFACTS to another folder")  # fmt: skip
        return folder

    def claim(self, name: str, file: str) -> None:
        """Give a recipe its folder, unless another one has it; see `of_recipe`."""
        folder = self.of_recipe(name, file)
        if process_rank() == 0 and self._owner(name) != (owner := self._from_here(file)):
            with writing_to(folder):
                write_atomically(folder / _OWNER, owner)

    def _from_here(self, file: str) -> str:
        """A recipe's file from the artifacts on, so that both can be copied together; empty stays empty."""
        return os.path.relpath(file, self.root.resolve()) if file else ""

    def _owner(self, name: str) -> str | None:
        """The file of the recipe whose folder has this name, from the artifacts on; None: nobody has it."""
        with suppress(FileNotFoundError):
            return (self.root / name / _OWNER).read_text(encoding="utf-8", errors="replace")
        return None

    def note(self, recipe: str, stage: str, jobs: Mapping[str, Job]) -> None:
        """Write down which keys a recipe uses for a stage."""
        assert not self.read_only
        if process_rank() == 0:
            path = self.root / recipe / f"{stage}.json"
            _write_json(path, {name: {"key": job.key, "folder": str(self.folder(job))} for name, job in jobs.items()})

    def manifests_of_this_machine(self) -> Iterator[dict[str, Any]]:
        """Of all finished jobs, whatever recipe they are of; those that cannot be read are left out."""
        here = this_machine()
        for path in self.root.glob("jobs/*/*/manifest.json"):
            with suppress(RecipeError):
                manifest = read_manifest(path.parent)
                if same_machine(manifest.get("machine"), here):
                    yield manifest


def _write_json(path: Path, content: Any) -> None:
    write_atomically(path, json.dumps(content, indent=1, ensure_ascii=False))
