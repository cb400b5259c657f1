"""The DataModule of retrieval: mixed batches for training, everything for validation and test."""

from collections.abc import Mapping, Sequence

import numpy as np
import pytorch_lightning as pl
import torch
from datasets import Dataset as Table
from torch import Tensor
from torch.utils.data import DataLoader

from data.batches.captions import CaptionBatches
from data.batches.mixing import Everything, MixedBatches
from data.batches.slots import Slot
from data.batches.translation import loader
from data.captions.table import HUMAN, choose
from data.pictures.device_regions import DeviceRegions, Place
from data.pictures.pixels import PixelStore
from data.pictures.regions import RegionStore
from data.text.padding import wants_few_shapes
from data.text.text_inputs import TextInput


class RetrievalData(pl.LightningDataModule):
    """Training, validation and test batches of one training configuration.

    Args:
        captions: the whole caption table, human and synthetic.
        store: regions of all images.
        text: the text input.
        groups: what fills training batches; none: nothing is trained.
        languages: of the model.
        held_out: the languages whose human captions are used of the splits `val` and `test`.
        batch_size: visits a training batch, over all devices.
        seed: of the drawing.
        steps: batches an epoch; None: as `MixedBatches` has it.
        workers: processes that prepare batches.
        pictures: of the training images, for a model that learns from them; None: none.
        place: where the regions are.
    """

    def __init__(
        self, captions: Table, store: RegionStore, text: TextInput,
        groups: Sequence[tuple[Slot, ...]], languages: Sequence[str], held_out: Mapping[str, Sequence[str]],
        batch_size: int = 128, seed: int = 0, steps: int | None = None, workers: int = 0,
        pictures: PixelStore | None = None, place: Place = "host",
    ) -> None:  # fmt: skip
        super().__init__()
        self.types = list(dict.fromkeys(slot.type for group in groups for slot in group))
        self.groups, self.batch_size, self.seed, self.steps, self.workers = groups, batch_size, seed, steps, workers
        self._tables = {"train": choose(captions, "train", set(self.types))}
        for split, wanted in held_out.items():
            self._tables[split] = choose(captions, split, {f"{language}/{HUMAN}" for language in wanted})
        self._regions_at, self._store = place, store
        self._on_device: DeviceRegions | None = None
        self._batches = {
            split: CaptionBatches(
                table, store, text, languages, self.types, pictures if split == "train" else None
            ) for split, table in self._tables.items()
        }  # fmt: skip

    def references(self) -> dict[tuple[int, int], list[list[int]]]:
        """`image_key` and language → the training captions as token numbers, which written captions are compared to."""
        return self._batches["train"].references()

    def train_dataloader(self) -> DataLoader:
        """Mixed batches."""
        table = self._tables["train"]
        sampler = MixedBatches(table, self.groups, self.batch_size, self.seed, self.steps, *self._place())
        return loader(self._placed("train"), sampler, self.workers)

    def val_dataloader(self) -> DataLoader:
        """Every validation image once, with its human captions."""
        return self._everything("val")

    def test_dataloader(self) -> DataLoader:
        """Every test image once, with its human captions."""
        return self._everything("test")

    def caption_ids(self, split: str) -> list[str]:
        """The caption id of each `caption_key` of a split."""
        return self._tables[split]["caption_id"][:]

    def ranked(self, split: str, language: str) -> tuple[list[str], list[str]]:
        """Image ids and caption ids of a split in the order of the ranks of one language."""
        table = self._tables[split]
        rows = np.unique(self._batches[split].rows)
        captions = zip(table["caption_id"][:], table["language"][:], strict=True)
        return [self._batches[split].store.ids[row] for row in rows], [
            name for name, own in captions if own == language
        ]

    def image_keys(self, split: str, language: str | None = None) -> list[int]:
        """Each `image_key` of a split once, in the table's order; with a language, those it has captions of."""
        languages, rows = self._tables[split]["language"][:], self._batches[split].rows.tolist()
        chosen = (row for row, code in zip(rows, languages, strict=True) if language in (None, code))
        return list(dict.fromkeys(chosen))

    def _everything(self, split: str) -> DataLoader:
        return loader(self._placed(split), Everything(self._tables[split], self.batch_size, *self._place()), 0)

    def on_after_batch_transfer(self, batch: dict[str, Tensor], dataloader_idx: int) -> dict[str, Tensor]:
        """Add the regions, where they are on the device already."""
        if "regions" in batch or self._on_device is None or self._on_device.table is None:
            return batch
        regions = self._on_device.table.index_select(0, batch["image_key"])
        return batch | {"regions": regions, "region_mask": regions.new_ones(regions.shape[:2], dtype=torch.bool)}

    def _placed(self, split: str) -> CaptionBatches:
        """The batches of a split, which hold no regions where these are on the device."""
        if self._on_device is None:
            self._on_device = DeviceRegions(self._store, self._regions_at, self.trainer)
        batches = self._batches[split]
        batches.with_regions = self._on_device.table is None
        batches.few_shapes = split == "train" and wants_few_shapes(self.trainer)
        return batches

    def _place(self) -> tuple[int, int]:
        return (0, 1) if self.trainer is None else (self.trainer.global_rank, self.trainer.world_size)
