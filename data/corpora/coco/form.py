"""COCO's own form of captions (`captions_val2017.json`; Chen et al. 2015), as entries of Karpathy's."""

from pathlib import Path
from typing import Any

from data.errors import DataError

_EXPECTED = "COCO's form: `images` with `id` and `file_name`, `annotations` with `image_id` and `caption`"


def entries_of_coco(images: list[Any], annotations: Any, path: Path) -> list[dict[str, Any]]:
    """Entries as in Karpathy's JSON of a JSON of COCO's form; images without captions are left out.

    Args:
        images: the file's list, each `id` and `file_name`.
        annotations: its list, each `image_id` and `caption`.
        path: the file, for messages.

    Returns:
        an entry an image: `place` among the images from 0, `filename`, `split` (`train`: the form has none), `cocoid`,
        and `sentences`, each `raw` and `annotation`, its place among the annotations from 0.

    Raises:
        DataError: something is missing, or a caption is of no image.
    """
    if not isinstance(annotations, list) or not annotations:
        raise DataError(f"{path}: no list of `annotations` in it; expected {_EXPECTED}")
    entries: dict[str, dict[str, Any]] = {}
    for number, image in enumerate(images):
        of, name = (image.get(key) if isinstance(image, dict) else None for key in ("id", "file_name"))
        number_of = id_of(of)
        if number_of is None or not isinstance(name, str):
            raise DataError(f"{path}: images[{number}]: no `id` or `file_name`; expected {_EXPECTED}")
        if number_of in entries:
            raise DataError(f"{path}: images[{number}].id: {of!r} stands twice; give each image its own")
        about = {"place": number, "filename": name, "split": "train", "cocoid": number_of}
        entries[number_of] = about | {"sentences": []}
    for number, annotation in enumerate(annotations):
        of, text = (annotation.get(key) if isinstance(annotation, dict) else None for key in ("image_id", "caption"))
        number_of = id_of(of)
        if number_of is None or not isinstance(text, str):
            raise DataError(f"{path}: annotations[{number}]: no `image_id` or `caption`; expected {_EXPECTED}")
        if number_of not in entries:
            raise DataError(f"{path}: annotations[{number}].image_id: no image {of!r} in `images`; leave it out")
        entries[number_of]["sentences"].append({"raw": text, "annotation": number})
    return [entry for entry in entries.values() if entry["sentences"]]


def id_of(value: Any) -> str | None:
    """The id of an image, however it is written: 139, 139.0, "139" and "000000000139" are one; None if it is none."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int | str):
        return None
    text = str(value).strip()
    whole = text.removesuffix(".0") if text.removesuffix(".0").isdecimal() else text
    return (whole.lstrip("0") or "0") if whole.isascii() and whole.isdecimal() else text
