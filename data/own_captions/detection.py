"""Which captions a folder has, in which form, and the settings of the corpus that reads them."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any

from data.captions.table import SPLITS, split_called
from data.captions.tables import (
    CAPTION,
    LANGUAGE,
    OTHER,
    PICTURE,
    SPLIT,
    Table,
    captions_in,
    columns_of,
    holds_captions,
    is_header,
    is_picture_name,
    read_table,
)
from data.corpora.caption_files import TEXT, as_tables, texts_in
from data.corpora.coco.karpathy import read_entries
from data.corpora.folder import CAPTIONS, WITHOUT_LANGUAGE
from data.errors import BadLines, DataError
from data.lines import read_lines, read_text, visible_files
from data.own_captions.picture_folder import SAMPLE, folder_of
from data.pictures.folder import NO_PICTURES, PictureNames, is_inside, is_written, names_in, pictures_in
from data.text.characters import composed
from data.text.language_codes import KNOWN, language_called
from data.text.languages import Detected, detect_languages

_TABLES, _JSON = (".tsv", ".txt", ".token", ".csv"), (".json",)
_UNREAD = (".jsonl", ".xlsx", ".xls", ".ods")  # forms of captions that are named, so that nobody looks for the cause
_TOLD = 3  # files whose reasons are told
NO_PICTURE = "texts named as no picture"
"""What may be left out of a folder of texts."""
NO_COLUMN = "columns without captions, by the heading"
"""What may be left out of a table."""
_TO_MAKE = "`picture TAB caption`, a line a caption, for example `{}<TAB>A dog on the beach.`"


@dataclass
class FoundCaptions:
    """Captions that were found, and how a recipe reads them.

    Attributes:
        form: what they are, in words.
        root: the folder that paths start from.
        corpus: settings of the recipe's section `corpus`, without `root`.
        names: of pictures, as the captions have them.
        languages: what was detected, if anything was.
        drawn: are pictures drawn for validation and test? Else the captions bring their splits.
        left: what was left out of a data set that was written → where.
        of_lines: cells of captions that hold several lines, each of which is read as a caption.
    """

    form: str
    root: Path
    corpus: dict[str, Any]
    names: list[str]
    languages: Detected | None
    drawn: bool
    left: Mapping[str, Sequence[str]] = field(default_factory=dict)
    of_lines: int = 0

    @property
    def captions(self) -> Path:
        """The file of captions, or the folder of texts."""
        return self.root / self.corpus["captions"]

    @property
    def pictures(self) -> str:
        """The folder of the pictures, relative to `root`."""
        return str(self.corpus["pictures"])


class _PassedOverError(Exception):
    """A file has no captions; says why."""


@dataclass(frozen=True)
class _Known:
    """The pictures of a folder.

    Attributes:
        folder: that they lie in.
        names: of the files, with their endings and without, without the folders in it.
    """

    folder: Path
    names: Collection[str]

    def called(self, cell: str) -> str:
        """The name of a picture in a cell: the first of `names_in` that is a file's; the plainest if none is."""
        names = names_in(cell, self.folder)
        return next((name for name in names if PurePosixPath(name).name in self.names), names[-1])

    def names_picture(self, cell: str) -> bool:
        """Does a cell name a picture, be it one of them or not?"""
        return is_picture_name(cell) or PurePosixPath(self.called(cell)).name in self.names


def look_at(folder: Path, captions: Path | None, languages: Sequence[str] = ()) -> FoundCaptions:
    """Find pictures and captions in a folder.

    Args:
        folder: to look at, with all folders in it.
        captions: the file of captions, or a folder of texts named as the pictures; None: what is found, a file before
            texts.
        languages: of captions that do not say it; none: they are detected.

    Raises:
        DataError: there are no pictures or no captions, several files have captions, or a file cannot be read.
    """
    pictures = pictures_in(folder)[0]
    if not pictures:
        raise DataError(f"{folder}: {NO_PICTURES}, and captions")
    file, found = _chosen(folder, captions, pictures, languages)
    paths = {"captions": path_from(file, folder), "pictures": folder_of(found.names, pictures, file) or "."}
    return replace(found, root=folder.resolve(), corpus=found.corpus | paths)


