"""What must stand in a caption table before a model is trained and tested on it."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from data.captions.table import human_cells
from data.errors import DataError

if TYPE_CHECKING:  # takes a second to import
    from datasets import Dataset


def require_training_images(human: "Dataset", synthetic: Mapping[str, "Dataset"]) -> None:
    """Refuse synthetic captions of images that this corpus does not train on; they may come from another recipe.

    Raises:
        DataError: there are some.
    """
    rows = zip(human["image_id"][:], human["split"][:], strict=True)
    trained = {image_id for image_id, split in rows if split == "train"}
    for source, table in synthetic.items():
        if strangers := set(table["image_id"][:]) - trained:
            raise DataError(
                f"{source}: captions of {len(strangers)} images that are not in train here, first {min(strangers)!r}; "
                "use captions written for the same split (augment.captions)"
            )


def read_in_validation(captions: "Dataset", watched: list[str], tested: list[str]) -> list[str]:
    """Languages whose captions are read in validation, so that all rows rank the same pictures.

    Args:
        captions: of the corpus.
        watched: languages that a row is validated in.
        tested: of all rows.

    Returns:
        `watched`, or `tested` if some validation images have captions in the others alone.
    """
    human = {*human_cells(captions, "val", "language", "image_id")}
    own, all_images = ({image for language, image in human if language in some} for some in (watched, tested))
    return watched if own >= all_images else tested


def require_languages(captions: "Dataset", wanted: Mapping[str, Sequence[str]], key: str = "vse.test") -> None:
    """Refuse a language that a split has no human caption in.

    Args:
        captions: of the corpus.
        wanted: split → languages.
        key: the setting that wants them.

    Raises:
        DataError: there is one.
    """
    for split, languages in wanted.items():
        captioned = {language for (language,) in human_cells(captions, split, "language")}
        for language in languages:
            if language not in captioned:
                raise DataError(
                    f"{key} names {language!r}, but the corpus has no human caption of it for {split}; it has "
                    f"{', '.join(sorted(captioned)) or 'none'}; name another, or give pictures of that split captions"
                )
