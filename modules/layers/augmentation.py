"""Size augmentation: drop random regions and words of each item during training (VSE∞, Chen et al. 2021)."""

import torch
from torch import Tensor

from modules.layers.static import beside, is_static


def drop_regions(mask: Tensor, share: float) -> Tensor:
    """Drop each region with probability `share`, but keep at least one region of each image.

    Args:
        mask: (B, R) bool, true for real regions.
        share: at least 0, below 1.

    Returns:
        (B, R) bool, true for regions that are kept.
    """
    return _chosen(mask, share) if share else mask


def drop_words(tokens: Tensor, lengths: Tensor, share: float) -> tuple[Tensor, Tensor]:
    """Drop each word with probability `share` and close the gaps, but keep at least one word of each caption.

    Args:
        tokens: (B, L), 0 is padding.
        lengths: (B,) on the CPU.
        share: at least 0, below 1.

    Returns:
        tokens (B, L) and lengths (B,) on the CPU.
    """
    if not share:
        return tokens, lengths
    places = torch.arange(tokens.shape[1], device=tokens.device)
    real = places < beside(lengths, tokens)[:, None]
    kept = _chosen(real, share)
    order = (~kept).int().argsort(dim=1, stable=True)
    counts = kept.sum(dim=1)
    return tokens.masked_fill(~kept, 0).gather(1, order), counts if is_static(tokens) else counts.cpu()


def _chosen(real: Tensor, share: float) -> Tensor:
    """Choose the real items that are kept; if all would be dropped, keep the one with the highest random number."""
    draws = torch.rand(real.shape, device=real.device).masked_fill(~real, -1)
    best = torch.zeros_like(real).scatter(1, draws.argmax(dim=1, keepdim=True), True)
    return (draws >= share) | (best & real)
