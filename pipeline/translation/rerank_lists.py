"""`rerank-translations`: n-best lists of any toolkit, re-ranked by weights that are tuned on other lists."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from data.errors import DataError
from data.lines import read_lines
from data.nbest import Candidate, nbest_lines, read_nbest
from data.text import UNSPACED
from pipeline.errors import RecipeError
from pipeline.jobs.console import info
from pipeline.jobs.outputs import write_output
from pipeline.translation.choices import Lists, Tuning, compare, comparison_table, shown_weights, tuned

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
    characters = language in UNSPACED
    candidates, learned = lists_of(development, use, characters)
    other, applied = (candidates, learned) if test is None else lists_of(test, use or learned.names, characters)
    if list(applied.names) != list(learned.names):
        applied = applied.only(learned.names)
    tuning = tuned(learned, range(1, seeds + 1))
    for where, lists in ((development.lists, learned), *([] if test is None else [(test.lists, applied)])):
        if lists.references:
            _show(where, lists, tuning, seeds)
    info(f"weights: {shown_weights(tuning)}")
    if output is not None:
        text = "".join(f"{line}\n" for line in _written(other, applied, tuning, whole))
        write_output(output, text, "rerank-translations: --output")


def lists_of(files: ListFiles, use: Sequence[str], characters: bool) -> tuple[list[list[Candidate]], Lists]:
    """The candidates of a set, and their texts, features and references.

    Args:
        files: where they are.
        use: names of the features that are kept; empty: all.
        characters: BLEU counts characters.

    Raises:
        DataError: a file is missing or wrong, references are of another length, or there is no feature of a name in
            `use`.
    """
    references = [] if files.references is None else read_lines(files.references, "a reference a line")
    lists = read_nbest(files.lists, None, files.features, use)
    if files.references is not None and len(references) != len(lists):
        raise DataError(f"{files.references}: {len(references)} references, but {files.lists} has candidates of "
                        f"{len(lists)} sentences; expected a reference for each")  # fmt: skip
    texts = [[one.text for one in candidates] for candidates in lists]
    names = use or list(lists[0][0].features)
    features = [[{name: one.features[name] for name in names} for one in some] for some in lists]
    return lists, Lists.of(texts, features, references, characters)


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
    scores = (lists.features * list(tuning.best.values())).sum(-1)
    orders = [sorted(range(len(some)), key=lambda k: -row[k]) for some, row in zip(candidates, scores, strict=True)]
    if not whole:
        return [some[order[0]].text for some, order in zip(candidates, orders, strict=True)]
    sorted_lists = [[some[k] for k in order] for some, order in zip(candidates, orders, strict=True)]
    return nbest_lines(
        sorted_lists, [[float(row[k]) for k in order] for row, order in zip(scores, orders, strict=True)]
    )
