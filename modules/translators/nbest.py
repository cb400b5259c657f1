"""n-best lists: weights of their features, tuned on one set of sentences, and what they choose from another."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from modules.metrics.intervals import Difference
from modules.metrics.surface_scores import BLEU_MEASURE, SURFACE_MEASURES, SurfaceMeasure
from modules.metrics.translation import by_image, paired_gain
from modules.translators.mira import MiraSettings, Numbers, choose, oracle, padded, tune


@dataclass(frozen=True)
class Lists:
    """n-best lists of N sentences.

    Attributes:
        texts: of the candidates of each sentence, in surface form.
        features: (N, K, F); shorter lists are filled with their first candidate.
        names: of the features.
        references: of the sentences; empty where they are not known.
        characters: the language is written without spaces.
    """

    texts: Sequence[Sequence[str]]
    features: Numbers
    names: Sequence[str]
    references: Sequence[str] = ()
    characters: bool = False
    _counted: list[Numbers] = field(default_factory=list, compare=False, repr=False)

    def only(self, names: Sequence[str]) -> "Lists":
        """The same lists with some of the features, in this order."""
        columns = [self.names.index(name) for name in names]
        return Lists(
            self.texts, self.features[..., columns], list(names), self.references, self.characters, self._counted
        )

    def statistics(self) -> Numbers:
        """BLEU statistics (N, K, 10) of the candidates; each distinct one is scored once, and kept by `only`."""
        if not self._counted:
            pairs = [
                [(text, reference) for text in some]
                for some, reference in zip(self.texts, self.references, strict=True)
            ]
            rows = _distinct(BLEU_MEASURE, [pair for some in pairs for pair in some], self.characters)
            self._counted.append(padded([[rows[pair].tolist() for pair in some] for some in pairs]))
        return self._counted[0]

    def chosen(self, weights: Numbers) -> list[list[str]]:
        """The best candidate of each sentence for each of several weights (T, F)."""
        return [self.taken(numbers) for numbers in choose(self.features, weights)]

    def taken(self, numbers: Sequence[int] | np.ndarray) -> list[str]:
        """One candidate of each sentence, by its place in the list."""
        return [some[number] for some, number in zip(self.texts, numbers, strict=True)]

    def oracle(self) -> list[str]:
        """The candidates with the highest BLEU."""
        return self.taken(oracle(self.statistics()))


@dataclass(frozen=True)
class Tuning:
    """Weights of features, tuned on development sentences.

    Attributes:
        names: of the features.
        by_seed: (T, F) weights of each seed.
        bleu: (T,) of the development sentences.
    """

    names: Sequence[str]
    by_seed: Numbers
    bleu: Numbers

    @property
    def best(self) -> dict[str, float]:
        """The weights of the seed that is best on the development sentences."""
        return dict(zip(self.names, map(float, self.by_seed[int(self.bleu.argmax())]), strict=True))


def tuned(lists: Lists, seeds: Sequence[int], settings: MiraSettings | None = None) -> Tuning:
    """Tune weights of all features of lists with references, once for each seed.

    Raises:
        ModelError: a feature is not finite.
    """
    sizes = [len(some) for some in lists.texts]
    tuning = tune(lists.features, lists.statistics(), seeds, settings, sizes)
    return Tuning(lists.names, tuning.weights, tuning.bleu)


@dataclass(frozen=True)
class Scored:
    """A system's score by one measure.

    Attributes:
        system: its name.
        measure: BLEU, chrF or TER.
        value: mean over its runs, in percent.
        gain: over the first system, on the same sentences; None for the first one.
    """

    system: str
    measure: str
    value: float
    gain: Difference | None


def figures_of(scored: Iterable[Scored], end: str = "") -> dict[str, float]:
    """Scores as named figures, as a job leaves them.

    Args:
        scored: by `compare`.
        end: of each name, where another comparison stands beside.

    Examples:
        >>> figures_of([Scored("all", "BLEU", 31.5, Difference(1.5, 0.5, 2.5, 0.01))])
        {'all | BLEU': 31.5, 'all | BLEU value': 1.5, 'all | BLEU low': 0.5, 'all | BLEU high': 2.5,
         'all | BLEU p_value': 0.01}
    """
    figures = {}
    for score in scored:
        name = f"{score.system} | {score.measure}{end}"
        figures[name] = float(score.value)
        if score.gain is not None:
            figures |= {f"{name} {part}": float(value) for part, value in score.gain._asdict().items()}
    return figures


def scored_in(figures: Mapping[str, float], systems: Sequence[str], end: str = "") -> list[Scored]:
    """The scores of some systems among named figures; see `figures_of`.

    Examples:
        >>> scored_in({f"all | {measure}": 31.5 for measure in ("BLEU", "chrF", "TER")}, ["all"])[0]
        Scored(system='all', measure='BLEU', value=31.5, gain=None)
    """
    scored = []
    for measure in SURFACE_MEASURES:
        for system in systems:
            name = f"{system} | {measure.name}{end}"
            parts = [figures.get(f"{name} {part}") for part in Difference._fields]
            known = [part for part in parts if part is not None]
            gain = Difference(*known) if len(known) == len(parts) else None
            scored.append(Scored(system, measure.name, figures[name], gain))
    return scored


def compare(
    systems: Mapping[str, Sequence[Sequence[str]]], references: Sequence[str], images: Sequence[str] | None,
    characters: bool, resamples: int,
) -> list[Scored]:  # fmt: skip
    """Score systems by BLEU, chrF and TER, and test their gains over the first one by paired bootstrap.

    Args:
        systems: by name, the translations of each run.
        references: of the sentences.
        images: of the sentences, whose sentences are resampled together; None: each sentence alone.
        characters: the language is written without spaces.
        resamples: of the bootstrap.
    """
    scored = []
    pairs = [list(zip(run, references, strict=True)) for runs in systems.values() for run in runs]
    for measure in SURFACE_MEASURES:
        rows = _distinct(measure, [pair for run in pairs for pair in run], characters)
        first: list[Tensor] | None = None
        for name, runs in systems.items():
            each = [torch.stack([rows[pair] for pair in zip(run, references, strict=True)]) for run in runs]
            statistics = each if images is None else [by_image(counts, images) for counts in each]
            value = sum(float(measure.score(counts.sum(0))) for counts in statistics) / len(statistics)
            gain = None if first is None else paired_gain(statistics, first, measure.score, resamples)
            first = first or statistics
            scored.append(Scored(name, measure.name, value, gain))
    return scored


def _distinct(
    measure: SurfaceMeasure, pairs: Iterable[tuple[str, str]], characters: bool
) -> dict[tuple[str, str], Tensor]:
    """The statistics (k,) of each distinct pair of a translation and its reference."""
    distinct = list(dict.fromkeys(pairs))
    said, wanted = ([pair[side] for pair in distinct] for side in (0, 1))
    return dict(zip(distinct, measure.statistics(said, wanted, characters), strict=True))
