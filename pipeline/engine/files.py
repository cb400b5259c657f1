"""Files: written whole, where a person says, by one process at a time; identified by their contents."""

import hashlib
import json
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from pipeline.engine.console import flag, info
from pipeline.errors import RecipeError

_OWN = 0o600
_STALE = 3600.0  # seconds after which nobody is writing a file any more


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a file whole or not at all, text as UTF-8; its folder is made. What it holds already is not written.

    What processes that were killed while they wrote it have left is deleted.
    """
    written = content if isinstance(content, bytes) else content.encode("utf-8")
    _clear_halves(path)
    with suppress(OSError):
        if path.stat().st_size == len(written) and path.read_bytes() == written:
            return
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(written)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        if error.errno is not None and error.filename is None:  # of a write; it does not name its file
            error.filename = str(path)
        raise
    finally:
        temporary.unlink(missing_ok=True)


def _clear_halves(path: Path) -> None:
    """Delete what killed processes have left of a file; another process, here or elsewhere, may be writing it now."""
    halves = re.compile(rf"{re.escape(path.name)}\.\d+\.tmp")
    with suppress(OSError):
        for half in path.parent.iterdir():
            if halves.fullmatch(half.name) and time.time() - half.stat().st_mtime > _STALE:
                half.unlink()


def rename_atomically(folder: Path, name: Path) -> None:
    """Rename a folder whose contents, all the way down, have reached the disk; then the name has too.

    Files have the rights that the person's umask gives: safetensors and others write some for their owner alone.
    """
    paths, rights = [path for path in folder.rglob("*") if not path.is_symlink()], 0o666 & ~_umask()
    for path in paths:
        if path.is_file() and stat.S_IMODE(path.stat().st_mode) == _OWN:
            path.chmod(rights)
    with ThreadPoolExecutor(16) as pool:  # one after the other, thousands of pictures take ten seconds
        list(pool.map(_settle, paths))
    _settle(folder)
    folder.rename(name)
    _settle(name.parent)


def delete_folder(folder: Path, *last: str) -> None:
    """Delete a folder if it is there, files of these names last: what a kill leaves is still known by them.

    Of a link to a folder only the link is deleted.
    """
    if folder.is_symlink():
        folder.unlink()
    if not folder.is_dir():
        return
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        elif path.name not in last:
            path.unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)


def require_linked(path: Path, step: str) -> None:
    """Refuse a link to what is not there, as where a disk is not mounted; `step` is what to do.

    Raises:
        RecipeError: it is one.
    """
    if path.is_symlink() and not path.exists():
        raise RecipeError(f"{path}: a link to {path.readlink()}, which is not there; {step}")


def digest_of(path: Path) -> str:
    """SHA-256 of a file's contents."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def fingerprint(
    paths: list[Path], cache: Path | None = None, keep: bool = True, base: Path | None = None
) -> str:  # fmt: skip
    """A digest of the contents of files; with a cache, unchanged files (size, date) are not read again.

    Args:
        cache: a file with known digests.
        keep: whether new digests are added to it.
        base: a folder, in which a file counts with its path from there; elsewhere with its name.

    Raises:
        RecipeError: there is no such file.
    """
    known, fresh, total = _known(cache), {}, hashlib.sha256()
    for path in paths:
        if not path.is_file():
            raise RecipeError(f"{path}: no such file; check corpus.root or BILDWORT_DATA")
        entry = fresh[str(path)] = _entry(path, known)
        name = path.relative_to(base).as_posix() if base is not None and path.is_relative_to(base) else path.name
        total.update(f"{name}:{entry[1]}\n".encode(errors="surrogateescape"))
    if cache and keep and known | fresh != known:
        with suppress(OSError):  # only saves time
            write_atomically(cache, json.dumps(known | fresh, indent=1, ensure_ascii=False))
    return total.hexdigest()[:16]


def digests(paths: Iterable[Path], cache: Path | None = None) -> dict[Path, str]:
    """SHA-256 of the contents of files, without those that cannot be read.

    Args:
        cache: a file with known digests, as `fingerprint` keeps it; files that are in it and unchanged are not read.
    """
    known, wanted = _known(cache), list(paths)

    def digest(path: Path) -> str | None:
        """That of one file."""
        with suppress(OSError):
            return _entry(path, known)[1]
        return None

    with ThreadPoolExecutor(8) as pool:
        pairs = zip(wanted, pool.map(digest, wanted), strict=True)
        return {path: value for path, value in pairs if value is not None}


