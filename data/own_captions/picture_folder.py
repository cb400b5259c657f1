"""In which folder the pictures lie that captions name."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

from data.errors import DataError
from data.pictures.folder import copies_of

SAMPLE = 200
"""Lines, or pictures, that are tried."""


def folder_of(names: Sequence[str], pictures: Mapping[str, Path], captions: Path) -> str:
    """The folder, relative to that of all pictures, in which most of the named ones lie; the outer of several.

    Args:
        names: of some pictures, with their ending or without.
        pictures: all there are.
        captions: where the names are from, for the error.

    Raises:
        DataError: a name that is no path from the folder of all pictures may be that of several.
    """
    known = {*pictures, *(name.rpartition(".")[0] for name in pictures)}
    some = names[:: max(1, len(names) // SAMPLE)]
    inner = {str(parent) for name in pictures for parent in PurePosixPath(name).parents} - {"."}
    folders = ["", *sorted(inner, key=lambda folder: (folder.count("/"), folder))]

    def hits(place: str) -> int:
        """How many of them lie there."""
        return sum((f"{place}/{name}" if place else name) in known for name in some)

    best = max(folders, key=hits)
    if not hits(best):  # Karpathy's names of folders, where all pictures lie in one
        names = [PurePosixPath(name).name for name in names]
        some = [PurePosixPath(name).name for name in some]
        best = max(folders, key=hits)
    if best:
        _require_one_folder(names, pictures, captions)
    return best


def _require_one_folder(names: Sequence[str], pictures: Mapping[str, Path], captions: Path) -> None:
    """Refuse a name of different pictures in several folders: captions of one would be read as the other's."""
    called: dict[str, list[str]] = defaultdict(list)  # end of a path, with the picture's ending and without → pictures
    for picture in pictures:
        parts = picture.split("/")
        for name in ("/".join(parts[first:]) for first in range(len(parts))):
            called[name].append(picture)
            called[name.rpartition(".")[0]].append(picture)
    for name in dict.fromkeys(names):
        of_folder = {picture.rpartition("/")[0]: picture for picture in called.get(name, ())}
        meant = {picture: pictures[picture] for picture in of_folder.values()}
        if len(meant) > 1 and len(copies_of(meant)) < len(meant) - 1:
            raise DataError(f"{captions}: picture {name} may be {' or '.join(meant)}; name each picture with its "
                            "folder, or run init on one folder, with --captions and this file")  # fmt: skip
