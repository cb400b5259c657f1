"""The files of a data set that the library `datasets` reads: each is given to it by name, for it guesses splits."""

import glob
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from data.captions.table import split_called
from data.captions.tables import read_table
from data.errors import BadLines, DataError, one_line
from data.lines import visible_files
from data.pictures.folder import is_inside

if TYPE_CHECKING:
    from datasets import Dataset

HUB = "hub:"
"""What the name of a data set of the hub begins with."""
FILE_NAME = "file_name"
"""The column of a table of metadata that names the picture's file."""
_SAVED = ("dataset_info.json", "dataset_dict.json", "state.json")  # by `save_to_disk`
_METADATA = {"metadata.csv": "csv", "metadata.jsonl": "json", "metadata.parquet": "parquet"}  # name → kind of table


@dataclass
class Part:
    """Rows of a data set.

    Attributes:
        split: as it is named; empty if it is not.
        rows: the table.
        image: the column of the picture: of the type Image or, in a table of metadata, of names of files.
        folder: that these names start from.
    """

    split: str
    rows: "Dataset"
    image: str
    folder: Path | None = None

    def pictures(self, columns: Sequence[str]) -> Iterator[tuple[Mapping[str, Any] | None, Mapping[str, Any]]]:
        """The picture (`path`, `bytes`) of each row, None where there is none, and other columns of the row."""
        import datasets

        rows = self.rows.select_columns([self.image, *columns])  # other columns of pictures would be decoded
        if self.folder is None:
            rows = rows.cast_column(self.image, datasets.Image(decode=False))
        classes = {name: kind for name, kind in rows.features.items() if isinstance(kind, datasets.ClassLabel)}
        for numbered in rows:
            row = numbered | {name: kind.names[numbered[name]] for name, kind in classes.items()
                              if numbered[name] in range(len(kind.names))}  # fmt: skip
            held = row[self.image]
            if self.folder is not None and isinstance(held, str) and held.strip():
                yield {"path": str(self.folder / held.strip()), "bytes": None}, row
            else:
                yield (held if isinstance(held, dict) else None), row


def is_data_set(source: str) -> bool:
    """Is it a data set: of the hub, its files, saved by `datasets`, or a folder of pictures with metadata?"""
    if source.startswith(HUB):
        return True
    folder = Path(source)
    return _is_saved(folder) or bool(_metadata_in(folder) or _tables_in(folder))


def parts_of(source: str, cache: str) -> tuple[str, list[Part], list[str]]:
    """What kind a data set is, its parts, and what of the folder is not read.

    Args:
        source: `hub:NAME`, or a folder.
        cache: a folder for tables that `datasets` makes.

    Raises:
        DataError: it has no pictures, or links out of its folder; or a folder here has its name on the hub.
        Exception: whatever `datasets` raises; see `reading`.
    """
    import datasets

    datasets.disable_progress_bars()
    folder, left = Path(source), list[str]()
    if source == HUB:
        raise DataError(f"{HUB} names no data set; expected its name on the hub behind it, {HUB}USER/NAME")
    if source.startswith(HUB) and (here := Path(source.removeprefix(HUB))).is_dir():
        raise DataError(f"{source}: {here} is a folder here, which `datasets` would read in the place of the hub's; "
                        f"name it without {HUB}, or start in another folder")  # fmt: skip
    if source.startswith(HUB):
        form, splits = "a data set of the hub", datasets.load_dataset(source.removeprefix(HUB))
    elif metadata := _metadata_in(folder):
        _require_inside(metadata, folder)
        tables = [(path.parent, _load(_METADATA[path.name], [path], cache)) for path in metadata]
        return "pictures with metadata", [_part("", rows, source, place) for place, rows in tables if len(rows)], left
    elif _is_saved(folder):
        _require_inside(visible_files(folder), folder)
        form, splits = "a saved data set", datasets.load_from_disk(source)
    else:
        files, left = _chosen(_tables_in(folder), folder)
        _require_inside(files, folder)
        splits = {split: _load("parquet", some, cache) for split, some in _grouped(files).items()}
        form = "a data set in Parquet files"
    splits = splits if isinstance(splits, dict) else {"": splits}
    return form, [_part(split, rows, source) for split, rows in splits.items() if len(rows)], left


@contextmanager
def reading(source: str) -> Iterator[None]:
    """Turn whatever a data set raises while it is read (no network, no such name, damaged files) into a `DataError`."""
    try:
        yield
    except DataError:
        raise
    except Exception as error:
        advice = "expected a data set of pictures and captions"
        if source.startswith(HUB):
            advice = (
                "expected a name on the hub; log in for a private or gated one (`.venv/bin/hf auth login`); without "
                "internet, or to choose one of several configurations, copy it into a folder where there is internet "
                "(`hf download NAME --repo-type dataset --local-dir FOLDER`, or `save_to_disk`) and name that"
            )
        raise DataError(f"{source}: no data set that `datasets` can read ({one_line(error)}); {advice}") from None


