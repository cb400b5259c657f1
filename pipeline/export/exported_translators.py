"""The translators of an exported model: one sentence at a time, with its picture's regions or without."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from data.text.padding import pad
from data.text.reading import Reading, Words, reading_of
from data.text.tokenisation import BEGIN, END, SubWords
from data.translators.casing import Casing
from modules.translators.beam import BeamSettings
from modules.translators.registry import Searched, translate
from pipeline.errors import RecipeError, as_recipe_error
from pipeline.export.exported_files import require_texts
from pipeline.translation.translator_files import SOURCE_WORDS, load_sub_words, load_translator, needs_regions


class Translation(str):
    """A translation; empty if no word of the sentence is known.

    Attributes:
        reading: how the translator reads the sentence: its unknown words, and the language that it looks like.
    """

    reading: Reading

    def __new__(cls, text: str, reading: Reading) -> "Translation":
        """The text, with its reading."""
        made = super().__new__(cls, text)
        made.reading = reading
        return made

    def __getnewargs__(self) -> Any:
        """What a copy, or another process, makes it of."""
        return str(self), self.reading


class ExportedTranslators:
    """Translates with what lies in a folder, `mt-de-en`, `mmt-en-de` …; each is loaded when it is first used.

    Args:
        folder: of the translators.
        names: of them.
        forms: of target languages: words as people write them.
    """

    def __init__(self, folder: Path, names: Sequence[str], forms: Mapping[str, Sequence[str]] | None = None) -> None:
        self.names, self._folder = list(names), folder
        self._casings = {language: Casing(words, language) for language, words in (forms or {}).items()}
        self._ways = [name.split("-") for name in names]  # system, source and target of each
        self._loaded: dict[str, tuple[Searched, SubWords]] = {}
        self._sub_words: dict[str, SubWords | None] = {}  # of the source language

    def load(self, system: str, direction: str) -> tuple[Searched, SubWords]:
        """A translator (`mt`, `en-de`) and its vocabulary; RecipeError if there is none, or it is damaged."""
        name = f"{system}-{direction}"
        if [system, *direction.split("-")] not in self._ways:
            shown = name if name not in self.names else f"{system} of {direction}"
            raise RecipeError(f"translate: no {shown} in the model; it has {', '.join(self.names) or 'no translators'}")
        if name not in self._loaded:
            with as_recipe_error():
                self._loaded[name] = load_translator(self._folder / name)
        return self._loaded[name]

    def sources(self, system: str) -> list[str]:
        """The languages that a system translates from."""
        return sorted({source for known, source, _ in self._ways if known == system})

    def targets(self, system: str, language: str) -> list[str]:
        """The languages that a system translates a language into."""
        return [target for *way, target in self._ways if way == [system, language]]

    def knowing(self, text: str, languages: Sequence[str]) -> list[str]:
        """Those of some languages whose translators know the largest share of a sentence's words.

        All of them, where one has no translator whose words are written down: pretrained ones spell any word.
        """
        shares = []
        for language in languages:
            if (known := self._words_of(language)) is None:
                return list(languages)
            words = known.read_words(text, language)
            shares.append(len(words.unknown) / max(1, words.total))
        return [language for language, share in zip(languages, shares, strict=True) if share == min(shares)]

    def _words_of(self, language: str) -> SubWords | None:
        """The sub-words of a translator from a language that knows which words it was trained to read."""
        if language not in self._sub_words:
            folders = [self._folder / name for name in self.names if name.split("-")[1] == language]
            found = next((folder for folder in folders if (folder / SOURCE_WORDS).is_file()), None)
            with as_recipe_error():
                self._sub_words[language] = None if found is None else load_sub_words(found)
        return self._sub_words[language]

    def systems(self, source: str, target: str) -> list[str]:
        """The systems that translate one language into another: `mt`, `mmt`, then those that are re-ranked."""
        systems = [system for system, *way in self._ways if way == [source, target]]
        return sorted(systems, key=lambda system: ("+" in system, len(system), system))

    def looking(self, source: str) -> dict[str, str]:
        """Target language → the first of `systems` that looks at pictures, where there is one."""
        targets = dict.fromkeys(target for _, language, target in self._ways if language == source)
        looking = {target: [system for system in self.systems(source, target) if self.looks(system, source, target)]
                   for target in targets}  # fmt: skip
        return {target: systems[0] for target, systems in looking.items() if systems}

    def looks(self, system: str, source: str, target: str) -> bool:
        """Does a system, or what re-ranks it, read the regions of a picture?"""
        return needs_regions(self._folder / f"{system}-{source}-{target}")

    def translate(
        self, text: str, system: str, source: str, target: str, regions: NDArray[np.floating] | None = None
    ) -> Translation:
        """The best translation of a sentence, by a beam of 5; `regions` (R, D), else as `translate_all`."""
        return self.translate_all(
            [text], system, source, target, None if regions is None else np.asarray(regions)[None]
        )[0]

    def translate_all(
        self, texts: Sequence[str], system: str, source: str, target: str, regions: NDArray[np.floating] | None = None
    ) -> list[Translation]:
        """The best translation of each sentence, by a beam of 5, all in one batch; empty if no word of it is known.

        Args:
            texts: the sentences.
            system: `mt`, `mmt`, or one that is re-ranked, `mt+channel` ….
            source: their language.
            target: the language wanted.
            regions: (N, R, D) of their pictures, for a system that reads them; all zero where there is none.

        Raises:
            RecipeError: there is no such translator, it reads other regions, an item is no text, or one is in no list.
        """
        if not (texts := require_texts("translate_all", texts)):
            return []
        name = f"{system}-{source}-{target}"
        translator, bpe = self.load(system, f"{source}-{target}")
        readings = [translator_reading(text, bpe.read_words(text, source), source) for text in texts]
        tokens = bpe.encode_all(texts, source)
        batch: dict[str, Any] = {
            "source": pad(tokens), "source_lengths": torch.tensor([len(sentence) for sentence in tokens]),
            "index": torch.arange(len(tokens)),
        }  # fmt: skip
        if translator.regions is not None:
            batch["regions"] = _regions_of(name, regions, len(texts), translator.regions.in_features)
        beams = translate(translator.eval(), batch, BeamSettings(), BEGIN, END)
        casing = self.casing(target)
        return [
            Translation(casing.apply(bpe.decode(beam[0].tokens, target), text) if reading.known else "", reading)
            for beam, reading, text in zip(beams, readings, texts, strict=True)
        ]

    def casing(self, language: str) -> Casing:
        """What gives translations into a language their capital letters; of an unknown one they stay in lower case."""
        return self._casings.get(language, Casing())


def _regions_of(name: str, regions: Any, count: int, width: int) -> torch.Tensor:
    """Regions (N, R, D) for so many sentences; RecipeError if they are not that."""
    given = None if regions is None else np.asarray(regions)
    fits = given is not None and given.ndim == 3 and given.shape[::2] == (count, width) and given.dtype.kind in "fiu"
    with np.errstate(over="ignore"):  # numbers beyond float32 are not finite in it
        read = given.astype(np.float32) if given is not None and fits else np.float32(np.nan)
    if not np.isfinite(read).all():
        raise RecipeError(f"translate: {name} reads regions (R, {width}) of a picture, finite numbers, for each "
                          "sentence; give them, or use mt")  # fmt: skip
    return torch.from_numpy(read)


def translator_reading(text: str, words: Words, source: str) -> Reading:
    """How a translator of a language reads a sentence."""
    return reading_of(text, words, [source], source, reader="translator")
