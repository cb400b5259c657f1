"""Data sets that the library `datasets` reads, written once as pictures and `captions.tsv`."""

import hashlib
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PIL import Image

from data.errors import DataError
from data.languages import language_of, languages_in
from data.progress import shown

if TYPE_CHECKING:
    from datasets import Dataset

HUB = "hub:"
"""What the name of a data set of the hub begins with."""
_SAVED = ("dataset_info.json", "dataset_dict.json", "state.json")  # by `save_to_disk`
_METADATA = ("metadata.csv", "metadata.jsonl", "metadata.parquet")  # of `imagefolder`
_SPLITS = {"train": "train", "training": "train", "val": "val", "valid": "val", "validation": "val", "dev": "val",
           "test": "test", "testing": "test"}  # fmt: skip
_CAPTION = re.compile(
    r"(alt_?)?(caption|text|sentence|description|raw)s?(_?\w{2,3}|_?\d)?|(?!id$)[a-z]{2}", re.IGNORECASE
)
_SHARE = 0.1  # of the pictures, for a split that a data set with other splits lacks
_SAMPLE = 1000


def is_data_set(source: str) -> bool:
    """Is it a data set: of the hub, its files, saved by `datasets`, or a folder of pictures with metadata?"""
    if source.startswith(HUB):
        return True
    folder = Path(source)
    return any((folder / name).is_file() for name in _SAVED) or _has_metadata(folder) or _has_tables(folder)


def _has_metadata(folder: Path) -> bool:
    return any(True for depth in ("", "*/") for name in _METADATA for _ in folder.glob(f"{depth}{name}"))


def _has_tables(folder: Path) -> bool:
    """Are there Parquet files, as data sets of the hub have them?"""
    return any(True for depth in ("", "*/") for _ in folder.glob(f"{depth}*.parquet"))


@dataclass
class Written:
    """What was written of a data set.

    Attributes:
        form: what it was, in words.
        root: the folder that the pictures' folder is in.
        pictures: that folder, relative to `root`.
        captions: the TSV.
        drawn: does no picture have a split?
    """

    form: str
    root: Path
    pictures: str
    captions: Path
    drawn: bool


def write_data_set(source: str, data: Path) -> Written:
    """Write `captions.tsv`, and those pictures that are no files of the folder, to a new folder.

    Args:
        source: `hub:NAME`, or a folder.
        data: the new folder; it appears when all is written.

    Raises:
        DataError: there is no such data set, or it has no pictures or no captions.
    """
    data.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=data.parent, prefix=f".{data.name}-") as made:
        folder = Path(made) / "data"
        (folder / "pictures").mkdir(parents=True)
        form, splits = _load(source, str(Path(made) / "cache"))
        lines, inside = _write(splits, source, folder / "pictures")
        if not lines:
            raise DataError(f"{source}: no captions in its columns; expected text beside each picture")
        if inside:  # all are files of the folder
            (folder / "pictures").rmdir()
        text = "".join("\t".join(line) + "\n" for line in lines)
        (folder / "captions.tsv").write_text(text, encoding="utf-8")
        if data.exists():
            shutil.rmtree(data)
        folder.rename(data)
    drawn = not any(line[3] for line in lines)
    root, place = (Path(source).resolve(), ".") if inside else (data.absolute(), "pictures")
    return Written(form, root, place, data.absolute() / "captions.tsv", drawn)


def _load(source: str, cache: str) -> tuple[str, dict[str, "Dataset"]]:
    """What kind it is, and its splits."""
    import datasets

    datasets.disable_progress_bars()
    try:
        if source.startswith(HUB):
            form, found = "a data set of the hub", datasets.load_dataset(source.removeprefix(HUB))
        elif _has_metadata(Path(source)):
            form = "pictures with metadata"
            found = datasets.load_dataset("imagefolder", data_dir=source, cache_dir=cache)
        elif _has_tables(Path(source)):
            form, found = "a data set in Parquet files", datasets.load_dataset(source, cache_dir=cache)
        else:
            form, found = "a saved data set", datasets.load_from_disk(source)
    except Exception as error:  # of many kinds: no network, no such name, damaged files
        reason = " ".join(str(error).split())[:200]
        advice = "expected a data set of pictures and captions"
        if source.startswith(HUB):
            advice = (
                "expected a name on the hub; without internet, copy it into a folder where there is some (`hf download "
                "NAME --repo-type dataset --local-dir FOLDER`, or `save_to_disk`) and name that"
            )
        raise DataError(f"{source}: no data set that `datasets` can read ({reason}); {advice}") from None
    splits = dict(found) if isinstance(found, dict) else {"": found}
    return form, {name: rows for name, rows in splits.items() if len(rows)}


