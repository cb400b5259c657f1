"""Copies of a data root that can be spoiled: what the faults of `faults_text` and `faults_files` work on."""

import gzip
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np

from data.corpora.multi30k import Multi30kSettings
from tests.data.official import FILES, pack

PARTS = ("multi30k", "flickr8k_overlap/splits", "flickr8k_overlap/features", "tatoeba")
SPLITS = ("train", "val", "test")


class Copy:
    """A data root that may be spoiled: links to good files, which are replaced when they are written."""

    def __init__(self, source: Path, root: Path) -> None:
        self.root = root
        for part in PARTS:
            for path in (source / part).rglob("*"):
                if path.is_file():
                    (root / path.relative_to(source)).parent.mkdir(parents=True, exist_ok=True)
                    (root / path.relative_to(source)).symlink_to(path.resolve())
        self.pictures = root / "flickr8k_overlap" / "images"
        self.pictures.symlink_to((source / "flickr8k_overlap" / "images").resolve())
        self.lists = root / "flickr8k_overlap" / "splits"
        self.features = root / "flickr8k_overlap" / "features"
        self.ids = self.features / "ids.txt"
        self.parallel = root / "tatoeba" / "deu-eng.tsv.gz"
        self.changed: dict[str, object] = {}  # settings that are part of the fault

    def settings(self) -> Multi30kSettings:
        """Those of the recipe `multi30k-flickr8k`."""
        usual = {
            "splits": "flickr8k_overlap/splits", "regions": "flickr8k_overlap/features",
            "pictures": "flickr8k_overlap/images", "parallel": "tatoeba/deu-eng.tsv.gz",
        }  # fmt: skip
        return Multi30kSettings(**(usual | self.changed))

    def image(self, split: str, number: int = 0) -> str:
        """The name of an image of our own split."""
        return self.lines(self.lists / f"{split}.txt")[number]

    def where(self, image: str, task: str = "task2") -> tuple[str, int]:
        """The official split and line of an image."""
        for split, (name, _) in zip(SPLITS, FILES[task], strict=True):
            names = self.lines(self.root / "multi30k" / task / "image_splits" / name)
            if image in names:
                return split, names.index(image) + 1
        raise AssertionError(image)

    def list_of(self, split: str, task: str = "task2") -> Path:
        return self.root / "multi30k" / task / "image_splits" / dict(zip(SPLITS, FILES[task], strict=True))[split][0]

    def raw(self, split: str, language: str, number: int | None) -> Path:
        """The file of one caption number of task 2; None is task 1."""
        task, middle = ("task1", "") if number is None else ("task2", f".{number}")
        stem = dict(zip(SPLITS, FILES[task], strict=True))[split][1]
        return self.root / "multi30k" / task / "raw" / f"{stem}{middle}.{language}.gz"

    def caption(self, image: str, language: str = "en", number: int | None = 2) -> tuple[Path, int]:
        """File and line of a caption."""
        split, line = self.where(image)
        return self.raw(split, language, number), line

    def lines(self, path: Path) -> list[str]:
        raw = path.read_bytes()
        return (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode().split("\n")[:-1]

    def write(self, path: Path, content: list[str] | bytes | np.ndarray) -> Path:
        path.unlink(missing_ok=True)  # the link, never the good file
        if isinstance(content, bytes):
            path.write_bytes(content)
        elif isinstance(content, np.ndarray):
            np.save(path, content)
        else:
            pack(path, content)
        return path

    def edit(self, path: Path, line: int, text: str) -> str:
        """Replace one line; returns where it stands."""
        lines = self.lines(path)
        lines[line - 1] = text
        return f"{self.write(path, lines)}:{line}"

    def say(self, image: str, text: str, language: str = "en", number: int | None = 2) -> str:
        """Replace one caption; returns where it stands."""
        return self.edit(*self.caption(image, language, number), text)

    def own_pictures(self) -> Path:
        """The pictures' folder, now with files of its own, so that one can be spoiled."""
        good = self.pictures.resolve()
        self.pictures.unlink()
        self.pictures.mkdir()
        for path in good.iterdir():
            os.link(path, self.pictures / path.name)
        return self.pictures

    def array(self, name: str) -> np.ndarray:
        return np.load(self.features / f"{name}.npy")

    def change(self, name: str, change: Callable[[np.ndarray], None]) -> Path:
        """Change one array of the region store."""
        array = self.array(name)
        change(array)
        return self.write(self.features / f"{name}.npy", array)


Fault = Callable[[Copy], tuple[object, ...]]


class Faults(dict[str, Fault]):
    """Functions by name, added by decorating them: each spoils a copy and returns the words that must be said of it."""

    def __call__(self, spoil: Fault) -> Fault:
        self[spoil.__name__] = spoil
        return spoil
