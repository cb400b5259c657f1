"""Where the files of public data sets come from, whether those that are here are theirs, and laying them out."""

import csv
import hashlib
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path, PurePosixPath
from urllib.error import URLError
from urllib.request import urlopen

from data.corpora import multi30k
from data.corpora.coco import karpathy
from data.errors import DataError
from data.lines import visible_files
from data.pictures.folder import SUFFIXES, is_inside

_TIMEOUT = 30.0  # seconds without an answer
_MULTI30K_COMMIT = "a3d2e0d26b56f3846f66a952536ffed4e401d05a"
_ON_REQUEST = "the pictures belong to users of Flickr; they are given for research and education"


@dataclass(frozen=True)
class Original:
    """A file: its path in the data root, its bytes, its SHA-256 (empty: not known), and where it is downloaded."""

    path: str
    size: int
    sha256: str = ""
    address: str = ""


@dataclass(frozen=True)
class Archive:
    """A zip file that holds a part: its name, bytes (0: not known), and where it is downloaded (empty: on request)."""

    name: str
    size: int = 0
    address: str = ""


@dataclass(frozen=True)
class Part:
    """A part of a data set: files, or a folder of pictures.

    Attributes:
        title: what it is.
        page: where it comes from, for people.
        license: of it, in words.
        files: that it has; of pictures none are listed.
        folder: of its pictures, in the data root.
        pictures: how many there are.
        known_as: what their folder is called where people have unpacked it.
        archive: what it is packed in, if it is.
    """

    title: str
    page: str
    license: str
    files: tuple[Original, ...] = ()
    folder: str = ""
    pictures: int = 0
    known_as: tuple[str, ...] = ()
    archive: Archive | None = None


def _multi30k_text() -> tuple[Original, ...]:
    """The files of the official repository; size and digest are those of its commit."""
    raw = f"https://raw.githubusercontent.com/multi30k/dataset/{_MULTI30K_COMMIT}/data"
    with Path(__file__).with_name("multi30k.csv").open(encoding="utf-8", newline="") as file:
        rows = [*csv.DictReader(file)]
    return tuple(
        Original(f"multi30k/{row['path']}", int(row["size"]), row["sha256"], f"{raw}/{row['path']}") for row in rows
    )


def _karpathy(name: str, size: int, license_: str) -> Part:
    packed = Archive("caption_datasets.zip", 36_745_453, karpathy.ORIGINALS)
    title = "captions, with Karpathy's split"
    return Part(title, karpathy.ORIGINALS, license_, (Original(name, size),), archive=packed)


def _coco(split: str, pictures: int, size: int) -> Part:
    packed = Archive(f"{split}.zip", size, f"http://images.cocodataset.org/zips/{split}.zip")
    return Part(
        f"pictures {split}", "https://cocodataset.org/#download", "the pictures are under Flickr's terms of use",
        folder=f"coco_pictures/{split}", pictures=pictures, known_as=(split,), archive=packed,
    )  # fmt: skip


def data_sets() -> dict[str, list[Part]]:
    """Name → parts of the data sets whose files are known."""
    return {
        "multi30k": [
            Part("text of both tasks, in English, German, French and Czech", multi30k.ORIGINALS,
                 "none is stated there", _multi30k_text()),
            Part("pictures of Flickr30K", "https://forms.illinois.edu/sec/229675", _ON_REQUEST,
                 folder="flickr30k_pictures", pictures=31_783, known_as=("flickr30k-images", "flickr30k_images")),
        ],
        "flickr8k": [
            _karpathy("dataset_flickr8k.json", 9_035_673, "none is known"),
            Part("pictures", "https://hockenmaier.cs.illinois.edu/8k-pictures.html", _ON_REQUEST,
                 folder="flickr8k_pictures", pictures=8_091, known_as=("Flicker8k_Dataset", "Flickr8k_Dataset"),
                 archive=Archive("Flickr8k_Dataset.zip")),
        ],
        "coco": [
            _karpathy("dataset_coco.json", 144_186_139, "of COCO's captions CC BY 4.0; of the split none is known"),
            _coco("train2014", 82_783, 13_510_573_713),
            _coco("val2014", 40_504, 6_645_013_297),
        ],
    }  # fmt: skip


def fault_of(path: Path, size: int, sha256: str = "") -> str | None:
    """What is wrong with a file, in words; None if nothing is. What is not known (0, empty) is not checked."""
    if size and path.stat().st_size != size:
        return f"{path.stat().st_size:,} bytes, expected {size:,}"
    if sha256:
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        if found != sha256:
            return f"SHA-256 {found[:12]}…, expected {sha256[:12]}…"
    return None


def pictures_here(part: Part, root: Path) -> int:
    """How many pictures of a part are in its folder."""
    return sum(path.suffix.lower() in SUFFIXES for path in visible_files(root / part.folder)) if part.folder else 0


def lay_out(part: Part, root: Path) -> Iterator[str]:
    """Put what lies elsewhere in a folder, or packed, to where the recipes read it.

    Files are copied, folders of pictures moved, zip files unpacked; nothing that is there is replaced.

    Args:
        part: of a data set.
        root: the data root, in which all of it lies.

    Returns:
        what was done, in words.

    Raises:
        DataError: a zip file is damaged.
    """
    for file, found in _elsewhere(root, [file for file in part.files if not (root / file.path).exists()]):
        target = root / file.path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(found, target)
        yield f"{found} copied to {target}"
    if part.folder and not (root / part.folder).exists():
        places = [path for name in part.known_as for path in sorted(root.rglob(name)) if _has_pictures(path)]
        if places:
            (root / part.folder).parent.mkdir(parents=True, exist_ok=True)
            places[0].rename(root / part.folder)
            yield f"{places[0]} moved to {root / part.folder}"
    packed = root / part.archive.name if part.archive else root
    if packed.is_file():
        yield from _unpacked(part, packed, root)


