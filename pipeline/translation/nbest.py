"""Choices from n-best lists: weights tuned on one set of sentences, and the scores of what they choose from another."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from data.characters import lowered
from data.errors import DataError
from data.language_codes import UNSPACED, require_language
from data.lines import read_lines
from data.nbest import Candidate, nbest_lines, read_nbest
from modules.metrics.intervals import Difference
from modules.metrics.surface_scores import BLEU_MEASURE, SURFACE_MEASURES, SurfaceMeasure
from modules.metrics.translation import by_image, paired_gain
from modules.translators.mira import MiraSettings, Numbers, choose, oracle, padded, tune
from pipeline.engine.console import info
from pipeline.engine.files import write_output
from pipeline.errors import RecipeError
from pipeline.visualization.text_table import TextTable, shown_difference


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

    @classmethod
    def of(
        cls, lists: Sequence[Sequence[Candidate]], references: Sequence[str], language: str | None,
        use: Sequence[str] = (),
    ) -> "Lists":  # fmt: skip
        """Lists of candidates in a language, with some of their features or (none named) all; texts in lower case."""
        names = list(use or lists[0][0].features)
        values = padded(
            [[[candidate.features[name] for name in names] for candidate in candidates] for candidates in lists]
        )
        return cls(
            [[lowered(candidate.text, language or "") for candidate in candidates] for candidates in lists],
            values,
            names,
            [lowered(reference, language or "") for reference in references],
            language in UNSPACED,
        )

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


def comparison_table(title: str, scored: Sequence[Scored]) -> TextTable:
    """Scores of systems from `compare`, a line a system and measure, with gains over the first system."""
    systems = list(dict.fromkeys(score.system for score in scored))
    rows = []
    for system in systems:
        for place, score in enumerate(score for score in scored if score.system == system):
            gain: list[str] = [""] * 3 if score.gain is None else shown_difference(score.gain)
            rows.append(["" if place else system, score.measure, f"{score.value:.1f}", *gain])
    return TextTable(title, ["", "", "score", f"− {systems[0]}", "95 %", "p"], rows)


def shown_weights(tuning: Tuning) -> str:
    """The mean of each weight over the seeds, and its standard deviation over them."""
    mean, sd = tuning.by_seed.mean(0), tuning.by_seed.std(0)
    return ", ".join(f"{name} {m:+.3g} (sd {s:.2g})" for name, m, s in zip(tuning.names, mean, sd, strict=True))


def _distinct(
    measure: SurfaceMeasure, pairs: Iterable[tuple[str, str]], characters: bool
) -> dict[tuple[str, str], Tensor]:
    """The statistics (k,) of each distinct pair of a translation and its reference."""
    distinct = list(dict.fromkeys(pairs))
    said, wanted = ([pair[side] for pair in distinct] for side in (0, 1))
    return dict(zip(distinct, measure.statistics(said, wanted, characters), strict=True))


_MOST_SEEDS = 1000
AS_LISTED, RERANKED, ORACLE = "as listed", "re-ranked", "oracle"


@dataclass(frozen=True)
class ListFiles:
    """Files of one set of sentences.

    Attributes:
        lists: n-best lists in Moses' format.
        references: a sentence a line; None: not known.
        features: further features of the candidates (`data.nbest.read_nbest`); None: none.
    """

    lists: Path
    references: Path | None
    features: Path | None


def rerank_translations(
    development: ListFiles, test: ListFiles | None, use: Sequence[str], seeds: int, language: str | None,
    output: Path | None, whole: bool,
) -> None:  # fmt: skip
    """Tune weights on development lists by k-best MIRA, print what they gain, and re-rank other lists.

    Args:
        development: lists with references.
        test: lists to re-rank; None: the development lists.
        use: the features that are weighted; empty: all.
        seeds: how many tunings, seeds 1, 2 …; the best on the development lists re-ranks.
        language: of the translations; BLEU counts characters where it is written without spaces.
        output: where the best translations go, a sentence a line; None: nowhere.
        whole: `output` gets whole lists in Moses' format, in their new order.

    Raises:
        DataError: a file is missing or wrong, or references are of another length.
        RecipeError: an option does not fit.
    """
    if not 1 <= seeds <= _MOST_SEEDS:
        raise RecipeError(f"rerank-translations: --seeds is {seeds}; expected 1 to {_MOST_SEEDS}")
    language = None if language is None else require_language(language, "rerank-translations: --language")
    candidates, learned = lists_of(development, use, language)
    to_rerank, applied = (candidates, learned) if test is None else lists_of(test, use or learned.names, language)
    if list(applied.names) != list(learned.names):
        applied = applied.only(learned.names)
    tuning = tuned(learned, range(1, seeds + 1))
    for where, lists in ((development.lists, learned), *([] if test is None else [(test.lists, applied)])):
        if lists.references:
            _show(where, lists, tuning, seeds)
    info(f"weights: {shown_weights(tuning)}")
    if output is not None:
        text = "".join(f"{line}\n" for line in _written(to_rerank, applied, tuning, whole))
        write_output(output, text, "rerank-translations: --output")


def lists_of(files: ListFiles, use: Sequence[str], language: str | None) -> tuple[list[list[Candidate]], Lists]:
    """The candidates of a set, and their texts, features and references.

    Args:
        files: where they are.
        use: names of the features that are kept; empty: all.
        language: of the translations; None: not known.

    Raises:
        DataError: a file is missing or wrong, references are of another length, or there is no feature of a name in
            `use`.
    """
    references = [] if files.references is None else read_lines(files.references, "a reference a line")
    lists = read_nbest(files.lists, None, files.features, use)
    if files.references is not None and len(references) != len(lists):
        raise DataError(f"{files.references}: {len(references)} references, but {files.lists} has candidates of "
                        f"{len(lists)} sentences; expected a reference for each")  # fmt: skip
    return lists, Lists.of(lists, references, language, use)


def _show(where: Path, lists: Lists, tuning: Tuning, seeds: int) -> None:
    """Print what the weights gain on a set with references."""
    systems = {
        AS_LISTED: [lists.taken([0] * len(lists.texts))],
        RERANKED: lists.chosen(tuning.by_seed),
        ORACLE: [lists.oracle()],
    }
    scored = compare(systems, lists.references, None, lists.characters, 1000)
    over = "95 % over sentences and over seeds" if seeds > 1 else "95 %, one seed: sentences only"
    what = f"{RERANKED}: mean of {seeds} seeds of MIRA, lower-cased; gains: {over}"
    comparison_table(f"{where}: {len(lists.texts):,} sentences; {what}", scored).show()


def _written(candidates: list[list[Candidate]], lists: Lists, tuning: Tuning, whole: bool) -> list[str]:
    """The best translation of each sentence, or whole lists in their new order."""
    scores = (lists.features * list(tuning.best.values())).sum(-1).tolist()
    ordered = [
        sorted(zip(some, own, strict=False), key=lambda scored: -scored[1])  # shorter lists have more scores
        for some, own in zip(candidates, scores, strict=True)
    ]
    if not whole:
        return [some[0][0].text for some in ordered]
    return nbest_lines(
        [[candidate for candidate, _ in some] for some in ordered], [[score for _, score in some] for some in ordered]
    )
