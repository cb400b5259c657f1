"""BLEU, chrF and TER of surface text as sums of sentences' statistics, so that translations can be resampled."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from sacrebleu.metrics.chrf import CHRF
from torch import Tensor

from modules.errors import ModelError
from modules.metrics.translation import bleu_of, letters_apart, surface_bleu, surface_ter

_AS_BLEU_STATISTICS = [2, 3, 4, 5, 6, 7, 8, 9, 0, 1]  # sacreBLEU has the lengths first
_BETA_SQUARED = 4  # chrF2


@dataclass(frozen=True)
class SurfaceMeasure:
    """A measure of translations in surface form, lower-cased, against one reference each.

    Attributes:
        name: of it.
        statistics: of translations and references, and whether the language is written without spaces: (N, k).
        score: of summed statistics (…, k): (…,) in percent.
    """

    name: str
    statistics: Callable[[Sequence[str], Sequence[str], bool], Tensor]
    score: Callable[[Tensor], Tensor]


def surface_statistics(hypotheses: Sequence[str], references: Sequence[str], characters: bool = False) -> Tensor:
    """Return the statistics (N, 10) of `surface_bleu`, in the order of `bleu_statistics`.

    Examples:
        >>> counts = surface_statistics(["A dog runs."], ["a dog runs !"])[0]
        >>> [int(count) for count in counts]  # matches of 1- to 4-grams, n-grams, both lengths; case does not count
        [3, 2, 1, 0, 4, 3, 2, 1, 4, 4]
    """
    return _statistics(surface_bleu(characters), hypotheses, references)[:, _AS_BLEU_STATISTICS]


def _chrf_statistics(hypotheses: Sequence[str], references: Sequence[str], characters: bool) -> Tensor:
    """Return counts (N, 18): n-grams of the translation, of the reference, and of both, n = 1 … 6."""
    return _statistics(CHRF(lowercase=True), hypotheses, references)


def _chrf_of(statistics: Tensor) -> Tensor:
    """Return chrF2 from summed counts: precision and recall are averaged over the orders that have n-grams."""
    said, wanted, both = statistics.unflatten(-1, (-1, 3)).unbind(-1)
    known = (said > 0) & (wanted > 0)
    orders = known.sum(-1).clamp(min=1)
    precision, recall = (torch.where(known, both / side.clamp(min=1), 0.0).sum(-1) / orders for side in (said, wanted))
    below = _BETA_SQUARED * precision + recall
    return torch.where(below > 0, 100 * (1 + _BETA_SQUARED) * precision * recall / below.clamp(min=1e-30), 0.0)


def _ter_statistics(hypotheses: Sequence[str], references: Sequence[str], characters: bool) -> Tensor:
    """Return edits and words of the reference, (N, 2)."""
    if characters:
        hypotheses, references = letters_apart(hypotheses), letters_apart(references)
    return _statistics(surface_ter(characters), hypotheses, references)


def _ter_of(statistics: Tensor) -> Tensor:
    """Return the translation edit rate from summed edits and words."""
    edits, words = statistics.unbind(-1)
    return 100 * torch.where(words > 0, edits / words.clamp(min=1), (edits > 0).to(edits.dtype))


def _statistics(metric: Any, hypotheses: Sequence[str], references: Sequence[str]) -> Tensor:
    """Return the statistics of each sentence that sacreBLEU sums for a corpus."""
    if len(hypotheses) != len(references):
        raise ModelError(f"{len(hypotheses)} translations for {len(references)} references; give one each")
    metric._force = True  # text that is tokenised already is scored as it is, without a warning
    rows = metric._extract_corpus_statistics(list(hypotheses), [list(references)])
    return torch.tensor(rows, dtype=torch.float64)


BLEU_MEASURE = SurfaceMeasure("BLEU", surface_statistics, bleu_of)
SURFACE_MEASURES = (
    BLEU_MEASURE, SurfaceMeasure("chrF", _chrf_statistics, _chrf_of),
    SurfaceMeasure("TER", _ter_statistics, _ter_of),
)  # fmt: skip
"""BLEU-4 and chrF2, where higher is better, and the translation edit rate, where lower is."""
