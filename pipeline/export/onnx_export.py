"""An exported model of single vectors as two ONNX files, compared with torch.

    difference = write_onnx(ExportedModel.from_pretrained("model"), Path("onnx"))

`images.onnx` reads regions (or pixels), as `ExportedModel.regions_of` gives them, in float32; `captions.onnx` reads
token numbers, as `ExportedModel.text.encode` gives them. Batches have any size, images any number of regions, captions
any length.
"""

import json
import logging
import shutil
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from data.padding import pad
from modules.retrieval_models.base import RetrievalModel
from pipeline.engine.files import rename_atomically
from pipeline.errors import RecipeError
from pipeline.export.exported_files import require_outside
from pipeline.export.exported_model import ExportedModel

TOLERANCE = 1e-4
"""The largest difference that a number of a vector may have from torch's."""
IMAGES, CAPTIONS, ABOUT_ONNX, _WORDS = "images.onnx", "captions.onnx", "onnx.json", "words.json"
_OURS = {IMAGES, CAPTIONS, ABOUT_ONNX, _WORDS, f"{IMAGES}.data", f"{CAPTIONS}.data"}  # .data: weights above 2 GB
_PACKAGES = ("onnx", "onnxscript", "onnxruntime")
_TRACED, _CHECKED = 2, (1, 3, 5)  # sizes of batches
_LONGEST = 12  # words of a caption that is checked


class _Images(nn.Module):
    """Vectors (B, H) of regions (B, R, D), or of pixels (B, 1, 3·S²)."""

    def __init__(self, model: RetrievalModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, regions: Tensor) -> Tensor:
        """Return them."""
        seen = self.model.see(regions, torch.ones(regions.shape[:2], dtype=torch.bool))
        return self.model.encode_images(*seen)[0][:, 0]


class _Captions(nn.Module):
    """Vectors (B, H) of tokens (B, L), lengths (B,) and language numbers (B,)."""

    def __init__(self, model: RetrievalModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor, lengths: Tensor, languages: Tensor) -> Tensor:
        """Return them."""
        return self.model.encode_captions(tokens, lengths, languages)[0][:, 0]


def require_onnx(folder: Path, model: Path) -> None:
    """Refuse what cannot be written, before anything is exported.

    Args:
        folder: of the ONNX files.
        model: the exported model's folder.

    Raises:
        RecipeError: the extra `onnx` is missing; the folder holds something else, or lies in the model's.
    """
    if missing := [name for name in _PACKAGES if find_spec(name) is None]:
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
            more than `TOLERANCE`.
    """
    folder = folder.absolute()
    require_onnx(folder, exported.folder)
    exported.require_single()
    half = _half(folder)
    shutil.rmtree(half, ignore_errors=True)
    half.mkdir(parents=True)
    try:
        sides = {IMAGES: _Images(exported.model).eval(), CAPTIONS: _Captions(exported.model).eval()}
        difference = max(_write(exported, side, half / name) for name, side in sides.items())
        _write_about(exported, half, difference)
        shutil.rmtree(folder, ignore_errors=True)
        rename_atomically(half, folder)
    finally:
        shutil.rmtree(half, ignore_errors=True)
    return difference


def _write(exported: ExportedModel, side: nn.Module, path: Path) -> float:
    """Write one side; its largest difference from torch, a RecipeError if that is too large."""
    example = _examples(exported, side, _TRACED)
    axes = ("batch", "regions") if isinstance(side, _Images) else ("batch", "words")
    fixed = isinstance(side, _Images) and exported.model.reads_pixels  # one row of pixels an image
    shapes = {name: dict(enumerate(axes[: 1 if fixed else min(tensor.ndim, 2)])) for name, tensor in example.items()}
    try:
        with torch.no_grad(), _quiet():
            program = torch.onnx.export(
                side, tuple(example.values()), dynamo=True, verbose=False, dynamic_shapes=tuple(shapes.values()),
                input_names=list(example), output_names=["vectors"],
            )  # fmt: skip
            assert program is not None
            program.save(path)
    except torch.onnx.errors.OnnxExporterError as error:
        reason = " ".join(str(error.__cause__ or error).split())[:200]
        raise RecipeError(f"--onnx: {exported.name}: torch cannot export {path.stem} ({reason})") from None
    return _checked(exported, side, path)


def _checked(exported: ExportedModel, side: nn.Module, path: Path) -> float:
    """The largest difference between what the file gives and what torch gives, a RecipeError if it is too large."""
    import onnxruntime

    session, largest = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]), 0.0
    for size in _CHECKED:
        batch = _examples(exported, side, size)
        with torch.no_grad():
            expected = side(**batch)
        (vectors,) = session.run(["vectors"], {name: tensor.numpy() for name, tensor in batch.items()})
        largest = max(largest, float((torch.from_numpy(vectors) - expected).abs().max()))
    if not largest <= TOLERANCE:
        raise RecipeError(f"--onnx: vectors of {path.name} differ by {largest:.1e} from torch's, more than {TOLERANCE}:"
                          f" it is not written; report it, with the versions of {', '.join(_PACKAGES)}")  # fmt: skip
    return largest


def _examples(exported: ExportedModel, side: nn.Module, count: int) -> dict[str, Tensor]:
    """Inputs of a side for a number of items, by name: random regions or captions."""
    model, draws = exported.model, torch.Generator().manual_seed(count)
    if isinstance(side, _Images):
        number = 1 if model.reads_pixels else count + 2
        return {"regions": torch.randn(count, number, model.input_dim, generator=draws)}
    lengths = torch.randint(2, _LONGEST + 1, (count,), generator=draws)
    rows = [torch.randint(1, len(exported.text), (int(length),), generator=draws).tolist() for length in lengths]
    languages = torch.randint(0, len(model.languages), (count,), generator=draws)
    return {"tokens": pad(rows), "lengths": lengths, "languages": languages}


def _write_about(exported: ExportedModel, folder: Path, difference: float) -> None:
    """Write what a program needs beside the two files."""
    shutil.copyfile(exported.folder / _WORDS, folder / _WORDS)
    about: Mapping[str, Any] = {
        "name": exported.name, "fingerprint": exported.fingerprint, "languages": exported.model.languages,
        "regions": exported.model.input_dim, "difference": difference,
    }  # fmt: skip
    (folder / ABOUT_ONNX).write_text(json.dumps(about, indent=1, ensure_ascii=False), encoding="utf-8")


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what the exporter says about its own steps."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        logging.disable(before)
