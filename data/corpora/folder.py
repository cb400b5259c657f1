"""Your own pictures and captions: a folder of pictures, and captions in a TSV.

    captions.tsv      picture TAB language TAB caption, and if wanted TAB split (train, val, test); with the setting
                      `languages` there is no column of languages: picture TAB caption
    parallel.tsv      a header of languages, `en TAB de`, or `picture TAB en TAB de`; then translations of each other,
                      two or more a line

A picture is named by its path in the folder of pictures; a number behind it (`1.jpg#0`) is left out. Without splits,
a picture's split is drawn from its name alone, so that it stays the same when pictures are added.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from data.captions import Caption, Pair
from data.corpora import Corpus
from data.errors import DataError
from data.languages import language_of
from data.lines import read_lines
from data.pictures import composed, pictures_in
from data.settings import added

SPLITS = ("train", "val", "test")
HEADINGS = ("picture", "image", "file", "file_name", "filename")
"""What the first column is called, if the first line of the captions is a header."""
CAPTIONS = "picture TAB language TAB caption, and if wanted TAB split"
"""What a line of captions is, in words."""
WITHOUT_LANGUAGE = "picture TAB caption, and if wanted TAB split"
"""What it is without a column of languages."""
_NUMBER = re.compile(r"#\d+$")


@dataclass
class FolderSettings:
    """What is read, and from where. Paths are relative to the data root."""

    pictures: str = "pictures"
    """Folder of the pictures."""

    captions: str = "captions.tsv"
    """The captions, one a line: `picture TAB language TAB caption`, and if wanted `TAB split`."""

    languages: list[str] = added([])
    """Languages of captions without a column of languages (`picture TAB caption`); of several, that of each caption is
    detected. Empty: there is the column."""

    parallel: str | None = None
    """Translations of each other for the translators: a header of languages, with `picture` before them where lines
    are about pictures; null: none."""

    regions: str | None = None
    """A region store of the pictures, named alike (accents composed, NFC); null: regions are found in their pixels."""

    validation: float = 0.1
    """Share of the pictures without a split that are for validation."""

    test: float = 0.1
    """Share of the pictures without a split that are for the test."""

    label: str = "own pictures"
    """What the corpus is called beside its figures."""


def read(settings: FolderSettings, root: Path | None, folder: Path) -> Corpus:
    """Read captions and parallel text; empty ones are left out, `Corpus.empty` says where they stand.

    Pairs about a validation or test picture are of its split, so that no translator learns from them.

    Args:
        settings: what to read.
        root: the data root that the paths of `settings` start from.
        folder: unused; nothing is made.

    Raises:
        DataError: no root, a setting that does not fit, or a line that does not, named by file and number.
    """
    root = _require(root)
    if wrong := [one for one in settings.languages if not is_code(one)]:
        raise DataError(f"folder: languages has {wrong[0]!r}, expected codes like en or de")
    for name in ("validation", "test"):
        if not 0 <= getattr(settings, name) < 1:
            raise DataError(f"folder: {name} is {getattr(settings, name)}; expected a share from 0 to below 1")
    found, left = pictures_in(root / settings.pictures)
    places: dict[str, str] = {}
    empty: list[str] = []
    captions = _captions(root / settings.captions, settings, found, left, places, empty)
    split_of = {caption.image_id: caption.split for caption in captions}
    pairs: list[Pair] = []
    if settings.parallel is not None:
        pairs = list(_pairs(root / settings.parallel, settings, found, split_of, places, empty))
    pictures = {name: found[name] for name in sorted(split_of | {p.image_id: "" for p in pairs if p.image_id})}
    return Corpus(
        captions=captions, pairs=pairs, pictures=pictures,
        regions=None if settings.regions is None else root / settings.regions,
        task="folder", label=settings.label, empty=empty,
        place=lambda item, language: places[item.caption_id if isinstance(item, Caption) else item.pair_id],
    )  # fmt: skip


def sources(settings: FolderSettings, root: Path | None) -> list[Path]:
    """The files that decide what `read` returns and which regions are found.

    Raises:
        DataError: no root, or no folder of pictures.
    """
    root = _require(root)
    files = [root / settings.captions, *([root / settings.parallel] if settings.parallel else [])]
    if settings.regions is not None:
        return files + [root / settings.regions / name for name in ("regions.npy", "boxes.npy", "ids.txt")]
    return files + list(pictures_in(root / settings.pictures)[0].values())


def is_code(language: str) -> bool:
    """May a language be called so: `en`, `de`?"""
    return language.isascii() and language.isalpha() and language.islower()


def _require(root: Path | None) -> Path:
    if root is None:
        raise DataError("folder: no data root; set BILDWORT_DATA=FOLDER or pass --corpus.root=FOLDER")
    return root


def _captions(
    path: Path, settings: FolderSettings, pictures: Mapping[str, Path], left: Mapping[str, str],
    places: dict[str, str], empty: list[str],
) -> list[Caption]:  # fmt: skip
    captions: list[Caption] = []
    split_of: dict[str, tuple[str, str]] = {}
    expected = WITHOUT_LANGUAGE if settings.languages else CAPTIONS
    for number, line in enumerate(read_lines(path, expected), 1):
        here, fields = f"{path}:{number}", [field.strip() for field in line.rstrip("\r").split("\t")]
        if not line.strip() or (number == 1 and fields[0].lower() in HEADINGS):
            continue
        if settings.languages and len(fields) in (2, 3):
            fields.insert(1, language_of(fields[1], settings.languages))
        elif settings.languages or len(fields) not in (3, 4):
            raise DataError(f"{here}: {len(fields)} fields, expected {expected}")
        name, language, text = composed(fields[0]), *fields[1:3]
        if name not in pictures:
            name = _NUMBER.sub("", name)
        if name not in pictures:
            raise DataError(f"{here}: no picture {name!r} in {settings.pictures}{_why(left.get(name))}")
        if not is_code(language):
            raise DataError(f"{here}: language {language!r}, expected a code like en or de")
        split = fields[3] if len(fields) == 4 and fields[3] else _drawn(name, settings)
        if split not in SPLITS:
            raise DataError(f"{here}: split {split!r}, expected {', '.join(SPLITS)}")
        before, place = split_of.setdefault(name, (split, here))
        if before != split:
            raise DataError(f"{here}: picture {name!r} is in {split}, but in {before} at {place}; give it one split")
        if not text:
            empty.append(here)
            continue
        captions.append(Caption(name, f"{name}#{number}", language, text, split))
        places[captions[-1].caption_id] = here
    if not captions:
        raise DataError(f"{path}: no caption; expected {expected}")
    return captions


def _pairs(
    path: Path, settings: FolderSettings, pictures: Mapping[str, Path], split_of: Mapping[str, str],
    places: dict[str, str], empty: list[str],
) -> Iterator[Pair]:  # fmt: skip
    lines = read_lines(path, "a header of languages, then translations of each other")
    header = [field.strip() for field in lines[0].rstrip("\r").split("\t")] if lines else []
    languages = header[1:] if header[:1] == ["picture"] else header
    if len(languages) < 2 or len(set(languages)) < len(languages) or not all(map(str.isalpha, languages)):
        raise DataError(
            f"{path}:1: {lines[0] if lines else ''!r}, expected a header: en TAB de, or picture TAB en TAB de"
        )
    for number, line in enumerate(lines[1:], 2):
        here, fields = f"{path}:{number}", [field.strip() for field in line.rstrip("\r").split("\t")]
        if fields == [""]:
            continue
        if len(fields) != len(header):
            raise DataError(f"{here}: {len(fields)} fields, expected {len(header)}, as the header has")
        name = composed(fields[0]) if len(languages) < len(header) else ""
        if name and name not in pictures:
            raise DataError(f"{here}: no picture {name!r} in {settings.pictures}")
        texts = {language: text for language, text in zip(languages, fields[-len(languages) :], strict=True) if text}
        if len(texts) < 2:  # a line with one text is no translation
            empty.append(here)
            continue
        split = split_of.get(name) or _drawn(name, settings) if name else "train"
        pair = Pair(f"{path.stem}#{number}", name or None, split, path.stem, texts)
        places[pair.pair_id] = here
        yield pair


def _drawn(name: str, settings: FolderSettings) -> str:
    """The split of a picture by a number from 0 to 1 that its name alone decides."""
    number = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8]) / 2**64
    if number < settings.test:
        return "test"
    return "val" if number < settings.test + settings.validation else "train"


def _why(reason: str | None) -> str:
    return f" ({reason})" if reason else "; name it by its path in that folder, or leave the line out"
