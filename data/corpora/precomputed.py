"""Precomputed features in the layout that VSE++ and SCAN (Lee et al. 2018) made customary: an array and lines a split.

`<name>_ims.npy` holds an image a row, (rows, R, D) or (rows, D), and older ones hold each image as often as it has
captions; `<name>_caps.txt` holds its captions, five lines an image. Boxes are not among them: each region's is the
whole picture. `<name>_tags.txt` is not read.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import NDArray

from data.captions.table import Caption, Pair
from data.corpora import Corpus, require_root
from data.corpora.caption_files import is_code
from data.errors import DataError
from data.lines import read_lines
from data.pictures.regions import RegionStore, open_array

_SAMPLE = 20  # images whose copies are compared: a file of other images differs in the first


@dataclass
class PrecomputedSettings:
    """What is read, and from where. Paths are relative to the data root."""

    folder: str = "f30k_precomp"
    """Folder of the files."""

    train: str = "train"
    """Name of the training files: `train` is `train_ims.npy`, `train_caps.txt` and `train_ids.txt`."""

    val: str = "dev"
    """Name of the validation files."""

    test: str = "test"
    """Name of the test files; COCO's 5,000 images are `testall`."""

    lines_per_image: int = 5
    """Lines of captions an image."""

    ids: bool = True
    """Take image ids from `<name>_ids.txt` where there is one; else an image is `train-0`, after its file and row."""

    language: str = "en"
    """Language of the captions."""

    label: str = "Flickr30K"
    """What the corpus is called beside its figures."""

    task: str = "precomputed"
    """What the split is called beside its figures."""


@dataclass(frozen=True)
class _Part:
    """One split: captions, image ids, and where image i's regions are: row i * step of `array`."""

    split: str
    images: Path
    text: Path
    lines: list[str]
    ids: list[str]
    array: NDArray[np.floating]
    step: int


def read(settings: PrecomputedSettings, root: Path | None, folder: Path) -> Corpus:
    """Read captions and open the arrays; rows are loaded one at a time, when they are read.

    Empty captions are left out; `Corpus.empty` says where they stand.

    Args:
        settings: what to read.
        root: the data root that the paths of `settings` start from.
        folder: unused; nothing is made.

    Raises:
        DataError: no root, a setting or a file that does not fit, or counts that do not.
    """
    root = require_root(root, "precomputed")
    if not is_code(settings.language):
        raise DataError(f"precomputed: language is {settings.language!r}, expected a code like en or de")
    if settings.lines_per_image < 1:
        raise DataError(f"precomputed: lines_per_image is {settings.lines_per_image}; expected 1 or more")
    if len(set(_names(settings).values())) < 3:
        raise DataError(f"precomputed: train, val and test are {', '.join(_names(settings).values())}; each is its own")
    parts = [_part(root / settings.folder, split, name, settings) for split, name in _names(settings).items()]
    _require_distinct(parts)
    empty: list[str] = []
    return Corpus(
        captions=list(_captions(parts, settings, empty)),
        pairs=[],
        pictures={},
        regions=PrecomputedRegions(root / settings.folder, parts),
        task=settings.task,
        label=settings.label,
        place=_Places(parts, settings.lines_per_image),
        empty=empty,
    )


def sources(settings: PrecomputedSettings, root: Path | None) -> list[Path]:
    """The files that decide what `read` returns.

    Raises:
        DataError: no root.
    """
    folder, names = require_root(root, "precomputed") / settings.folder, _names(settings).values()
    ids = [folder / f"{name}_ids.txt" for name in names] if settings.ids else []
    needed = [folder / f"{name}_{kind}" for name in names for kind in ("ims.npy", "caps.txt")]
    return sorted(needed + [path for path in ids if path.is_file()])


class PrecomputedRegions(RegionStore):
    """The arrays of all splits, read like one region store: float16, each box the whole picture.

    Each row is copied and checked when it is read: a number that is not finite, or that float16 cannot hold, is a
    DataError that names file, row and image.
    """

    def __init__(self, folder: Path, parts: list[_Part]) -> None:
        self.folder = folder
        self.ids = [image_id for part in parts for image_id in part.ids]
        self._row = {image_id: row for row, image_id in enumerate(self.ids)}
        rows = _Rows(parts)
        self.regions = cast(NDArray[np.floating], rows)
        self.boxes = np.broadcast_to(np.array([0, 0, 1, 1], dtype=np.float32), (*rows.shape[:2], 4))

    def take(self, rows: NDArray[np.int64]) -> NDArray[np.floating]:
        """Regions (B, R, D) by row number, all zero for −1."""
        blank = np.zeros(self.regions.shape[1:], np.float16)
        return np.stack([blank if row < 0 else self.regions[row] for row in rows]) if len(rows) else blank[None][:0]

    def file(self, name: str) -> Path:
        """Where something was found: the folder, for the three files of a store are not there."""
        return self.folder


class _Rows:
    """The part of an array that readers use: `shape`, and a row (R, D) by its number."""

    def __init__(self, parts: list[_Part]) -> None:
        self._parts = parts
        self._starts = np.cumsum([0, *(len(part.ids) for part in parts)])
        self.shape = (int(self._starts[-1]), *_row_shape(parts[0].array))

    def __getitem__(self, row: int) -> NDArray[np.float16]:
        number = int(np.searchsorted(self._starts, row, "right")) - 1
        part, place = self._parts[number], int(row - self._starts[number])
        with np.errstate(over="ignore"):
            regions = part.array[place * part.step].astype(np.float16).reshape(self.shape[1:])
        if not np.isfinite(regions).all():
            raise DataError(
                f"{part.images}: row {place * part.step} (image {part.ids[place]!r}) holds NaN, infinity or a number "
                "beyond ±65504 (float16); extract that image again"
            )
        return regions


