"""What an exported model has seen in training: hashes of image names, of picture files and of sentences.

A figure of the model on other data says how much of that data is among them. The hashes have 63 bits, sorted, in one
safetensors file: 8 bytes an image, a picture and a sentence. What pretrained networks and translators have learned from
is not in it.
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

from data.captions import HUMAN
from data.pictures import name_of
from data.sentences import RULE, sentence_hash
from data.slots import parse_group
from data.taught import TEXT
from pipeline.corpus.prepare import pictures_of
from pipeline.engine.console import info_aside
from pipeline.engine.job import Job
from pipeline.engine.machine_errors import of_machine
from pipeline.engine.workspace import Workspace
from pipeline.errors import RecipeError
from pipeline.vectors.teaching import rows_of, teacher_of

SEEN = "seen.safetensors"
TRAIN, VAL = "train", "val"
_RULE = "sentences"  # in the metadata of the file
_KINDS = ("names", "files", "sentences")
Hashes = NDArray[np.int64]


class Overlap(NamedTuple):
    """How many of some images and captions a model has seen.

    Attributes:
        names: images whose name it knows; None where names cannot be compared.
        pictures: images whose picture file it has seen, byte for byte; None where there are no files to compare.
        sentences: captions that it has seen, as `normalise_sentence` compares them, in any language; None where an
            earlier version compared them by another rule.
    """

    names: int | None
    pictures: int | None
    sentences: int | None


@dataclass(frozen=True)
class TrainingHashes:
    """Hashes of what a model was trained on, and of what its epoch was chosen on.

    Attributes:
        hashes: split (`TRAIN`, `VAL`) → kind (`names`, `files` of pictures, `sentences`) → sorted hashes, each once.
        rule: by which sentences were compared (`data.sentences.RULE`).
    """

    hashes: Mapping[str, Mapping[str, Hashes]]
    rule: int = RULE

    @classmethod
    def of(cls, trained: Job, workspace: Workspace) -> "TrainingHashes | None":
        """What the training of a retrieval model, and of its teacher, has seen: captions, their images, validation.

        Pictures that are not at hand, or cannot be read, have no hash. None if a table of captions is gone.
        """
        split: dict[str, list[dict[str, Any]]] = {TRAIN: [], VAL: []}
        for training in filter(None, (trained, teacher_of(trained))):
            if training.settings["epochs"] and not _add(training, workspace, split):
                return None
        corpus = workspace.folder(trained.inputs["corpus"])
        images, pictures = {row["image_id"] for own in split.values() for row in own}, pictures_of(corpus)
        digest_of = workspace.digests(path for name, path in pictures.items() if name in images)
        digests = {name: digest_of[path] for name, path in pictures.items() if path in digest_of}
        return cls({name: _hashes(own, digests) for name, own in split.items()})

    def save(self, path: Path) -> None:
        """Write them."""
        arrays = {f"{split}.{kind}": hashes for split, of in self.hashes.items() for kind, hashes in of.items()}
        save_file(arrays, path, {_RULE: str(self.rule)})

    @classmethod
    def load(cls, folder: Path) -> "TrainingHashes | None":
        """Those of an exported model; None if it was exported without them.

        Raises:
            RecipeError: they are damaged.
        """
        path = folder / SEEN
        if not path.is_file():
            return None
        try:
            with safe_open(path, "numpy") as file:
                rule = int((file.metadata() or {}).get(_RULE, 1))
                hashes = {
                    split: {kind: file.get_tensor(f"{split}.{kind}") for kind in _KINDS} for split in (TRAIN, VAL)
                }
            if any(array.dtype != np.int64 or array.ndim != 1 for of in hashes.values() for array in of.values()):
                raise ValueError("expected whole numbers")
        except Exception as error:  # safetensors raises its own error
            step = "get the model folder again, or export it again"
            raise of_machine(error, path) or RecipeError(f"{path}: not readable ({error!r}); {step}") from None
        if rule != RULE:
            info_aside(f"{folder}: exported by another version, which compared sentences in another way: which ones it "
                       "has seen is not known; export it again")  # fmt: skip
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


def _add(trained: Job, workspace: Workspace, split: dict[str, list[dict[str, Any]]]) -> bool:
    """Add the rows of the captions that a training has seen; false if a table of captions is gone."""
    slots = [slot for text in trained.settings["groups"] for slot in parse_group(text)]
    types, sources = {slot.type for slot in slots}, {slot.source for slot in slots} - {HUMAN}
    tables = {name: trained.inputs[name] for name in ("corpus", *sorted(sources))}
    if not all(map(workspace.done, tables.values())):
        return False
    for row in rows_of({name: workspace.folder(job) for name, job in tables.items()}, types):
        if row["split"] == VAL or (row["split"] == TRAIN and f"{row['language']}/{row['source']}" in types):
            split[row["split"]].append(row)
    return True


def name_hash(image_id: str) -> int:
    """A number that images of one name share, in whatever corpus (`data.pictures.name_of`)."""
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
