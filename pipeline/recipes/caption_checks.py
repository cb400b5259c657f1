"""Checks of captions that a retrieval model writes of pictures (`caption:de`): one line, before anything runs."""

import re

from data.slots import parse_group
from pipeline.errors import RecipeError
from pipeline.recipes.settings import Recipe
from pipeline.recipes.systems import CAPTION, parse_path


def check_caption_path(recipe: Recipe, path: str, where: str) -> None:
    """Refuse a path `caption:de` that has another form, or that no `augment.captioner` writes.

    Raises:
        RecipeError: it has, or none does.
    """
    captioner, (_, languages, search) = recipe.augment.captioner, parse_path(path)
    if len(languages) != 1 or not re.fullmatch(r"[a-z]{2,3}", languages[0]) or search is not None:
        raise RecipeError(
            f"{where}: augment.paths has {path!r}; expected {CAPTION}:de, with one language and no search"
        )
    if not captioner:
        raise RecipeError(
            f"{where}: augment.paths has {path!r}, but nothing writes captions; set augment.captioner.row to a row of "
            "vse.rows and augment.captioner.model to a model with a decoder (gxn)"
        )
    groups = recipe.vse.rows.get(str(captioner.get("row")), [])
    known = sorted({slot.language for text in groups for slot in parse_group(text)})
    if known and languages[0] not in known:
        raise RecipeError(
            f"{where}: augment.paths has {path!r}, but augment.captioner.row {captioner['row']!r} is trained on "
            f"{', '.join(known)}; name one of these, or another row"
        )


def check_captioning_row(recipe: Recipe, where: str) -> None:
    """Refuse a row of `augment.captioner` that is not there, or that reads the captions which it is to write.

    Raises:
        RecipeError: it is, or does.
    """
    row, key = recipe.augment.captioner.get("row"), f"{where}: augment.captioner.row"
    if not isinstance(row, str) or row not in recipe.vse.rows:
        raise RecipeError(f"{key} is {row!r}; expected one of vse.rows: {', '.join(recipe.vse.rows)}")
    sources = sorted({slot.source for text in recipe.vse.rows[row] for slot in parse_group(text)})
    if own := [one for one in sources if parse_path(one)[0] == CAPTION]:
        raise RecipeError(f"{key} is {row!r}, which trains on {own[0]!r}, captions that it is to write itself; name a "
                          "row without them")  # fmt: skip