def _names(settings: PrecomputedSettings) -> dict[str, str]:
    return {"train": settings.train, "val": settings.val, "test": settings.test}


def _part(folder: Path, split: str, name: str, settings: PrecomputedSettings) -> _Part:
    """The files of one split, checked against one another."""
    images, text, each = folder / f"{name}_ims.npy", folder / f"{name}_caps.txt", settings.lines_per_image
    lines = [line.strip() for line in read_lines(text, f"the captions of {images.name}, {each} lines an image")]
    count, rest = divmod(len(lines), each)
    if not count or rest:
        raise DataError(
            f"{text}: {len(lines)} lines, expected a multiple of {each}, lines an image; if images have another "
            "number of captions, set corpus.lines_per_image"
        )
    array = _open_images(images)
    if len(array) not in (count, len(lines)):
        expected = f"{count} (each image once)" + (f" or {len(lines)} (once a caption)" if each > 1 else "")
        raise DataError(f"{images}: {len(array)} rows for {len(lines)} lines of {text.name}; expected {expected}, for "
                        f"corpus.lines_per_image is {each}")  # fmt: skip
    step = len(array) // count
    if step > 1:
        _require_copies(images, array, step)
    ids = [f"{name}-{row}" for row in range(count)]
    if settings.ids and (folder / f"{name}_ids.txt").is_file():
        ids = _read_ids(folder / f"{name}_ids.txt", count, each)
    return _Part(split, images, text, lines, ids, array, step)


def _open_images(path: Path) -> NDArray[np.floating]:
    array = open_array(path, "an array of image features, (rows, R, D) or (rows, D)")
    if array.ndim not in (2, 3) or min(array.shape) < 1:
        raise DataError(f"{path}: shape {array.shape}, expected (rows, R, D) or (rows, D)")
    if not np.issubdtype(array.dtype, np.floating):
        raise DataError(f"{path}: type {array.dtype}, expected float32 or another float")
    return array


def _row_shape(array: NDArray[np.floating]) -> tuple[int, int]:
    """(R, D); a single vector is one region."""
    return (1, array.shape[1]) if array.ndim == 2 else (array.shape[1], array.shape[2])


def _require_copies(path: Path, array: NDArray[np.floating], step: int) -> None:
    """Refuse rows that should be copies of one image and are not, judged by some images from first to last."""
    count = len(array) // step
    for image in np.linspace(0, count - 1, min(count, _SAMPLE)).astype(int):
        first, *others = (row.tobytes() for row in array[image * step : (image + 1) * step])
        if any(other != first for other in others):
            raise DataError(
                f"{path}: rows {image * step} … {(image + 1) * step - 1} differ, expected {step} copies of one image "
                "(a row a caption); if each row is another image, set corpus.lines_per_image=1"
            )


def _read_ids(path: Path, count: int, each: int) -> list[str]:
    """Image ids, a line an image or a line a caption."""
    ids = [line.strip() for line in read_lines(path, "image ids, one a line")]
    if len(ids) not in (count, count * each):
        raise DataError(
            f"{path}: {len(ids)} ids for {count} images, expected {count} or {count * each} (one a caption)"
        )
    step = len(ids) // count
    for line, image_id in enumerate(ids, 1):
        first = ids[(line - 1) // step * step]
        if not image_id:
            raise DataError(f"{path}:{line}: empty line, expected an image id")
        if image_id != first:
            raise DataError(f"{path}:{line}: {image_id!r}, expected {first!r} again: {step} lines belong to one image")
    return ids[::step]


def _require_distinct(parts: list[_Part]) -> None:
    """Refuse an id that stands twice, be it in two splits, and regions of another shape."""
    seen: dict[str, str] = {}
    for part in parts:
        for row, image_id in enumerate(part.ids):
            here = f"{part.images.name}, image {row}"
            if image_id in seen:
                raise DataError(
                    f"{part.images.parent}: image id {image_id!r} stands twice ({seen[image_id]}; {here}); if they are "
                    "different images, set corpus.ids=false"
                )
            seen[image_id] = here
        if _row_shape(part.array) != _row_shape(parts[0].array):
            raise DataError(
                f"{part.images}: regions {_row_shape(part.array)}, but {_row_shape(parts[0].array)} in "
                f"{parts[0].images.name}"
            )


def _captions(parts: list[_Part], settings: PrecomputedSettings, empty: list[str]) -> Iterator[Caption]:
    for part in parts:
        for number, text in enumerate(part.lines):
            image, k = divmod(number, settings.lines_per_image)
            if text:
                caption_id = f"{part.ids[image]}#{settings.language}{k + 1}"
                yield Caption(part.ids[image], caption_id, settings.language, text, part.split)
            else:
                empty.append(f"{part.text}:{number + 1}")


class _Places:
    """Where captions stand, worked out from their ids."""

    def __init__(self, parts: list[_Part], each: int) -> None:
        self._each = each
        self._first = {image_id: (part.text, row) for part in parts for row, image_id in enumerate(part.ids)}

    def __call__(self, item: Caption | Pair, language: str) -> str:
        """`file:line` of a caption."""
        assert isinstance(item, Caption)  # there are no pairs
        path, row = self._first[item.image_id]
        return f"{path}:{row * self._each + int(item.caption_id.removeprefix(f'{item.image_id}#{language}'))}"
