"""What cannot be trained, or makes no sense: no segmenter, too few captions of an image, a loss between captions of one
language, several heads on one region."""

from collections import Counter
from collections.abc import Container, Sequence, Set

from datasets import Dataset as Table

from data.batches.mixing import CaptionsOfImages
from data.batches.slots import Slot
from data.batches.taught import TEXT
from data.captions.table import HUMAN, human_cells
from data.pictures.regions import RegionStore
from data.text.segmentation import require_segmenter
from data.text.tokenisation import WORDS
from modules.retrieval_models import RetrievalModel, model_class
from pipeline.engine.console import info
from pipeline.errors import RecipeError, as_recipe_error
from pipeline.recipes.retrieval_settings import VseSettings, slots_in
from pipeline.recipes.systems import parse_path
from pipeline.recipes.typed import located


def require_segmenters(settings: VseSettings) -> None:
    """Refuse `vse.segment: words`, before anything is prepared or trained, where a language's segmenter is missing.

    Raises:
        DataError: it is.
    """
    rows = settings.only or settings.rows
    languages = {slot.language for row in rows for slot in slots_in(settings.rows[row])} | set(settings.test)
    for language in sorted(languages) if settings.segment == WORDS else ():
        require_segmenter(language)


def require_pairs(settings: VseSettings, row: str, groups: Sequence[tuple[Slot, ...]]) -> None:
    """Refuse losses between captions where a training configuration does not draw captions of an image together.

    Raises:
        RecipeError: none of its groups has two languages for `vse.caption_loss`, or two captions for the model's loss.
    """
    known = ", ".join(sorted({slot.language for group in groups for slot in group}))
    of_pictures = [[slot for slot in group if slot.count and not slot.source.startswith(TEXT)] for group in groups]
    one_language = all(len({slot.language for slot in group}) <= 1 for group in of_pictures)
    if settings.caption_loss and one_language:
        raise RecipeError(
            f"vse.caption_loss is {settings.caption_loss:g}, but no group of vse.rows.{row} has captions of two "
            f"languages (it reads {known}); join slots of captions of pictures like `en/human + de/human`, or set "
            "vse.caption_loss=0"
        )
    needed, without = model_class(settings.model).needs_pairs(**settings.options), False
    if needed == "captions":
        without, of, example = all(sum(slot.count for slot in group) == 1 for group in groups), "", "2*en/human"
    elif needed == "languages":
        without, of, example = one_language, " in two languages", "en/human"
    if without:
        raise RecipeError(
            f"vse.model {settings.model} compares the captions of an image{of}, but no group of vse.rows.{row} draws "
            f"two of them together (it reads {known}); join slots like `{example} + de/human`, or take a model or "
            "vse.options without these losses"
        )


def require_language_of_path(row: str, slots: Sequence[Slot]) -> None:
    """Refuse slots in another language than their path, `mt:en-de`, writes."""
    for slot in slots:
        path = slot.source.removeprefix(TEXT)
        if ":" in path and slot.language != (written := parse_path(path)[1][-1]):
            raise RecipeError(f"vse.rows.{row} has {slot.type!r}, but {path!r} writes captions in {written!r}; write "
                              f"{written}/{slot.source}")  # fmt: skip


def require_drawn(row: str, groups: Sequence[tuple[Slot, ...]]) -> None:
    """Refuse a group that leaves out images with captions which no other group of the row draws.

    Raises:
        RecipeError: there is one; the row would seem to be trained on such captions.
    """
    drawn = {slot.type for group in groups for slot in group if slot.count}
    for slot in (slot for group in groups for slot in group if slot.type not in drawn):
        raise RecipeError(
            f"vse.rows.{row} has `0*{slot.type}`, but none of its groups draws {slot.type}; leave it out, or add "
            "a group that draws them"
        )


def require_enough(row: str, groups: Sequence[tuple[Slot, ...]], captions: CaptionsOfImages) -> None:
    """Refuse a group that draws more human captions of an image at once than any image has.

    Args:
        groups: of the row; their synthetic captions, which may not be written yet, are left to `MixedBatches`.
        captions: human ones of the training images.
    """
    for group in groups:
        human = tuple(slot for slot in group if slot.source == HUMAN)
        if any(slot.count for slot in human):
            with located(f"vse.rows.{row}"), as_recipe_error():
                captions.visits(human)


def require_equal_folds(count: int, images: int) -> None:
    """Refuse folds of the test that would not be equal."""
    if images % count:
        raise RecipeError(f"vse.folds is {count}, but {images} test images cannot be cut into as many equal parts")


def advise_on_regions(model: RetrievalModel, store: RegionStore) -> None:
    """Print a warning if several heads of a model attend to one region, which makes them equal."""
    heads = getattr(model, "heads", 1)
    if heads > 1 and store.regions.shape[1] == 1 and model.image_encoder is None:
        info(
            f"  warning: {store.folder} has one region an image, so all {heads} heads of an image are equal and their "
            "diversity is a constant; use features of several regions, or vse.options.heads=1"
        )


def watched_languages(settings: VseSettings, trained: Container[str]) -> list[str]:
    """Languages that a model is validated in: those of its test that it learned or is selected by."""
    return [language for language in settings.test if language in trained or language in settings.select]


def advise_on_languages(settings: VseSettings, captions: Table, paths: Sequence[str] = ()) -> None:
    """Say which languages of the human captions neither a training configuration nor the test reads.

    Args:
        paths: of translations, which read the captions of the language that they begin with.
    """
    read = {slot.language for row in settings.rows for slot in slots_in(settings.rows[row])} | set(settings.test)
    read |= {parse_path(path)[1][0] for path in paths}
    unread = Counter(language for language in captions["language"][:] if language not in read)
    for language, count in unread.items():
        info(
            f"{count:,} captions in {language!r} are not read: no row of vse.rows has {language}/human, and vse.test "
            f"lacks {language!r}", colour="yellow",
        )  # fmt: skip


def advise_on_selection(settings: VseSettings, row: str, learned: Set[str], captions: Table) -> None:
    """Say so where the epoch of a row is chosen by languages that it does not learn.

    Args:
        learned: languages of its training captions and sentences.
    """
    if not settings.epochs or not learned or learned & {*settings.select}:
        return
    own = sorted({one for (one,) in human_cells(captions, "val", "language")} & learned & {*settings.test})
    better = "there are no captions of these for validation, or vse.test lacks them, so that any epoch may seem best"
    if own:
        better = f"write `{row}: {{select: [{', '.join(own)}]}}` in vse.row_settings"
    info(
        f"vse.rows.{row} learns {', '.join(sorted(learned))}, but its epoch is chosen by {', '.join(settings.select)} "
        f"(vse.select): {better}", colour="yellow",
    )  # fmt: skip
