"""A folder of pictures: which files are pictures, why the others are left out, and what may be read by its name."""

import errno
import hashlib
import os
import re
import stat
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path, PurePosixPath
from urllib.parse import unquote

from data.errors import DataError
from data.lines import is_control
from data.text.characters import composed

_NUMBER = re.compile(r"#\d+$")
_HERE = re.compile(r"^(\./+)+")
WRITTEN = ".written-by-init"
"""The file that marks a folder that `init` has written: what is in it is nobody's own."""
_TEXTS = {".txt", ".token", ".csv", ".tsv", ".json", ".jsonl", ".parquet", ".xlsx", ".xls", ".ods", ".md", ".gz"}
_NOT_BY_NAME = "not a picture by its name"
SUFFIXES = {".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff"}
OTHER_SUFFIXES = (".heic", ".heif", ".avif", ".jxl", ".dng", ".cr2", ".cr3", ".nef", ".arw")
"""Endings, in small letters, of pictures that are not read."""
NO_PICTURES = f"no pictures in it; expected files like {', '.join(sorted(SUFFIXES))}"


def name_of(image_id: str) -> str:
    """The name of an image in any corpus: its Flickr or COCO number, else its id without folder and suffix.

    Examples:
        >>> {name_of(name) for name in ("1000092795", "1000092795.jpg", "images/1000092795_693b08cb0e.jpg")}
        {'1000092795'}
        >>> name_of("COCO_val2014_000000391895")
        '391895'
    """
    stem = PurePosixPath(image_id).stem
    number = re.fullmatch(r"(?:COCO_[a-z]+\d{4}_)?0*(\d+)(?:_[0-9a-f]{10})?", stem)
    return number[1] if number else stem


def pictures_in(folder: Path) -> tuple[dict[str, Path], dict[str, str]]:
    """Find the pictures of a folder and all folders in it; nothing is opened.

    Hidden files and folders are skipped, and folders in it that `init` has written. No link is followed out of the
    folder.

    Args:
        folder: where to look.

    Returns:
        pictures by their name, which is the path from the folder with `/` between, in the order of their names; and
        what is left out, by name, with the reason. Names are composed (NFC), as `captions.tsv` is read: macOS and
        archives made there take letters and accents apart.

    Raises:
        DataError: there is no such folder, or it cannot be read or named in a recipe.
    """
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder; expected one with pictures")
    pictures: dict[str, Path] = {}
    left: dict[str, str] = {}
    root = folder.resolve()
    if reason := unfit_name(str(root)):
        shown = str(root).encode("utf-8", "backslashreplace").decode()
        raise DataError(f"{shown!r}: {reason}; rename the folder")

    def fail(error: OSError) -> None:
        """A folder that cannot be read."""
        raise DataError(f"{error.filename}: cannot be read ({error.strerror}); make it readable or move it away")

    for place, folders, files in os.walk(folder, onerror=fail):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and not is_written(Path(place) / name))
        for name in sorted([*files, *(link for link in folders if (Path(place) / link).is_symlink())]):
            path = Path(place) / name
            known = composed(path.relative_to(folder).as_posix())
            if name.startswith("."):
                continue
            if known in pictures:
                left[f"{known} (twice)"] = "another picture's name differs only in how its accents are written"
            elif reason := _unfit(path, known, root):
                left[known.encode("utf-8", "backslashreplace").decode()] = reason
            else:
                pictures[known] = path
    return dict(sorted(pictures.items())), dict(sorted(left.items()))


def is_written(folder: Path) -> bool:
    """Has `init` written a folder?"""
    return (folder / WRITTEN).is_file()


def named_pictures(folder: Path, names: Mapping[str, Sequence[str]], expected: str) -> dict[str, Path]:
    """The files of pictures that a corpus names: those that `pictures_in` finds in its folder, and no others.

    Args:
        folder: of the pictures.
        names: image id → the names that its picture may have; the first that is there counts.
        expected: what the folder should hold, for the error.

    Returns:
        image id → file, of the images whose picture is there.

    Raises:
        DataError: there is no such folder or none of the pictures, or one is named that may not be read.
    """
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder; expected {expected}")
    known, left = pictures_in(folder)
    files: dict[str, Path] = {}
    for image_id, candidates in names.items():
        for name in map(composed, candidates):
            if name in left:
                raise DataError(f"{folder / name}: {left[name]}; {_remedy(left[name])}, or leave it out")
            if name in known:
                files[image_id] = known[name]
                break
    if not files:
        first = next((candidates[-1] for candidates in names.values()), "")
        raise DataError(f"{folder}: none of the {len(names)} pictures, expected {first!r} …")
    return files


MISSING = "; name it by its path in that folder, or leave the line out"
"""What to do about a picture that is not there, nor one of a similar name."""


