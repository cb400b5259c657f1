"""What training, validation and test batches hold: visits of images, drawn by seed or each once."""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np
from datasets import Dataset as Table
from numpy.typing import NDArray

from data.batches.slots import Slot
from data.batches.translation import OfRank, share
from data.captions.table import types_of
from data.errors import DataError

Visit = tuple[int, ...]
"""One image in a batch: the numbers of the captions that come with it."""
Visits = NDArray[np.int64]
"""(V, K): the visits of V images by a group that draws K captions."""


class MixedBatches(OfRank):
    """Training batches that groups of slots fill in equal shares (half human, half synthetic, for two groups).

    In a pass over a group each image is visited as often as its captions fill the group's slots, in an order drawn by
    seed and epoch; a group that is used up is drawn again. So if groups are of unequal size, an epoch sees a part of
    the larger one, and the smaller one several times. Each rank gets its share of each group, so every language occurs
    on every rank.

    Args:
        captions: the caption table.
        groups: what fills the batches.
        batch_size: visits a batch, over all ranks; of a group at most those that a pass over it has.
        seed: of the drawing.
        steps: batches an epoch; None: as many as all groups' visits fill, which is each caption once where groups
            are equal.
        rank: which process this is.
        world_size: of how many.

    Raises:
        DataError: the batch is too small, there is one image alone, or as `CaptionsOfImages.visits`.

    Examples:
        >>> from data.batches.slots import parse_group
        >>> from data.captions.table import Caption, table_of
        >>> table = table_of([Caption(f"{n // 2}.jpg", f"{n}", "en", f"a dog {n}", "train") for n in range(8)])
        >>> batches = MixedBatches(table, [parse_group("2*en/human")], batch_size=2, seed=1)
        >>> [[visits.shape for visits in batch] for batch in batches]  # 4 images, 2 a batch, 2 captions each
        [[(2, 2)], [(2, 2)]]
    """

    def __init__(
        self, captions: Table, groups: Sequence[tuple[Slot, ...]], batch_size: int, seed: int,
        steps: int | None = None, rank: int = 0, world_size: int = 1,
    ) -> None:  # fmt: skip
        super().__init__()
        self.groups, self.batch_size, self.seed = list(groups), batch_size, seed
        self.rank, self.world_size = rank, world_size
        if batch_size < len(self.groups) * world_size:
            raise DataError(
                f"batch_size is {batch_size}, for {len(self.groups)} caption groups on {world_size} devices; "
                "each group needs a place on each device"
            )
        self._captions = CaptionsOfImages(captions)
        if self._captions.images < 2:
            raise DataError("one training image alone; expected two or more, whose captions are compared")
        self._visits = [self._captions.visits(group) for group in self.groups]
        in_turn = [
            sum(self._share(number, step) for number in range(len(self.groups))) for step in range(len(self.groups))
        ]
        self.steps = steps or math.ceil(sum(self._visits) / min(batch_size, max(in_turn)))

    def __len__(self) -> int:
        return self.steps

    def __iter__(self) -> Iterator[list[Visits]]:
        streams = [_Stream(self._captions, group, (self.seed, self.epoch, number))
                   for number, group in enumerate(self.groups)]  # fmt: skip
        for step in range(self.steps):
            parts = [stream.take(self._share(number, step)) for number, stream in enumerate(streams)]
            yield [share(part, self.rank, self.world_size) for part in parts]

    def _share(self, number: int, step: int) -> int:
        """How many visits of a group a batch holds; what does not divide evenly goes round.

        No more than a pass over the group has, but one for each rank.
        """
        count = len(self.groups)
        wanted = self.batch_size // count + ((number + step) % count < self.batch_size % count)
        return max(self.world_size, min(wanted, self._visits[number]))


class _Stream:
    """The visits of one group, drawn again and again.

    Args:
        captions: of the training images.
        group: of slots.
        seed: of the drawing.
    """

    def __init__(self, captions: "CaptionsOfImages", group: Sequence[Slot], seed: tuple[int, int, int]) -> None:
        self._captions, self._group, self._seed = captions, group, seed
        self._cycle, self._left = 0, np.empty((0, sum(slot.count for slot in group)), np.int64)

    def take(self, count: int) -> Visits:
        """The next so many visits."""
        while len(self._left) < count:
            generator = np.random.default_rng((*self._seed, self._cycle))
            visits = self._captions.draw(self._group, generator)
            self._left = np.concatenate([self._left, visits[generator.permutation(len(visits))]])
            self._cycle += 1
        taken, self._left = self._left[:count], self._left[count:]
        return taken


