"""`doctor`: reads a recipe's data again and reports what is in it and what is wrong with it; writes nothing."""

import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from data.corpora import Corpus
from data.corpora.registry import CORPORA
from data.corpora.subset import training_subset, without_unreadable
from data.findings.checks import Finding
from data.findings.report import data_report
from pipeline.engine.console import counted, info
from pipeline.errors import RecipeError
from pipeline.recipes.settings import Recipe
from pipeline.visualization.text_table import TextTable

SKIP = "`unreadable: skip` in the recipe's section corpus (or --corpus.unreadable=skip with each command)"
"""What leaves out pictures that are not there or cannot be read, with their captions."""
_COLOURS = {"error": "red", "warning": "yellow"}


def doctor(recipe: Recipe, examples: int) -> None:
    """Print the data report of a recipe's corpus.

    Raises:
        DataError: the data cannot be read.
        RecipeError: there are neither regions nor pictures, or a finding would spoil results.
    """
    with tempfile.TemporaryDirectory(prefix="bildwort-") as folder:  # for corpora that make pictures
        content = read_corpus(recipe, Path(folder))
        report = data_report(content, content.open_regions(), examples)  # none are extracted
    for title, rows in report.counts().items():
        _sheet(title, rows).show()
    say_findings(report.findings, examples)
    if report.errors:
        what = ", ".join(dict.fromkeys(finding.what for finding in report.errors))
        raise RecipeError(f"{recipe.corpus.name}: {what}; they would spoil results, correct the data first")


def read_corpus(recipe: Recipe, folder: Path, check_pictures: bool = True) -> Corpus:
    """The corpus of a recipe, read from its own files; of the training data the part that the recipe names.

    Args:
        folder: for pictures that a corpus makes.
        check_pictures: those that are not there or cannot be read are refused, or left out with their captions, as
            the recipe says; else captions of pictures that are not there are left out.

    Raises:
        DataError: the data cannot be read.
        RecipeError: there are neither regions nor pictures to find them in.
    """
    corpus = recipe.corpus
    root = None if corpus.root is None else Path(corpus.root)
    content = CORPORA[corpus.name].read(corpus.options, root, folder)
    if check_pictures and corpus.unreadable == "refuse":
        content.require_pictures(f", or all such lines by {SKIP}")
    if content.regions is None and not content.pictures:
        raise RecipeError(f"{corpus.name}: neither regions nor pictures; set corpus.regions or corpus.pictures")
    if check_pictures and corpus.unreadable == "skip" and content.regions is None:
        content = without_unreadable(content)
    if corpus.is_subset:
        return training_subset(content, corpus.images, corpus.captions_per_image, recipe.seed)
    return content


def say_counts(findings: Sequence[Finding], path: Path) -> None:
    """Print how many errors and warnings there are, where all are written, and how often each kind of them occurs."""
    info(f"data report: {_counts(findings)}: {path}")
    kinds = Counter[tuple[str, str]]()
    for finding in findings:
        kinds[finding.level, finding.what.partition(" (")[0]] += finding.count  # without its share
    for (level, what), count in kinds.items():
        info(f"{what}: {count:,}×", f"{level}:", _COLOURS[level])


def say_findings(findings: Sequence[Finding], examples: int = 1) -> None:
    """Print how many errors and warnings there are, and a line for each with its first examples."""
    info(f"data report: {_counts(findings)}")
    say_each(findings, examples)


def _counts(findings: Sequence[Finding]) -> str:
    errors = sum(finding.level == "error" for finding in findings)
    return f"{counted(errors, 'errors')}, {counted(len(findings) - errors, 'warnings')}"


def say_each(findings: Sequence[Finding], examples: int = 1) -> None:
    """Print a line for each finding with its first examples."""
    for finding in findings:
        shown = "; ".join(finding.examples[:examples]) + (" …" if finding.count > examples else "")
        text = f"{finding.what} ({finding.where}): {finding.count:,}× {shown}"
        info(text, f"{finding.level}:", _COLOURS[finding.level])


def _sheet(title: str, rows: Sequence[dict[str, Any]]) -> TextTable:
    """Rows of counts as a table; their keys are the columns."""
    cells = [[f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row.values()] for row in rows]
    return TextTable(title, list(rows[0]) if rows else [], cells)
