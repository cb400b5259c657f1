"""The sources of a gallery: pictures of a folder, or images of a region store; identified by their contents."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from data.errors import DataError
from data.pictures.folder import NO_PICTURES, is_text, pictures_in
from data.pictures.regions import RegionStore, read_standard
from pipeline.engine.files import digest_of
from pipeline.export.exported_model import ExportedModel
from pipeline.gallery.vector_cache import Arrays


class PictureFiles:
    """Picture files by name, read by the model's extractor.

    Args:
        paths: name → file.
    """

    def __init__(self, paths: Mapping[str, Path], workers: int = 1) -> None:
        self.paths, self.left = dict(paths), dict[str, str]()
        self.workers = workers
        self.store = None

    def state(self, name: str) -> str:
        """A stamp that changes with the file: size and date, or that it is gone."""
        try:
            return _stamp(self.paths[name])
        except OSError:
            return "gone"

    def digest(self, name: str) -> str:
        """Of the file's contents."""
        return digest_of(self.paths[name])

    def arrays(self, exported: ExportedModel, names: Sequence[str]) -> Iterator[Arrays | str]:
        """Regions and boxes of each picture, or why it cannot be read."""
        extractor = exported.require_pixels()
        paths = [self.paths[name] for name in names]
        for path, result in zip(paths, extractor.extract_readable(paths, self.workers), strict=True):
            if isinstance(result, str):
                yield result.removeprefix(f"{path}: ")
            else:
                yield {"regions": exported.standardised(result[0]), "boxes": result[1].astype(np.float32)}


class PictureFolder(PictureFiles):
    """Pictures of a folder; files of text and tables in it are not told among what is left out.

    Args:
        folder: with pictures, in folders of their own or not.

    Raises:
        DataError: there is no such folder, or no picture in it: it is another one, or its disk is not there.
    """

    def __init__(self, folder: Path, workers: int = 1) -> None:
        paths, left = pictures_in(folder)
        if not paths:
            raise DataError(f"{folder}: {NO_PICTURES}")
        super().__init__(paths, workers)
        self.left = {name: why for name, why in left.items() if not is_text(name)}


class StoredRegions:
    """Images of a region store, as a prepared corpus has them.

    Args:
        paths: picture files of some of them.
    """

    def __init__(self, store: RegionStore, paths: Mapping[str, Path]) -> None:
        self.store, self.left = store, dict[str, str]()
        self.standard = read_standard(store.folder)
        self.paths: dict[str, Path | None] = {name: paths.get(name) for name in store.ids}
        self._state = _stamp(store.file("regions.npy"))

    def state(self, name: str) -> str:
        """A stamp that changes with the store."""
        return self._state

    def digest(self, name: str) -> str:
        """Of the image's regions."""
        return hashlib.sha256(self.store.regions[self.store.rows([name])[0]].tobytes()).hexdigest()

    def arrays(self, exported: ExportedModel, names: Sequence[str]) -> Iterator[Arrays | str]:
        """Regions and boxes of each image."""
        for row in self.store.rows(names):
            yield {"regions": self.store.regions[row], "boxes": self.store.boxes[row]}


def _stamp(path: Path) -> str:
    """Size and date of a file."""
    stat = path.stat()
    return f"{stat.st_size}:{stat.st_mtime_ns}"


Pictures = PictureFiles | StoredRegions
