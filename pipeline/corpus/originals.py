"""`data`: says where the files of a data set come from, checks those that are here, lays them out, downloads."""

import shutil
from collections.abc import Iterator
from http.client import HTTPException
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from data.originals import Archive, Original, Part, data_sets, fault_of, lay_out, pictures_here
from pipeline.engine.console import info, status
from pipeline.engine.files import require_folder
from pipeline.errors import RecipeError

_SHOWN = 3
_TIMEOUT = 30.0  # seconds without an answer
_RECIPES = {
    "multi30k": "`bildwort recipes` lists those of Multi30K; most need region features too (.docs/pages/data.md)",
    "flickr8k": "corpus: {name: karpathy, captions: dataset_flickr8k.json, pictures: flickr8k_pictures, "
                "label: Flickr8K}",
    "coco": "`bildwort recipes` lists those of MS-COCO; --corpus.pictures=coco_pictures, or region features "
            "(.docs/pages/data.md)",
}  # fmt: skip


def show_originals(name: str, root: Path, download: bool) -> None:
    """Print each part of a data set: origin, license, size, and what of it is here; what is here is laid out first.

    Args:
        name: of the data set.
        root: the data root, where its files are or will be.
        download: what is missing, as far as it needs no request.

    Raises:
        RecipeError: no such data set, a download failed, or files are not those of the data set.
        DataError: a zip file is damaged.
    """
    known = data_sets()
    if name not in known:
        raise RecipeError(f"data: no data set {name!r}; expected {', '.join(known)}")
    require_folder(root.absolute(), "data")
    root.mkdir(parents=True, exist_ok=True)
    faults, missing = list[str](), False
    for part in known[name]:
        for line in lay_out(part, root):
            info(line)
        if download and _lacks(part, root):
            _get(part, root)
        found, wrong = _state(part, root)
        faults += wrong
        missing |= _lacks(part, root)
        for line in (*_about(part, root), f"  there     {found}"):
            info(line)
    if faults:
        more = f" (and {len(faults) - _SHOWN} more)" if len(faults) > _SHOWN else ""
        raise RecipeError(f"data: {'; '.join(faults[:_SHOWN])}{more}; delete them, and get them again")
    if missing:
        info(f"missing files: put them, or the zip files, into {root}, and call the command again; --download gets "
             "what needs no request")  # fmt: skip
    info(f"to use them: BILDWORT_DATA={root.absolute()}; {_RECIPES[name]}")


def _about(part: Part, root: Path) -> Iterator[str]:
    """Where a part comes from, its license and size."""
    sizes = sum(file.size for file in part.files) or (part.archive.size if part.archive else 0)
    size = f"{sizes / 1e9:.1f} GB" if sizes >= 1e9 else f"{sizes / 1e6:.1f} MB" if sizes else "size not known"
    what = f"{part.pictures:,} pictures" if part.pictures else _files(len(part.files))
    packed = f", packed in {part.archive.name}" if part.archive else ""
    yield f"{part.title}: {what}, {size}: {root / (part.folder or Path(part.files[0].path).parts[0])}"
    yield f"  from      {part.page}{packed}" + ("" if _is_open(part) else ", on request")
    yield f"  license   {part.license}"


def _files(count: int) -> str:
    return f"{count} file" if count == 1 else f"{count} files"


def _is_open(part: Part) -> bool:
    return bool(part.archive and part.archive.address) or any(file.address for file in part.files)


def _lacks(part: Part, root: Path) -> bool:
    """Is something of a part missing?"""
    return any(not (root / file.path).is_file() for file in part.files) or pictures_here(part, root) < part.pictures


def _state(part: Part, root: Path) -> tuple[str, list[str]]:
    """What of a part is here, and the files that are not its own."""
    if part.folder:
        return f"{pictures_here(part, root):,} of {part.pictures:,} pictures; digests not checked", []
    here = [file for file in part.files if (root / file.path).is_file()]
    with status("checking files …"):
        found = {root / file.path: fault_of(root / file.path, file.size, file.sha256) for file in here}
    faults = [f"{path}: {fault}" for path, fault in found.items() if fault]
    checked = "SHA-256" if all(file.sha256 for file in part.files) else "size; digest not checked"
    good = len(here) - len(faults)
    return f"{len(here)} of {_files(len(part.files))}, {good} as published ({checked})", faults


def _get(part: Part, root: Path) -> None:
    """Download what is missing of a part and needs no request."""
    files: list[Original | Archive] = [file for file in part.files if file.address and not (root / file.path).is_file()]
    if part.archive and part.archive.address and not (root / part.archive.name).is_file():
        files.append(part.archive)
    for file in files:
        _download(file, root, part.page)
    for line in lay_out(part, root):
        info(line)


def _download(file: Original | Archive, root: Path, page: str) -> None:
    """Write a file when it is whole and, as far as that is known, the right one."""
    target = root / (file.path if isinstance(file, Original) else file.name)
    half = target.with_name(f".{target.name}.part")
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        with (
            status(f"downloading {file.address} …"),
            urlopen(file.address, timeout=_TIMEOUT) as held,
            half.open("wb") as written,
        ):
            shutil.copyfileobj(held, written)
        if fault := fault_of(half, file.size, file.sha256 if isinstance(file, Original) else ""):
            raise RecipeError(f"data: {file.address}: {fault}; try again later, or get it from {page}")
        half.replace(target)
        info(f"downloaded {target}")
    except (URLError, TimeoutError, ConnectionError, HTTPException) as error:
        reason = getattr(error, "reason", error)
        raise RecipeError(f"data: {file.address} cannot be reached ({reason}); without internet, get it elsewhere, put "
                          f"it into {root}, and call the command again") from None  # fmt: skip
    finally:
        half.unlink(missing_ok=True)
