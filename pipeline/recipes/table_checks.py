"""Checks of the tables of a recipe: what a system needs for its table, and published figures."""

import math
from collections.abc import Mapping
from typing import Any

from pipeline.errors import RecipeError
from pipeline.recipes.settings import RANKED_BY, VseSettings

MEASURES_OF_CAPTIONS, DEPTH = 5, 5
"""BLEU-1 to 4 and CIDEr-D, of the captions at ranks 1 … 5."""


def check_system(table: Mapping[str, Any], vse: VseSettings, where: str) -> None:
    """Refuse a system whose settings do not give the figures of its table.

    Args:
        table: its plain values.
        vse: settings of the system.
        where: file and key of the table.

    Raises:
        RecipeError: they do not.
    """
    without = f"without vse.{', vse.'.join(RANKED_BY)}"
    if table.get("folds") and (vse.folds == 1 or vse.ranked_by):
        raise RecipeError(f"{where}.folds needs vse.folds of 2 or more, {without}")
    if table.get("captions") and (not vse.retrieved_captions or vse.ranked_by):
        raise RecipeError(f"{where}.captions needs vse.retrieved_captions, {without}")
    if (language := table.get("language", "en")) not in vse.test:
        raise RecipeError(f"{where}.language is {language!r}, which vse.test lacks")


def check_compared(table: Mapping[str, Any], where: str) -> None:
    """Refuse pairs of systems that are not two systems of the table.

    Args:
        table: its plain values.
        where: file and key of the table.

    Raises:
        RecipeError: there is one.
    """
    systems = [str(name) for name in table.get("systems") or ()]
    for pair in table.get("compare") or ():
        known = isinstance(pair, list) and all(str(name) in systems for name in pair)
        if not known or len(pair) != 2 or pair[0] == pair[1]:
            raise RecipeError(f"{where}.compare: {pair!r}; expected two systems of the table: {', '.join(systems)}")


def check_published(table: Mapping[str, Any], figures: Any, where: str) -> None:
    """Refuse published figures that are not as the table shows them.

    Args:
        table: its plain values.
        figures: of one row, or of a system of another paper.
        where: file and key of the figures.

    Raises:
        RecipeError: they are not numbers, or not as many.
    """
    listed = isinstance(figures, list) and all(
        value is None or (isinstance(value, int | float) and math.isfinite(value)) for value in figures
    )
    if table.get("captions"):
        ranks = [MEASURES_OF_CAPTIONS * rank for rank in range(1, DEPTH + 1)]
        if not listed or len(figures) not in ranks:
            raise RecipeError(f"{where}: expected BLEU-1 to 4 and CIDEr-D × 100 of the captions at rank 1, or at ranks "
                              "1 to 2, 3, 4 or 5; null where one was not published")  # fmt: skip
    elif not listed or len(figures) not in (1, 6, 8):
        raise RecipeError(f"{where}: expected R@1, 5, 10 both ways, with or without the median rank behind each three, "
                          "or the mean of the six alone; null where one was not published")  # fmt: skip
