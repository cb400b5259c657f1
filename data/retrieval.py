"""Image-major batches for retrieval: images, and captions of chosen languages and sources that point to them."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import pytorch_lightning as pl
from datasets import Dataset as Table
from torch.utils.data import DataLoader, Sampler

from data.caption_batches import CaptionBatches, Visit
from data.captions import HUMAN
from data.errors import DataError
from data.pixels import PixelStore
from data.regions import RegionStore
from data.slots import Slot
from data.translation import loader, share


class MixedBatches(Sampler[list[Visit]]):
    """Training batches that groups of slots fill in equal shares (half human, half synthetic, for two groups).

    In a pass over a group each image is visited as often as its captions fill the group's slots, in an order drawn by
    seed and epoch; a group that is used up is drawn again. So if groups are of unequal size, an epoch sees a part of
    the larger one, and the smaller one several times. Each rank gets its share of each group, so every language occurs
    on every rank.

    Args:
        captions: the caption table.
        groups: what fills the batches.
        batch_size: visits a batch, over all ranks; of a group at most those that a pass over it has, so that on few
            images none is visited twice in a batch.
        seed: of the drawing.
        steps: batches an epoch; None: as many as all groups' visits fill, which is each caption once where groups
            are equal.
        rank: which process this is.
        world_size: of how many.

    Raises:
        DataError: the batch is too small, there is one image alone, or as `visits_of_group`.
    """

    def __init__(
        self, captions: Table, groups: Sequence[tuple[Slot, ...]], batch_size: int, seed: int,
        steps: int | None = None, rank: int = 0, world_size: int = 1,
    ) -> None:  # fmt: skip
        self.groups, self.batch_size, self.seed = list(groups), batch_size, seed
        self.rank, self.world_size, self.epoch = rank, world_size, 0
        if batch_size < len(self.groups) * world_size:
            raise DataError(
                f"batch_size is {batch_size}, for {len(self.groups)} caption groups on {world_size} devices; "
                "each group needs a place on each device"
            )
        self._captions = captions_of_images(captions)
        if len(self._captions) < 2:
            raise DataError("one training image alone; expected two or more, whose captions are compared")
        self._visits = [visits_of_group(self._captions, group) for group in self.groups]
        in_turn = [
            sum(self._share(number, step) for number in range(len(self.groups))) for step in range(len(self.groups))
        ]
        self.steps = steps or math.ceil(sum(self._visits) / min(batch_size, max(in_turn)))

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch that the next iteration draws; Lightning calls it."""
        self.epoch = epoch

    def __len__(self) -> int:
        return self.steps

    def __iter__(self) -> Iterator[list[Visit]]:
        streams = [self._stream(number) for number in range(len(self.groups))]
        for step in range(self.steps):
            batch: list[Visit] = []
            for number, stream in enumerate(streams):
                part = [next(stream) for _ in range(self._share(number, step))]
                batch += share(part, self.rank, self.world_size)  # type: ignore[arg-type]
            yield batch

    def _share(self, number: int, step: int) -> int:
        """How many visits of a group a batch holds; what does not divide evenly goes round.

        No more than a pass over the group has, but one for each rank.
        """
        count = len(self.groups)
        wanted = self.batch_size // count + ((number + step) % count < self.batch_size % count)
        return max(self.world_size, min(wanted, self._visits[number]))

    def _stream(self, number: int) -> Iterator[Visit]:
        cycle = 0
        while True:
            generator = np.random.default_rng((self.seed, self.epoch, number, cycle))
            visits = self._draw(self.groups[number], generator)
            yield from (visits[place] for place in generator.permutation(len(visits)))
            cycle += 1

    def _draw(self, group: tuple[Slot, ...], generator: np.random.Generator) -> list[Visit]:
        """All visits of all images for one group; the captions of each slot in an order of their own."""
        visits: list[Visit] = []
        drawn = [slot for slot in group if slot.count]
        for of_image in self._captions.values():
            orders = [generator.permutation(of_image.get(slot.type, [])) for slot in drawn]
            for turn in range(_turns(of_image, group)):
                visit: list[int] = []
                for slot, order in zip(drawn, orders, strict=True):
                    places = np.arange(turn * slot.count, (turn + 1) * slot.count) % len(order)
                    visit += order[places].tolist()
                visits.append(tuple(visit))
        return visits


class Everything(Sampler[list[Visit]]):
    """Every image of a split once, with all its captions; ranks take turns, and nothing is padded.

    A rank that gets none, where there are fewer images than ranks, takes the first one too: it must take part when all
    ranks gather their encodings, and duplicates are counted once.

    Args:
        captions: the caption table of the split.
        batch_size: images a batch.
        rank: which process this is.
        world_size: of how many.
    """

    def __init__(self, captions: Table, batch_size: int, rank: int = 0, world_size: int = 1) -> None:
        of_image: dict[str, list[int]] = defaultdict(list)
        for number, image_id in enumerate(captions["image_id"][:]):
            of_image[image_id].append(number)
        everything = [tuple(numbers) for numbers in of_image.values()]
        visits = everything[rank::world_size] or everything[:1]
        self.batches = [visits[start : start + batch_size] for start in range(0, len(visits), batch_size)]

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[list[Visit]]:
        return iter(self.batches)