def path_from(file: Path, folder: Path) -> str:
    """The path of a file from a folder; the whole path of one that lies elsewhere, or that a link there leads to."""
    if not file.is_relative_to(folder):
        return str(file.absolute())
    return str(file.relative_to(folder) if is_inside(file, folder) else file.resolve())


def _chosen(
    folder: Path, captions: Path | None, pictures: Mapping[str, Path], languages: Sequence[str]
) -> tuple[Path, FoundCaptions]:
    """The file of captions, or the folder of texts, and what it is."""
    if captions and captions.is_dir():
        return captions, _texts(captions, pictures, languages)
    beside = {} if captions else texts_in(folder, PictureNames(pictures))
    files = [path for depth in ("*", "*/*") for path in sorted(folder.glob(depth)) if _may_be(path, folder)]
    files = [captions] if captions else files
    if len(beside) > 1:
        files = [file for file in files if file not in beside]
    known = _Known(folder, {name for path in map(PurePosixPath, pictures) for name in (path.name, path.stem)})
    broken: list[DataError] = []
    passed: list[str] = []
    candidates: list[tuple[Path, FoundCaptions]] = []
    for file in files:
        try:
            if captions is None and not is_inside(file, folder):
                raise _PassedOverError("a link out of the folder")
            if file.name.casefold().endswith(_UNREAD):
                raise _PassedOverError("its form is not read; save it as a CSV or TSV in UTF-8")
            is_json = file.name.casefold().removesuffix(".gz").endswith(_JSON)
            candidates.append((file, _tree(file, languages) if is_json else _table(file, known, languages)))
        except _PassedOverError as reason:
            passed.append(f"{file.relative_to(folder) if file.is_relative_to(folder) else file}: {reason}")
        except DataError as error:
            broken.append(error)
    if len(candidates) > 1 and (merged := _one_a_language(candidates)):
        return merged
    if len(candidates) > 1:
        names = ", ".join(str(file.relative_to(folder)) for file, _ in candidates)
        raise DataError(
            f"{folder}: several files have captions: {names}; choose one by --captions FILE (init), or leave one; "
            "tables a language are named captions.en.tsv, captions.de.tsv"
        )
    if candidates:
        return candidates[0]
    if len(beside) > 1:
        return folder, _texts(folder, pictures, languages)
    if len(apart := [] if captions else _texts_apart(folder, pictures, languages)) == 1:
        return apart[0]
    if apart:
        names = ", ".join(place.name for place, _ in apart)
        raise DataError(f"{folder}: several folders have texts named as the pictures: {names}; choose one by "
                        "--captions FOLDER (init)")  # fmt: skip
    if broken:
        raise broken[0]
    to_make = _TO_MAKE.format(next(iter(pictures)))
    if captions:
        raise DataError(f"{passed[0]}; expected {to_make}, or JSON of COCO's or Karpathy's form")
    looked = f" (looked at {'; '.join(passed[:_TOLD])}{' …' if len(passed) > _TOLD else ''})" if passed else ""
    raise DataError(f"{folder}: pictures, but no captions{looked}; write a file captions.tsv into it: {to_make}; or a "
                    "text beside each picture (`1.txt` beside `1.jpg`)")  # fmt: skip


def _one_a_language(candidates: Sequence[tuple[Path, FoundCaptions]]) -> tuple[Path, FoundCaptions] | None:
    """Tables that are named by their languages (`captions.en.tsv`), as one; None if they are not."""
    files, found = [file for file, _ in candidates], [one for _, one in candidates]
    together, corpora = as_tables(files), [{**one.corpus} for one in found]
    detected = [one.pop("languages", None) for one in corpora]  # a table with a column of languages has none
    if together is None or None in detected or any(one != corpora[0] for one in corpora):
        return None
    names = [name for one in found for name in one.names]
    form = f"a table a language ({together.name})"
    drawn, of_lines = any(one.drawn for one in found), sum(one.of_lines for one in found)
    return together, FoundCaptions(form, together.parent, corpora[0], names, None, drawn, of_lines=of_lines)


