"""Batches for translators: pairs of token numbers, with the regions of their picture if the translator reads them."""

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from multiprocessing.queues import Queue
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytorch_lightning as pl
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, DistributedSampler, Sampler

from data.pictures.device_regions import DeviceRegions, Place
from data.pictures.images import open_picture
from data.pictures.regions import RegionStore
from data.text.padding import pad, rounded, wants_few_shapes
from data.text.tokenisation import BEGIN, END

Part = TypeVar("Part", list[int], NDArray[np.int64])
_WIDTH = 4  # of which the tokens of a batch are a multiple, for GPUs
_ROWS, _MANY = (8, 32), 128  # and its sentences, if there are many of the second, else of the first
_POOL = 50  # batches' worth of sentences that are sorted by length together


@dataclass
class Sentences:
    """Sentences to translate, and their translations where known.

    Attributes:
        source: token numbers of each source sentence.
        target: of each translation; None when there is nothing to learn from or score.
        image_ids: the picture of each sentence, or None: a translator that reads regions then gets zeros.
        other_ids: another picture of each, a control; empty: none are wanted.
        pictures: image id → file, for a translator that reads pictures themselves; None: it does not.
    """

    source: Sequence[Sequence[int]]
    target: Sequence[Sequence[int]] | None
    image_ids: Sequence[str | None]
    other_ids: Sequence[str | None] = ()
    pictures: Mapping[str, Path] | None = None

    def __len__(self) -> int:
        return len(self.source)


class SentenceBatches(Dataset):
    """Collated batches by lists of sentence numbers.

    A batch is a dict: `index` (B,), `source` (B, N) and `source_lengths` (B,); with translations also `target`
    (B, M + 1) led by the begin mark, `labels` (B, M + 1) closed by the end mark and `target_lengths` (B,); with
    regions also `regions` (B, K, D), and `other_regions` of the other pictures if there are any; or, without
    `with_regions`, `image_row` (B,), the rows of the pictures in the store, −1 for none. With pictures it has
    `pictures`, a list of them (PIL, RGB), None for none.

    Args:
        sentences: what to batch.
        regions: the region store; None for text alone.

    Attributes:
        with_regions: false leaves out the regions.
        few_shapes: N and M + 1 are multiples of 4, and B of 8, or 32, by sentences without a word, for GPUs.
    """

    def __init__(self, sentences: Sentences, regions: RegionStore | None) -> None:
        self.sentences, self.regions, self.with_regions, self.few_shapes = sentences, regions, True, False
        self._rows = None if regions is None else regions.rows(sentences.image_ids)
        self._others = regions.rows(sentences.other_ids) if regions is not None and sentences.other_ids else None

    def __getitem__(self, numbers: list[int]) -> dict[str, Tensor]:
        count = len(numbers)
        more = rounded(count, _ROWS[count > _MANY]) - count if self.few_shapes else 0
        width = _WIDTH if self.few_shapes else 1
        source = [*(self.sentences.source[number] for number in numbers), *more * [[END]]]
        batch: dict[str, Any] = {
            "index": torch.tensor([*numbers, *more * [-1]]),
            "source": pad(source, width),
            "source_lengths": torch.tensor([len(sentence) for sentence in source]),
        }
        if self.sentences.target is not None:
            target = [self.sentences.target[number] for number in numbers]
            batch["target"] = pad([*([BEGIN, *sentence] for sentence in target), *more * [[BEGIN]]], width)
            batch["labels"] = pad([*([*sentence, END] for sentence in target), *more * [[]]], width)
            batch["target_lengths"] = torch.tensor([*(len(sentence) + 1 for sentence in target), *more * [1]])
        if self.regions is not None and self._rows is not None:
            rows = np.concatenate([self._rows[numbers], np.full(more, -1)])
            if self.with_regions:
                batch["regions"] = torch.from_numpy(self.regions.take(rows))
            else:
                batch["image_row"] = torch.from_numpy(rows)
        if self.regions is not None and self._others is not None and self.with_regions:
            batch["other_regions"] = torch.from_numpy(self.regions.take(self._others[numbers]))
        if (files := self.sentences.pictures) is not None:
            ids = [self.sentences.image_ids[number] for number in numbers]
            batch["pictures"] = [None if image is None else open_picture(files[image]) for image in ids]
        return batch