class PictureNames:
    """What a line of captions may call the pictures of a folder.

    Args:
        pictures: their names, as `pictures_in` gives them.
        left: names of files that are none → why.
        folder: that they lie in; None: no whole path names one of them.
    """

    def __init__(
        self, pictures: Iterable[str], left: Mapping[str, str] | None = None, folder: Path | None = None
    ) -> None:
        self._names = frozenset(pictures)
        self._left, self._folder = left or {}, folder

    def name_of(self, cell: str) -> str | None:
        """The picture that is meant; None if there is none of that name, or several.

        Args:
            cell: its name, as `names_in` reads it, with its ending or without.

        Examples:
            >>> PictureNames(["sea/1.jpg", "2.jpg"]).name_of("./sea\\\\1.jpg#0")
            'sea/1.jpg'
        """
        candidates = self._candidates(cell)
        return candidates[0] if len(candidates) == 1 else None

    def advice_on(self, cell: str) -> str:
        """Why `name_of` finds no picture for a cell, and what to do about it: the end of an error."""
        name = composed(cell)
        whys = (self._left.get(one) for one in (name, *names_in(cell, self._folder)))
        if why := next(filter(None, whys), None):
            return f" ({why}); {_remedy(why)}, or leave the line out"
        if several := self._candidates(cell):
            return f"; it may be {' or '.join(sorted(several))}: name it with its ending"
        if near := self._alike.get(without_number(name).replace("\\", "/").casefold()):
            return f"; did you mean {near}?"
        return MISSING

    def _candidates(self, cell: str) -> Sequence[str]:
        """The pictures that a cell may mean."""
        if (own := composed(cell)) in self._names:  # most are
            return [own]
        names = names_in(cell, self._folder)
        for name in names:
            if name in self._names:
                return [name]
        return next((self._stems[name] for name in names if name in self._stems), ())

    @cached_property
    def _alike(self) -> Mapping[str, str]:
        """Names in small letters, with their ending and without → a picture."""
        stems = {stem.casefold(): names[0] for stem, names in self._stems.items()}
        return stems | {name.casefold(): name for name in self._names}

    @cached_property
    def _stems(self) -> Mapping[str, Sequence[str]]:
        stems: dict[str, list[str]] = defaultdict(list)
        for name in self._names:
            stems[name.rpartition(".")[0]].append(name)
        return stems


def names_in(cell: str, folder: Path | None = None) -> list[str]:
    """What the name of a picture in a table may stand for: as it is, then without what a path or a link adds to it.

    Args:
        cell: with the number of a caption behind it or not (`1.jpg#0`).
        folder: whole paths of pictures in it (`/home/me/photos/1.jpg`) are those from it on.

    Examples:
        >>> names_in("./sea\\\\a%20dog.jpg#0")[-1]
        'sea/a dog.jpg'
    """
    names = [composed(cell)]
    path = _HERE.sub("", names[0].replace("\\", "/"))
    for start in {f"{place.as_posix()}/" for place in (folder.absolute(), folder.resolve())} if folder else ():
        path = path.removeprefix(composed(start))
    names += [path, composed(unquote(path))]
    return list(dict.fromkeys([*names, *map(without_number, names)]))


def is_inside(path: Path, folder: Path) -> bool:
    """Does a path lead into a folder, all links followed? What a data set names elsewhere is not read."""
    try:
        return path.resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError, ValueError):  # too long, a link to itself, a name with NUL
        return False


def path_within(root: Path, name: str) -> Path:
    """The path of a file of a folder that holds somebody's data.

    Args:
        root: the folder.
        name: from there; a whole path, or one that leads out by its name, is what somebody has chosen.

    Raises:
        DataError: a link leads out of the folder.
    """
    path = root / name
    inside = Path(os.path.normpath(path)).is_relative_to(os.path.normpath(root))
    if inside and path.exists() and not is_inside(path, root):
        raise DataError(f"{path}: a link out of {root}; put the file itself there, or name it by its whole path in the "
                        "recipe")  # fmt: skip
    return path


def copies_of(pictures: Mapping[str, Path]) -> dict[str, str]:
    """Pictures whose file is, byte by byte, that of another one before it: name → the first such name.

    Only files of equal size are read. A file that cannot be read is no copy.
    """
    sizes: dict[int, list[str]] = defaultdict(list)
    for name, path in pictures.items():
        try:
            size = path.stat().st_size
        except OSError:
            continue
        if size:  # empty files are no pictures
            sizes[size].append(name)
    first: dict[bytes, str] = {}
    copies: dict[str, str] = {}
    for name in (picture for alike in sizes.values() if len(alike) > 1 for picture in alike):
        try:
            with pictures[name].open("rb") as file:
                content = hashlib.file_digest(file, "sha256").digest()
        except OSError:
            continue
        if (original := first.setdefault(content, name)) != name:
            copies[name] = original
    return copies


def is_text(name: str) -> bool:
    """Is a file one of text or a table by its name, as captions and notes are?"""
    return Path(name).suffix.lower() in _TEXTS


def without_number(cell: str) -> str:
    """A picture's name without the number of a caption behind it: `1.jpg#0` is `1.jpg`."""
    return _NUMBER.sub("", cell)


def unfit_name(name: str) -> str | None:
    """Why a file or folder of this name is not read; None if it may be."""
    if name.isprintable():  # most are, and nothing of what follows is
        return None
    if not _is_utf8(name):
        return "its name is not UTF-8"
    if any(map(is_control, name)):
        return "its name has control characters"
    return None


def _remedy(reason: str) -> str:
    """What to do about a file that is left out of a folder of pictures."""
    if reason == _NOT_BY_NAME:
        return f"expected a file that ends in {', '.join(sorted(SUFFIXES))}: convert it to JPEG"
    if reason.startswith("its name"):
        return "rename it"
    return "make it readable" if reason.startswith("cannot be read") else "put the picture itself there"


def _unfit(path: Path, name: str, root: Path) -> str | None:
    """Why a file is no picture of the folder; None if it may be one."""
    if reason := unfit_name(name):
        return reason
    try:
        if path.is_symlink():
            if path.is_dir():
                return "a link to a folder"
            if not path.resolve().is_relative_to(root):
                return "a link out of the folder"
        if path.suffix.lower() not in SUFFIXES:
            return _NOT_BY_NAME
        return None if stat.S_ISREG(path.stat().st_mode) else "not a file"
    except RuntimeError:  # of Python before 3.13
        return "a link to itself"
    except OSError as error:
        return "a link to itself" if error.errno == errno.ELOOP else f"cannot be read ({error.strerror})"


def _is_utf8(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
