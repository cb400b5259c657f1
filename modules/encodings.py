"""Encodings of many images or captions, without padding."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

Encoding = tuple[Tensor, Tensor]
"""A retrieval model's encoding of N images or captions: vectors (N, T, H) and their mask (N, T), true where real; T is
1 for one vector."""
Similarity = Callable[[Encoding, Encoding], Tensor]
"""A model's score: encoded images and captions -> (I, C), higher is nearer."""


@dataclass(frozen=True)
class Encodings:
    """A retrieval model's encodings of all images or captions that are ranked, each without padding.

    Some are padded when they are taken out, so that memory is that of the real vectors and of a block.

    Attributes:
        parts: vectors (T, H) of each item.
    """

    parts: list[Tensor]

    @classmethod
    def of(cls, encoding: Encoding) -> "Encodings":
        """Take the padding out of one encoding of all items."""
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
        """Some of the items, nothing copied."""
        some = self.parts[rows] if isinstance(rows, slice) else [self.parts[row] for row in rows.tolist()]
        return Encodings(some)

    def single(self) -> Tensor:
        """Vectors (N, H) of items that have one each."""
        return torch.cat(self.parts)
