"""An exported model of single vectors as two ONNX files, compared with torch.

    difference = write_onnx(ExportedModel.from_pretrained("model"), Path("onnx"))

`images.onnx` reads regions (or pixels), as `ExportedModel.regions_of` gives them, in float32; `captions.onnx` reads
token numbers, as `ExportedModel.text.encode` gives them. Batches have any size, images any number of regions, captions
any length.
"""

import json
import shutil
from importlib.util import find_spec
from pathlib import Path

from modules.errors import ModelError
from modules.onnx_files import PACKAGES, write_sides
from pipeline.engine.files import delete_folder, rename_atomically
from pipeline.errors import RecipeError
from pipeline.export.exported_files import require_outside
from pipeline.export.exported_model import ExportedModel

IMAGES, CAPTIONS, ABOUT_ONNX, _WORDS = "images.onnx", "captions.onnx", "onnx.json", "words.json"
_OURS = {IMAGES, CAPTIONS, ABOUT_ONNX, _WORDS, f"{IMAGES}.data", f"{CAPTIONS}.data"}  # .data: weights above 2 GB


def require_onnx(folder: Path, model: Path) -> None:
    """Refuse what cannot be written, before anything is exported.

    Raises:
        RecipeError: the extra `onnx` is missing; the folder holds something else, or lies in the model's.
    """
    if missing := [name for name in PACKAGES if find_spec(name) is None]:
        raise RecipeError(f"--onnx: {missing[0]} is not installed; run `make setup EXTRA=onnx`")
    require_outside("--onnx", folder, model)
    for place, whole in ((folder, True), (_half(folder), False)):
        held = {path.name for path in place.iterdir()} if place.is_dir() else {place.name} if place.exists() else set()
        if held and (held - _OURS or (whole and ABOUT_ONNX not in held)):
            other = min(held - _OURS or held)
            raise RecipeError(f"--onnx {folder}: {place} holds something else ({other}); choose another folder")


def _half(folder: Path) -> Path:
    """Where the files are until they are whole."""
    return folder.absolute().with_name(f"{folder.absolute().name}.partial")


def write_onnx(exported: ExportedModel, folder: Path) -> float:
    """Write a model as ONNX; nothing is left if it does not give torch's vectors.

    The folder gets `images.onnx`, `captions.onnx`, the vocabulary `words.json`, and `onnx.json` with the name, the
    languages in the order of their numbers, the sizes and the difference.

    Args:
        folder: it must not exist, or hold only what this function wrote, which is replaced; not in the model's.

    Returns:
        the largest difference of a number of a vector from torch's, on random regions and captions.

    Raises:
        RecipeError: the model has no single vectors, or cannot be exported; `require_onnx` refuses; a vector differs by
            more than `modules.onnx_files.TOLERANCE`.
    """
    folder = folder.absolute()
    require_onnx(folder, exported.folder)
    exported.require_single()
    half = _half(folder)
    shutil.rmtree(half, ignore_errors=True)
    half.mkdir(parents=True)
    try:
        difference = write_sides(exported.model, len(exported.text), half / IMAGES, half / CAPTIONS)
        shutil.copyfile(exported.folder / _WORDS, half / _WORDS)
        about = {
            "name": exported.name, "fingerprint": exported.fingerprint, "languages": exported.model.languages,
            "regions": exported.model.input_dim, "difference": difference,
        }  # fmt: skip
        (half / ABOUT_ONNX).write_text(json.dumps(about, indent=1, ensure_ascii=False), encoding="utf-8")
        if not folder.is_symlink():
            delete_folder(folder, ABOUT_ONNX)
        rename_atomically(half, folder)
    except ModelError as error:
        raise RecipeError(f"--onnx: {exported.name}: {error}") from None
    finally:
        shutil.rmtree(half, ignore_errors=True)
    return difference
