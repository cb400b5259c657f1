"""Settings of re-ranked translators."""

from dataclasses import dataclass, field
from typing import Any, Literal

Feature = Literal["logp", "length", "channel", "image", "source"]
CONTROL = "other-image"
"""A feature of the comparison alone: the similarity to another sentence's picture."""
MEASURES = ("BLEU", "chrF", "TER")
"""Measures of the comparison."""
OF_RETRIEVAL = ("image", "source", CONTROL)
"""Features that a retrieval model computes."""


@dataclass
class ChannelSettings:
    """How a `…+channel` re-ranks n-best lists: by `logp` with weight 1 and `channel` with a fixed weight."""

    weight: float = 0.3
    """λ, of the log-probability of the source, given the translation."""
    beam_size: int = 10
    """Least width of the beam; all that it finds is re-ranked."""


@dataclass
class RerankSettings:
    """Re-ranking of n-best lists by features whose weights are tuned on validation by k-best MIRA."""

    systems: dict[str, list[Feature]] = field(default_factory=dict)
    """Name → features: `logp` (the score of the search), `length` (words), `channel` (log p of the source, given the
    translation, by the `mt` of the opposite direction), `image` and `source` (similarity of the translation to the
    picture and to the source, by the model of `retrieval`). With `picture: [logp, image]`, `mt+picture` of
    `mmt.systems` is `mt` re-ranked."""
    list_size: int = 20
    """Beam, and so candidates of a sentence."""
    seeds: list[int] = field(default_factory=lambda: [1, 2, 3, 4, 5])
    """Seeds of MIRA; the tuning that is best on validation re-ranks."""
    passes: int = 60
    """Passes of MIRA over the validation sentences."""
    retrieval: dict[str, Any] = field(default_factory=dict)
    """The retrieval model of `image` and `source`: its `row` of `vse.rows`, and what else differs from `vse` (`model`,
    `seeds: [2]` …)."""
    published: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict)
    """Direction → system → measure (`BLEU`, `chrF`, `TER`) → a published figure, shown below the recipe's own."""