class OfRank(DistributedSampler[Any]):
    """A sampler that gives the batches of one rank: what Lightning does not share out once more.

    By default its trainer would let each rank take a part of any other sampler.

    Attributes:
        epoch: that the next iteration draws; Lightning sets it by `set_epoch`.
    """

    def __init__(self) -> None:  # all that the class above has is a share of a data set
        self.epoch = 0


class TokenBatches(OfRank):
    """Lists of sentences of like length, about `batch_tokens` padded tokens each, the same at any number of ranks.

    An *epoch* is `steps` batches of an endless stream of shuffled passes over the data, so that training is
    counted in steps and a resumed epoch sees what it would have seen.

    Args:
        lengths: (S,) tokens of each sentence (the longer side).
        batch_tokens: sentences times the longest length, over all ranks.
        steps: batches an epoch.
        seed: of the shuffling.
        rank: which process this is.
        world_size: of how many.
    """

    def __init__(
        self, lengths: NDArray[np.int64], batch_tokens: int, steps: int, seed: int, rank: int = 0, world_size: int = 1
    ) -> None:
        super().__init__()
        self.lengths, self.batch_tokens, self.steps, self.seed = lengths, batch_tokens, steps, seed
        self.rank, self.world_size = rank, world_size
        self._pass = lru_cache(maxsize=2)(self._make_pass)

    def __len__(self) -> int:
        return self.steps

    def __iter__(self) -> Iterator[list[int]]:
        start, number = self.epoch * self.steps, 0
        while start >= len(self._pass(number)):
            start -= len(self._pass(number))
            number += 1
        for _ in range(self.steps):
            if start >= len(self._pass(number)):
                start, number = 0, number + 1
            yield share(self._pass(number)[start], self.rank, self.world_size)
            start += 1

    def _make_pass(self, number: int) -> list[list[int]]:
        generator = np.random.default_rng((self.seed, number))
        order = generator.permutation(len(self.lengths))
        pool = max(1, _POOL * self.batch_tokens // max(1, int(self.lengths.mean())))
        batches: list[list[int]] = []
        for start in range(0, len(order), pool):
            part = order[start : start + pool]
            batches += cut(part[self.lengths[part].argsort(kind="stable")].tolist(), self.lengths, self.batch_tokens)
        return [batches[place] for place in generator.permutation(len(batches))]


class InOrder(OfRank):
    """Every sentence once, longest first, in batches of about `batch_tokens` padded tokens; ranks take turns.

    A rank that gets none takes the longest one too: it must take part when all ranks gather their translations.

    Args:
        lengths: (S,) tokens of each sentence.
        batch_tokens: sentences times the longest length.
        rank: which process this is.
        world_size: of how many.
        done: numbers of sentences; batches that hold no other ones are left out, all but the last.
        known: numbers of sentences that are in no batch, unless there are no others.
    """

    def __init__(
        self, lengths: NDArray[np.int64], batch_tokens: int, rank: int = 0, world_size: int = 1,
        done: Collection[int] = (), known: Collection[int] = (),
    ) -> None:  # fmt: skip
        super().__init__()
        everything = (-lengths).argsort(kind="stable").tolist()
        ordered = [number for number in everything if number not in known] or everything[-1:]
        batches = cut(ordered[rank::world_size] or ordered[:1], lengths, batch_tokens)
        self.batches = [batch for batch in batches if not all(number in done for number in batch)] or batches[-1:]

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[list[int]]:
        return iter(self.batches)


class TranslationData(pl.LightningDataModule):
    """Training and validation batches of one direction.

    Args:
        train: sentence pairs to learn from.
        validation: sentence pairs to select on.
        regions: the region store of a translator that reads regions; None for text alone.
        batch_tokens: padded tokens of a training batch, over all devices.
        steps: training batches an epoch.
        seed: of the shuffling.
        workers: processes that prepare batches; 0 prepares them in the training process.
        place: where the regions are.
    """

    def __init__(
        self, train: Sentences, validation: Sentences, regions: RegionStore | None,
        batch_tokens: int, steps: int, seed: int, workers: int = 0, place: Place = "host",
    ) -> None:  # fmt: skip
        super().__init__()
        self.train, self.validation, self.regions = train, validation, regions
        self.batch_tokens, self.steps, self.seed, self.workers = batch_tokens, steps, seed, workers
        self._regions_at = place
        self._on_device: DeviceRegions | None = None

    def train_dataloader(self) -> DataLoader:
        """Shuffled batches of about `batch_tokens`, `steps` an epoch."""
        rank, world_size = self._place()
        assert self.train.target is not None
        pairs = zip(self.train.source, self.train.target, strict=True)
        lengths = np.array([max(len(source), len(target) + 1) for source, target in pairs])
        sampler = TokenBatches(lengths, self.batch_tokens, self.steps, self.seed, rank, world_size)
        batches = SentenceBatches(self.train, self.regions)
        if self.regions is not None:
            self._on_device = self._on_device or DeviceRegions(self.regions, self._regions_at, self.trainer)
            batches.with_regions = self._on_device.table is None
        batches.few_shapes = wants_few_shapes(self.trainer)
        return loader(batches, sampler, self.workers)

    def on_after_batch_transfer(self, batch: dict[str, Tensor], dataloader_idx: int) -> dict[str, Tensor]:
        """Add the regions, where they are on the device already."""
        if "image_row" not in batch or self._on_device is None:
            return batch
        return batch | {"regions": self._on_device.of_rows(batch.pop("image_row"))}

    def val_dataloader(self) -> DataLoader:
        """Every validation pair once."""
        return in_order_loader(self.validation, self.regions, self.batch_tokens, *self._place())

    def _place(self) -> tuple[int, int]:
        return (0, 1) if self.trainer is None else (self.trainer.global_rank, self.trainer.world_size)


def in_order_loader(
    sentences: Sentences, regions: RegionStore | None, batch_tokens: int, rank: int = 0, world_size: int = 1,
    done: Collection[int] = (), known: Collection[int] = (),
) -> DataLoader:  # fmt: skip
    """Every sentence once in batches of like length, shared out among the ranks without repetition; see `InOrder`."""
    lengths = np.array([len(sentence) for sentence in sentences.source])
    batches = InOrder(lengths, batch_tokens, rank, world_size, done, known)
    return loader(SentenceBatches(sentences, regions), batches, 0)


def loader(dataset: Dataset, sampler: Sampler, workers: int) -> DataLoader:
    """A DataLoader whose sampler gives whole batches; its worker seeds do not touch the global generator.

    With workers a thread of torch's pins memory, which would break the making of a CUDA graph: then nothing is pinned.
    """
    pinned = torch.cuda.is_available() and not (workers and getattr(dataset, "few_shapes", False))
    return DataLoader(
        dataset, batch_size=None, sampler=sampler, num_workers=workers, persistent_workers=workers > 0,
        generator=torch.Generator().manual_seed(0), pin_memory=pinned,
        worker_init_fn=_end_with_a_lost_batch if workers else None,
    )  # fmt: skip


def _end_with_a_lost_batch(worker: int) -> None:
    """Let a worker end that cannot pass on a batch, as /dev/shm is full: else the training would wait for it forever.

    Args:
        worker: its number.
    """

    def end(error: Exception, batch: Any) -> None:
        """What the thread that passes batches on does after an error."""
        os._exit(1)

    Queue._on_queue_feeder_error = staticmethod(end)  # type: ignore[attr-defined]


def share(numbers: Part, rank: int, world_size: int) -> Part:
    """What one rank takes of a batch: every `world_size`-th, so lengths and kinds spread evenly.

    A batch with too few for all ranks goes to each of them whole: none is idle, and the mean over all is the same.
    """
    return numbers[rank::world_size] if len(numbers) >= world_size else numbers


def cut(ordered: list[int], lengths: NDArray[np.int64], batch_tokens: int) -> list[list[int]]:
    """Cut sentences that are sorted by length into batches of at most `batch_tokens` padded tokens, or one sentence."""
    batches: list[list[int]] = []
    longest = 0
    for number in ordered:
        longest = max(longest, int(lengths[number]))
        if not batches or longest * (len(batches[-1]) + 1) > batch_tokens:
            batches.append([])
            longest = int(lengths[number])
        batches[-1].append(number)
    return batches
