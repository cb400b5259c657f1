"""Which files hold somebody's own captions (one table, a table a language, or a text a picture), and their columns."""

import re
from collections.abc import Sequence
from pathlib import Path

from data.captions.tables import CAPTION, CAPTION_OF, LANGUAGE, OTHER, PICTURE, SPLIT, holds_captions
from data.errors import DataError
from data.lines import visible_files
from data.pictures.folder import PictureNames, is_inside
from data.text.language_codes import NLLB, language_called

TEXT = ".txt"
"""What the name of a text of one picture ends in."""
LANGUAGE_CODE = "*"
"""What stands for the code of a language in the name of a table a language: `captions.*.tsv`."""
_COLUMNS = {PICTURE, LANGUAGE, SPLIT, OTHER}
_PLAIN, _REGION = r"[A-Za-z]{2,3}", r"[-_](?:[A-Za-z]{2,4}|[0-9]{3})"
_CODES = [rf"(?<![A-Za-z]){code}(?![A-Za-z])" for code in (_PLAIN, _PLAIN + _REGION)]
_ENDINGS = r"(\.(tsv|csv|txt|token))?(\.gz)?$"


def is_code(language: str) -> bool:
    """Is it how a corpus calls a language: `en`, `de`, of three letters (`gsw`) where it has none of two?"""
    return language_called(language) == language


def require_columns(columns: Sequence[str]) -> None:
    """Refuse a list of what columns hold that makes no table of captions; an empty one is none.

    Raises:
        DataError: it makes none.

    Examples:
        >>> require_columns(["picture", "caption:en", "-"])
    """
    if not columns:
        return
    captions = [column for column in columns if holds_captions(column)]
    others = [column for column in columns if column not in captions]
    codes = [column.removeprefix(CAPTION_OF) for column in captions if column != CAPTION]
    once = all(columns.count(column) == 1 for column in columns if column != OTHER)
    if not (captions and PICTURE in others and {*others} <= _COLUMNS and once and all(map(is_code, codes))):
        raise DataError(f"folder: columns are {[*columns]}; expected picture and caption, or caption:en and "
                        "others, perhaps language and split, each once, and - for others")  # fmt: skip


def texts_in(folder: Path, names: PictureNames) -> dict[Path, str]:
    """The texts of a folder that are named as a picture (`1.txt` or `1.jpg.txt` for `1.jpg`) → that picture."""
    named = {path: names.name_of(path.relative_to(folder).as_posix()[: -len(TEXT)]) for path in all_texts(folder)}
    return {path: name for path, name in named.items() if name is not None}


def all_texts(folder: Path) -> list[Path]:
    """The texts of a folder, whatever they are named."""
    return [path for path in sorted(visible_files(folder)) if path.suffix.lower() == TEXT and is_inside(path, folder)]


def tables_in(path: Path) -> dict[Path, str]:
    """Tables of captions → the language of each, as its name says: `captions.*.tsv` are those of all languages.

    A link that leads out of their folder is none.

    Args:
        path: a table, whose name says no language (""), or one with `*` for the code of a language.

    Raises:
        DataError: there is no table of this form.
    """
    before, star, after = path.name.partition(LANGUAGE_CODE)
    if not star:
        return {path: ""}
    pattern = re.compile(f"{re.escape(before)}({_PLAIN}(?:{_REGION})?){re.escape(after)}")
    files = sorted(path.parent.iterdir()) if path.parent.is_dir() else []
    found = {
        file: language_called(match[1]) or match[1] for file in files
        if (match := pattern.fullmatch(file.name)) and file.is_file() and is_inside(file, path.parent)
    }  # fmt: skip
    if not found:
        example = path.name.replace(LANGUAGE_CODE, "en")
        raise DataError(f"{path}: no table of captions of that form; expected {example} and others, where * stands for "
                        "the code of a language")  # fmt: skip
    of_language: dict[str, Path] = {}
    for file, language in found.items():
        if (other := of_language.setdefault(language, file)) != file:
            raise DataError(f"{file}: captions in {language!r}, as {other.name} has too; keep one table a language")
    return found


def as_tables(files: Sequence[Path]) -> Path | None:
    """The one path, with `*` for the code of a language, of tables that differ in it alone; None: they differ in more.

    Examples:
        >>> str(as_tables([Path("captions.de.tsv"), Path("captions.en.tsv")]))
        'captions.*.tsv'
        >>> str(as_tables([Path("zh-TW.tsv"), Path("de.tsv")]))
        '*.tsv'
        >>> as_tables([Path("old.tsv"), Path("new.tsv")])
    """
    folder, first = files[0].parent, files[0].name
    stem = re.sub(_ENDINGS, "", first)
    for match in (match for code in _CODES for match in re.finditer(code, stem)):
        before, after = first[: match.start()], first[match.end() :]
        codes = [file.name[len(before) : len(file.name) - len(after)] for file in files]
        names = [folder / f"{before}{code}{after}" for code in codes]
        languages = {language_called(code) for code in codes if re.fullmatch(f"{_PLAIN}({_REGION})?", code)}
        if names == [*files] and len(languages) == len(files) and languages <= NLLB.keys():
            return folder / f"{before}{LANGUAGE_CODE}{after}"
    return None
