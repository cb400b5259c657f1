"""A retrieval model of single vectors as two ONNX files, each compared with torch."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn

from modules.errors import ModelError
from modules.retrieval_models.base import RetrievalModel

PACKAGES = ("onnx", "onnxscript", "onnxruntime")
TOLERANCE = 1e-4
"""The largest difference that a number of a vector may have from torch's."""
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


def write_sides(model: RetrievalModel, entries: int, images: Path, captions: Path) -> float:
    """Write what encodes images and what encodes captions.

    Args:
        model: of single vectors.
        entries: of its vocabulary.
        images: a file that reads regions (or pixels) in float32.
        captions: a file that reads token numbers.

    Returns:
        the largest difference of a number of a vector from torch's, on random regions and captions.

    Raises:
        ModelError: torch cannot export it, or a vector differs by more than `TOLERANCE`.
    """
    sides: dict[Path, _Images | _Captions] = {images: _Images(model).eval(), captions: _Captions(model).eval()}
    return max(_written(side, entries, path) for path, side in sides.items())


def _written(side: _Images | _Captions, entries: int, path: Path) -> float:
    """Write one side; its largest difference from torch."""
    example = _examples(side, entries, _TRACED)
    axes = ("batch", "regions") if isinstance(side, _Images) else ("batch", "words")
    fixed = isinstance(side, _Images) and side.model.reads_pixels  # one row of pixels an image
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
        raise ModelError(f"torch cannot export {path.stem} ({reason})") from None
    return _checked(side, entries, path)


def _checked(side: _Images | _Captions, entries: int, path: Path) -> float:
    """The largest difference between what the file gives and what torch gives."""
    import onnxruntime

    session, largest = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]), 0.0
    for size in _CHECKED:
        batch = _examples(side, entries, size)
        with torch.no_grad():
            expected = side(**batch)
        (vectors,) = session.run(["vectors"], {name: tensor.numpy() for name, tensor in batch.items()})
        largest = max(largest, float((torch.from_numpy(vectors) - expected).abs().max()))
    if not largest <= TOLERANCE:
        raise ModelError(f"vectors of {path.name} differ by {largest:.1e} from torch's, more than {TOLERANCE}: it is "
                         f"not written; report it, with the versions of {', '.join(PACKAGES)}")  # fmt: skip
    return largest


def _examples(side: _Images | _Captions, entries: int, count: int) -> dict[str, Tensor]:
    """Inputs of a side for a number of items, by name: random regions or captions."""
    model, draws = side.model, torch.Generator().manual_seed(count)
    if isinstance(side, _Images):
        number = 1 if model.reads_pixels else count + 2
        return {"regions": torch.randn(count, number, model.input_dim, generator=draws)}
    lengths = torch.randint(2, _LONGEST + 1, (count,), generator=draws)
    rows = [torch.randint(1, entries, (int(length),), generator=draws).tolist() for length in lengths]
    languages = torch.randint(0, len(model.languages), (count,), generator=draws)
    tensors = model.tensors_of(rows, [model.languages[number] for number in languages])
    return dict(zip(("tokens", "lengths", "languages"), tensors, strict=True))


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