def _may_be(path: Path, folder: Path) -> bool:
    """May a file in a folder, or in one below it, have somebody's captions, by its name?"""
    below = path.parent != folder and (path.parent.name.startswith(".") or is_written(path.parent))
    return (
        not below
        and not path.name.startswith(".")
        and path.name.casefold().removesuffix(".gz").endswith(_TABLES + _JSON + _UNREAD)
        and path.is_file()
    )


def _table(file: Path, known: _Known, languages: Sequence[str]) -> FoundCaptions:
    """A TSV or CSV: which columns has it? Lines that do not fit are told by the corpus that reads it."""
    bad = BadLines()
    table = read_table(file, "captions", bad=bad, line_break="\n")
    try:
        return _read_columns(file, table, known, languages)
    except _PassedOverError:
        bad.require_none()  # which is why
        raise


def _read_columns(file: Path, table: Table, known: _Known, languages: Sequence[str]) -> FoundCaptions:
    """What the columns of a table hold."""
    rows = [cells for _, cells in table.rows]
    header = columns_of(rows[0]) if rows else None
    if rows and is_header(rows[0]):
        rows = rows[1:]
    if not rows:
        raise _PassedOverError("it has no lines")
    width = _usual(map(len, rows))
    if width < 2:
        raise _PassedOverError("its lines have one column, without a TAB")
    place = _place_of_pictures(rows, known, range(width) if header is None else [header.index(PICTURE)])
    columns = header or _guessed_columns(file, table, rows, width, place)
    settings: dict[str, Any] = {"name": "folder"}
    once = len({*columns} - {OTHER}) == sum(column != OTHER for column in columns)
    if columns[:2] != [PICTURE, CAPTION] and (header or place) and once:
        settings["columns"] = columns  # the corpus would not guess them; of several of captions it reads the header
    detected = None
    of_lines = sum("\n" in cell for row in rows for column, cell in zip(columns, row, strict=False)
                   if holds_captions(column))  # fmt: skip
    if LANGUAGE not in columns and CAPTION in columns:
        places = [number for number, column in enumerate(columns) if column == CAPTION]
        cells = (row[number] for row in rows for number in places if len(row) > number)
        texts = (caption for cell in cells for caption in captions_in(cell))
        detected = None if languages else detect_languages(texts)
        settings["languages"] = detected.languages if detected else [*languages]
    splits = [row[columns.index(SPLIT) :][:1] for row in rows if SPLIT in columns and len(row) <= width]
    with_splits = bool(splits) and width == len(columns) and [""] not in splits and [] not in splits
    names = [known.called(row[place]) for row in rows if len(row) > place]
    form = f"a {'TSV' if table.separator == chr(9) else 'CSV'} ({file.name})"
    unread = [heading for heading, column in zip(table.rows[0][1], columns, strict=False) if column == OTHER and header]
    return FoundCaptions(
        form, file.parent, settings, names, detected, not with_splits, {NO_COLUMN: list(filter(None, unread))}, of_lines
    )


def _usual(values: Iterable[int]) -> int:
    """What most lines have; some may be bad."""
    return Counter(values).most_common(1)[0][0]


