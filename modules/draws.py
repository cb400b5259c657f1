"""Random numbers that belong to a caption and a seed, so that they do not depend on the number of processes."""

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
import torch
from torch import Tensor

Kind = Literal["uniform", "normal"]


def draws(keys: Tensor, seed: Sequence[int], count: int, kind: Kind, purpose: int = 0) -> Tensor:
    """Return random numbers for each caption of a batch.

    Args:
        keys: (C,) integer ids of the captions, 0 or more; equal ones draw equal numbers.
        seed: numbers of 0 or more that the draws go by, such as those of a seed and of a step of training.
        count: numbers per caption.
        kind: `uniform` in [0, 1), or standard `normal`.
        purpose: draws of one seed for different purposes are independent.

    Returns:
        (C, count), float32, on the device of `keys`.

    Examples:
        >>> numbers = draws(torch.tensor([4, 9, 4]), seed=(0, 12), count=2, kind="uniform")
        >>> tuple(numbers.shape), bool((numbers[0] == numbers[2]).all()), bool((numbers[0] == numbers[1]).any())
        ((3, 2), True, False)
    """
    rows = np.empty((len(keys), count), dtype=np.float32)
    for row, key in enumerate(keys.tolist()):
        generator = np.random.default_rng((*seed, purpose, key))
        draw: Callable[..., object] = generator.random if kind == "uniform" else generator.standard_normal
        draw(dtype=np.float32, out=rows[row])
    return torch.from_numpy(rows).to(keys.device)
