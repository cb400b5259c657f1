"""What a model has seen in training: hashes of image names, of picture files and of sentences.

The hashes have 63 bits, sorted, in one safetensors file: 8 bytes an image, a picture and a sentence.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.numpy import save_file

from data.batches.taught import TEXT
from data.errors import DataError
from data.pictures.folder import name_of
from data.text.sentences import RULE, sentence_hash

TRAIN, VAL = "train", "val"
_RULE = "sentences"  # in the metadata of the file
_KINDS = ("names", "files", "sentences")
Hashes = NDArray[np.int64]


class Overlap(NamedTuple):
    """How many of some images and captions a model has seen.

    Attributes:
        names: images whose name it knows; None where names cannot be compared.
        pictures: images whose picture file it has seen, byte for byte; None where there are no files to compare.
        sentences: captions that it has seen, as `normalise_sentence` compares them, in any language; None where
            another version compared them by another rule.
    """

    names: int | None
    pictures: int | None
    sentences: int | None


@dataclass(frozen=True)
class TrainingHashes:
    """Hashes of what a model was trained on, and of what its epoch was chosen on.

    Attributes:
        hashes: split (`TRAIN`, `VAL`) → kind (`names`, `files` of pictures, `sentences`) → sorted hashes, each once.
        rule: by which sentences were compared (`data.text.sentences.RULE`).
    """

    hashes: Mapping[str, Mapping[str, Hashes]]
    rule: int = RULE

    @classmethod
    def of_rows(cls, rows: Mapping[str, Sequence[Mapping[str, Any]]], digests: Mapping[str, str]) -> "TrainingHashes":
        """Those of captions and their images.

        Args:
            rows: split (`TRAIN`, `VAL`) → rows of caption tables; an image that is a sentence counts as one.
            digests: image id → SHA-256 of its picture file, of those that are at hand.
        """
        return cls({split: _hashes(own, digests) for split, own in rows.items()})

    def save(self, path: Path) -> None:
        """Write them."""
        arrays = {f"{split}.{kind}": hashes for split, of in self.hashes.items() for kind, hashes in of.items()}
        save_file(arrays, path, {_RULE: str(self.rule)})

    @classmethod
    def load(cls, path: Path) -> "TrainingHashes":
        """Those that `save` wrote.

        Raises:
            DataError: they are something else.
            Exception: of safetensors, which has its own errors.
        """
        with safe_open(path, "numpy") as file:
            rule = int((file.metadata() or {}).get(_RULE, 1))
            hashes = {split: {kind: file.get_tensor(f"{split}.{kind}") for kind in _KINDS} for split in (TRAIN, VAL)}
        if any(array.dtype != np.int64 or array.ndim != 1 for of in hashes.values() for array in of.values()):
            raise DataError("expected whole numbers")
        return cls(hashes, rule)

    def overlap(
        self, split: str, names: Sequence[str] | None, pictures: Sequence[int] | None, sentences: Sequence[str]
    ) -> Overlap:
        """How much of some data was seen.

        Args:
            split: `TRAIN`, or `VAL`: seen only when the epoch was chosen.
            names: ids of images; None: they cannot be compared.
            pictures: `picture_hash` of the files that are at hand; None: there are none.
            sentences: captions.
        """
        known = self.hashes[split]
        compared = pictures if len(known["files"]) else None
        return Overlap(
            None if names is None else _count(map(name_hash, names), known["names"]),
            None if compared is None else _count(compared, known["files"]),
            _count(map(sentence_hash, sentences), known["sentences"]) if self.rule == RULE else None,
        )


def name_hash(image_id: str) -> int:
    """A number that images of one name share, in whatever corpus (`data.pictures.folder.name_of`)."""
    digest = hashlib.blake2b(name_of(image_id).encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1  # 63 bits, as those of `sentence_hash`


def picture_hash(digest: str) -> int:
    """A number that equal picture files share, from the SHA-256 of their contents."""
    return int(digest[:16], 16) >> 1


def _hashes(rows: Sequence[Mapping[str, Any]], digests: Mapping[str, str]) -> dict[str, Hashes]:
    images = dict.fromkeys(row["image_id"] for row in rows if not row["image_id"].startswith(TEXT))
    originals = {row["image_id"].removeprefix(TEXT) for row in rows if row["image_id"].startswith(TEXT)}
    kinds: dict[str, Iterable[int]] = {
        "names": map(name_hash, images),
        "files": (picture_hash(digests[image]) for image in images if image in digests),
        "sentences": map(sentence_hash, chain(originals, (row["text"] for row in rows))),
    }
    return {kind: np.unique(np.fromiter(of, np.int64)) for kind, of in kinds.items()}


def _count(hashes: Iterable[int], known: Hashes) -> int:
    return int(np.isin(np.fromiter(hashes, np.int64), known).sum())
