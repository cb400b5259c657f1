"""`data`: says where the files of a data set come from, checks those that are here, lays them out, downloads."""

from collections.abc import Iterator
from pathlib import Path

from data.corpora.originals import Part, data_sets, get, is_incomplete, is_open, lay_out, state, to_download
from pipeline.engine.console import counted, info, status
from pipeline.engine.files import require_folder
from pipeline.errors import RecipeError

_SHOWN = 3
_RECIPES = {
    "multi30k": "`bildwort recipes` lists those of Multi30K; most need region features too (.docs/pages/data.md)",
    "flickr8k": "corpus: {name: karpathy, captions: dataset_flickr8k.json, pictures: flickr8k_pictures, "
                "label: Flickr8K}",
    "coco": "`bildwort recipes` lists those of MS-COCO; --corpus.regions=null --corpus.pictures=coco_pictures, or "
            "region features (.docs/pages/data.md)",
}  # fmt: skip


def show_originals(name: str, root: Path, download: bool) -> None:
    """Print each part of a data set: origin, license, size, and what of it is here; what is here is laid out first.

    Args:
        root: the data root, where its files are or will be.
        download: what is missing, as far as it needs no request.

    Raises:
        RecipeError: no such data set, or files are not those of the data set.
        DataError: a download failed, or a zip file is damaged.
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
        if download and is_incomplete(part, root):
            for file in to_download(part, root):
                with status(f"downloading {file.address} …"):
                    got = get(file, root, part.page)
                info(f"downloaded {got}")
            for line in lay_out(part, root):
                info(line)
        with status("checking files …"):
            found, wrong = state(part, root)
        faults += wrong
        missing |= is_incomplete(part, root)
        for line in (*_about(part, root), f"  there     {found}"):
            info(line)
    if faults:
        more = f" (and {len(faults) - _SHOWN} more)" if len(faults) > _SHOWN else ""
        raise RecipeError(f"data: {'; '.join(faults[:_SHOWN])}{more}; delete them, and get them again")
    if missing:
        info(f"missing files: put them with their folders, or the zip files, into {root}, and call the command again; "
             "--download gets what needs no request")  # fmt: skip
    info(f"to use them: BILDWORT_DATA={root.absolute()}; {_RECIPES[name]}")


def _about(part: Part, root: Path) -> Iterator[str]:
    """Where a part comes from, its license and size."""
    sizes = sum(file.size for file in part.files) or (part.archive.size if part.archive else 0)
    size = f"{sizes / 1e9:.1f} GB" if sizes >= 1e9 else f"{sizes / 1e6:.1f} MB" if sizes else "size not known"
    what = f"{part.pictures:,} pictures" if part.pictures else counted(len(part.files), "files")
    packed = f", packed in {part.archive.name}" if part.archive else ""
    yield f"{part.title}: {what}, {size}: {root / (part.folder or Path(part.files[0].path).parts[0])}"
    yield f"  from      {part.page}{packed}" + ("" if is_open(part) else ", on request")
    yield f"  license   {part.license}"
