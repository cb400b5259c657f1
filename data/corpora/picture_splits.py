"""The splits of somebody's own pictures: as lines of captions give them, else drawn from the pictures' names."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from data.errors import DataError
from data.pictures.folder import copies_of


@dataclass
class PictureSplits:
    """The split of each picture; copies of a picture are in its split.

    Attributes:
        pictures: name → file.
        validation: share of the pictures without a split that are for validation.
        test: share of them that are for the test.
        given: picture → the split that the captions give it.
        places: picture → where it was given.
    """

    pictures: Mapping[str, Path]
    validation: float
    test: float
    given: dict[str, str] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)

    def give(self, name: str, split: str, here: str) -> None:
        """Note the split that a line gives a picture; all are given before any is read.

        Raises:
            DataError: it has another one already.
        """
        if (before := self.given.setdefault(name, split)) != split:
            raise DataError(
                f"{here}: picture {name!r} is in {split}, but in {before} at {self.places[name]}; give it one split"
            )
        self.places.setdefault(name, here)

    def of(self, name: str) -> str:
        """The split of a picture: given, or drawn by a number from 0 to 1 that its name alone decides."""
        if name in self.given:
            return self.given[name]
        first = self._copies.get(name, name)
        if first in self._given_to_copies:
            return self._given_to_copies[first]
        number = int.from_bytes(hashlib.sha256(first.encode()).digest()[:8]) / 2**64
        if number < self.test:
            return "test"
        return "val" if number < self.test + self.validation else "train"

    @cached_property
    def _copies(self) -> dict[str, str]:
        return copies_of(self.pictures)

    @cached_property
    def _given_to_copies(self) -> dict[str, str]:
        """The split of what a picture is a copy of, where the captions give one to it or to a copy of it."""
        return {self._copies.get(name, name): split for name, split in reversed(self.given.items())}
