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
from data.language_codes import NLLB, spellings
from data.languages import language_of, languages_in
from data.pictures import SUFFIXES
from data.progress import shown

if TYPE_CHECKING:
    from datasets import Dataset

HUB = "hub:"
"""What the name of a data set of the hub begins with."""
_SAVED = ("dataset_info.json", "dataset_dict.json", "state.json")  # by `save_to_disk`
_METADATA = ("metadata.csv", "metadata.jsonl", "metadata.parquet")  # of `imagefolder`
_HELD_OUT = {"val": "val", "dev": "val", "test": "test"}  # how names of splits begin: `validation`, `test_2016`
_CAPTION = re.compile(r"(?:alt_?)?(?:caption|text|sentence|description|raw)s?(?:_?(\d+|[a-z]{2,3}))?|([a-z]{2})")
_LANGUAGES = {code: language for language in NLLB for code in spellings(language)} | {"id": ""}  # `id` numbers things
_MARK = ".written-by-init"
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
        data: the new folder; it appears when all is written. One that `init` has written is replaced.

    Raises:
        DataError: there is no such data set, it has no pictures or no captions, or `data` holds something else.
    """
    if data.exists() and not is_written(data):
        raise DataError(f"{data}: exists, and `init` has not written it; the data set would be written there: choose "
                        "another --output")  # fmt: skip
    data.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=data.parent, prefix=f".{data.name}-") as made:
        folder = Path(made) / "data"
        (folder / "pictures").mkdir(parents=True)
        form, splits = _load(source, str(Path(made) / "cache"))
        lines, inside = _write(splits, source, folder / "pictures")
        form += _draw_missing(lines)
        if not lines:
            raise DataError(f"{source}: no captions in its columns; expected text beside each picture")
        if inside:  # all are files of the folder
            (folder / "pictures").rmdir()
        text = "".join("\t".join(line) + "\n" for line in lines)
        (folder / "captions.tsv").write_text(text, encoding="utf-8")
        (folder / _MARK).touch()
        if data.exists():
            shutil.rmtree(data)
        folder.rename(data)
    drawn = not any(line[3] for line in lines)
    root, place = (Path(source).resolve(), ".") if inside else (data.absolute(), "pictures")
    return Written(form, root, place, data.absolute() / "captions.tsv", drawn)


def is_written(data: Path) -> bool:
    """Has `write_data_set` written this folder?"""
    return (data / _MARK).is_file()


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

    lines, inside, written = list[list[str]](), list[bool](), dict[bytes, str]()
    for split, rows in splits.items():
        image, captions, own = _columns(rows, source)
        languages = {name: _languages_of(name, rows) for name in captions}
        rows = rows.cast_column(image, datasets.Image(decode=False))
        for number, row in enumerate(shown(rows, "writing pictures", len(rows))):
            if row[image] is None:
                raise DataError(f"{source}: row {number} of {split or 'the data'}: no picture; leave the row out")
            name = f"{split or 'picture'}-{number:07d}"
            name, here = _picture(row[image], Path(source), pictures, name, written)
            inside.append(here)
            of = _split_of(str(row[own])) if own else _split_of(split) if len(splits) > 1 else ""
            lines += [[name, language_of(text, languages[column]), text, of] for column in captions
                      for text in _texts(row[column])]  # fmt: skip
    if len({*inside}) > 1:
        raise DataError(f"{source}: some pictures are files in it and some are not; save it by `save_to_disk`")
    return lines, all(inside)


def _split_of(name: str) -> str:
    """The split that a name of the data set stands for: `validation` is `val`, `test_2016` is `test`."""
    return next((split for start, split in _HELD_OUT.items() if name.lower().startswith(start)), "train")


def _columns(rows: "Dataset", source: str) -> tuple[str, list[str], str | None]:
    """The columns of the picture, of captions, and of the split if there is one."""
    import datasets

    images = [name for name, kind in rows.features.items() if isinstance(kind, datasets.Image)]
    known = ", ".join(rows.features)
    if not images:
        raise DataError(f"{source}: no column of pictures among {known}; expected one of the type Image")
    others = [name for name in rows.features if name not in images]
    captions = [name for name in others if _may_be_captions(name) and _some_texts(rows, name)]
    if not captions:
        raise DataError(f"{source}: no column of captions among {known}; expected a text or a list of texts, called "
                        "caption or text")  # fmt: skip
    return images[0], captions, "split" if "split" in others and _some_texts(rows, "split") else None


def _may_be_captions(column: str) -> bool:
    """May a column hold captions, by its name: `caption`, `captions_de`, `text1`, `en`?"""
    found = _CAPTION.fullmatch(column.lower())
    return found is not None and all(one.isdigit() or _LANGUAGES.get(one) for one in found.groups() if one)


def _languages_of(column: str, rows: "Dataset") -> list[str]:
    """The languages of a column: the one that its name ends in, else those that are detected."""
    found = _CAPTION.fullmatch(column.lower())
    named = next((_LANGUAGES[one] for one in found.groups() if one in _LANGUAGES), "") if found else ""
    return [named] if named else languages_in(_some_texts(rows, column)) or ["en"]


def _texts(value: Any) -> Iterator[str]:
    """The captions in a cell: a text, a list of texts, or of records with a text `raw`."""
    for one in value if isinstance(value, list) else [value]:
        text = one.get("raw") if isinstance(one, dict) else one
        if isinstance(text, str) and text.strip():
            yield " ".join(text.split())


def _some_texts(rows: "Dataset", column: str) -> list[str]:
    few = rows.select_columns([column]).select(range(0, len(rows), max(1, len(rows) // _SAMPLE)))
    return [text for row in few for text in _texts(row[column])]


def _picture(
    value: Mapping[str, Any], source: Path, pictures: Path, name: str, written: dict[bytes, str]
) -> tuple[str, bool]:
    """The name of a picture, and whether it is a file of the folder; another one is written.

    One that has been written keeps its name (digest → name in `written`): many data sets have a row for each caption.
    """
    path, content = value.get("path"), value.get("bytes")
    if content is None:
        file = Path(str(path))
        here = file.parent.resolve() / file.name
        if file.is_file() and here.is_relative_to(source.resolve()):
            return here.relative_to(source.resolve()).as_posix(), True
        if not file.is_file():
            raise DataError(f"{path}: no such picture, which the data set names; get the data set again")
        content = file.read_bytes()
    try:
        with Image.open(BytesIO(content)) as image:
            ending = f".{str(image.format).lower()}"
    except Exception:  # of many kinds; the data report will name it
        ending = ""
    name += ending if ending in SUFFIXES - {".jpeg"} else ".jpg"  # a camera's MPO; Pillow does not go by the name
    name = written.setdefault(hashlib.sha256(content).digest(), name)
    if not (pictures / name).exists():
        (pictures / name).write_bytes(content)
    return name, False


def _draw_missing(lines: list[list[str]]) -> str:
    """Give some training pictures to validation or test, where no picture is of that split but others have one.

    Returns:
        what was drawn, in words; an empty text if nothing was.
    """
    splits, missing = {line[3] for line in lines} - {""}, list[str]()
    for number, split in enumerate(("val", "test")):
        if splits and split not in splits:
            left = {line[0] for line in lines if line[3] == "train"}
            order = sorted(left, key=lambda name: hashlib.sha256(f"{number} {name}".encode()).digest())
            drawn = {*order[: max(1, round(_SHARE * len(order)))]}
            for line in lines:
                if line[0] in drawn:
                    line[3] = split
            missing.append(split)
    return f", its {' and '.join(missing)} drawn from train" if missing else ""
