"""The corpora that a recipe can name."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data.corpora import Corpus, folder, multi30k, precomputed, xtd10
from data.corpora.coco import karpathy
from data.corpora.scenes import corpus as scenes


@dataclass(frozen=True)
class Reader:
    """How a corpus is read.

    Attributes:
        settings: its settings.
        read: its `read`.
        sources: the files whose content decides what `read` returns.
        named_from: the folder of the pictures that are called by their paths from it; None: paths decide nothing.
        brings_regions: whether it has regions of its own, so that none are extracted from pictures.
        test_only: all its images are for the test, so that nothing is prepared and trained: `evaluate` reads its files.
    """

    settings: type
    read: Callable[[Any, Path | None, Path], Corpus]
    sources: Callable[[Any, Path | None], list[Path]]
    named_from: Callable[[Any, Path | None], Path | None] = lambda settings, root: None
    brings_regions: Callable[[Any], bool] = lambda settings: getattr(settings, "regions", None) is not None
    test_only: bool = False


CORPORA = {
    "scenes": Reader(scenes.ScenesSettings, scenes.read, lambda settings, root: []),
    "multi30k": Reader(multi30k.Multi30kSettings, multi30k.read, multi30k.sources),
    "folder": Reader(
        folder.FolderSettings, folder.read, folder.sources, lambda settings, root: root and root / settings.pictures
    ),
    "karpathy": Reader(karpathy.KarpathySettings, karpathy.read, karpathy.sources),
    "precomputed": Reader(
        precomputed.PrecomputedSettings, precomputed.read, precomputed.sources, brings_regions=lambda settings: True
    ),
    "xtd10": Reader(xtd10.Xtd10Settings, xtd10.read, xtd10.sources, test_only=True),
}
