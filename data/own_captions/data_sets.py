"""Data sets that the library `datasets` reads, written once as pictures and `captions.tsv`."""

import hashlib
import re
import tempfile
import zipfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from data.captions.table import split_called
from data.captions.tables import HEADINGS, LANGUAGE, SPLIT, captions_in, is_missing, language_in
from data.errors import BadLines, DataError
from data.findings.checks import UNNAMED
from data.own_captions.data_set_files import FILE_NAME, HUB, Part, may_be_read, parts_of, reading
from data.own_captions.detection import FoundCaptions, path_from
from data.pictures.folder import SUFFIXES, WRITTEN, copies_of, is_written, pictures_in
from data.pictures.images import format_of
from data.progress import shown
from data.text.characters import composed
from data.text.language_codes import language_called
from data.text.languages import Detected, detect_languages, language_of

if TYPE_CHECKING:
    from datasets import Dataset

NO_CAPTION, UNREAD = "rows without a caption", "Parquet files of other folders"
"""What may be left out of a data set."""
_SHARE = 0.1  # of the pictures, for a split that a data set with other splits lacks
_SAMPLE = 1000
_IN_ARCHIVE = re.compile(r"zip://(.+?)::(.+)")  # a file in a ZIP of the hub, as the library names it


def write_data_set(source: str, data: Path, languages: Sequence[str] = ()) -> FoundCaptions:
    """Write `captions.tsv`, and those pictures that are no files of the folder, to a new folder.

    Args:
        source: `hub:NAME`, or a folder.
        data: the new folder; it appears when all is written. One that `init` has written is replaced.
        languages: of captions whose columns do not say it; none: they are detected.

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
        writing = _Writing(source, folder / "pictures", languages)
        with reading(source):  # damaged files are found when their rows are read
            form, writing.parts, writing.left[UNREAD] = parts_of(source, str(Path(made) / "cache"))
            for part in writing.parts:
                writing.add(part, several=len(writing.parts) > 1)
        writing.bad.require_none()
        lines = writing.lines
        if not any(line.text for line in lines):
            raise DataError(f"{source}: no captions in its columns; expected text beside each picture")
        if writing.inside and writing.written:
            raise DataError(f"{source}: some pictures are files in it and some are not; save it by `save_to_disk`, "
                            "which keeps its pictures")  # fmt: skip
        if writing.inside:
            (folder / "pictures").rmdir()
        form += _draw_missing(lines, writing.look_into_folder() if writing.inside else {})
        text = "".join("\t".join(map(_cell, astuple(line))) + "\n" for line in lines)
        (folder / "captions.tsv").write_text(text, encoding="utf-8")
        (folder / WRITTEN).touch()
        if data.exists():
            data.rename(Path(made) / "before")  # deleted with it: half of it would not be known as ours
        folder.rename(data)
    drawn = not any(line.split for line in lines)
    root, pictures = (Path(source).resolve(), ".") if writing.inside else (data.absolute(), "pictures")
    corpus = {"name": "folder", "captions": path_from(data.absolute() / "captions.tsv", root), "pictures": pictures}
    left = {what: where for what, where in writing.left.items() if where}
    return FoundCaptions(form, root, corpus, [line.picture for line in lines], writing.detected, drawn, left)


@dataclass
class _Line:
    """A line of the TSV; `text` is empty where a row has no caption, `split` where none is given."""

    picture: str
    language: str
    text: str
    split: str


@dataclass
class _Writing:
    """Lines of the TSV, and pictures that were written.

    Attributes:
        source: the data set.
        folder: of pictures that are no files of it.
        given: languages, where they were named; else empty.
        parts: of the data set.
        lines: in the order of the rows.
        detected: the languages that were detected, if any were.
        left: what was left out → where.
        inside: are there pictures that are files of the data set's folder?
        written: digest → name of the others.
        bad: what is wrong with rows.
    """

    source: str
    folder: Path
    given: Sequence[str]
    parts: Sequence[Part] = ()
    lines: list[_Line] = field(default_factory=list)
    detected: Detected | None = None
    left: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    inside: bool = False
    written: dict[bytes, str] = field(default_factory=dict)
    bad: BadLines = field(default_factory=BadLines)

    def add(self, part: Part, several: bool) -> None:
        """Add the rows of a part; of several, its name is the split of rows that have none."""
        captions, own, spoken = _columns(part, self.source)
        languages = {name: self._languages_of(name) for name in captions if not spoken or language_in(name)}
        where = part.split or ("the data" if part.folder is None else str(part.folder))
        for number, (held, row) in enumerate(
            shown(part.pictures([*captions, *filter(None, (own, spoken))]), "writing pictures", len(part.rows))
        ):
            name = ""
            with self.bad.gather(row_name := f"row {number} of {where}"):
                name = self._picture(held, f"{part.split or 'picture'}-{number:07d}", row_name)
            split = _split_of(str(row[own])) if own else _split_of(part.split) if several and part.split else ""
            texts = [(text, languages.get(column)) for column in captions for text in _texts(row[column])]
            if not any(text for text, _ in texts):
                self.left[NO_CAPTION].append(row_name)
            said = language_called(str(row[spoken] or "").strip()) if spoken else None
            with self.bad.gather(row_name):
                if spoken and said is None and any(text for text, _ in texts):
                    raise DataError(f"{row_name}: language {row[spoken]!r}, expected a code like en or de")
            self.lines += [_Line(name, language_of(text, known or [said or "en"]), text, split)
                           for text, known in texts]  # fmt: skip

    def look_into_folder(self) -> Mapping[str, str]:
        """Where no row has a split, take it from the pictures' folders, `train/1.png`; note pictures that no row names.

        Returns:
            pictures that are copies of others; those that are written are written once.
        """
        root, named = Path(self.source), {line.picture for line in self.lines}
        folders = {name.partition("/")[0].lower() for name in named if "/" in name}
        if not any(line.split for line in self.lines) and sum(split_called(name) is not None for name in folders) > 1:
            for line in self.lines:
                line.split = _split_of(line.picture.partition("/")[0])
        self.left[UNNAMED] = [name for name in pictures_in(root)[0] if name not in named]
        return copies_of({line.picture: root / line.picture for line in self.lines})

    def _languages_of(self, column: str) -> Sequence[str]:
        """The languages of a column: the one that its name ends in, else those that are given or detected.

        They are detected over all parts together: the few captions of a split may tell another language, or none.
        """
        if named := language_in(column):
            return [named]
        if self.given:
            return self.given
        if self.detected is None:
            columns = [(part.rows, name) for part in self.parts for name in _columns(part, self.source)[0]]
            self.detected = detect_languages(
                text for rows, name in columns if not language_in(name) for text in _some_texts(rows, name)
            )
        return self.detected.languages

    def _picture(self, held: Mapping[str, Any] | None, name: str, row_name: str) -> str:
        """The name of the picture of a row: of a file of the folder, or of one that is written.

        One that has been written keeps its name: many data sets have a row for each caption.
        """
        if held is None:
            raise DataError(f"{self.source}: {row_name}: no picture; leave the row out")
        content, place = held.get("bytes"), str(held.get("path"))
        if content is None:
            packed = _IN_ARCHIVE.fullmatch(place) if self.source.startswith(HUB) else None
            file = Path(packed[2] if packed else place)
            if not may_be_read(file, self.source):
                raise DataError(f"{self.source}: {row_name} names a picture outside its folder, {str(file)!r}; put it "
                                "into the folder, or save the data set by `save_to_disk`, which keeps its "
                                "pictures")  # fmt: skip
            if not file.is_file():
                raise DataError(f"{self.source}: {row_name} names {str(file)!r}, and there is no such picture; get the "
                                "data set again, or leave the row out")  # fmt: skip
            here, root = file.parent.resolve() / file.name, Path(self.source).resolve()
            if here.is_relative_to(root):
                self.inside = True
                return composed(here.relative_to(root).as_posix())
            content = _unpacked(file, packed[1]) if packed else file.read_bytes()
        ending = f".{str(format_of(content)).lower()}"  # of no picture: the data report will name it
        name += ending if ending in SUFFIXES - {".jpeg"} else ".jpg"  # a camera's MPO; Pillow does not go by the name
        name = self.written.setdefault(hashlib.sha256(content).digest(), name)
        if not (self.folder / name).exists():
            (self.folder / name).write_bytes(content)
        return name


def _unpacked(archive: Path, name: str) -> bytes:
    with zipfile.ZipFile(archive) as packed:
        return packed.read(name)


def _cell(text: str) -> str:
    """A text as spreadsheets write it, so that its quotation marks are read again."""
    return '"{}"'.format(text.replace('"', '""')) if '"' in text else text


def _split_of(name: str) -> str:
    """The split that a name of the data set stands for; training, where it stands for none."""
    return split_called(name) or "train"


def _columns(part: Part, source: str) -> tuple[list[str], str | None, str | None]:
    """The columns of captions, that of the split, and that of the language, if there are any."""
    columns = [name for name in part.rows.features if name not in (part.image, FILE_NAME)]
    captions = [name for name in columns if language_in(name) is not None and any(_some_texts(part.rows, name))]
    if not captions:
        raise DataError(f"{source}: no column of captions among {', '.join(part.rows.features)}; expected a text or a "
                        "list of texts, called caption or text")  # fmt: skip
    others = [name for name in columns if name in (SPLIT, *HEADINGS[LANGUAGE])
              and (hasattr(part.rows.features[name], "names") or any(_some_texts(part.rows, name)))]  # fmt: skip
    spoken = next((name for name in others if name != SPLIT), None)
    return captions, SPLIT if SPLIT in others else None, spoken


def _texts(value: Any) -> Iterator[str]:
    """The captions in a cell: a text, a list of texts, or of records with a text `raw`; a missing one is empty.

    A text may be a list too: `['a dog', 'a cat']`.
    """
    for entry in (value or [None]) if isinstance(value, list) else [value]:
        held = entry.get("raw") if isinstance(entry, dict) else entry
        for text in (isinstance(held, str) and captions_in(held)) or [""]:
            yield "" if is_missing(text) else " ".join(text.split())


def _some_texts(rows: "Dataset", column: str) -> list[str]:
    few = rows.select_columns([column]).select(range(0, len(rows), max(1, len(rows) // _SAMPLE)))
    return [text for row in few for text in _texts(row[column]) if text]


def _draw_missing(lines: list[_Line], copies: Mapping[str, str]) -> str:
    """Give some training pictures to validation or test, where no picture is of that split but others have one.

    Args:
        lines: of the TSV, which are changed.
        copies: picture → the one that it is a copy of; both are drawn together.

    Returns:
        what was drawn, in words; an empty text if nothing was.
    """
    splits, missing = {line.split for line in lines} - {""}, list[str]()
    originals = [copies.get(line.picture, line.picture) for line in lines]
    for number, split in enumerate(("val", "test")):
        if splits and split not in splits:
            held = {original for line, original in zip(lines, originals, strict=True) if line.split != "train"}
            order = sorted({*originals} - held, key=lambda name: hashlib.sha256(f"{number} {name}".encode()).digest())
            drawn = {*order[: max(1, round(_SHARE * len(order)))]}
            for line, original in zip(lines, originals, strict=True):
                if original in drawn:
                    line.split = split
            missing.append(split)
    return f", its {' and '.join(missing)} drawn from train" if missing else ""
