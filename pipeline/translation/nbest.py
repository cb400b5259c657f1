"""n-best lists of candidates: as the tuning of weights reads them, as files, and the gains as a table."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from data.errors import DataError
from data.lines import read_lines
from data.text.characters import lowered
from data.text.language_codes import UNSPACED, require_language
from data.translators.nbest import Candidate, nbest_lines, read_nbest
from modules.translators.mira import padded
from modules.translators.nbest import Lists, Scored, Tuning, compare, tuned
from pipeline.engine.console import info
from pipeline.engine.files import write_output
from pipeline.errors import RecipeError
from pipeline.visualization.text_table import TextTable, shown_difference


def as_lists(
    lists: Sequence[Sequence[Candidate]], references: Sequence[str], language: str | None, use: Sequence[str] = ()
) -> Lists:
    """Lists of candidates in a language, with some of their features or (none named) all; texts in lower case."""
    names = list(use or lists[0][0].features)
    values = padded(
        [[[candidate.features[name] for name in names] for candidate in candidates] for candidates in lists]
    )
    return Lists(
        [[lowered(candidate.text, language or "") for candidate in candidates] for candidates in lists],
        values,
        names,
        [lowered(reference, language or "") for reference in references],
        language in UNSPACED,
    )


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


_MOST_SEEDS = 1000
AS_LISTED, RERANKED, ORACLE = "as listed", "re-ranked", "oracle"


@dataclass(frozen=True)
class ListFiles:
    """Files of one set of sentences.

    Attributes:
        lists: n-best lists in Moses' format.
        references: a sentence a line; None: not known.
        features: further features of the candidates (`data.translators.nbest.read_nbest`); None: none.
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
        use: names of the features that are kept; empty: all.

    Raises:
        DataError: a file is missing or wrong, references are of another length, or there is no feature of a name in
            `use`.
    """
    references = [] if files.references is None else read_lines(files.references, "a reference a line")
    lists = read_nbest(files.lists, None, files.features, use)
    if files.references is not None and len(references) != len(lists):
        raise DataError(f"{files.references}: {len(references)} references, but {files.lists} has candidates of "
                        f"{len(lists)} sentences; expected a reference for each")  # fmt: skip
    return lists, as_lists(lists, references, language, use)


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