class RetrievalData(pl.LightningDataModule):
    """Training, validation and test batches of one training configuration.

    Args:
        captions: the whole caption table, human and synthetic.
        store: regions of all images.
        encode: a text input's `encode`.
        groups: what fills training batches; none: nothing is trained.
        languages: of the model.
        held_out: the languages whose human captions are used of the splits `val` and `test`.
        batch_size: visits a training batch, over all devices.
        seed: of the drawing.
        steps: batches an epoch; None: as `MixedBatches` has it.
        workers: processes that prepare batches.
        pictures: of the training images, for a model that learns from them; None: none.
    """

    def __init__(
        self, captions: Table, store: RegionStore, encode: Callable[[str, str], list[int]],
        groups: Sequence[tuple[Slot, ...]], languages: Sequence[str], held_out: Mapping[str, Sequence[str]],
        batch_size: int = 128, seed: int = 0, steps: int | None = None, workers: int = 0,
        pictures: PixelStore | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.types = list(dict.fromkeys(slot.type for group in groups for slot in group))
        self.groups, self.batch_size, self.seed, self.steps, self.workers = groups, batch_size, seed, steps, workers
        self._tables = {"train": _choose(captions, "train", set(self.types))}
        for split, wanted in held_out.items():
            self._tables[split] = _choose(captions, split, {f"{language}/{HUMAN}" for language in wanted})
        self._batches = {
            split: CaptionBatches(
                table, store, encode, languages, self.types, pictures if split == "train" else None
            ) for split, table in self._tables.items()
        }  # fmt: skip

    def references(self) -> dict[tuple[int, int], list[list[int]]]:
        """`image_key` and language → the training captions as token numbers, which written captions are compared to."""
        return self._batches["train"].references()

    def train_dataloader(self) -> DataLoader:
        """Mixed batches."""
        table = self._tables["train"]
        sampler = MixedBatches(table, self.groups, self.batch_size, self.seed, self.steps, *self._place())
        return loader(self._batches["train"], sampler, self.workers)

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
        return loader(self._batches[split], Everything(self._tables[split], self.batch_size, *self._place()), 0)

    def _place(self) -> tuple[int, int]:
        return (0, 1) if self.trainer is None else (self.trainer.global_rank, self.trainer.world_size)


def _choose(captions: Table, split: str, types: set[str]) -> Table:
    columns = (captions[name][:] for name in ("split", "language", "source"))
    rows = enumerate(zip(*columns, strict=True))
    return captions.select(
        [number for number, (part, language, source) in rows if part == split and f"{language}/{source}" in types]
    )


CaptionsOfImages = Mapping[str, Mapping[str, Sequence[int]]]
"""Image → type → caption numbers."""


def captions_of_images(captions: Table) -> CaptionsOfImages:
    """The numbers of the captions of each image by type; images in the order of the table."""
    numbers: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    columns = (captions[name][:] for name in ("image_id", "language", "source"))
    for number, (image_id, language, source) in enumerate(zip(*columns, strict=True)):
        numbers[image_id][f"{language}/{source}"].append(number)
    return numbers


def visits_of_group(captions: CaptionsOfImages, group: tuple[Slot, ...]) -> int:
    """How many visits a pass over a group has. An image with fewer captions than a slot draws repeats them.

    Args:
        captions: of the training images.
        group: of slots.

    Raises:
        DataError: no image has captions for all slots, or none that has them has as many as a slot draws.
    """
    turns = [(of_image, _turns(of_image, group)) for of_image in captions.values()]
    filling = [of_image for of_image, count in turns if count]
    drawn = [slot for slot in group if slot.count]
    if not filling:
        types = " and ".join(slot.type for slot in drawn)
        absent = "".join(f" and none of type {slot.type}" for slot in group if not slot.count)
        raise DataError(
            f"no training image has captions of type {types}{absent}; run `make stage-augment`, or mend vse.rows"
        )
    for slot in drawn:
        if (most := max(len(of_image[slot.type]) for of_image in filling)) < slot.count:
            raise DataError(
                f"`{slot.count}*{slot.type}` draws {slot.count} captions of an image at once, but no training image "
                f"of its group has more than {most} of this type; ask for at most {most} in vse.rows"
            )
    return sum(count for _, count in turns)


def _turns(of_image: Mapping[str, Sequence[int]], group: tuple[Slot, ...]) -> int:
    """How often an image's captions fill a group; 0 where a slot has none, or a slot of count 0 has some."""
    counts = [(len(of_image.get(slot.type, ())), slot.count) for slot in group]
    if any(bool(has) != bool(wanted) for has, wanted in counts):
        return 0
    return max(math.ceil(has / wanted) for has, wanted in counts if wanted)
