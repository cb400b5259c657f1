"""Token numbers of many sentences, one behind the other."""

from collections.abc import Iterable, Sequence
from itertools import chain

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from data.text.padding import rounded
from data.text.tokenisation import PADDING


class Tokens:
    """Token numbers of S sentences in two arrays, so that a batch is cut out without a list for each sentence.

    Args:
        numbers: (T,) of all sentences.
        starts: (S + 1,) where each sentence starts in `numbers`, and the end.
    """

    def __init__(self, numbers: NDArray[np.integer], starts: NDArray[np.integer]) -> None:
        self.numbers = np.ascontiguousarray(numbers, dtype=np.int32)
        self.starts = np.ascontiguousarray(starts, dtype=np.int64)

    @classmethod
    def of(cls, sentences: Iterable[Sequence[int]]) -> "Tokens":
        """Those of sentences as lists."""
        listed = list(sentences)
        lengths = np.fromiter((len(sentence) for sentence in listed), np.int64, len(listed))
        starts = np.concatenate([[0], lengths.cumsum()])
        return cls(np.fromiter(chain.from_iterable(listed), np.int32, starts[-1]), starts)

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, row: int) -> list[int]:
        sentence: list[int] = self.numbers[self.starts[row] : self.starts[row + 1]].tolist()
        return sentence

    def cut(self, most: int) -> "Tokens":
        """The first `most` tokens of each sentence."""
        lengths = np.diff(self.starts)
        if not len(lengths) or lengths.max() <= most:
            return self
        place = np.arange(len(self.numbers)) - np.repeat(self.starts[:-1], lengths)
        return Tokens(self.numbers[place < most], np.concatenate([[0], np.minimum(lengths, most).cumsum()]))

    def padded(self, rows: NDArray[np.int64], to: int = 1) -> tuple[Tensor, Tensor]:
        """Some sentences, not empty, as tokens (B, N) with padding behind, and their lengths (B,), both int64.

        N is a multiple of `to`.
        """
        starts, lengths = self.starts[rows], self.starts[rows + 1] - self.starts[rows]
        place = np.arange(rounded(int(lengths.max()), to))
        numbers = self.numbers.take(starts[:, None] + place, mode="clip")
        tokens = np.where(place < lengths[:, None], numbers, PADDING).astype(np.int64)
        return torch.from_numpy(tokens), torch.from_numpy(lengths)
