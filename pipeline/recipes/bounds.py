"""Bounds of settings: numbers that no machine could work with, and names that no file can have."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import is_dataclass
from typing import Any

from data.pictures import unfit_name
from pipeline.errors import RecipeError

_LARGEST = 2**31 - 1  # of any whole number
_LONGEST_TEXT, LONGEST_NAME = 4096, 100  # letters; names stand in names of files, of which systems allow 255 bytes
_SEPARATORS = set('<>:"/\\|?*')
_AT_MOST = {
    "regions.regions": 1000, "regions.size": 4096,
    "mmt.vocabulary": 10**6, "mmt.embedding_dim": 10**5, "mmt.hidden_dim": 10**5, "mmt.batch_tokens": 10**7,
    "mmt.beam_size": 1000, "mmt.channel.beam_size": 1000, "mmt.rerank.list_size": 1000, "mmt.rerank.passes": 10**5,
    "augment.beam_size": 1000, "augment.batch_tokens": 10**7,
    "vse.dim": 10**5, "vse.word_dim": 10**5, "vse.batch_size": 10**6, "vse.epochs": 10**6, "vse.folds": 1000,
    "vse.first_k": 10**6, "vse.image_encoder_size": 4096, "vse.negatives": 10**6, "report.resamples": 10**6,
}  # fmt: skip
_OF_TRAINERS = {"threads": 1024, "workers": 1024, "devices": 1024, "num_nodes": 10**5}


def check_bounds(values: Any, where: str, key: str = "") -> None:
    """Refuse numbers that are not finite or too large, and texts with control characters, wherever they stand.

    Raises:
        RecipeError: there is one; it names the key.
    """
    if isinstance(values, float) and not math.isfinite(values):
        raise RecipeError(f"{where}: {key} is {values}; expected a finite number")
    if isinstance(values, int) and not isinstance(values, bool):
        most = _OF_TRAINERS.get(key.rpartition(".")[2], _LARGEST) if ".trainer." in key else _AT_MOST.get(key, _LARGEST)
        if abs(values) > most:
            raise RecipeError(f"{where}: {key} is {values}; expected {most:,} at most")
    if isinstance(values, str):
        _check_text(values, f"{where}: {key}")
    items: Iterable[tuple[Any, Any]] = ()
    if is_dataclass(values):
        items = vars(values).items()
    elif isinstance(values, Mapping):
        items = values.items()
    elif isinstance(values, list | tuple):
        items = enumerate(values)
    for name, value in items:
        _check_text(str(name), f"{where}: a key of {key}")
        check_bounds(value, where, f"{key}.{name}" if key else str(name))


def _check_text(text: str, what: str) -> None:
    if len(text) > _LONGEST_TEXT:
        raise RecipeError(f"{what} has {len(text):,} letters; expected {_LONGEST_TEXT:,} at most")
    if reason := unfit_name(text):
        raise RecipeError(f"{what} is {text!r}: {reason.removeprefix('its name ')}; write it without")


def check_file_name(name: str, what: str) -> None:
    """Refuse a name that becomes part of a file's and cannot.

    Raises:
        RecipeError: it cannot; `what` says where it stands.
    """
    if found := set(name) & _SEPARATORS:
        raise RecipeError(f"{what} has {name!r}, whose {min(found)} no file name has; name it otherwise")
    if not name.strip(" .") or len(name.encode("utf-8", "surrogatepass")) > LONGEST_NAME or unfit_name(name):
        raise RecipeError(f"{what} has {name!r}, which no file can be called; expected 1 to {LONGEST_NAME} letters")
