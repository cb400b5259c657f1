"""Collated batches for retrieval: images, and captions that point to them."""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from datasets import Dataset as Table
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from torch.utils.data import Dataset

from data.captions.table import HUMAN, sentences_of, types_of
from data.pictures.pixels import PixelStore
from data.pictures.regions import RegionStore
from data.text.padding import WIDTH, rounded
from data.text.text_inputs import TextInput

_SENTENCES = 64  # rows of `image_sentences` are a multiple of it, for GPUs


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
        text: the text input.
        languages: whose places are the numbers in `language`.
        types: whose places are the numbers in `type`; a type that is not among them is −1.
        pictures: of the images that need them; None: none.

    Attributes:
        with_regions: false leaves out `regions` and `region_mask`.
        few_shapes: L is a multiple of 8, and P one of 64 by rows of an `image_key` of −1, for GPUs.
    """

    def __init__(
        self, captions: Table, store: RegionStore, text: TextInput,
        languages: Sequence[str], types: Sequence[str], pictures: PixelStore | None = None,
    ) -> None:  # fmt: skip
        self.store, self.pictures, self.with_regions, self.few_shapes = store, pictures, True, False
        self.tokens = text.encode_all(captions)
        self.rows = store.rows(captions["image_id"][:])
        self.sentences = sentences_of(captions)
        order = np.lexsort((self.sentences, self.rows))
        pairs = np.stack([self.rows[order], self.sentences[order]], 1, dtype=np.int64)
        first = np.ones(len(pairs), bool)
        first[1:] = (pairs[1:] != pairs[:-1]).any(1)
        self.image_sentences = pairs[first]  # in the order of rows
        self._starts = np.searchsorted(self.image_sentences[:, 0], np.arange(self.rows.max(initial=-1) + 2))
        rows = captions.with_format("arrow")[:]
        self.languages = _places(rows["language"], languages)
        self.human = pc.equal(rows["source"], HUMAN).to_numpy()
        self.types = _places(types_of(rows), types)

    def __getitem__(self, visits: Sequence[ArrayLike]) -> dict[str, Tensor]:
        numbers = np.concatenate([np.ravel(part) for part in visits])
        keys, index = np.unique(self.rows[numbers], return_inverse=True)
        tokens, lengths = self.tokens.padded(numbers, WIDTH if self.few_shapes else 1)
        known = self._sentences_of(keys)
        if self.few_shapes:
            known = np.pad(known, ((0, rounded(len(known), _SENTENCES) - len(known)), (0, 0)), constant_values=-1)
        batch = {
            "image_key": torch.from_numpy(keys),
            "tokens": tokens,
            "lengths": lengths,
            "image_index": torch.from_numpy(index),
            "caption_key": torch.from_numpy(numbers),
            "language": torch.from_numpy(self.languages[numbers]),
            "type": torch.from_numpy(self.types[numbers]),
            "sentence": torch.from_numpy(self.sentences[numbers]),
            "image_sentences": torch.from_numpy(known),
        }
        if self.with_regions:
            batch["regions"] = torch.from_numpy(self.store.regions[keys])
            batch["region_mask"] = torch.ones(batch["regions"].shape[:2], dtype=torch.bool)
        if self.pictures is not None:
            batch["pixels"] = torch.from_numpy(self.pictures.pixels_of([self.store.ids[key] for key in keys]))
        return batch

    def _sentences_of(self, keys: NDArray[np.int64]) -> NDArray[np.int64]:
        """The rows of `image_sentences` of some images."""
        starts = self._starts[keys]
        counts = self._starts[keys + 1] - starts
        return self.image_sentences[np.repeat(starts - (np.cumsum(counts) - counts), counts) + np.arange(counts.sum())]

    def references(self) -> dict[tuple[int, int], list[list[int]]]:
        """`image_key` and language → the human captions of the table as token numbers; all where none is human."""
        human: dict[tuple[int, int], list[list[int]]] = defaultdict(list)
        written: dict[tuple[int, int], list[list[int]]] = defaultdict(list)
        sentences = (self.tokens[number] for number in range(len(self.tokens)))
        columns = (self.rows.tolist(), self.languages.tolist(), self.human.tolist(), sentences)
        for row, language, by_human, tokens in zip(*columns, strict=True):
            written[row, language].append(tokens)
            if by_human:
                human[row, language].append(tokens)
        return written | human


def _places(column: pa.ChunkedArray, names: Sequence[str]) -> NDArray[np.int64]:
    """The place of each entry among some names; −1 where it is not among them."""
    found = pc.index_in(column, pa.array(names, pa.string()))
    return pc.fill_null(found, -1).to_numpy().astype(np.int64)
