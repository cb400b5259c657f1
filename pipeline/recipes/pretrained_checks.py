"""Checks of pretrained translators: one line, before anything runs."""

import re

from pipeline.errors import RecipeError
from pipeline.recipes.settings import MmtSettings, Recipe
from pipeline.recipes.systems import CAPTION, CHANNEL, is_pretrained, parse_path

_HUB = "hub"
_TAKEN = (CAPTION, CHANNEL, "human", _HUB, "text", "back", "looks", "lists", "choices")


def check_pretrained(mmt: MmtSettings, where: str) -> None:
    """Refuse names of pretrained translators that stand for something else, and directions that are none.

    Raises:
        RecipeError: there is one; it names the key.
    """
    for name, about in mmt.pretrained.items():
        key = f"{where}: mmt.pretrained.{name}"
        ours = re.fullmatch(r"n?mm?t\d*", name)
        if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or ours or name in (*_TAKEN, *mmt.rerank.systems):
            raise RecipeError(f"{where}: mmt.pretrained has {name!r}; expected a name of small letters, digits and _, "
                              "that stands for nothing else (not mt, mmt, caption …)")  # fmt: skip
        if not about.model.strip():
            raise RecipeError(f"{key}.model is empty; expected a folder, or a name on the hub")
        for direction in about.directions:
            if not re.fullmatch(r"(\w+)-(?!\1$)\w+", direction):
                raise RecipeError(f"{key}.directions has {direction!r}; expected two languages, like en-de")
        if len({*about.directions}) < len(about.directions):
            raise RecipeError(f"{key}.directions has an entry twice: {', '.join(about.directions)}")


def refuse_hub_path(path: str, where: str) -> None:
    """Refuse a path that names a model itself: `/`, `:` and `-` of its name have other meanings in paths and groups.

    Raises:
        RecipeError: it does.
    """
    if parse_path(path)[0] == _HUB:
        raise RecipeError(f"{where}: augment.paths has {path!r}; name the model as mmt.pretrained.NAME.model, add NAME "
                          "to mmt.systems, and write NAME:en-de")  # fmt: skip


def check_pretrained_path(recipe: Recipe, path: str, where: str) -> None:
    """Refuse searches that pretrained translators do not have.

    Raises:
        RecipeError: the path names one.
    """
    system, _, search = parse_path(path)
    if search is not None and is_pretrained(recipe.mmt, system) and recipe.augment.searches[search].groups > 1:
        raise RecipeError(
            f"{where}: augment.paths has {path!r}, but a pretrained translator has no diverse beam search "
            f"(augment.searches.{search}.groups); leave groups out, or sample"
        )
