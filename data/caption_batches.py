"""Collated batches for retrieval: images, and captions that point to them."""

from collections import defaultdict
from collections.abc import Callable, Sequence

import numpy as np
import torch
from datasets import Dataset as Table
from torch import Tensor
from torch.utils.data import Dataset

from data.captions import HUMAN
from data.padding import pad
from data.pixels import PixelStore
from data.regions import RegionStore
from data.sentences import sentence_hash

Visit = tuple[int, ...]
"""One image in a batch: the numbers of the captions that come with it."""


class CaptionBatches(Dataset):
    """Collated batches by lists of visits.

    A batch is a dict. Images: `regions` (I, R, D), `region_mask` (I, R), `image_key` (I,). Captions: `tokens`
    (C, L), `lengths` (C,), `image_index` (C,) into the images, `caption_key` (C,), `language` (C,), `type` (C,)
    and `sentence` (C,), a hash that equal sentences share. `image_sentences` (P, 2) has an `image_key` and a hash for
    each sentence that the table has of the batch's images. An image that is visited twice stands in a batch once. With
    pictures there are also `pixels` (I, 3, S, S), uint8.

    Args:
        captions: the caption table, human and synthetic.
        store: regions of all its images.
        encode: a text input's `encode`: text and language to token numbers.
        languages: whose places are the numbers in `language`.
        types: whose places are the numbers in `type`; a type that is not among them is −1.
        pictures: of the images that need them; None: none.
    """

    def __init__(
        self, captions: Table, store: RegionStore, encode: Callable[[str, str], list[int]],
        languages: Sequence[str], types: Sequence[str], pictures: PixelStore | None = None,
    ) -> None:  # fmt: skip
        self.store, self.pictures = store, pictures
        texts, caption_languages, sources = captions["text"][:], captions["language"][:], captions["source"][:]
        self.tokens = [encode(text, language) for text, language in zip(texts, caption_languages, strict=True)]
        self.rows = store.rows(captions["image_id"][:])
        self.sentences = np.array([sentence_hash(text) for text in texts], dtype=np.int64)
        pairs = np.stack([self.rows, self.sentences], 1, dtype=np.int64)
        self.image_sentences = np.unique(pairs, axis=0)  # in the order of rows
        place = {language: number for number, language in enumerate(languages)}
        self.languages = np.array([place.get(language, -1) for language in caption_languages])
        self.human = [source == HUMAN for source in sources]
        kind = {name: number for number, name in enumerate(types)}
        self.types = np.array(
            [kind.get(f"{language}/{source}", -1) for language, source in zip(caption_languages, sources, strict=True)]
        )

    def __getitem__(self, visits: Sequence[Visit]) -> dict[str, Tensor]:
        numbers = np.array([number for visit in visits for number in visit])
        keys, index = np.unique(self.rows[numbers], return_inverse=True)
        regions = torch.from_numpy(self.store.regions[keys])
        tokens = [self.tokens[number] for number in numbers]
        starts, ends = (np.searchsorted(self.image_sentences[:, 0], keys, side) for side in ("left", "right"))
        known = np.concatenate([self.image_sentences[start:end] for start, end in zip(starts, ends, strict=True)])
        batch = {
            "regions": regions,
            "region_mask": torch.ones(regions.shape[:2], dtype=torch.bool),
            "image_key": torch.from_numpy(keys),
            "tokens": pad(tokens),
            "lengths": torch.tensor([len(sentence) for sentence in tokens]),
            "image_index": torch.from_numpy(index),
            "caption_key": torch.from_numpy(numbers),
            "language": torch.from_numpy(self.languages[numbers]),
            "type": torch.from_numpy(self.types[numbers]),
            "sentence": torch.from_numpy(self.sentences[numbers]),
            "image_sentences": torch.from_numpy(known),
        }
        if self.pictures is not None:
            batch["pixels"] = torch.from_numpy(self.pictures.pixels_of([self.store.ids[key] for key in keys]))
        return batch

    def references(self) -> dict[tuple[int, int], list[list[int]]]:
        """`image_key` and language → the human captions of the table as token numbers; all where none is human."""
        human: dict[tuple[int, int], list[list[int]]] = defaultdict(list)
        written: dict[tuple[int, int], list[list[int]]] = defaultdict(list)
        columns = (self.rows.tolist(), self.languages.tolist(), self.human, self.tokens)
        for row, language, by_human, tokens in zip(*columns, strict=True):
            written[row, language].append(tokens)
            if by_human:
                human[row, language].append(tokens)
        return written | human