def _known(cache: Path | None) -> dict[str, list[str]]:
    """Path → state and digest of the files of a cache; of none where it cannot be read."""
    try:
        contents = json.loads(cache.read_text(encoding="utf-8")) if cache else {}
    except (OSError, ValueError, RecursionError):
        return {}
    entries = contents.items() if isinstance(contents, dict) else ()
    return {path: entry for path, entry in entries if isinstance(entry, list) and list(map(type, entry)) == [str, str]}


def _entry(path: Path, known: Mapping[str, list[str]]) -> list[str]:
    """State (size, date) and digest of a file, which is read unless it is known in this state."""
    status = path.stat()
    state = f"{status.st_size}:{status.st_mtime_ns}"
    entry = known.get(str(path))
    return entry if entry and entry[0] == state else [state, digest_of(path)]


def _umask() -> int:
    """The rights that files of this process do not get; it can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _settle(path: Path) -> None:
    """Let a file or a folder reach the disk."""
    with suppress(OSError) if path.is_dir() else nullcontext():  # Windows and some file systems cannot, of folders
        descriptor = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)  # Windows: of what can be written
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def require_output(path: Path, option: str, force: bool, inputs: Sequence[Path | None] = ()) -> None:
    """Refuse a file that cannot be written, or that would be overwritten, before the work begins.

    Args:
        path: the file.
        option: that names it, for the error.
        force: replace a file that exists; what is read is never replaced.
        inputs: files that the command reads.

    Raises:
        RecipeError: it is one of them (by a link too), exists, is no file, or its folder cannot be written or made.
    """
    try:
        if path.exists() and not path.is_file():
            raise RecipeError(f"{option} {path}: is {'a folder' if path.is_dir() else 'not a file'}; expected a file")
        for source in inputs:
            if source is not None and source.exists() and path.exists() and path.samefile(source):
                raise RecipeError(f"{option} {path}: is read too ({source}); choose another file")
        if path.exists() and not force:
            raise RecipeError(f"{option} {path}: exists; choose another file, or replace it with {flag('--force')}")
        require_folder(path.absolute().parent, option)
        with suppress(FileNotFoundError):
            path.with_name(f"{path.name}.{'0' * 12}.tmp").stat()  # as long as its name gets while it is written
    except OSError as error:
        raise RecipeError(f"{option} {path}: {error.strerror}; choose another file") from None


def require_folder(folder: Path, option: str) -> None:
    """Refuse a folder in which nothing can be written, or that cannot be made."""
    there = next(place for place in (folder, *folder.parents) if place.exists())
    if not there.is_dir():
        raise RecipeError(f"{option}: {there} is no folder; choose another one")
    try:
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        raise RecipeError(f"{option}: {there} cannot be written ({error.strerror}); choose another folder") from None


def require_network(name: str, option: str, what: str = "network") -> None:
    """Refuse the path of a network where no folder is; other names are of the hub.

    Raises:
        RecipeError: there is none.
    """
    if (name.startswith(("/", "./", "../", "~")) or name.count("/") > 1) and not Path(name).is_dir():
        raise RecipeError(f"{option}: no folder {name}; expected one with a {what} of transformers")


def write_output(path: Path, content: str | bytes, option: str) -> None:
    """Write a file whole or not at all, to the file that an option names.

    Raises:
        RecipeError: it cannot be written.
    """
    with writing_output(path, option):
        write_atomically(path, content)


@contextmanager
def writing_output(path: Path, option: str) -> Iterator[None]:
    """Say of the file that an option names that it cannot be written.

    Raises:
        RecipeError: it cannot.
    """
    try:
        yield
    except OSError as error:
        raise RecipeError(f"{option} {path}: {error.strerror or error}; choose another file") from None


def is_held(path: Path) -> bool:
    """Does another process hold a lock?"""
    if not path.exists():
        return False  # nobody has begun
    try:
        with FileLock(path, blocking=False):
            return False
    except Timeout:
        return True


@contextmanager
def writing_to(folder: Path) -> Iterator[None]:
    """Say of a folder of artifacts that cannot be written what to do.

    Raises:
        RecipeError: it cannot be written.
    """
    try:
        yield
    except OSError as error:
        raise RecipeError(f"{folder}: cannot be written ({error.strerror}); set BILDWORT_ARTIFACTS") from None


@contextmanager
def lock(path: Path, name: str) -> Iterator[None]:
    """Let one run at a time work on a job; another one says so and waits. What is in the file means nothing.

    Raises:
        RecipeError: the folder cannot be written.
    """
    with writing_to(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        held = FileLock(path)
        try:
            held.acquire(blocking=False)
        except Timeout:
            path.stat()  # where no file can be made, as under /proc, filelock would wait forever
            info(f"{name}: another process is working on it; waiting")
            held.acquire()
    try:
        yield
    finally:
        held.release()