def _texts(folder: Path, pictures: Mapping[str, Path], languages: Sequence[str]) -> FoundCaptions:
    """Texts of a folder, each named as a picture, be it in this folder or in another one of the same form."""
    names = [path.relative_to(folder).as_posix() for path in sorted(visible_files(folder))]
    names = [composed(name[: -len(TEXT)]) for name in names if name.lower().endswith(TEXT)]
    place = folder_of(names, pictures, folder)
    known = PictureNames(
        name.removeprefix(f"{place}/") for name in pictures if not place or name.startswith(f"{place}/")
    )
    texts = texts_in(folder, known)
    if not texts:
        raise DataError(
            f"{folder}: no text in it is named as a picture; expected `1.txt` for `1.jpg`, a caption a line"
        )
    some = [*texts][:: max(1, len(texts) // SAMPLE)]
    captions = [line for path in some for line in read_lines(path, "captions, one a line", BadLines())]
    if not any(map(str.isalpha, "".join(captions))):
        raise DataError(f"{folder}: texts named as pictures, but without words; expected captions, one a line")
    detected = None if languages else detect_languages(captions)
    settings = {"name": "folder", "languages": detected.languages if detected else [*languages]}
    left = {NO_PICTURE: [name + TEXT for name in names if known.name_of(name) is None]}
    return FoundCaptions("a text a picture", folder, settings, [*texts.values()], detected, drawn=True, left=left)


def _texts_apart(
    folder: Path, pictures: Mapping[str, Path], languages: Sequence[str]
) -> list[tuple[Path, FoundCaptions]]:
    """Folders in a folder whose texts are named as pictures in another one: `captions/1.txt` for `images/1.jpg`."""
    found = []
    for place in sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")):
        if not is_written(place) and is_inside(place, folder):
            with suppress(DataError):
                found.append((place, _texts(place, pictures, languages)))
    return found


def _place_of_pictures(rows: Sequence[Sequence[str]], known: _Known, places: Iterable[int]) -> int:
    """The column that names pictures in half of the lines or more."""
    sample = rows[:SAMPLE]
    for place in places:
        named = sum(len(row) > place and known.names_picture(row[place]) for row in sample)
        if 2 * named >= len(sample):
            return place
    raise _PassedOverError(
        f"its columns name no pictures of the folder (its first line begins with {sample[0][0][:40]!r})"
    )


def _guessed_columns(file: Path, table: Table, rows: Sequence[Sequence[str]], width: int, place: int) -> list[str]:
    """The columns of a table without a header, whose pictures stand in one of them."""
    if place and width == 2:
        return [CAPTION, PICTURE]
    if place:
        raise _PassedOverError(f"its pictures stand in column {place + 1} of {width}, and no header names the others")
    whole = [row for row in rows if len(row) == width]
    split = width > 2 and _usual(not row[-1] or split_called(row[-1]) is not None for row in whole)
    with_language = width > 2 and _usual(language_called(row[1]) in KNOWN for row in whole)  # `dog` is none
    if width > 2 and not (split or with_language):
        raise DataError(f"{file}: more than two columns, but the second has no codes of languages such as en (first "
                        f"{whole[0][1]!r}), and the last no splits ({', '.join(SPLITS)}); expected "
                        f"{table.form(CAPTIONS)}, or {table.form(WITHOUT_LANGUAGE)}; several columns of captions "
                        "need a header: image, caption_en, caption_de, or image, caption_1, caption_2")  # fmt: skip
    return [PICTURE, *([LANGUAGE] if with_language else []), CAPTION, *([SPLIT] if split else [])]


def _tree(file: Path, languages: Sequence[str]) -> FoundCaptions:
    """JSON of Karpathy's or of COCO's form; entries that do not fit are told by the corpus that reads them."""
    text = read_text(file, "JSON")
    if '"annotations"' in text and '"caption"' not in text:  # COCO's boxes, hundreds of megabytes
        raise _PassedOverError("JSON without a caption")
    if '"images"' not in text:
        raise _PassedOverError("JSON without a list of `images`")
    entries = [entry for entry in read_entries(file) if isinstance(entry, dict)]
    names = [str(PurePosixPath(str(entry.get("filepath", "")), str(entry.get("filename", "")))) for entry in entries]
    lists = [sentences for entry in entries if isinstance(sentences := entry.get("sentences"), list)]
    texts = [sentence.get("raw") for sentences in lists for sentence in sentences if isinstance(sentence, dict)]
    detected = None if languages else detect_languages(text for text in texts if isinstance(text, str))
    known = detected.languages if detected else [*languages]
    if len(known) > 1:
        raise DataError(f"{file}: captions in {', '.join(known)}; expected one language in JSON: write them as a TSV, "
                        "`picture TAB language TAB caption`")  # fmt: skip
    form = "COCO's" if entries and "place" in entries[0] else "Karpathy's"
    splits = {split_called(str(entry.get("split"))) for entry in entries}
    drawn = not {"val", "test"} & splits  # COCO's form has none
    settings: dict[str, Any] = {"name": "karpathy", "language": known[0], "languages": known}
    return FoundCaptions(f"JSON of {form} form ({file.name})", file.parent, settings, names, detected, drawn)
