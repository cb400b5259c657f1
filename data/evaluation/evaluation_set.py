"""What a model is tested on beside its own test: captions by people, and their images."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from data.captions.table import HUMAN, Caption
from data.errors import DataError

ALL = "all"
"""The split of a set none of whose splits is named."""


@dataclass(frozen=True)
class EvaluationSet:
    """Captions by people, and their images.

    Attributes:
        label: of the corpus.
        split: of the captions.
        captions: of one split, in any language.
        pictures: image id → picture file, of those that are at hand.
        regions: folder of the region store of its images, as its recipe has made or brought it; None of a folder.
    """

    label: str
    split: str
    captions: Sequence[Caption]
    pictures: Mapping[str, Path]
    regions: Path | None = None

    @classmethod
    def of_split(
        cls, label: str, split: str | None, captions: Iterable[Caption], pictures: Mapping[str, Path],
        regions: Path | None = None,
    ) -> "EvaluationSet":  # fmt: skip
        """What people have written of one split; None: of all.

        Raises:
            DataError: people have written no caption of that split.
        """
        human = [caption for caption in captions if caption.source == HUMAN]
        if split is None:
            return cls(label, ALL, human, pictures, regions)
        chosen = [caption for caption in human if caption.split == split]
        if not chosen:
            splits = ", ".join(sorted({caption.split for caption in human})) or "none"
            raise DataError(
                f"--split {split}: {label} has no captions by people there, but in {splits}; name one of these"
            )
        return cls(label, split, chosen, pictures, regions)

    @property
    def languages(self) -> list[str]:
        """Those of the captions, sorted."""
        return sorted({caption.language for caption in self.captions})

    @property
    def images(self) -> list[str]:
        """The images that the captions are about, in their order."""
        return list(dict.fromkeys(caption.image_id for caption in self.captions))
