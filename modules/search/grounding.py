"""Grounding: what each word of a caption adds to its score, and the regions that this depends on, for every model.

Both are measured by leaving out: a word of the caption, a region of the image, or both.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from modules.retrieval_models.base import RetrievalModel
from modules.search.encodings import Encoding


class Grounding(NamedTuple):
    """The words of a caption next to an image.

    Attributes:
        effects: (W,) how much the score falls without each word; below 0 if it rises.
        regions: (W, R) how much of a word's effect goes with each region: its effect, less its effect without the
            region. 0 for padding, and for the only region of an image.
    """

    effects: Tensor
    regions: Tensor


def ground(model: RetrievalModel, regions: Tensor, mask: Tensor, captions: Encoding) -> Grounding:
    """Leave out each word and each region.

    Args:
        model: whose score is explained.
        regions: (R, D) of one image.
        mask: (R,) bool, true for real regions, of which there is at least one.
        captions: 1 + W encoded captions: the whole one, then without each of its words.
    """
    left_out = mask & (mask.sum() > 1)  # without its only region there is no image
    seen = torch.cat([mask[None], mask & ~torch.diag(left_out)])
    with torch.no_grad():
        images = model.encode_images(*model.see(regions.expand(len(seen), *regions.shape), seen))
        scores = model.similarity(images, captions)  # (1 + R, 1 + W)
    effects = scores[:, :1] - scores[:, 1:]
    lost = (effects[0] - effects[1:]).masked_fill(~left_out[:, None], 0)  # exactly: no rounding errors
    return Grounding(effects[0], lost.t())
