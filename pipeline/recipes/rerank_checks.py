"""Checks of re-ranked translators: one line, before anything runs."""

import re

from pipeline.errors import RecipeError
from pipeline.recipes.rerank_settings import MEASURES, OF_RETRIEVAL
from pipeline.recipes.settings import MmtSettings
from pipeline.recipes.systems import CHANNEL, directions_of, members_of, opposite


def check_rerank(mmt: MmtSettings, where: str) -> None:
    """Refuse re-rankers that cannot be tuned.

    Raises:
        RecipeError: there is one; it names the key.
    """
    rerank, key = mmt.rerank, "mmt.rerank"
    for name, features in rerank.systems.items():
        if not re.fullmatch(r"[A-Za-z_]+", name) or name == CHANNEL or re.fullmatch(r"n?mm?t", name):
            raise RecipeError(
                f"{where}: {key}.systems has {name!r}; expected letters, and not {CHANNEL}, mt, mmt or nmt"
            )
        if not features or len({*features}) < len(features):
            raise RecipeError(
                f"{where}: {key}.systems.{name} has the features {', '.join(features) or 'none'}; expected one or more "
                "features, each once"
            )
        if needs_retrieval(mmt, name) and not rerank.retrieval:
            raise RecipeError(
                f"{where}: {key}.systems.{name} has a feature of a retrieval model; set {key}.retrieval.row to a row "
                "of vse.rows"
            )
    for name, value, least in (("list_size", rerank.list_size, 2), ("passes", rerank.passes, 1)):
        if value < least:
            raise RecipeError(f"{where}: {key}.{name} is {value}; expected {least} or more")
    if not rerank.seeds or len({*rerank.seeds}) < len(rerank.seeds) or min(rerank.seeds) < 0:
        shown = ", ".join(map(str, rerank.seeds)) or "empty"
        raise RecipeError(f"{where}: {key}.seeds is {shown}; expected one or more, each once, from 0")
    for system in mmt.systems:
        _check_system(mmt, system, where)
    _check_published(mmt, where)


def _check_published(mmt: MmtSettings, where: str) -> None:
    """Refuse published figures that no table would show, by a RecipeError."""
    languages = {language for direction in mmt.directions for language in direction.split("-")}
    for direction, systems in mmt.rerank.published.items():
        if not {*direction.split("-")} <= languages:  # the opposite of a direction that is trained alone may stay
            raise RecipeError(f"{where}: mmt.rerank.published has {direction!r}; expected one of mmt.directions "
                              f"({', '.join(mmt.directions)})")  # fmt: skip
        for system, figures in systems.items():
            if not figures or (unknown := sorted(figures.keys() - {*MEASURES})):
                shown = unknown[0] if figures else "nothing"
                raise RecipeError(f"{where}: mmt.rerank.published.{direction}.{system} has {shown}; expected "
                                  f"{', '.join(MEASURES)}")  # fmt: skip


def needs_retrieval(mmt: MmtSettings, reranks: str | None) -> bool:
    """Does what re-ranks a system (`members_of`) have a feature of a retrieval model?"""
    return bool({*mmt.rerank.systems.get(str(reranks), [])} & {*OF_RETRIEVAL})


def _check_system(mmt: MmtSettings, system: str, where: str) -> None:
    """Refuse a re-ranked system whose re-ranker or channel is missing."""
    reranks = members_of(system)[1]
    if reranks is None:
        return
    if reranks != CHANNEL and reranks not in mmt.rerank.systems:
        known = ", ".join([CHANNEL, *mmt.rerank.systems])
        raise RecipeError(f"{where}: mmt.systems has {system!r}; expected mt, mmt, mt2 …, mt+mmt …, or one that is "
                          f"re-ranked: +NAME with a NAME of mmt.rerank.systems ({known})")  # fmt: skip
    if reranks == CHANNEL or CHANNEL in mmt.rerank.systems[reranks]:
        for direction in directions_of(mmt, system):
            back = opposite(direction)
            if not ("mt" in mmt.systems and back in mmt.directions) and direction not in mmt.back_translate:
                raise RecipeError(
                    f"{where}: mmt.systems has {system!r}, but nothing translates {back}; expected it in "
                    f"mmt.directions and mt in mmt.systems, or a recipe that lends it as mmt.back_translate.{direction}"
                )
