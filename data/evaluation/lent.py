"""What is lent by another corpus may have been learned from the validation or test images of this one."""

from collections.abc import Sequence
from pathlib import Path

from data.captions.table import TRAINING_SPLITS, read_captions, read_pairs
from data.errors import DataError
from data.pictures.folder import name_of


def seen_images(lenders: Sequence[Path], corpus: Path, what: str, tables: Sequence[str]) -> str:
    """Refuse what learned from other corpora's sentences about validation or test images of this one.

    Args:
        lenders: folders of those corpora, as they are prepared.
        corpus: the folder of this one.
        what: learned from them.
        tables: of those corpora that it reads, `pairs` or `captions`.

    Returns:
        why it cannot be told, if no image has the name of one of this corpus; else nothing.

    Raises:
        DataError: it did.
    """
    read = [_images(folder, table, training=True) for folder in lenders for table in tables]
    learned = {name_of(image_id) for images in read for image_id in images}
    training, held_out = (
        {name_of(image): image for table in ("captions", "pairs") for image in _images(corpus, table, split)}
        for split in (True, False)
    )
    if seen := learned & held_out.keys():
        raise DataError(
            f"{what} learned from sentences about {len(seen)} val or test images of this corpus, first "
            f"{min(held_out[name] for name in seen)!r}; borrow from a recipe whose split leaves them out"
        )
    if learned and not learned & training.keys():
        return (f"no image of {what} ({min(learned)} …) has a name of this corpus; if they are the same "
                "images under other names, held-out images cannot be found among them")  # fmt: skip
    return ""


def _images(corpus: Path, table: str, training: bool) -> set[str]:
    """The images that a table of a prepared corpus has in training splits, or in the others."""
    rows = (read_pairs if table == "pairs" else read_captions)(corpus / f"{table}.parquet")
    of_rows = zip(rows["image_id"][:], rows["split"][:], strict=True)
    return {image_id for image_id, split in of_rows if image_id and (split in TRAINING_SPLITS) == training}
