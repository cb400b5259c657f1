"""Captions of Karpathy's images in other languages, in the layouts in which they are published.

    *.json            YJ Captions 26k (Miyazaki and Shimizu 2016, Japanese; github.com/yahoojapan/YJCaptions, file
                      `yjcaptions26k_clean.json`) and STAIR Captions: MS-COCO's own scheme, `annotations: [{"id": …,
                      "image_id": 391895, "caption": "…", "tokenized_caption": "…"}]`; the id is COCO's number
    *.txt             COCO-CN (Li et al. 2019, Chinese; github.com/li-xirong/coco-cn, file
                      `imageid.human-written-caption.txt`): `COCO_val2014_000000312222#0 TAB caption`
    *.tsv, *.tsv.gz   any other, `image TAB caption`

Their lists of images (`coco-cn_train.txt`, `coco-cn_val.txt`, `coco-cn_test.txt`) have one image a line.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from data.captions.tables import read_table
from data.corpora.coco.form import id_of
from data.errors import DataError
from data.lines import read_lines, read_text
from data.pictures.folder import without_number

_COCO = "JSON with a list of `annotations`, each with `image_id` and `caption`"


class Translated(NamedTuple):
    """One caption of a file: its image's id, its number (line, or place in `annotations` from 1) and its text."""

    image_id: str
    number: int
    text: str


class ImageNames:
    """By what an image may be named: its id, its file name or its COCO number.

    Args:
        images: id → (file name, COCO number or an empty text).
    """

    def __init__(self, images: Mapping[str, tuple[str, str]]) -> None:
        self._named: dict[str, str] = {}
        self._twice: dict[str, str] = {}
        for image_id, (filename, number) in images.items():
            for name in {number, filename, image_id} - {""}:
                if self._named.setdefault(name, image_id) != image_id:
                    self._twice[name] = image_id

    def id_of(self, name: str, where: str) -> str:
        """The id of the image of that name, which stands at `where`.

        Raises:
            DataError: no image, or two of them have it.
        """
        if name not in self._named:
            name = id_of(name) or name  # COCO's numbers are often padded
        if name in self._twice:
            both = f"{self._named[name]!r} and {self._twice[name]!r}"
            raise DataError(f"{where}: {name!r} is the id, file name or COCO number of {both}; name the image by what "
                            "is its own alone")  # fmt: skip
        if name not in self._named:
            raise DataError(f"{where}: image {name!r} is not in the JSON; expected an id, file name or COCO number")
        return self._named[name]


def read_translated(path: Path, language: str, names: ImageNames, empty: list[str]) -> Iterator[Translated]:
    """The captions of a file, by the layout that its ending names.

    Args:
        path: the file.
        language: of the captions.
        names: of the images that may have captions.
        empty: where captions without text stand is added to it.

    Raises:
        DataError: the file is missing or of another layout, or names an image that there is not.
    """
    rows = _annotations(path) if _is_json(path) else _lines(path, language)
    for number, name, text in rows:
        image_id = names.id_of(name, where := place_of(path, number))
        if text:
            yield Translated(image_id, number, text)
        else:
            empty.append(where)


def place_of(path: Path, number: int) -> str:
    """Where a caption stands: `file:line`, or `file: annotations[7].caption` from 0, as elsewhere in JSON."""
    return f"{path}: annotations[{number - 1}].caption" if _is_json(path) else f"{path}:{number}"


def read_splits(files: Mapping[str, Path], names: ImageNames, images: Iterable[str]) -> dict[str, str]:
    """Image → split by lists of images, one a line; without a list `train` all other images train.

    Args:
        files: split → its list.
        names: of the images.
        images: all image ids, in the order that the result has.

    Raises:
        DataError: a list is missing or has no lines, names an image that there is not, or one that stands twice.
    """
    seen: dict[str, tuple[str, str]] = {}
    for split, path in files.items():
        lines = read_lines(path, f"a list of the images of {split}, one a line")
        if not any(map(str.strip, lines)):
            raise DataError(f"{path}: no lines, expected images, one a line")
        for number, line in enumerate(lines, 1):
            image_id = names.id_of(line.strip(), where := f"{path}:{number}")
            if image_id in seen:
                raise DataError(f"{where}: image {image_id!r} stands twice, first in {seen[image_id][1]}")
            seen[image_id] = split, where
    rest = ("train", "") if "train" not in files else None
    chosen = {image_id: seen.get(image_id, rest) for image_id in images}
    return {image_id: entry[0] for image_id, entry in chosen.items() if entry is not None}


def _is_json(path: Path) -> bool:
    return path.name.removesuffix(".gz").endswith(".json")


def _lines(path: Path, language: str) -> Iterator[tuple[int, str, str]]:
    """Line, image and text of each caption of a TSV; COCO-CN's `#0` behind the image is left out."""
    numbered = path.name.removesuffix(".gz").endswith(".txt")
    table = read_table(path, f"a TSV of captions in {language!r}, `image TAB caption`", separators="\t")
    for line, cells in table.rows:
        if len(cells) != 2:
            found = "no TAB" if len(cells) < 2 else f"{len(cells)} cells"
            raise DataError(f"{path}:{line}: {found}, expected `image TAB caption`")
        yield line, without_number(cells[0]) if numbered else cells[0], cells[1]


def _annotations(path: Path) -> Iterator[tuple[int, str, str]]:
    """Place from 1, image and text of each caption in COCO's JSON."""
    text = read_text(path, _COCO)
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: not JSON that can be read ({error}); expected {_COCO}") from None
    annotations = content.get("annotations") if isinstance(content, dict) else None
    if not isinstance(annotations, list) or not annotations:
        raise DataError(f"{path}: no list of `annotations` in it; expected {_COCO}")
    for number, annotation in enumerate(annotations, 1):
        yield number, *_annotation(annotation, f"{path}: annotations[{number - 1}]")


def _annotation(annotation: Any, where: str) -> tuple[str, str]:
    of, text = (annotation.get(key) if isinstance(annotation, dict) else None for key in ("image_id", "caption"))
    image = id_of(of)
    if image is None or not isinstance(text, str):
        raise DataError(f"{where}: expected `image_id`, a number, and `caption`, a text")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise DataError(f"{where}.caption: {text!r} holds half a character; correct it") from None
    return image, " ".join(text.split())