def may_be_read(path: Path, source: str) -> bool:
    """May a file that a data set names be read: does it lie in its folder or, of the hub, in a cache of data?"""
    import datasets
    from huggingface_hub import constants

    caches = constants.HF_HUB_CACHE, datasets.config.HF_DATASETS_CACHE  # not what else HF_HOME holds: a token
    known = caches if source.startswith(HUB) else [source]
    return any(is_inside(path, Path(folder)) for folder in known)


def _require_inside(files: Sequence[Path], folder: Path) -> None:
    """Refuse files that are links out of the folder, by a DataError."""
    for path in files:
        if not is_inside(path, folder):
            raise DataError(f"{str(path)!r}: a link out of the folder; put the file itself there")


def _is_saved(folder: Path) -> bool:
    return any((folder / name).is_file() for name in _SAVED)


def _metadata_in(folder: Path) -> list[Path]:
    return sorted(path for path in visible_files(folder) if path.name in _METADATA)


def _tables_in(folder: Path) -> list[Path]:
    """Parquet files of a folder, or of those in it."""
    return sorted(path for depth in ("", "*/") for path in folder.glob(f"{depth}[!.]*.parquet"))


def _chosen(tables: Sequence[Path], folder: Path) -> tuple[list[Path], list[str]]:
    """The tables in the folder itself, else in its `data`, else in the one folder that has some; and the others."""
    tables_of: dict[Path, list[Path]] = defaultdict(list)
    for path in tables:
        tables_of[path.parent].append(path)
    chosen = next((place for place in (folder, folder / "data") if place in tables_of), None)
    if chosen is None and len(tables_of) > 1:
        names = ", ".join(place.name for place in tables_of)
        raise DataError(f"{folder}: several folders hold Parquet files: {names}; name one of them")
    chosen = next(iter(tables_of)) if chosen is None else chosen
    return tables_of[chosen], [str(path.relative_to(folder)) for path in tables if path.parent != chosen]


def _grouped(files: Sequence[Path]) -> dict[str, list[Path]]:
    """Files by the split that their names begin with (`validation-00000-of-00001.parquet`); none of other names."""
    groups: dict[str, list[Path]] = defaultdict(list)
    for path in files:
        name = re.split(r"[-.]", path.name.lower())[0]
        groups[name if split_called(name) else ""].append(path)
    return groups


def _load(kind: str, files: Sequence[Path], cache: str) -> "Dataset":
    """Tables as one; their names are patterns to the library, and their splits are its guess."""
    import datasets

    if kind == "csv":  # all cells are texts: `NA` too, and a name that is a number
        return _read_csv(*files)
    names = {"train": [glob.escape(str(path.resolve())) for path in files]}
    return datasets.load_dataset(kind, data_files=names, split="train", cache_dir=cache)


def _read_csv(path: Path) -> "Dataset":
    import datasets

    bad = BadLines()
    rows = read_table(path, f"a table with columns {FILE_NAME} and caption", bad=bad).rows
    header = rows[0][1] if rows else []
    for number, cells in rows:
        with bad.gather(f"{path}:{number}"):
            if len(cells) != len(header):
                raise DataError(f"{path}:{number}: {len(cells)} cells, expected {len(header)} as in the first line; "
                                "write a text with commas in quotation marks")  # fmt: skip
    bad.require_none()
    if len(set(header)) < len(header):
        raise DataError(f"{path}:1: two columns have one name; give each its own")
    return datasets.Dataset.from_dict({name: [cells[k] for _, cells in rows[1:]] for k, name in enumerate(header)})


def _part(split: str, rows: "Dataset", source: str, folder: Path | None = None) -> Part:
    """Rows by their column of pictures: one of the type Image, or of records of `bytes` and `path`, as it is stored.

    In a table of metadata, which has a `folder`, it is the column of names.
    """
    import datasets

    kinds = rows.features
    if folder is not None:
        if FILE_NAME not in kinds:
            raise DataError(f"{source}: metadata without a column {FILE_NAME} in {folder}; expected the picture's "
                            "file there, or name the file of captions by --captions")  # fmt: skip
        return Part(split, rows, FILE_NAME, folder)
    images = [name for name, kind in kinds.items() if isinstance(kind, datasets.Image)]
    images += [name for name, kind in kinds.items() if isinstance(kind, dict) and {*kind} == {"bytes", "path"}]
    if not images:
        otherwise = "" if source.startswith(HUB) else ", or name the file of captions by --captions"
        raise DataError(f"{source}: no column of pictures among {', '.join(kinds)}; expected one of the type "
                        f"Image{otherwise}")  # fmt: skip
    return Part(split, rows.with_format(None), images[0])
