"""Size augmentation: some regions and some words of each item are left out while training (VSE∞, Chen et al. 2021)."""

import torch
from torch import Tensor


def drop_regions(mask: Tensor, share: float) -> Tensor:
    """Leave out each region with probability `share`, at least one of an image stays.

    Args:
        mask: (B, R) bool, which regions are real.
        share: from 0 to below 1.

    Returns:
        (B, R) bool, which stay.
    """
    return _chosen(mask, share) if share else mask


def drop_words(tokens: Tensor, lengths: Tensor, share: float) -> tuple[Tensor, Tensor]:
    """Leave out each word with probability `share` and close the gaps, at least one of a caption stays.

    Args:
        tokens: (B, L), 0 is padding.
        lengths: (B,) on the CPU.
        share: from 0 to below 1.

    Returns:
        tokens (B, L) and lengths (B,) on the CPU.
    """
    if not share:
        return tokens, lengths
    real = torch.arange(tokens.shape[1], device=tokens.device) < lengths.to(tokens.device)[:, None]
    kept = _chosen(real, share)
    order = (~kept).int().argsort(dim=1, stable=True)
    return tokens.masked_fill(~kept, 0).gather(1, order), kept.sum(dim=1).cpu()


def _chosen(real: Tensor, share: float) -> Tensor:
    """Which of the real items stay; where none would, the one with the highest draw does."""
    draws = torch.rand(real.shape, device=real.device).masked_fill(~real, -1)
    best = torch.zeros_like(real).scatter(1, draws.argmax(dim=1, keepdim=True), True)
    return (draws >= share) | (best & real)
