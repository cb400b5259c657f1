"""A trained retrieval model as a folder that can be moved and shared, and what it makes of pictures and captions.

    finder = Finder.load("model")
    gallery = Gallery.open("gallery", finder)               # pipeline.gallery
    hits = gallery.search("zwei Hunde spielen im Schnee")

The folder holds `network.json`, `weights.safetensors` and `words.json` (with a pretrained text model also `text/`),
`regions.safetensors` with the standardisation of regions found in pixels, the recipe, a model card, and `model.json`
with a digest of each file. Nothing in it is a pickle.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from safetensors.numpy import load_file

from data.extractor import ExtractorSettings, extract
from data.languages import language_of
from data.text import TextInput
from data.translation import pad
from modules.retrieval_models.base import RetrievalModel
from modules.search import Encodings
from pipeline.errors import RecipeError
from pipeline.prepare import EXTRACTED
from pipeline.ranking import load_model, model_fingerprint

FORMAT = 1
ABOUT, STANDARD, TEXT = "model.json", "regions.safetensors", "text"
_BATCH = 128
Regions = tuple[NDArray[np.floating], NDArray[np.floating]]


@dataclass(frozen=True)
class Finder:
    """A trained retrieval model that encodes pictures and captions.

    Attributes:
        folder: where it was loaded from.
        name: of the model and what it was trained on (`san, mmt-f`).
        languages: that it was trained on, as codes.
        model: the network, ready to be used.
        text: what it reads words with.
        extractor: how regions are found in pixels; None for a model that reads regions made elsewhere.
        fingerprint: a digest of what decides the vectors.
    """

    folder: Path
    name: str
    languages: list[str]
    model: RetrievalModel
    text: TextInput
    extractor: ExtractorSettings | None
    fingerprint: str

    @classmethod
    def load(cls, folder: str | Path) -> "Finder":
        """Load what `pipeline.export` wrote; each file is checked first.

        Raises:
            RecipeError: a file is missing, has changed, or is of another format.
        """
        folder = Path(folder)
        about = read_about(folder)
        for name, digest in about["files"].items():
            path = folder / name
            if not path.is_file():
                raise RecipeError(f"{path}: no such file, though {ABOUT} names it; get the model folder again")
            if digest_of(path) != digest:
                raise RecipeError(f"{path}: is not what was exported; get the model folder again")
        pretrained = str(folder / TEXT) if (folder / TEXT).is_dir() else None
        module, text = load_model(folder, about["languages"], pretrained)
        extractor = None if about["regions"] is None else dict(about["regions"])
        if extractor is not None and extractor.pop("version") != EXTRACTED:
            raise RecipeError(f"{folder}: its regions were found by another version of the extractor; train it again")
        settings = None if extractor is None else ExtractorSettings(**extractor)
        fingerprint = model_fingerprint(folder)
        return cls(folder, about["name"], about["languages"], module.model, text, settings, fingerprint)

    def encode_pictures(self, pictures: Sequence[str | Path | Image.Image]) -> Encodings:
        """Encode pictures, files or images of any size and mode.

        Raises:
            DataError: one cannot be read.
            RecipeError: the model reads regions made elsewhere.
        """
        return self.encode_regions(np.stack([self.regions_of(picture)[0] for picture in pictures]))

    def regions_of(self, picture: str | Path | Image.Image) -> Regions:
        """Regions (R, D) of a picture as the model reads them, and their boxes (R, 4) in 0…1; raises as above."""
        if self.extractor is None:
            raise RecipeError(
                f"{self.folder}: this model reads regions that were made elsewhere, not pixels; search the pictures of "
                "its corpus, or train one on regions found in pixels"
            )
        found, boxes = extract(Path(picture) if isinstance(picture, str) else picture, self.extractor)
        return self.standardised(found), boxes

    def standardised(self, regions: NDArray[np.floating]) -> NDArray[np.floating]:
        """Regions (…, D) as the extractor leaves them, centred and scaled as those that the model was trained on."""
        mean, scale = self._standard
        return ((regions.astype(np.float16).astype(np.float32) - mean) / scale).astype(np.float16)

    def encode_regions(self, regions: NDArray[np.floating]) -> Encodings:
        """Encode images by their regions (N, R, D).

        Raises:
            RecipeError: regions are of another width than the model reads.
        """
        if regions.ndim != 3 or regions.shape[2] != self.model.region_dim:
            raise RecipeError(f"{self.folder}: the model reads regions (N, R, {self.model.region_dim}), these are "
                              f"{regions.shape}")  # fmt: skip
        parts: list[torch.Tensor] = []
        with torch.inference_mode():
            for start in range(0, len(regions), _BATCH):
                some = torch.from_numpy(regions[start : start + _BATCH].astype(np.float32))
                parts += Encodings.of(self.model.encode_images(some, torch.ones(some.shape[:2]).bool())).parts
        return Encodings(parts)

    def encode_captions(self, texts: Sequence[str], language: str | None = None) -> Encodings:
        """Encode captions or queries.

        Args:
            texts: surface sentences.
            language: of all of them; None: told apart, each by itself.

        Raises:
            RecipeError: the model was not trained on that language.
        """
        spoken = [self.language_of(text) if language is None else self.require_language(language) for text in texts]
        numbers = [self.text.encode(text, one) for text, one in zip(texts, spoken, strict=True)]
        places = torch.tensor([self.model.languages.index(one) for one in spoken])
        order = sorted(range(len(texts)), key=lambda place: len(numbers[place]))
        found: dict[int, torch.Tensor] = {}
        with torch.inference_mode():
            for start in range(0, len(order), _BATCH):
                some = order[start : start + _BATCH]
                tokens = pad([numbers[place] for place in some])
                lengths = torch.tensor([len(numbers[place]) for place in some])
                encoded = self.model.encode_captions(tokens, lengths, places[some])
                found |= zip(some, Encodings.of(encoded).parts, strict=True)
        return Encodings([found[place] for place in range(len(texts))])

    def require_language(self, language: str) -> str:
        """The language, if the model was trained on it; else a RecipeError."""
        if language not in self.languages:
            known = ", ".join(self.languages)
            raise RecipeError(f"language {language!r}: the model {self.folder} was trained on {known}; choose of those")
        return language

    def language_of(self, text: str) -> str:
        """Which of the model's languages a sentence is in."""
        return language_of(text, self.languages)

    @cached_property
    def _standard(self) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
        arrays = load_file(self.folder / STANDARD)
        return arrays["mean"], arrays["scale"]


def read_about(folder: Path) -> dict[str, Any]:
    """What `model.json` says of an exported model.

    Raises:
        RecipeError: there is none, or it is damaged or of another format.
    """
    path = folder / ABOUT
    try:
        about = json.loads(path.read_text(encoding="utf-8"))
        kinds = {"format": int, "name": str, "languages": list, "files": dict}
        whole = all(isinstance(about[name], kind) for name, kind in kinds.items())
        if not whole or not isinstance(about["regions"], dict | None):
            raise ValueError("it is not complete")
        if any(Path(name).is_absolute() or ".." in Path(name).parts for name in about["files"]):
            raise ValueError("it names files outside the folder")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RecipeError(f"{path}: no exported model here ({error}); run `make export`") from None
    if about["format"] != FORMAT:
        raise RecipeError(f"{path}: format {about['format']}, this code reads {FORMAT}; run `make export` again")
    return dict(about)


def digest_of(path: Path) -> str:
    """SHA-256 of a file's contents."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
