"""Files: written so that no reader ever sees half of one, be it after a power cut; identified by their contents."""

import hashlib
import json
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from pathlib import Path

from pipeline.errors import RecipeError


def write_whole(path: Path, text: str) -> None:
    """Write a text file whole or not at all; its folder is made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def rename_whole(folder: Path, name: Path) -> None:
    """Rename a folder whose contents, all the way down, have reached the disk; then the name has too."""
    with ThreadPoolExecutor(16) as pool:  # one after the other, thousands of pictures take ten seconds
        list(pool.map(_settle, [path for path in folder.rglob("*") if not path.is_symlink()]))
    _settle(folder)
    folder.rename(name)
    _settle(name.parent)


def digest_of(path: Path) -> str:
    """SHA-256 of a file's contents."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def fingerprint(paths: list[Path], cache: Path | None = None, keep: bool = True) -> str:
    """A digest of the contents of files; with a cache, unchanged files (size, date) are not read again.

    Args:
        paths: the files.
        cache: a file with known digests.
        keep: whether new digests are added to it.

    Raises:
        RecipeError: there is no such file.
    """
    try:
        known = json.loads(cache.read_text(encoding="utf-8")) if cache else {}
    except (OSError, ValueError):
        known = {}
    fresh, total = {}, hashlib.sha256()
    for path in paths:
        if not path.is_file():
            raise RecipeError(f"{path}: no such file; check corpus.root or BILDWORT_DATA")
        stat = path.stat()
        state = f"{stat.st_size}:{stat.st_mtime_ns}"
        entry = known.get(str(path))
        if not entry or entry[0] != state:
            entry = [state, digest_of(path)]
        fresh[str(path)] = entry
        total.update(f"{path.name}:{entry[1]}\n".encode(errors="surrogateescape"))
    if cache and keep and fresh and fresh != known:
        with suppress(OSError):  # only saves time
            write_whole(cache, json.dumps(known | fresh, indent=1, ensure_ascii=False))
    return total.hexdigest()[:16]


def _settle(path: Path) -> None:
    """Let a file or a folder reach the disk."""
    with suppress(OSError) if path.is_dir() else nullcontext():  # Windows and some file systems cannot, of folders
        descriptor = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)  # Windows: of what can be written
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
