"""The translators of an exported model: one sentence at a time, with its picture's regions or without."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from data.padding import pad
from data.text import BEGIN, END
from modules.beam import BeamSettings
from modules.translators import translate
from pipeline.errors import RecipeError
from pipeline.translation.translator_files import load_translator


class ExportedTranslators:
    """Translates with what lies in a folder, `mt-de-en`, `mmt-en-de` …; each is loaded when it is first used.

    Args:
        folder: of the translators.
        names: of them.
    """

    def __init__(self, folder: Path, names: Sequence[str]) -> None:
        self.names = list(names)
        self._load = cache(lambda name: load_translator(folder / name))

    def targets(self, system: str, language: str) -> list[str]:
        """The languages that a system translates a language into."""
        return [name.split("-")[2] for name in self.names if name.split("-")[:2] == [system, language]]

    def translate(
        self, text: str, system: str, source: str, target: str, regions: NDArray[np.floating] | None = None
    ) -> str:
        """The best translation of a sentence, by a beam of 5.

        Args:
            text: the sentence.
            system: `mt` or `mmt`.
            source: its language.
            target: the language wanted.
            regions: (R, D) of its picture, for a system that reads them.

        Raises:
            RecipeError: there is no such translator, or it reads regions of another width.
        """
        name = f"{system}-{source}-{target}"
        if name not in self.names:
            raise RecipeError(f"translate: no {name} in the model; it has {', '.join(self.names) or 'no translators'}")
        translator, bpe = self._load(name)
        (tokens,) = bpe.encode_all([text], source)
        batch: dict[str, Any] = {
            "source": pad([tokens]), "source_lengths": torch.tensor([len(tokens)]), "index": torch.tensor([0])
        }  # fmt: skip
        if translator.regions is not None:
            width = translator.regions.in_features
            if regions is None or regions.shape[-1] != width:
                raise RecipeError(f"translate: {name} reads regions (R, {width}) of a picture; give them, or use mt")
            batch["regions"] = torch.from_numpy(regions[None].astype(np.float32))
        best = translate(translator.eval(), batch, BeamSettings(), BEGIN, END)[0][0]
        return bpe.decode(best.tokens, target)
