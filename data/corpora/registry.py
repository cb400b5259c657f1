"""The corpora that a recipe can name."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data.corpora import Corpus, karpathy, multi30k, scenes


@dataclass(frozen=True)
class Reader:
    """How a corpus is read: its settings, its `read`, and the files whose content decides what `read` returns."""

    settings: type
    read: Callable[[Any, Path | None, Path], Corpus]
    sources: Callable[[Any, Path | None], list[Path]]


CORPORA = {
    "scenes": Reader(scenes.ScenesSettings, scenes.read, lambda settings, root: []),
    "multi30k": Reader(multi30k.Multi30kSettings, multi30k.read, multi30k.sources),
    "karpathy": Reader(karpathy.KarpathySettings, karpathy.read, karpathy.sources),
}
