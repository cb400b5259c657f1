"""Test images with what people wrote about them in some languages, to be drawn beside one another."""

import random
from collections.abc import Mapping, Sequence
from pathlib import Path

from data.captions.table import human_cells, read_captions
from data.pictures.regions import RegionStore
from data.text.function_words import frequent_content_words
from data.text.tokenisation import CHARACTERS


class DescribedImages:
    """Test images that people described in some languages, in an order that is always the same.

    If there are none that are described in all of the languages, those in the first.

    Args:
        captions: a caption table.
        store: the regions of the images; others are left out.
        pictures: image id → file, of those that are at hand.
        languages: wanted.

    Attributes:
        ids: of the images.
        captions: language → image id → its first caption.
        texts: language → all captions.
    """

    def __init__(
        self, captions: Path, store: RegionStore, pictures: Mapping[str, Path], languages: Sequence[str]
    ) -> None:
        self.store, self.pictures = store, pictures
        self.captions: dict[str, dict[str, str]] = {language: {} for language in languages}
        self.texts: dict[str, list[str]] = {language: [] for language in languages}
        for language, image_id, text in human_cells(read_captions(captions), "test", "language", "image_id", "text"):
            if language in languages and image_id in self.store:
                self.captions[language].setdefault(image_id, text)
                self.texts[language].append(text)
        described = [set(known) for known in self.captions.values()]
        ids = sorted(set.intersection(*described) or described[0])
        self.ids = random.Random(0).sample(ids, len(ids))

    def frequent_words(self, most: int, by: str = CHARACTERS) -> dict[str, list[str]]:
        """The content words that are in most test captions, by language; `by` is as `words_of` has it."""
        return {language: frequent_content_words(texts, language, most, by) for language, texts in self.texts.items()}

    def lacks_places(self) -> str:
        """Why nothing can be shown of where a model looks; empty if it can."""
        boxes = self.store.boxes[self.store.rows(self.ids)]
        if boxes.shape[1] == 1:
            return "one region an image"
        return "" if (boxes != boxes[:, :1]).any() else "regions without boxes"
