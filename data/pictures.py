"""A folder of pictures: which files are pictures, and why the others are left out."""

import os
import stat
import unicodedata
from pathlib import Path

from data.errors import DataError

_UNSEEN = {"Cc", "Cs", "Zl", "Zp"}  # characters that end lines or drive terminals; and those that turn the text
_TURNING = set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
SUFFIXES = {".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff"}


def pictures_in(folder: Path) -> tuple[dict[str, Path], dict[str, str]]:
    """Find the pictures of a folder and all folders in it; nothing is opened.

    Hidden files and folders are skipped. No link is followed out of the folder.

    Args:
        folder: where to look.

    Returns:
        pictures by their name, which is the path from the folder with `/` between, in the order of their names; and
        what is left out, by name, with the reason. Names are composed (NFC), as `captions.tsv` is read: macOS and
        archives made there take letters and accents apart.

    Raises:
        DataError: there is no such folder, or it cannot be read.
    """
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder; expected one with pictures")
    found: dict[str, Path] = {}
    left: dict[str, str] = {}
    root = folder.resolve()
    if not _is_utf8(str(root)):
        raise DataError(f"{str(root).encode('utf-8', 'backslashreplace').decode()}: not UTF-8; rename the folder")

    def fail(error: OSError) -> None:
        """A folder that cannot be read."""
        raise DataError(f"{error.filename}: cannot be read ({error.strerror}); make it readable or move it away")

    for place, folders, files in os.walk(folder, onerror=fail):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted([*files, *(one for one in folders if (Path(place) / one).is_symlink())]):
            path = Path(place) / name
            known = composed(path.relative_to(folder).as_posix())
            if name.startswith("."):
                continue
            if known in found:
                left[f"{known} (twice)"] = "another picture's name differs only in how its accents are written"
            elif reason := _unfit(path, known, root):
                left[known.encode("utf-8", "backslashreplace").decode()] = reason
            else:
                found[known] = path
    return dict(sorted(found.items())), dict(sorted(left.items()))


def composed(name: str) -> str:
    """A picture's name with each letter and its accents as one character (NFC)."""
    return unicodedata.normalize("NFC", name)


def _unfit(path: Path, name: str, root: Path) -> str | None:
    """Why a file is no picture of the folder; None if it may be one."""
    if not _is_utf8(name):
        return "its name is not UTF-8"
    if any(unicodedata.category(one) in _UNSEEN or one in _TURNING for one in name):
        return "its name has control characters"
    try:
        if path.is_symlink():
            if path.is_dir():
                return "a link to a folder"
            if not path.resolve().is_relative_to(root):
                return "a link out of the folder"
        if path.suffix.lower() not in SUFFIXES:
            return "not a picture by its name"
        return None if stat.S_ISREG(path.stat().st_mode) else "not a file"
    except RuntimeError:
        return "a link to itself"
    except OSError as error:
        return f"cannot be read ({error.strerror})"


def _is_utf8(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
