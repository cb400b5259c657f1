"""What a gallery is on disk: a pointer to its present generation, and the tables and indices of that."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from modules.errors import ModelError
from modules.search.shards import ShardedIndex
from pipeline.engine.machine_errors import of_machine
from pipeline.errors import RecipeError
from pipeline.export.exported_model import ExportedModel
from pipeline.gallery.hits import to_index

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
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = str(error) if type(error) is ValueError else repr(error)
        damaged = RecipeError(f"{path}: not readable ({reason}); delete {folder} and run `{to_index()}`")
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

    Args:
        folder: of the index.
        exported: the model that made its vectors.
        rows: of the table.

    Raises:
        RecipeError: it is damaged, or of another model or table.
    """
    try:
        index = ShardedIndex.load(folder, exported.fingerprint)
    except ModelError as error:
        raise RecipeError(f"{error}: run `{to_index()}` again") from None
    if len(index) != rows:
        raise RecipeError(f"{folder}: has {len(index)} vectors for {rows} rows")
    return index
