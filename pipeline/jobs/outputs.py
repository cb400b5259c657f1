"""Files that a command writes where a person says: checked before the work, never over something else unasked."""

import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from pipeline.errors import RecipeError
from pipeline.jobs.files import write_atomically


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
        for one in inputs:
            if one is not None and one.exists() and path.exists() and path.samefile(one):
                raise RecipeError(f"{option} {path}: is read too ({one}); choose another file")
        if path.exists() and not force:
            raise RecipeError(f"{option} {path}: exists; choose another file, or replace it with --force")
        require_folder(path.absolute().parent, option)
        with suppress(FileNotFoundError):
            path.with_name(f"{path.name}.{'0' * 12}.tmp").stat()  # as long as its name gets while it is written
    except OSError as error:
        raise RecipeError(f"{option} {path}: {error.strerror}; choose another file") from None


def require_folder(folder: Path, option: str) -> None:
    """Refuse a folder in which nothing can be written, or that cannot be made.

    Raises:
        RecipeError: it is so.
    """
    there = next(one for one in (folder, *folder.parents) if one.exists())
    if not there.is_dir():
        raise RecipeError(f"{option}: {there} is no folder; choose another one")
    try:
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        raise RecipeError(f"{option}: {there} cannot be written ({error.strerror}); choose another folder") from None


def write_output(path: Path, content: str | bytes, option: str) -> None:
    """Write a file whole or not at all, to the file that an option names.

    Raises:
        RecipeError: it cannot be written.
    """
    try:
        write_atomically(path, content)
    except OSError as error:
        raise RecipeError(f"{option} {path}: {error.strerror}; choose another file") from None