class CaptionsOfImages:
    """The captions of each image by type, as arrays.

    Args:
        captions: the caption table of the training images.

    Attributes:
        images: how many there are.
    """

    def __init__(self, captions: Table) -> None:
        rows = captions.with_format("arrow")[:]
        ids = rows["image_id"].combine_chunks().dictionary_encode()
        types = types_of(rows).combine_chunks().dictionary_encode()
        self._image, self.images = ids.indices.to_numpy(), len(ids.dictionary)
        self._types, self._type = types.dictionary.to_pylist(), types.indices.to_numpy()

    def visits(self, group: Sequence[Slot]) -> int:
        """How many visits a pass over a group has. An image with fewer captions than a slot draws repeats them.

        Raises:
            DataError: no image has captions for all slots, or none that has them has as many as a slot draws.
        """
        turns = self._turns(group)
        drawn = [slot for slot in group if slot.count]
        if not turns.any():
            types = " and ".join(slot.type for slot in drawn)
            absent = "".join(f" and none of type {slot.type}" for slot in group if not slot.count)
            raise DataError(
                f"no training image has captions of type {types}{absent}; run the stage augment, or mend vse.rows"
            )
        for slot in drawn:
            if (most := self._counts(slot)[turns > 0].max()) < slot.count:
                raise DataError(
                    f"`{slot.count}*{slot.type}` draws {slot.count} captions of an image at once, but no training "
                    f"image of its group has more than {most} of this type; ask for at most {most} in vse.rows"
                )
        return int(turns.sum())

    def draw(self, group: Sequence[Slot], generator: np.random.Generator) -> Visits:
        """All visits of all images for one group, image by image; the captions of each slot in an order of their own.

        Returns:
            caption numbers (V, K) of the table, where K is how many a visit draws.
        """
        drawn = [slot for slot in group if slot.count]
        counts = np.stack([self._counts(slot) for slot in drawn], axis=1)  # (I, slots)
        order, starts = _permutations(generator, counts.ravel()), _starts(counts.ravel()).reshape(counts.shape)
        turns = self._turns(group)
        image = np.repeat(np.arange(self.images), turns)
        turn = np.arange(len(image)) - np.repeat(_starts(turns), turns)
        columns = []
        for place, slot in enumerate(drawn):
            wanted = (turn[:, None] * slot.count + np.arange(slot.count)) % counts[image, place, None]
            in_order = order[starts[image, place, None] + wanted]
            columns.append(self._of(slot)[_starts(counts[:, place])[image, None] + in_order])
        return np.concatenate(columns, axis=1)

    def _of(self, slot: Slot) -> NDArray[np.int64]:
        """The numbers of the captions of a slot's type, image by image."""
        numbers = np.flatnonzero(self._is(slot))
        return numbers[np.argsort(self._image[numbers], kind="stable")]

    def _counts(self, slot: Slot) -> NDArray[np.int64]:
        """How many captions of a slot's type each image has."""
        return np.bincount(self._image[self._is(slot)], minlength=self.images)

    def _is(self, slot: Slot) -> NDArray[np.bool_]:
        return self._type == (self._types.index(slot.type) if slot.type in self._types else -1)

    def _turns(self, group: Sequence[Slot]) -> NDArray[np.int64]:
        """How often each image's captions fill a group; 0 where a slot has none, or a slot of count 0 has some."""
        turns, fits = np.zeros(self.images, np.int64), np.ones(self.images, bool)
        for slot in group:
            has = self._counts(slot)
            fits &= (has > 0) == bool(slot.count)
            turns = np.maximum(turns, -(-has // slot.count)) if slot.count else turns
        return turns * fits


def _starts(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where each part begins of parts of these sizes that lie one behind the other."""
    return np.cumsum(counts) - counts


def _permutations(generator: np.random.Generator, sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Permutations of 0 … n − 1 for each size n, one behind the other: those of `generator.permutation`, in turn."""
    starts = _starts(sizes)
    flat = np.arange(sizes.sum()) - np.repeat(starts, sizes)
    several = np.flatnonzero(sizes > 1)
    for run in np.split(several, np.flatnonzero(np.diff(sizes[several])) + 1):
        if len(run):
            places = starts[run, None] + np.arange(sizes[run[0]])
            flat[places] = generator.permuted(flat[places], axis=1)
    return flat


class Everything(OfRank):
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
        super().__init__()
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
