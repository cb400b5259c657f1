"""`trainer.precision: auto`: bfloat16 where the device is fast at it, else TensorFloat-32 or float32."""

import json
import os
import platform
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

import torch
from filelock import FileLock

from modules.precision import bfloat16_cost, bfloat16_cost_of_gpu
from pipeline.recipes.settings import Recipe
from pipeline.recipes.trainer_settings import TrainerSettings

Precision = Literal["32-true", "tf32", "bf16-mixed"]
_ENOUGH = 0.85  # of float32's time; processors with instructions for bfloat16 take 0.5 to 0.75, others twice
_PATIENCE = 60.0  # seconds for the process that measures, which takes a few; Timeout is an OSError
_AMPERE = (8, 0)  # the first GPUs with bfloat16 and TensorFloat-32


def with_precision(recipe: Recipe) -> Recipe:
    """A recipe in which each `precision: auto` is what it comes to on this machine, in tables too.

    It is done before jobs are made, so that their keys and manifests have the precision itself.
    """
    for table in recipe.tables.values():
        for name, system in table.systems.items():
            table.systems[name] = replace(system, vse=_with_precision(system.vse))
    sections = {name: _with_precision(getattr(recipe, name)) for name in ("mmt", "augment", "vse")}
    return replace(recipe, **sections)


def _with_precision(section: Any) -> Any:
    """A section with the precision that its trainer has on this machine."""
    return replace(section, trainer=replace(section.trainer, precision=precision_of(section.trainer)))


def precision_of(trainer: TrainerSettings) -> Precision:
    """The precision of a trainer.

    `auto` is `bf16-mixed` on NVIDIA GPUs and on processors that are fast at it, else `tf32` on such GPUs, or `32-true`.
    """
    accelerator = trainer.accelerator
    if trainer.precision != "auto":
        return trainer.precision
    if accelerator in ("auto", "gpu", "cuda") and torch.cuda.is_available():
        if torch.cuda.get_device_capability() < _AMPERE:
            return "32-true"
        return _of_device(_file(), f"{platform.node()}, {torch.cuda.get_device_name()}", bfloat16_cost_of_gpu, "tf32")
    on_cpu = accelerator == "cpu" or (accelerator == "auto" and not torch.backends.mps.is_available())
    return _of_device(_file(), platform.node(), bfloat16_cost, "32-true") if on_cpu else "32-true"


def _file() -> Path:
    """Where it is remembered: BILDWORT_CACHE, or the user's folder for caches."""
    folder = os.environ.get("BILDWORT_CACHE") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "bildwort"
    with suppress(RuntimeError):  # there is no home
        return Path(folder).expanduser() / "precision.json"
    return Path(os.devnull) / "precision.json"


@cache
def _of_device(file: Path, name: str, cost: Callable[[], float], otherwise: Precision) -> Precision:
    """What a device is fast at, as it was measured the first time.

    Processes that start together wait for the one that measures. Where the file cannot be written, each measures.

    Args:
        file: where it is remembered.
        name: of the machine, and of the device on it.
        cost: measures how many times as long bfloat16 takes.
        otherwise: the precision of a device that is not fast at bfloat16.
    """
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(file.with_suffix(".lock"), timeout=_PATIENCE):
            known = _read(file)
            if (before := known.get(name)) in (otherwise, "bf16-mixed"):
                return before
            measured = _chosen(cost(), otherwise)
            temporary = file.with_suffix(".tmp")
            temporary.write_text(json.dumps(known | {name: measured}, indent=1), encoding="utf-8")
            temporary.replace(file)
            return measured
    return _chosen(cost(), otherwise)


def _chosen(cost: float, otherwise: Precision) -> Precision:
    return "bf16-mixed" if cost < _ENOUGH else otherwise


def _read(file: Path) -> dict[str, Any]:
    """Machine or device → its precision; empty if the file is not there or damaged."""
    try:
        return dict(json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, RecursionError):
        return {}
