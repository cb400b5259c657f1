"""Types of encoded images and captions; storage of many of them without padding."""

from collections.abc import Callable
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
    """The encodings of all images or captions to rank, each without padding.

    Padding is added when items are selected with `[…]`, so memory holds only the real vectors and one padded block.

    Attributes:
        parts: vectors (T, H) of each item.
    """

    parts: list[Tensor]

    @classmethod
    def of(cls, encoding: Encoding) -> "Encodings":
        """Remove the padding from one encoding of all items."""
        vectors, mask = encoding
        return cls(list(vectors[mask].split(mask.sum(dim=1).tolist())))

    def __len__(self) -> int:
        return len(self.parts)

    def __getitem__(self, rows: slice | Tensor) -> Encoding:
        parts = self.select(rows).parts
        vectors = torch.cat(parts)
        lengths = torch.tensor([len(part) for part in parts])
        mask = (torch.arange(int(lengths.max())) < lengths[:, None]).to(vectors.device)
        padded = vectors.new_zeros(*mask.shape, vectors.shape[1])
        padded[mask] = vectors
        return padded, mask

    def select(self, rows: slice | Tensor) -> "Encodings":
        """Return some of the items, without a copy."""
        some = self.parts[rows] if isinstance(rows, slice) else [self.parts[row] for row in rows.tolist()]
        return Encodings(some)

    def single(self) -> Tensor:
        """Return vectors (N, H) of items that have one vector each."""
        return torch.cat(self.parts)
