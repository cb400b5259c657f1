"""Checks of a retrieval model before its first training step: what would train, and be ranked in another way."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, get_args

import torch
from torch import Tensor, nn

from modules.errors import ModelError
from modules.layers.recurrent import widen
from modules.precision import exact_float
from modules.retrieval_models.base import Batch, RetrievalModel, Score
from modules.search.encodings import Encoding
from modules.search.scores import inner_product

_IMAGES, _CAPTIONS = 2, 3  # that are encoded; not equally many, as scores (C, I) would look right
_TOLERANCE = 5e-3  # of the largest number; rounding is below it


def check_model(model: RetrievalModel, batch: Batch) -> None:
    """Check what a model gives of some images and captions of a batch, in evaluation and float32.

    Its random numbers, batch statistics and modes are left as they were.

    Args:
        model: which will be trained.
        batch: of a DataModule of `data.batches`, on the model's device.

    Raises:
        ModelError: encodings have another form, or depend on padding, chance or the rest of the batch; the score is
            not of the kind that the model says; or a part of the model would not be saved.
    """
    name = type(model).__name__
    _require_registered(model, name)
    device = batch["tokens"].device
    with exact_float(), torch.no_grad(), torch.autocast(device.type, enabled=False), _undisturbed(model, device):
        rows = _rows(batch)
        images, captions = _of_images(model, batch, rows[0]), _of_captions(model, batch, rows[1])
        for what, encoding, number in zip(("images", "captions"), (images, captions), map(len, rows), strict=True):
            _require_form(f"{name}.encode_{what}", encoding, model.score)
            if len(encoding[0]) != number:
                raise ModelError(f"{name}.encode_{what} returns {len(encoding[0])} items of {number} {what}; expected "
                                 "as many as it is given, in their order")  # fmt: skip
        kinds = [(vectors.shape[-1], vectors.dtype) for vectors, _ in (images, captions)]
        if kinds[0] != kinds[1]:
            raise ModelError(f"{name} encodes images as {_shown(images[0])}, captions as {_shown(captions[0])}; "
                             "expected as many numbers of one type")  # fmt: skip
        _require_alone(f"{name}.encode_images", images, _of_images(model, batch, rows[0][:1]))
        _require_alone(f"{name}.encode_captions", captions, _of_captions(model, batch, rows[1][:1]))
        _require_score(model, name, images, captions)


def _rows(batch: Batch) -> tuple[Tensor, Tensor]:
    """Some images and captions of a batch, the shortest first: padding of it is seen in its vector."""
    images = batch["region_mask"][:_IMAGES].sum(dim=1).argsort()
    captions = batch["lengths"][:_CAPTIONS].argsort()
    return images[: max(1, len(captions) - 1)], captions


def _of_images(model: RetrievalModel, batch: Batch, rows: Tensor) -> Encoding:
    """The encodings of some images of a batch."""
    encoded: Any = model.encode_images(*model.see(widen(batch["regions"][rows]), batch["region_mask"][rows]))
    return _pair(f"{type(model).__name__}.encode_images", encoded)


def _of_captions(model: RetrievalModel, batch: Batch, rows: Tensor) -> Encoding:
    """The encodings of some captions of a batch, padded to the longest of them."""
    lengths = batch["lengths"][rows]
    rows = rows.to(batch["tokens"].device)
    tokens = batch["tokens"][rows, : max(1, int(lengths.max()))]
    encoded: Any = model.encode_captions(tokens, lengths, batch["language"][rows])
    return _pair(f"{type(model).__name__}.encode_captions", encoded)


def _pair(method: str, encoded: Any) -> Encoding:
    if not (isinstance(encoded, tuple) and len(encoded) == 2 and all(isinstance(part, Tensor) for part in encoded)):
        raise ModelError(f"{method} returns a {type(encoded).__name__}; expected vectors (N, T, H) and their mask "
                         "(N, T); `one_vector` makes them of single vectors (N, H)")  # fmt: skip
    return encoded


def _require_form(method: str, encoding: Encoding, score: str) -> None:
    vectors, mask = encoding
    if score not in get_args(Score):
        raise ModelError(f"{method.partition('.')[0]}.score is {score!r}; expected one of {', '.join(get_args(Score))}")
    if vectors.dim() != 3 or not vectors.is_floating_point() or mask.dtype != torch.bool:
        raise ModelError(f"{method} returns {_shown(vectors)} and a mask {_shown(mask)}; expected vectors (N, T, H) "
                         "and a mask (N, T) of bool")  # fmt: skip
    if mask.shape != vectors.shape[:2]:
        raise ModelError(
            f"{method} returns {_shown(vectors)} with a mask {_shown(mask)}; expected (N, T, H) and (N, T)"
        )
    if not bool(vectors.isfinite().all()):
        raise ModelError(f"{method} returns numbers that are not finite, before any training")
    if not bool(mask.any(dim=1).all()):
        raise ModelError(f"{method} returns an item without a vector: its mask is false everywhere")
    if score != "sets" and not (bool((mask.sum(dim=1) == 1).all()) and bool(mask[:, 0].all())):
        raise ModelError(f"{method} returns several vectors of an item, but {method.partition('.')[0]}.score is "
                         f"{score!r}, of single vectors; set score = \"sets\", or return one")  # fmt: skip


def _require_alone(method: str, together: Encoding, alone: Encoding) -> None:
    """Refuse an item that is encoded in another way without the others."""
    first, single = (encoding[0][0][encoding[1][0]] for encoding in (together, alone))
    if first.shape != single.shape or not _close(first, single):
        raise ModelError(
            f"{method}: the first of {len(together[0])} has another vector than alone, so that search differs from the "
            "test; in evaluation, leave padding, chance and the rest of the batch out"
        )


def _require_score(model: RetrievalModel, name: str, images: Encoding, captions: Encoding) -> None:
    scores = model.similarity(images, captions)
    wanted = (len(images[0]), len(captions[0]))
    if tuple(scores.shape) != wanted or not bool(scores.isfinite().all()):
        raise ModelError(f"{name}.similarity returns {_shown(scores)} of {wanted[0]} images and {wanted[1]} captions; "
                         f"expected finite scores {wanted}")  # fmt: skip
    ranked, own = (one - one.mean() for one in (inner_product(images[0][:, 0], captions[0][:, 0]), scores))
    factor = float((own * ranked).sum() / (ranked * ranked).sum().clamp(min=1e-30))  # a temperature changes no rank
    if model.score == "inner product" and not (_close(factor * ranked, own) and (factor > 0 or not own.any())):
        raise ModelError(f"{name}.similarity is not the inner product of the vectors, by which they are ranked; set "
                         f"{name}.score = \"vectors\", or put it into the vectors")  # fmt: skip


def _close(one: Tensor, other: Tensor) -> bool:
    return bool((one - other).abs().max() <= _TOLERANCE * max(1e-30, float(other.abs().max())))


def _shown(tensor: Tensor) -> str:
    return f"{tuple(tensor.shape)} of {str(tensor.dtype).removeprefix('torch.')}"


def _require_registered(model: nn.Module, name: str) -> None:
    """Refuse parameters to train in plain lists and dicts, which are neither trained nor saved."""
    known = {*map(id, model.parameters())}
    for part in model.modules():
        for attribute, value in vars(part).items():
            if any(id(each) not in known for each in _learned(value)):
                raise ModelError(
                    f"{name}: {type(part).__name__}.{attribute} is a plain {type(value).__name__} with layers or "
                    "parameters, which are not trained and not saved; take nn.ModuleList, nn.ModuleDict or "
                    "nn.ParameterList"
                )


def _learned(value: object) -> Iterator[nn.Parameter]:
    """The parameters to train in a list, tuple or dict, and in what it holds."""
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ():
        own = each.parameters() if isinstance(each, nn.Module) else [each] if isinstance(each, nn.Parameter) else ()
        yield from (parameter for parameter in own if parameter.requires_grad)
        yield from _learned(each)


@contextmanager
def _undisturbed(model: nn.Module, device: torch.device) -> Iterator[None]:
    """In evaluation; random numbers and modes are what they were afterwards."""
    modes = [(part, part.training) for part in model.modules()]
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        model.eval()
        try:
            yield
        finally:
            for part, mode in modes:
                part.training = mode