def _write(splits: Mapping[str, "Dataset"], source: str, pictures: Path) -> tuple[list[list[str]], bool]:
    """Lines of the TSV, and whether all pictures are files of the folder; others are written to `pictures`."""
    import datasets

    lines, inside = list[list[str]](), list[bool]()
    for split, rows in splits.items():
        image, captions, own = _columns(rows, source)
        languages = {name: languages_in(_some_texts(rows, name)) or ["en"] for name in captions}
        rows = rows.cast_column(image, datasets.Image(decode=False))
        for number, row in enumerate(shown(rows, "writing pictures", len(rows))):
            if row[image] is None:
                raise DataError(f"{source}: row {number} of {split or 'the data'}: no picture; leave the row out")
            name, here = _picture(row[image], Path(source), pictures, f"{split or 'picture'}-{number:07d}")
            inside.append(here)
            of = _SPLITS.get(str(row[own]).lower(), "train") if own else ""
            of = of or (_SPLITS.get(split, "train") if len(splits) > 1 else "")
            lines += [[name, language_of(text, languages[column]), text, of] for column in captions
                      for text in _texts(row[column])]  # fmt: skip
    if len({*inside}) > 1:
        raise DataError(f"{source}: some pictures are files in it and some are not; save it by `save_to_disk`")
    _draw_missing(lines)
    return lines, all(inside)


def _columns(rows: "Dataset", source: str) -> tuple[str, list[str], str | None]:
    """The columns of the picture, of captions, and of the split if there is one."""
    import datasets

    images = [name for name, kind in rows.features.items() if isinstance(kind, datasets.Image)]
    known = ", ".join(rows.features)
    if not images:
        raise DataError(f"{source}: no column of pictures among {known}; expected one of the type Image")
    texts = [name for name in rows.features if name not in images and any(True for _ in _texts(rows[0][name]))]
    captions = [name for name in texts if _CAPTION.fullmatch(name)]
    if not captions:
        raise DataError(f"{source}: no column of captions among {known}; expected a text or a list of texts, called "
                        "caption or text")  # fmt: skip
    return images[0], captions, "split" if "split" in texts and "split" not in captions else None


def _texts(value: Any) -> Iterator[str]:
    """The captions in a cell: a text, a list of texts, or of records with a text `raw`."""
    for one in value if isinstance(value, list) else [value]:
        text = one.get("raw") if isinstance(one, dict) else one
        if isinstance(text, str) and text.strip():
            yield " ".join(text.split())


def _some_texts(rows: "Dataset", column: str) -> list[str]:
    few = rows.select_columns([column]).select(range(0, len(rows), max(1, len(rows) // _SAMPLE)))
    return [text for row in few for text in _texts(row[column])]


def _picture(value: Mapping[str, Any], source: Path, pictures: Path, name: str) -> tuple[str, bool]:
    """The name of a picture, and whether it is a file of the folder; another one is written."""
    path, content = value.get("path"), value.get("bytes")
    if content is None:
        file = Path(str(path))
        if file.is_file() and file.absolute().is_relative_to(source.absolute()):
            return file.absolute().relative_to(source.absolute()).as_posix(), True
        if not file.is_file():
            raise DataError(f"{path}: no such picture, which the data set names; get the data set again")
        content = file.read_bytes()
    try:
        with Image.open(BytesIO(content)) as image:
            ending = {"JPEG": "jpg", "TIFF": "tif"}.get(str(image.format), str(image.format).lower())
    except OSError:
        ending = "jpg"  # the data report will name it
    (pictures / f"{name}.{ending}").write_bytes(content)
    return f"{name}.{ending}", False


def _draw_missing(lines: list[list[str]]) -> None:
    """Give some training pictures to validation or test, where no picture is of that split but others have one."""
    splits = {line[3] for line in lines} - {""}
    for number, split in enumerate(("val", "test")):
        if splits and split not in splits:
            left = {line[0] for line in lines if line[3] == "train"}
            order = sorted(left, key=lambda name: hashlib.sha256(f"{number} {name}".encode()).digest())
            drawn = {*order[: max(1, round(_SHARE * len(order)))]}
            for line in lines:
                if line[0] in drawn:
                    line[3] = split
