"""What a gallery is on disk: a pointer to its present generation, and the tables and indices of that."""

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from modules.errors import ModelError
from modules.search.shards import ShardedIndex
from pipeline.engine.console import counted, info
from pipeline.engine.machine_errors import of_machine
from pipeline.errors import RecipeError
from pipeline.export.exported_model import ExportedModel
from pipeline.gallery.hits import GalleryError, Own, to_index

FORMAT, POINTER, OWN = 2, "gallery.json", "own-captions.parquet"
PICTURE_COLUMNS, CAPTION_COLUMNS = ("name", "path", "digest", "state", "store"), ("text",)
OWN_COLUMNS = ("digest", "language", "text")
_ALWAYS = {"name", "digest", "text"}  # what each row has


def read_pointer(folder: Path) -> dict[str, Any] | None:
    """Which generation is the present one; None where there is no gallery.

    Raises:
        RecipeError: the file is damaged, or of another format.
    """
    path = folder / POINTER
    try:
        about = json.loads(path.read_text(encoding="utf-8"))
        if about["format"] != FORMAT:
            raise ValueError(f"format {about['format']}, this code reads {FORMAT}")
        if not (isinstance(about["generation"], str) and about["generation"].isdigit()):
            raise ValueError("it names no generation")
        if not all(isinstance(language, str) and language.isalpha() for language in [*about["languages"]]):
            raise ValueError("its languages are none")
        if Path(str(about["copy"])).name != about["copy"]:
            raise ValueError("it names no model")
        return {name: about[name] for name in ("generation", "made_of", "model", "copy", "languages")}
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        reason = str(error) if type(error) is ValueError else repr(error)
        damaged = GalleryError(f"{path}: not readable ({reason}); delete {folder} and run {to_index(folder)}")
        raise of_machine(error, path) or damaged from None


def read_table(path: Path, columns: Sequence[str]) -> pa.Table:
    """A table of texts of a generation.

    Raises:
        OSError, pa.ArrowException: it cannot be read.
        RecipeError: it has other columns, or a row lacks a text that each has.
    """
    table = pq.ParquetFile(path, memory_map=True).read()
    if table.schema.names != [*columns] or any(
        column.type != pa.string() or (column.name in _ALWAYS and table[column.name].null_count)
        for column in table.schema
    ):
        raise RecipeError(f"{path}: not what was written")
    return table


def load_index(folder: Path, exported: ExportedModel, rows: int) -> ShardedIndex:
    """The index of a table of a generation.

    Raises:
        RecipeError: it is damaged, or of another model or table.
    """
    try:
        index = ShardedIndex.load(folder, exported.fingerprint)
    except ModelError as error:
        raise RecipeError(str(error)) from None
    if len(index) != rows:
        raise RecipeError(f"{folder}: has {len(index)} vectors for {rows} rows")
    return index


def rows_of(generation: Path | None) -> dict[str, dict[str, Any]]:
    """The records of a generation's pictures, by name; empty if it cannot be read."""
    if generation is None:
        return {}
    with suppress(OSError, pa.ArrowException, RecipeError):
        return {row["name"]: row for row in read_table(generation / "pictures.parquet", PICTURE_COLUMNS).to_pylist()}
    return {}


def captions_of(generation: Path | None) -> dict[str, list[str]]:
    """The captions of a generation, by language."""
    captions: dict[str, list[str]] = {}
    for path in sorted(generation.glob("captions-*.parquet")) if generation is not None else ():
        try:
            captions[path.stem.partition("-")[2]] = read_table(path, CAPTION_COLUMNS)["text"].to_pylist()
        except (OSError, pa.ArrowException, RecipeError):
            info(f"{path} cannot be read; its captions are left out", colour="yellow")
    return captions


def own_rows_of(rows: Sequence[Mapping[str, Any]], own: Mapping[str, Own]) -> list[dict[str, str]]:
    """Which caption is of which picture: the records of pictures by their content, so that no name is mistaken."""
    found = dict.fromkeys(
        (row["digest"], language, text)
        for row in rows for language, texts in own.get(row["name"], {}).items() for text in texts
    )  # fmt: skip
    return [dict(zip(OWN_COLUMNS, one, strict=True)) for one in found]


def own_before(
    generation: Path | None, rows: Sequence[Mapping[str, Any]], by_files: bool
) -> list[dict[str, str]]:  # fmt: skip
    """The same as a generation has it, for pictures that are there now.

    Args:
        generation: its folder; None: there is none.
        by_files: they are of files, so that those which the generation knows by regions are found by their files.
    """
    now = {row["digest"]: row["digest"] for row in rows}
    with suppress(OSError, ValueError, pa.ArrowException, RecipeError):
        digest_of_file = {os.path.realpath(row["path"]): row["digest"] for row in rows} if by_files else {}
        for row in rows_of(generation).values():
            file = os.path.realpath(row["path"]) if row["store"] and row["path"] else ""
            if file in digest_of_file and _is_older(file, row["state"]):
                now[row["digest"]] = digest_of_file[file]
        known = read_table(generation / OWN, OWN_COLUMNS).to_pylist() if generation is not None else []
        if lost := len({row["digest"] for row in known} - now.keys()):
            info(f"the gallery had captions of {counted(lost, 'pictures')} that are not there now", colour="yellow")
        kept = dict.fromkeys(
            (now[row["digest"]], row["language"], row["text"]) for row in known if row["digest"] in now
        )
        return [dict(zip(OWN_COLUMNS, one, strict=True)) for one in kept]
    return []


def _is_older(file: str, state: str) -> bool:
    """Has a file not changed since the regions of a store, with this state, were found in it?"""
    return Path(file).stat().st_mtime_ns <= int(state.partition(":")[2])
