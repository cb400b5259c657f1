"""Types of encoded images and captions; storage of many of them without padding."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

Encoding = tuple[Tensor, Tensor]
"""The encodings of N images or captions: vectors (N, T, H) and their mask (N, T), true for real vectors; T is 1 for
single vectors."""
Similarity = Callable[[Encoding, Encoding], Tensor]
"""A model's score: encoded images and captions -> (I, C), higher means more similar."""


@dataclass(frozen=True)
class Encodings:
    """The encodings of all N images or captions to rank, without padding.

    Padding is added when items are selected with `[…]`, so memory holds only the real vectors and one padded block.

    Attributes:
        vectors: (S, H) of all items, one behind the other.
        starts: (N,) int64 where each item begins.
        lengths: (N,) int64 how many vectors each item has.

    Examples:
        >>> vectors, mask = torch.ones(2, 3, 4), torch.tensor([[True, True, True], [True, False, False]])
        >>> items = Encodings.of((vectors, mask))
        >>> tuple(items.vectors.shape), items.lengths.tolist()
        ((4, 4), [3, 1])
        >>> tuple(items[1:][0].shape)  # padded to the longest of the selected items
        (1, 1, 4)
    """

    vectors: Tensor
    starts: Tensor
    lengths: Tensor

    @classmethod
    def of(cls, encoding: Encoding) -> "Encodings":
        """Remove the padding from one encoding of all items."""
        vectors, mask = encoding
        return cls.behind_each_other(vectors[mask], mask.sum(dim=1))

    @classmethod
    def behind_each_other(cls, vectors: Tensor, lengths: Tensor) -> "Encodings":
        """Items of given lengths (N,) whose vectors (S, H) lie one behind the other."""
        return cls(vectors, lengths.cumsum(0) - lengths, lengths)

    @classmethod
    def joined(cls, several: Sequence["Encodings"]) -> "Encodings":
        """All items of some encodings, in turn."""
        if not several:
            return cls.behind_each_other(torch.zeros(0, 0), torch.zeros(0, dtype=torch.long))
        before = torch.tensor([0, *(len(each.vectors) for each in several)]).cumsum(0).tolist()
        starts = [each.starts + first for each, first in zip(several, before, strict=False)]
        lengths = torch.cat([each.lengths for each in several])
        return cls(torch.cat([each.vectors for each in several]), torch.cat(starts), lengths)

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, rows: slice | Tensor) -> Encoding:
        starts, lengths = self.starts[rows], self.lengths[rows]
        place = torch.arange(int(lengths.max()) if len(lengths) else 1, device=starts.device)
        mask = place < lengths[:, None]
        padded = self.vectors[torch.where(mask, starts[:, None] + place, 0)]
        return padded.masked_fill_(~mask[..., None], 0), mask

    def select(self, rows: slice | Tensor) -> "Encodings":
        """Some of the items, without a copy."""
        return Encodings(self.vectors, self.starts[rows], self.lengths[rows])

    def single(self) -> Tensor:
        """Return vectors (N, H) of items that have one vector each."""
        in_order = len(self.vectors) == len(self) and bool((self.starts.diff() == 1).all())
        return self.vectors if in_order else self.vectors[self.starts]

    def parts(self) -> list[Tensor]:
        """The vectors (T, H) of each item."""
        ends = self.starts + self.lengths
        return [self.vectors[start:end] for start, end in zip(self.starts.tolist(), ends.tolist(), strict=True)]
