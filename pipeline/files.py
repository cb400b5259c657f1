"""Writing files so that no reader ever sees half of one."""

import os
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
