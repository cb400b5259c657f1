"""The files of finished jobs: their manifest (what was computed, from what, at what cost), and what else they left.

A file that is missing or damaged is one line that says what to run again.
"""

import hashlib
import json
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor

from data.errors import one_line
from pipeline.engine.console import stage_command
from pipeline.engine.files import write_atomically
from pipeline.engine.machine import library_versions
from pipeline.engine.machine_errors import of_machine
from pipeline.errors import RecipeError

FORMAT = 2
_DIGEST, _FILES = "sha256", "files"
_UNLISTED = {"manifest.json", "checkpoints", "started.json", "root.txt"}  # of a run, or written again later


def write_manifest(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Write a finished job's manifest, with the sizes of the job's files and a digest of what is in it."""
    files = {path.relative_to(folder): path for path in sorted(folder.rglob("*")) if path.is_file()}
    sizes = {
        name.as_posix(): path.stat().st_size
        for name, path in files.items()
        if name.parts[0] not in _UNLISTED and path.suffix != ".tmp"
    }
    whole = {**manifest, _FILES: sizes, "format": FORMAT}
    write_atomically(
        folder / "manifest.json", json.dumps({**whole, _DIGEST: _digest(whole)}, indent=1, ensure_ascii=False)
    )


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest in a finished job's folder.

    Raises:
        RecipeError: it is not there, damaged, or of another format.
    """
    path = folder / "manifest.json"
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(manifest, dict):
            raise ValueError(f"it holds a {type(manifest).__name__}")
    except FileNotFoundError:
        raise RecipeError(f"{path}: not there; another run may be replacing it (--force): wait for its end, then run "
                          "the same command again") from None  # fmt: skip
    except (OSError, ValueError, RecursionError) as error:
        damaged = RecipeError(f"{path}: not a readable manifest ({error}); delete the folder and run again")
        raise of_machine(error, path) or damaged from None
    if manifest.get("format") != FORMAT:
        again = stage_command(manifest["stage"], "--force") if "stage" in manifest else "its stage with --force"
        raise RecipeError(f"{path}: format {manifest.get('format')}, this code reads {FORMAT}; run {again}")
    if manifest.pop(_DIGEST, None) != _digest(manifest):
        raise RecipeError(f"{path}: damaged, its digest is another; delete the folder and run again")
    return manifest


def require_whole(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Refuse a finished job of whose files one was deleted, or cut while it was copied.

    Raises:
        RecipeError: a file that the manifest lists is missing, or of another size.
    """
    for name, size in manifest.get(_FILES, {}).items():
        try:
            found = (folder / name).stat().st_size
        except OSError:
            found = None
        if found != size:
            state = "missing" if found is None else "of another size than its job left it"
            raise RecipeError(f"{folder / name}: {state}; copy it again, or delete {folder} and run "
                              f"{stage_command(manifest['stage'])}")  # fmt: skip


def source_digest() -> str:
    """A digest of all Python files of the three packages."""
    digest = hashlib.sha256()
    root = Path(__file__).parents[2]
    for package in ("data", "modules", "pipeline"):
        for path in sorted((root / package).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def files_for_later(folder: Path, name: str, *made_by: Any) -> tuple[Path, list[Path]]:
    """The file in which a job leaves results for later jobs that work in the same way, and those that jobs have left.

    Args:
        name: of the file, to which a digest of `made_by`, our code and the libraries is added before its ending.
        made_by: all else that decides such a result; JSON values.
    """
    way = json.dumps([*made_by, source_digest(), library_versions()], sort_keys=True)
    stem, ending = name.rsplit(".", 1)
    path = folder / f"{stem}-{hashlib.sha256(way.encode()).hexdigest()[:12]}.{ending}"
    left = sorted(folder.parents[1].glob(f"*/*/{path.name}"))
    return path, [file for file in left if file.parent.suffix != ".before"]  # which --force replaces


def _digest(manifest: Mapping[str, Any]) -> str:
    """SHA-256 of the contents of a manifest, whatever their order."""
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def read_json(path: Path, form: Any = object) -> Any:
    """The contents of a JSON file.

    Args:
        path: of the file.
        form: what it must hold: a type; `[form]`, a list of that; `{str: form}`, a dictionary with any keys; or
            `{"key": form, …}`, one with these keys and perhaps others.

    Raises:
        RecipeError: it is missing or damaged, or of another form.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if not has_form(content, form):
            raise ValueError("its values are not what is written there")
    except (OSError, ValueError, RecursionError) as error:
        raise damaged(path, error) from None
    return content


def has_form(value: Any, form: Any) -> bool:
    """Is a value of the form that `read_json` documents?"""
    if isinstance(form, list):
        return isinstance(value, list) and all(has_form(item, form[0]) for item in value)
    if not isinstance(form, dict):
        return isinstance(value, form)
    if str in form:
        return isinstance(value, dict) and all(has_form(item, form[str]) for item in value.values())
    return isinstance(value, dict) and all(key in value and has_form(value[key], like) for key, like in form.items())


def read_arrays(path: Path, names: Sequence[str]) -> list[Any]:
    """Arrays of an `.npz` file by name.

    Raises:
        RecipeError: it is missing or damaged, or has no array of a name.
    """
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return [arrays[name] for name in names]
    except (OSError, ValueError, KeyError, EOFError, BadZipFile, NotImplementedError) as error:
        raise damaged(path, error) from None


def read_rows(path: Path, columns: Sequence[str] | None = None) -> pa.Table:
    """A Parquet file, or some of its columns.

    Raises:
        RecipeError: it is missing or damaged, or lacks a column.
    """
    try:
        return pq.read_table(path, columns=None if columns is None else list(columns))
    except (OSError, pa.ArrowException, KeyError) as error:
        raise damaged(path, error) from None


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file.

    Raises:
        RecipeError: it is missing or damaged.
    """
    try:
        return load_file(path)
    except (OSError, ValueError, SafetensorError) as error:
        raise damaged(path, error) from None


def copy_whole(source: Path, target: Path) -> None:
    """Copy a file of a job; JSON and safetensors are looked at first, so that no damage is passed on.

    Raises:
        RecipeError: it is missing or damaged.
    """
    try:
        if source.suffix == ".safetensors":
            with safe_open(source, "numpy"):  # checks that the file is as long as it says
                pass
        elif source.suffix == ".json":
            read_json(source)
        else:
            source.open("rb").close()
    except (OSError, ValueError, SafetensorError) as error:
        raise damaged(source, error) from None
    shutil.copyfile(source, target)


def damaged(path: Path, error: Exception, what: str = "not readable") -> Exception:
    """The error of a file that is missing or damaged: what to delete and run; the machine's, if it is that."""
    if (machine := of_machine(error, path)) is not None:
        return machine
    folder, again = _job_folder(path), "the same command again"
    with suppress(OSError, RecipeError, KeyError):
        again = stage_command(read_manifest(folder)["stage"])
    return RecipeError(f"{path}: {what} ({one_line(error)}); delete {folder} and run {again}")


def _job_folder(path: Path) -> Path:
    """The folder of the job that a file belongs to: the nearest one with a manifest, else the file's own."""
    return next((folder for folder in path.parents if (folder / "manifest.json").is_file()), path.parent)
