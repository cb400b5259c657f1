"""Arrays on disk by a digest of the content they were computed from, so that they are not computed again."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from pipeline.engine.artifacts import has_form
from pipeline.engine.files import write_atomically
from pipeline.engine.machine_errors import of_machine
from pipeline.gallery.hits import GalleryError, to_index

Arrays = dict[str, NDArray[Any]]

_FEW = 16  # rows of a file that are read by themselves


class VectorCache:
    """Arrays kept by the content they were computed from, several of them a file.

    Args:
        folder: of the files; made when something is added.
        mend: delete what is damaged, to be computed again; only for the holder of the gallery's lock.
    """

    def __init__(self, folder: Path, mend: bool = False) -> None:
        self.folder = folder
        self._place = self._listed(mend)

    def _listed(self, mend: bool = False) -> dict[str, tuple[str, int]]:
        """The file of each digest, and its row there."""
        places: dict[str, tuple[str, int]] = {}
        for path in sorted(self.folder.glob("*.safetensors")):
            try:
                with safe_open(path, "numpy") as file:
                    digests = json.loads(file.metadata()["digests"])
                if not digests or not has_form(digests, [str]):
                    raise ValueError("no digests")
            except FileNotFoundError as error:  # cleared away just now, or a file that may not be read
                if (machine := of_machine(error, path)) is not None:
                    raise machine from None
                continue
            except (SafetensorError, ValueError, KeyError, TypeError, RecursionError):
                if mend:
                    path.unlink(missing_ok=True)
                continue
            places |= {digest: (path.name, row) for row, digest in enumerate(digests)}
        return places

    def __contains__(self, digest: str) -> bool:
        return digest in self._place

    def add(self, digests: Sequence[str], arrays: Arrays) -> None:
        """Keep rows of arrays, a digest a row; whole or not at all."""
        name = hashlib.sha256("".join(digests).encode()).hexdigest()[:16] + ".safetensors"
        write_atomically(self.folder / name, save(arrays, metadata={"digests": json.dumps(list(digests))}))
        self._place |= {digest: (name, row) for row, digest in enumerate(digests)}

    def take(self, digests: Sequence[str], array: str) -> NDArray[Any]:
        """Rows of an array, in the given order.

        Raises:
            GalleryError: some are no longer there.
        """
        try:
            return self._taken(digests, array)
        except GalleryError:
            self._place = self._listed()  # after an update they may be in other files
            return self._taken(digests, array)

    def _taken(self, digests: Sequence[str], array: str) -> NDArray[Any]:
        wanted: dict[str, list[tuple[int, int]]] = {}
        for place, digest in enumerate(digests):
            if digest not in self._place:
                raise GalleryError(
                    f"{self.folder}: the gallery was updated since it was opened, or is damaged; open it again, or "
                    f"run {to_index(self.folder.parents[2])}"
                )
            name, row = self._place[digest]
            wanted.setdefault(name, []).append((place, row))
        gathered: NDArray[Any] | None = None
        for name, rows in wanted.items():
            try:
                with safe_open(self.folder / name, "numpy") as file:
                    part = file.get_tensor(array) if len(rows) > _FEW else file.get_slice(array)
                    taken = [part[number] for _, number in rows]
            except (OSError, SafetensorError, TypeError) as error:  # TypeError: numbers that numpy does not have
                raise GalleryError(
                    f"{self.folder / name}: not readable ({error}); open the gallery again, or run "
                    f"{to_index(self.folder.parents[2])}"
                ) from None
            if gathered is None:
                gathered = np.empty((len(digests), *taken[0].shape), taken[0].dtype)
            gathered[[place for place, _ in rows]] = taken
        if gathered is None:
            raise ValueError("nothing to take")
        return gathered

    def keep(self, digests: set[str]) -> None:
        """Delete the files that hold none of these."""
        used = {name for digest, (name, _) in self._place.items() if digest in digests}
        for path in [*self.folder.glob("*.safetensors"), *self.folder.glob("*.tmp")]:
            if path.name not in used:
                path.unlink(missing_ok=True)
        self._place = {digest: place for digest, place in self._place.items() if place[0] in used}
