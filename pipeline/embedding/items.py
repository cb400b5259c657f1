"""What `embed` makes vectors of: captions of a file, or pictures of a folder; a part at a time."""

import hashlib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np

from data.lines import caption_lines
from data.vectors.vector_files import Part
from pipeline.errors import RecipeError
from pipeline.export.exported_model import ExportedModel
from pipeline.gallery.picture_sources import PictureFolder


class CaptionLines:
    """The captions of a text file, one a line; the id of a caption is the number of its line, from 1.

    Args:
        path: UTF-8, may be packed (`.gz`). Read line by line, never as a whole.
        language: of all captions; None: detected, each by itself.
    """

    size = 4096

    def __init__(self, path: Path, language: str | None) -> None:
        self.path, self.language, self.count = path, language, 0

    def require(self, exported: ExportedModel) -> None:
        """Refuse a language that the model was not trained on."""
        if self.language is not None:
            exported.require_language(self.language)

    def state(self) -> str:
        """A digest of language and captions; each line is checked, and counted.

        Raises:
            DataError: as `caption_lines`.
            RecipeError: the file has no line.
        """
        digest, self.count = hashlib.sha256(f"{self.language}\n".encode()), 0
        for text in caption_lines(self.path):
            digest.update(f"{text}\n".encode())
            self.count += 1
        if not self.count:
            raise RecipeError(f"{self.path}: no captions; expected a caption a line")
        return digest.hexdigest()

    def parts(self, exported: ExportedModel, done: int) -> Iterator[Part]:
        """Captions encoded in the order of their lines."""
        captions, first = islice(caption_lines(self.path), done * self.size, None), done * self.size + 1
        while texts := list(islice(captions, self.size)):
            ids = [str(number) for number in range(first, first + len(texts))]
            arbitrary = [number for number, text in zip(ids, texts, strict=True)
                         if not exported.reading(text, self.language).known]  # fmt: skip
            yield Part(ids, exported.encode(texts, self.language), {}, arbitrary)
            first += len(texts)


class Pictures:
    """The pictures of a folder and of those in it; the id of a picture is its path from the folder.

    What cannot be read is left out.

    Raises:
        DataError: there is no such folder, or no picture in it.
    """

    size = 256

    def __init__(self, folder: Path, workers: int) -> None:
        self.folder, self._found = folder, PictureFolder(folder, workers)
        self._names, self.count = list(self._found.paths), len(self._found.paths)

    def require(self, exported: ExportedModel) -> None:
        """Refuse a model that reads regions made elsewhere."""
        exported.require_pixels()

    def state(self) -> str:
        """A digest of the folder, and of name, size and date of each picture."""
        digest = hashlib.sha256(f"{self.folder.resolve()}\n".encode())
        for name in self._names:
            digest.update(f"{name}\n{self._found.state(name)}\n".encode())
        return digest.hexdigest()

    def parts(self, exported: ExportedModel, done: int) -> Iterator[Part]:
        """Pictures encoded in the order of their names."""
        names, beside = self._names[done * self.size :], {} if done else self._found.left
        read = zip(names, self._found.arrays(exported, names), strict=True)
        while some := list(islice(read, self.size)):
            left = {name: arrays for name, arrays in some if isinstance(arrays, str)}
            regions = [arrays["regions"] for _, arrays in some if not isinstance(arrays, str)]
            vectors = exported.encode_regions(np.stack(regions)).single().numpy() if regions else exported.encode([])
            yield Part([name for name, _ in some if name not in left], vectors, {**beside, **left})
            beside = {}


Items = CaptionLines | Pictures


def items_of(pictures: Path | None, captions: Path | None, language: str | None, workers: int) -> Items:
    """The items that a command names.

    Raises:
        DataError: they cannot be read.
        RecipeError: none or both are named, or a language of pictures.
    """
    if pictures is not None and captions is None:
        if language is not None:
            raise RecipeError(f"embed: --language {language} is for captions; leave it out with --pictures")
        return Pictures(pictures, workers)
    if captions is None or pictures is not None:
        raise RecipeError("embed: give --pictures FOLDER or --captions FILE, one of the two")
    return CaptionLines(captions, language)
