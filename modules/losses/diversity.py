"""Diversity of attention heads (diverse attention, Huang et al. 2019, Eq. 5-7), and which items are one instance."""

from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor
from torch.nn import functional as F

from modules.errors import ModelError
from modules.layers.recurrent import widen
from modules.layers.static import is_static

Reading = Literal["apart", "printed", "distance"]
"""Readings of Eq. 5; s is the cosine of two different heads."""


class Diversity(NamedTuple):
    """What `diversity` finds.

    Attributes:
        loss: the sum of all terms of Eq. 6.
        active: share of the terms that are above 0, without gradient.
        cosine: mean cosine of the pairs of heads, without gradient.
    """

    loss: Tensor
    active: Tensor
    cosine: Tensor


def diversity(heads: Tensor, present: Tensor, margin: float = 0.1, reading: Reading = "apart") -> Diversity:
    """Diversity loss (Eq. 5-6) of instances with M modalities, which are the image and one caption of each language.

    The sum over instances p, over modalities m ≤ n, and over heads k ≠ r of a hinge of s(m_p^k, n_p^r). The hinge is
    [s − α_D]₊ for `apart`, [α_D − s]₊ for `printed` (as in Eq. 5: pulls heads together), and [α_D − (1 − s)]₊ for
    `distance`.

    All cosines of an instance are one Gram matrix of its M·K heads. A mask takes what Eq. 6 counts: k ≠ r in blocks on
    and above the diagonal. Always in float32 or wider.

    Args:
        heads: (B, M, K, H), of any length.
        present: (B, M) bool; modalities that an instance lacks do not take part.
        margin: α_D.
        reading: of Eq. 5.

    Raises:
        ModelError: the reading is unknown.

    Examples:
        >>> alike, apart = torch.ones(1, 1, 2, 3), torch.eye(2, 3)[None, None]  # (1, 1, K = 2, H): an image alone
        >>> [round(float(diversity(heads, torch.ones(1, 1).bool()).loss), 2) for heads in (alike, apart)]
        [1.8, 0.0]
    """
    require_reading(reading)
    _, modalities, count, _ = heads.shape
    with torch.autocast(heads.device.type, enabled=False):
        unit = F.normalize(widen(heads), dim=-1).flatten(1, 2)
        cosines = unit @ unit.transpose(1, 2)  # (B, MK, MK)
    modality = torch.arange(modalities, device=heads.device).repeat_interleave(count)
    head = torch.arange(count, device=heads.device).repeat(modalities)
    counted = (modality[:, None] <= modality) & (head[:, None] != head)
    there = present.repeat_interleave(count, dim=1)
    counted = counted & there[:, :, None] & there[:, None, :]
    hinges = _slack(cosines, margin, reading).relu() * counted
    terms = counted.sum().clamp(min=1)
    return Diversity(
        hinges.sum(), (hinges.detach() > 0).sum() / terms, (cosines.detach() * counted).sum() / terms
    )  # fmt: skip


def require_reading(reading: str) -> None:
    """Refuse a reading of Eq. 5 that there is not.

    Raises:
        ModelError: it is unknown.
    """
    if reading not in get_args(Reading):
        raise ModelError(f"diversity_reading {reading!r}: expected one of {', '.join(get_args(Reading))}")


def instances(
    images: Tensor, captions: Tensor, caption_image: Tensor, languages: Tensor, sentences: Tensor, known: int
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Join the heads of images and captions that match to instances: an image with at most one caption a language.

    An image with several captions of a language is in as many instances. The captions of each language are taken in the
    order of their sentences' hashes, so the order of the batch does not matter.

    Args:
        images: (I, K, H) heads of each image.
        captions: (C, K, H) heads of each caption.
        caption_image: (C,) row of each caption's image.
        languages: (C,) language of each caption.
        sentences: (C,) hash of each caption's normalised sentence.
        known: how many languages the model has.

    Returns:
        heads (B, 1 + L, K, H) of the image and of each of the L languages of the batch (in the static form of all that
        the model has), zero where an instance lacks a language; `present` (B, 1 + L).

    Examples:
        >>> images, captions = torch.zeros(1, 2, 4), torch.ones(3, 2, 4)  # two heads
        >>> links, languages, sentences = torch.tensor([0, 0, 0]), torch.tensor([0, 0, 1]), torch.tensor([5, 6, 7])
        >>> heads, present = instances(images, captions, links, languages, sentences, known=2)
        >>> tuple(heads.shape), present.int().tolist()  # the second English caption has no German one beside it
        ((2, 3, 2, 4), [[1, 1, 1], [1, 1, 0]])
    """
    count, rows = len(captions), torch.arange(len(captions), device=captions.device)
    static = is_static(captions)
    spoken, language = (known, languages) if static else _distinct(languages)
    beside = (caption_image[:, None] == caption_image) & (language[:, None] == language)
    earlier = (sentences < sentences[:, None]) | ((sentences == sentences[:, None]) & (rows < rows[:, None]))
    place = (beside & earlier).sum(1)
    keys = caption_image * max(count, 1) + place
    if static:  # as many as captions; an instance is where its first caption is, the others are empty
        instance, seen = (keys[:, None] == keys).int().argmax(1), images[caption_image]
        number, real = count, instance == rows
    else:
        distinct, instance = keys.unique(return_inverse=True)
        seen = images[distinct.div(max(count, 1), rounding_mode="floor")]
        number, real = len(distinct), torch.ones(len(distinct), dtype=torch.bool, device=captions.device)
    slots = instance * spoken + language
    said = captions.new_zeros(number * spoken, *captions.shape[1:]).index_copy(0, slots, captions)
    has = torch.zeros(number * spoken, dtype=torch.bool, device=captions.device).index_fill(0, slots, True)
    present = torch.cat([real[:, None], has.view(number, spoken)], dim=1)
    return torch.cat([seen[:, None], said.unflatten(0, (number, spoken))], dim=1), present


def _distinct(languages: Tensor) -> tuple[int, Tensor]:
    """How many different languages there are, and the place of each caption's among them."""
    spoken, language = languages.unique(return_inverse=True)
    return len(spoken), language


def _slack(cosines: Tensor, margin: float, reading: Reading) -> Tensor:
    """What the hinge of each reading holds."""
    if reading == "apart":
        return cosines - margin
    return margin - cosines if reading == "printed" else margin - (1 - cosines)