def _elsewhere(root: Path, files: Sequence[Original]) -> Iterator[tuple[Original, Path]]:
    """Files that lie elsewhere in the folder, below the folders that they have in the original (`task1/raw`)."""
    names = {PurePosixPath(file.path).name for file in files}
    known = (
        [path for path in sorted(visible_files(root)) if path.name in names and is_inside(path, root)] if names else []
    )
    for file in files:
        parts = PurePosixPath(file.path).parts
        own = parts[1:] or parts
        if found := [path for path in known if path.parts[-len(own) :] == own]:
            yield file, found[0]


def _has_pictures(folder: Path) -> bool:
    return (
        folder.is_dir()
        and not folder.is_symlink()
        and any(path.suffix.lower() in SUFFIXES for path in folder.iterdir())
    )


def _unpacked(part: Part, packed: Path, root: Path) -> Iterator[str]:
    """Unpack what a part lacks; only pictures and its own files, by their names alone."""
    try:
        with zipfile.ZipFile(packed) as archive:
            names = {PurePosixPath(name).name: name for name in archive.namelist() if not name.startswith("__MACOSX")}
            for file in part.files:
                name, target = names.get(PurePosixPath(file.path).name), root / file.path
                if name is not None and not target.exists():
                    _take(archive, name, target)
                    yield f"{packed}: {target} unpacked"
            if not part.folder or (root / part.folder).exists():
                return
            target = root / part.folder
            target.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}-") as made:
                for name, member in names.items():
                    if PurePosixPath(name).suffix.lower() in SUFFIXES and not name.startswith("."):
                        _take(archive, member, Path(made) / "pictures" / name)
                if (Path(made) / "pictures").exists():
                    (Path(made) / "pictures").rename(target)
                    yield f"{packed}: {target} unpacked"
    except (zipfile.BadZipFile, EOFError, zlib.error, RuntimeError, NotImplementedError) as error:
        raise DataError(f"{packed}: not a whole zip file ({error}); get it again") from None


def _take(archive: zipfile.ZipFile, member: str, target: Path) -> None:
    """Write a member to a file, whole or not at all."""
    target.parent.mkdir(parents=True, exist_ok=True)
    half = target.with_name(f".{target.name}.part")
    try:
        with archive.open(member) as held, half.open("wb") as file:
            shutil.copyfileobj(held, file)
        half.replace(target)
    finally:
        half.unlink(missing_ok=True)


def is_open(part: Part) -> bool:
    """Can it be downloaded without a request?"""
    return bool(part.archive and part.archive.address) or any(file.address for file in part.files)


def is_incomplete(part: Part, root: Path) -> bool:
    """Is something of it missing in a data root?"""
    return any(not (root / file.path).is_file() for file in part.files) or pictures_here(part, root) < part.pictures


def state(part: Part, root: Path) -> tuple[str, list[str]]:
    """What of a part is in a data root, and what is wrong with files that are not its own."""
    if part.folder:
        return f"{pictures_here(part, root):,} of {part.pictures:,} pictures; digests not checked", []
    here = [file for file in part.files if (root / file.path).is_file()]
    found = {root / file.path: fault_of(root / file.path, file.size, file.sha256) for file in here}
    faults = [f"{path}: {fault}" for path, fault in found.items() if fault]
    checked = "SHA-256" if all(file.sha256 for file in part.files) else "size; digest not checked"
    count = len(part.files)
    return (
        f"{len(here)} of {count} file{'s' * (count != 1)}, {len(here) - len(faults)} as published ({checked})",
        faults,
    )


def to_download(part: Part, root: Path) -> list[Original | Archive]:
    """The files that a data root lacks of a part and that need no request."""
    files: list[Original | Archive] = [file for file in part.files if file.address and not (root / file.path).is_file()]
    if part.archive and part.archive.address and not (root / part.archive.name).is_file():
        files.append(part.archive)
    return files


def get(file: Original | Archive, root: Path, page: str) -> Path:
    """Download a file into a data root: it is there when it is whole and, as far as that is known, the right one.

    Args:
        file: which.
        root: the data root.
        page: where a person finds it.

    Raises:
        DataError: it cannot be reached, or is another file.
    """
    target = root / (file.path if isinstance(file, Original) else file.name)
    half = target.with_name(f".{target.name}.part")
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        with urlopen(file.address, timeout=_TIMEOUT) as held, half.open("wb") as written:
            shutil.copyfileobj(held, written)
        if fault := fault_of(half, file.size, file.sha256 if isinstance(file, Original) else ""):
            raise DataError(f"data: {file.address}: {fault}; try again later, or get it from {page}")
        half.replace(target)
    except (URLError, TimeoutError, ConnectionError, HTTPException) as error:
        reason = getattr(error, "reason", error)
        raise DataError(f"data: {file.address} cannot be reached ({reason}); without internet, get it elsewhere, put "
                        f"it to {target}, and call the command again") from None  # fmt: skip
    finally:
        half.unlink(missing_ok=True)
    return target
