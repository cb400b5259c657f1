"""A trained retrieval model as a folder that can be moved and shared, and its encodings of pictures and captions.

    exported = ExportedModel.from_pretrained("model")  # or a name on the hub, "you/name"
    vectors = exported.encode_captions(["zwei Hunde spielen im Schnee"]).single()

The folder holds `network.json`, `weights.safetensors` and `words.json` (with a pretrained text model also `text/`),
`regions.safetensors` with the standardisation of regions found in pixels (those of a pretrained network: also
`vision/`; a model with an image encoder has neither), the recipe and its translators (`translators/`, with what
re-ranks them; `casing.json` with words as people write them), a model card, and `model.json` with a digest of each
file. Nothing in it is a pickle.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from data.pictures.extractor import Extractor
from data.pictures.regions import standardised
from data.text.language_codes import language_called
from data.text.languages import language_of
from data.text.reading import Reading, reading_of
from data.text.text_inputs import TextInput
from modules.retrieval_models.base import RetrievalModel
from modules.retrieval_models.encoded import all_images, sorted_captions
from modules.search.encodings import Encodings
from pipeline.engine.artifacts import read_json
from pipeline.errors import RecipeError, as_recipe_error, whole_path
from pipeline.export.exported_files import (
    ABOUT,
    CASING,
    RERANKER,
    TRANSLATORS,
    check_files,
    listed_items,
    require_nothing_elsewhere,
    require_text_models,
    require_texts,
    translators_in,
)
from pipeline.export.hub import folder_of
from pipeline.export.picture_reading import Regions, picture_reader
from pipeline.training.model_files import load_model, model_fingerprint
from pipeline.translation.translator_files import RETRIEVAL

if TYPE_CHECKING:
    from pipeline.export.exported_translators import ExportedTranslators

_BATCH = 128


@dataclass(frozen=True)
class ExportedModel:
    """A trained retrieval model that encodes pictures and captions.

    Attributes:
        folder: where it was loaded from.
        name: of the model and what it was trained on (`san, mmt-f`).
        languages: that it was trained on, as codes.
        model: the network, ready to be used.
        text: what it reads words with.
        extractor: how regions are found in pixels, or pixels are read for an image encoder; None for a model that reads
            regions made elsewhere.
        standard: mean and scale (D,) of those regions; None for pixels.
        reads: a digest of how regions are made from pixels; None for a model that reads regions made elsewhere.
        fingerprint: a digest of what decides the vectors.
        translator_names: `mt-en-de`, `mmt-en-de`, `mt+channel-en-de` …, those of its recipe.
        reranker: a second model that reorders the first results of this one; None without.
        first_k: how many results it reorders.
        first_right: by language, the share of test captions in percent whose picture is found first; none where that is
            not known, as of a reranker that was tested with another model.
    """

    folder: Path
    name: str
    languages: list[str]
    model: RetrievalModel
    text: TextInput
    extractor: Extractor | None
    standard: Regions | None
    reads: str | None
    fingerprint: str
    translator_names: list[str]
    reranker: "ExportedModel | None" = None
    first_k: int = 0
    first_right: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    @as_recipe_error()
    def load(cls, folder: str | Path) -> "ExportedModel":
        """Load what `pipeline.export.export` wrote; each file is checked first.

        Raises:
            RecipeError: a file is missing, has changed, or is of another format.
        """
        folder = whole_path(folder)
        about = check_files(folder)
        require_nothing_elsewhere(folder, about["files"])
        names = translators_in(folder, about["files"])
        require_text_models([folder, folder / RERANKER, *(folder / TRANSLATORS / name / RETRIEVAL for name in names)])
        model, text = load_model(folder)
        if unknown := set(about["languages"]) - set(model.languages):
            raise RecipeError(
                f"{folder / ABOUT}: the network does not know {min(unknown)!r}; get the model folder again"
            )
        extractor = standard = reads = None
        fingerprint = model_fingerprint(folder)
        if about["regions"] is not None:
            extractor, standard, reads = picture_reader(folder, about, model.input_dim)
            fingerprint = hashlib.sha256(f"{fingerprint} {reads}".encode()).hexdigest()[:16]
        exported = cls(
            folder, about["name"], about["languages"], model, text, extractor, standard, reads, fingerprint, names,
            first_right=_first_right(about),
        )  # fmt: skip
        second = about.get("reranker")
        return exported if second is None else _with_reranker(exported, second)

    @classmethod
    def from_pretrained(cls, name: str | Path, revision: str | None = None) -> "ExportedModel":
        """Load a model from a folder, or by its name on the hub, `USER/NAME`; each file is checked first.

        Args:
            name: a folder that is there is taken; else a name on the hub, whose files are cached on this machine.
            revision: a branch, tag or commit on the hub; None: the newest of its main branch.

        Raises:
            RecipeError: there is no such model, the hub cannot be reached, or `load` refuses the files.
        """
        return cls.load(folder_of(name, revision))

    @cached_property
    def translators(self) -> "ExportedTranslators":
        """Its translators, ready to be used."""
        from pipeline.export.exported_translators import ExportedTranslators  # imports Lightning: seconds

        path = self.folder / CASING
        forms = read_json(path, {str: [str]}) if path.exists() else None
        return ExportedTranslators(self.folder / TRANSLATORS, self.translator_names, forms)

    def encode(
        self, items: Sequence[str] | Sequence[Path | Image.Image], language: str | None = None
    ) -> NDArray[np.float32]:
        """Vectors (N, H) of captions or of pictures, as `encode_captions` and `encode_pictures` make them.

        A text is a caption, a path or an image is a picture. Pictures are read in batches.

        Args:
            items: captions alone, or pictures alone; of none, the array is (0, H).
            language: of all captions; None: detected, each by itself.

        Raises:
            DataError: a picture cannot be read.
            RecipeError: no single vectors, an unknown language, regions made elsewhere; captions among pictures, or
                one item that is in no list.
        """
        self.require_single()
        if isinstance(items, str | Path | Image.Image):
            raise RecipeError("encode: expected a list, of captions or of pictures (Path or image)")
        given: list[str | Path | Image.Image] = listed_items("encode", items, "captions or pictures")
        texts = [item for item in given if isinstance(item, str)]
        pictures = [item for item in given if not isinstance(item, str)]
        if pictures and (texts or language is not None):
            raise RecipeError("encode: expected captions, or pictures (Path or image) without a language")
        if not pictures:
            return self.encode_captions(texts, language).single().numpy()
        starts = range(0, len(pictures), _BATCH)
        return np.concatenate([self.encode_pictures(pictures[at : at + _BATCH]).single().numpy() for at in starts])

    def encode_pictures(self, pictures: Sequence[str | Path | Image.Image]) -> Encodings:
        """Encode pictures, files or images of any size and mode.

        Raises:
            DataError: one cannot be read.
            RecipeError: there is none, one is in no list, or the model reads regions made elsewhere.
        """
        single = isinstance(pictures, str | Path | Image.Image)
        if single or not (pictures := listed_items("encode_pictures", pictures, "pictures")):
            raise RecipeError("encode_pictures: expected a list of one picture or more")
        return self.encode_regions(np.stack([self.regions_of(picture)[0] for picture in pictures]))

    def regions_of(self, picture: str | Path | Image.Image) -> Regions:
        """Regions (R, D) of a picture, or its pixels (1, 3·S²), as the model is given them, and boxes (R, 4) in 0…1.

        Raises:
            DataError: it cannot be read.
            RecipeError: it is no picture, or the model reads regions made elsewhere.
        """
        if not isinstance(picture, str | Path | Image.Image):
            raise RecipeError(f"{picture!r:.80}: expected a picture, a path or an image, not {type(picture).__name__}")
        regions, boxes = self.require_pixels().extract(Path(picture) if isinstance(picture, str) else picture)
        return self.standardised(regions), boxes

    def require_pixels(self) -> Extractor:
        """What reads pictures; a RecipeError if the model reads regions made elsewhere."""
        if self.extractor is None:
            raise RecipeError(
                f"{self.folder}: this model reads regions that were made elsewhere, not pixels; search the pictures of "
                "its corpus, or train one on regions found in pixels"
            )
        return self.extractor

    def standardised(self, regions: NDArray[np.floating]) -> NDArray[np.floating]:
        """Regions (…, D) as the extractor leaves them, centred and scaled as those that the model was trained on."""
        return regions if self.standard is None else standardised(regions.astype(np.float16), *self.standard)

    def require_single(self) -> None:
        """Refuse a model without one vector an item, compared by inner product, by a RecipeError."""
        if self.model.score != "inner product":
            raise RecipeError(f"{self.folder}: {self.name} has no single vectors to compare by inner product; take "
                              "such a model (san, dan, vse-inf …)")  # fmt: skip

    def require_alike(self, second: "ExportedModel") -> None:
        """Refuse, by a RecipeError, a second model that reads other regions than this one."""
        if second.reads != self.reads:
            raise RecipeError(
                f"{second.folder}: it reads other regions than {self.name}; a second model must be trained on the same "
                "corpus with the same `regions`"
            )

    def encode_regions(self, regions: NDArray[np.floating]) -> Encodings:
        """Encode images by what `regions_of` gives of each, (N, R, D); RecipeError if it is of another width."""
        self.require_width(regions)
        return all_images(self.model, regions)

    def require_width(self, regions: NDArray[np.floating]) -> None:
        """Refuse regions (N, R, D) of another width than the model reads, by a RecipeError."""
        if regions.ndim != 3 or regions.shape[2] != self.model.input_dim:
            raise RecipeError(f"{self.folder}: the model reads regions (N, R, {self.model.input_dim}), these are "
                              f"{regions.shape}")  # fmt: skip

    def score(self, images: Encodings, captions: Encodings) -> torch.Tensor:
        """The scores (I, C) of encoded images and captions."""
        with torch.no_grad():
            return self.model.similarity(images[:], captions[:])

    def encode_captions(self, texts: Sequence[str], language: str | Sequence[str] | None = None) -> Encodings:
        """Encode captions or queries.

        Args:
            texts: surface sentences.
            language: of all of them, or of each; None: detected, each by itself.

        Raises:
            RecipeError: the model was not trained on that language, one text is in no list, an item is no text, or
                there are not as many languages as captions.
        """
        texts = require_texts("encode_captions", texts)
        if not texts:  # (0, H)
            return self.encode_captions(["a"], self.languages[0]).select(slice(0, 0))
        given: list[str | None] = [language] * len(texts) if isinstance(language, str | None) else list(language)
        if len(given) != len(texts):
            raise RecipeError(f"encode_captions: {len(given):,} languages of {len(texts):,} captions; expected one of "
                              "all, or one of each")  # fmt: skip
        languages = [self.language_of(text) if one is None else self.require_language(one)
                     for text, one in zip(texts, given, strict=True)]  # fmt: skip
        return sorted_captions(self.model, self.text.encode, list(zip(texts, languages, strict=True)))

    def require_language(self, language: str) -> str:
        """The code of a language, as people write it (`de`, `DE`, `German`), if the model was trained on it.

        Raises:
            RecipeError: it was not.
        """
        if not isinstance(language, str):
            raise RecipeError(f"language {language!r:.80}: expected the code or the name of one")
        if language not in self.languages and (language := language_called(language) or language) not in self.languages:
            known = ", ".join(self.languages)
            raise RecipeError(f"language {language!r}: the model {self.folder} was trained on {known}; choose of those")
        return language

    def language_of(self, text: str, languages: Sequence[str] | None = None) -> str:
        """Which language a sentence is in: by the words that translators know, then by its letters.

        Args:
            text: the sentence.
            languages: that it may be in; None: those of the model.

        Raises:
            RecipeError: it is no text, or the languages are in no list.
        """
        require_texts("language_of", [text])
        if isinstance(languages, str):
            raise RecipeError(f"language_of: languages is {languages!r}; expected a list, [{languages!r}]")
        return language_of(text, self.translators.knowing(text, languages or self.languages))

    def reading(self, text: str, language: str | None = None) -> Reading:
        """How the model reads a sentence: its unknown words, and its language.

        Args:
            text: the sentence.
            language: of it; None: detected.

        Raises:
            RecipeError: the model was not trained on that language, or it is no text.
        """
        require_texts("reading", [text])
        read_as = self.language_of(text) if language is None else self.require_language(language)
        return reading_of(text, self.text.read_words(text, read_as), self.languages, read_as, language is None)


def _with_reranker(exported: ExportedModel, about: Mapping[str, Any]) -> ExportedModel:
    """An exported model with the second model in its folder."""
    folder = exported.folder / RERANKER
    try:
        name, languages, first_k = str(about["name"]), list(about["languages"]), int(about["first_k"])
    except (KeyError, TypeError, ValueError) as error:
        raise RecipeError(f"{exported.folder / ABOUT}: reranker is not complete ({error!r}); export it again") from None
    model, text = load_model(folder)
    if model.input_dim != exported.model.input_dim or not {*languages} <= {*model.languages}:
        raise RecipeError(f"{folder}: not a reranker of {exported.name}; get the model folder again")
    second = replace(
        exported, folder=folder, name=name, languages=languages, model=model, text=text, translator_names=[],
        fingerprint=model_fingerprint(folder),
    )  # fmt: skip
    return replace(exported, reranker=second, first_k=first_k, first_right=_first_right(about))


def _first_right(about: Mapping[str, Any]) -> dict[str, float]:
    """R@1 of the test captions of each language that the model was trained on."""
    test = about.get("test") or {}
    return {language: float(test[language]["t2i_r1"]) for language in about["languages"] if language in test}
