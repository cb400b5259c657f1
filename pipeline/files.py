"""Writing files so that no reader ever sees half of one, be it after a power cut."""

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from pathlib import Path


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


def _settle(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        with suppress(OSError) if path.is_dir() else nullcontext():  # some file systems do not know it of folders
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
