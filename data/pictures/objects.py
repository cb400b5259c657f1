"""Regions without weights: boxes found in the pixels of any picture, described by gradients, colours and position.

Made for the scenes and good for pictures of few objects on a quiet ground; for photographs, features of a trained
network say more (`data.pictures.vision`, or a region store made elsewhere).
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFilter

from data.pictures.images import open_picture

Floats = NDArray[np.float32]
Found = tuple[Floats, Floats]  # regions (R, D) and boxes (R, 4) of a picture
Box = tuple[float, float, float, float]

_CELLS, _CELL, _BINS = 7, 8, 8  # 7×7 histograms of 8×8 pixels and 8 directions
_SIDE = _CELLS * _CELL
_COLOUR_GRID = 4
_LEVELS = 4  # of each colour channel in the colour histogram
_PLACES, _SIDES = 5, 8  # steps across and down the picture; sizes of a box, each 1.35 times the one before
DIM = _CELLS**2 * _BINS + 3 * _COLOUR_GRID**2 + _LEVELS**3 + 8 + 2 * _PLACES + _SIDES  # 392 + 48 + 64 + 8 + 10 + 8

_GROUND = 32  # side of the thumbnail that the background is fitted on
_OVERLAP = 0.7  # two proposals that overlap more are one
_SMALLEST, _LARGEST = 0.001, 0.8  # area of a proposal, of the picture's


def find_objects(picture: Path | Image.Image, count: int, size: int) -> Found:
    """Find and describe the regions of one picture.

    Args:
        picture: a file or an image, of any mode and size.
        count: R, regions.
        size: pixels on the longer side that a larger picture is shrunk to; a smaller one stays as it is.

    Returns:
        regions (R, DIM) and their boxes (R, 4) as x1, y1, x2, y2 in 0…1: the whole picture, then what stands out from
        the background, most first, then fixed crops.

    Raises:
        DataError: the file cannot be read as a picture.
    """
    image = open_picture(picture)
    image.thumbnail((size, size), Image.Resampling.BILINEAR, reducing_gap=2.0)
    boxes = np.array(_choose(_proposals(image), count), dtype=np.float32)
    return _describe(image, boxes), boxes


def _proposals(image: Image.Image) -> list[Box]:
    """Boxes of what differs from the background, in 0…1, most first."""
    contrast = _contrast(image)
    height, width = contrast.shape
    boxes: list[tuple[float, Box]] = []
    threshold = _otsu(contrast)
    for factor in (0.7, 1.0, 1.5):  # several, as what is one object at one threshold is two at another
        for x1, y1, x2, y2 in _components(contrast > max(factor * threshold, 6.0)):
            area = (x2 - x1) * (y2 - y1) / (width * height)
            if _SMALLEST <= area <= _LARGEST:
                weight = float(contrast[y1:y2, x1:x2].sum())
                boxes.append((weight, (x1 / width, y1 / height, x2 / width, y2 / height)))
    return [box for _, box in sorted(boxes, key=lambda item: -item[0])]


def _contrast(image: Image.Image) -> Floats:
    """How far each pixel's colour is from a smooth background, (height, width), without the noise of single pixels."""
    fit, spread = _ground(np.asarray(image.resize((_GROUND, _GROUND), Image.Resampling.BOX), dtype=np.float32))
    ground = Image.fromarray(fit.clip(0, 255).astype(np.uint8)).resize(image.size, Image.Resampling.BILINEAR)
    pixels = np.asarray(image.filter(ImageFilter.GaussianBlur(0.8)), dtype=np.float32)
    distance = np.sqrt(((pixels - np.asarray(ground, dtype=np.float32)) ** 2).sum(2))
    return np.maximum(distance - spread, 0.0)


def _quadratic() -> tuple[Floats, Floats]:
    """The six terms of a quadratic surface over the thumbnail, (pixels, 6), orthonormal, and the identity of 6."""
    y, x = np.mgrid[-1 : 1 : _GROUND * 1j, -1 : 1 : _GROUND * 1j].reshape(2, -1)
    terms, _ = np.linalg.qr(np.stack([np.ones_like(x), x, y, x * x, x * y, y * y], axis=1))
    return terms.astype(np.float32), np.eye(6, dtype=np.float32)


_TERMS, _EYE = _quadratic()


def _ground(thumbnail: Floats) -> tuple[Floats, float]:
    """Fit a quadratic surface to the colours of a thumbnail, again and again without what lies far from it.

    Returns:
        The surface (32, 32, 3), and how far background pixels usually lie from it.
    """
    pixels = thumbnail.reshape(-1, 3)
    weight = np.ones(len(pixels), dtype=np.float32)
    # Starts from the median, which objects on less than half the picture cannot move.
    fit = np.median(pixels, axis=0, keepdims=True)
    distance = np.sqrt(((pixels - fit) ** 2).sum(1))
    for _ in range(4):
        spread = float(np.median(distance)) + 1.0
        weight = 1.0 / (1.0 + (distance / (2.0 * spread)) ** 4)
        weighted = _TERMS * weight[:, None]
        fit = _TERMS @ np.linalg.solve(weighted.T @ _TERMS + 1e-3 * _EYE, weighted.T @ pixels)
        distance = np.sqrt(((pixels - fit) ** 2).sum(1))
    return fit.reshape(thumbnail.shape), float(np.median(distance))


def _otsu(values: Floats) -> float:
    """The threshold that splits `values` into two classes of least variance; 255 levels are enough."""
    counts, edges = np.histogram(values, bins=64, range=(0.0, 256.0))
    middles = (edges[:-1] + edges[1:]) / 2
    below = np.cumsum(counts)
    above = below[-1] - below
    sums = np.cumsum(counts * middles)
    between = below * above * (sums / np.maximum(below, 1) - (sums[-1] - sums) / np.maximum(above, 1)) ** 2.0
    return float(edges[int(between.argmax()) + 1])


def _components(mask: NDArray[np.bool_]) -> list[tuple[int, int, int, int]]:
    """Boxes of the 8-connected parts of a mask, in pixels."""
    from scipy import ndimage  # a quarter of a second

    parts, _ = ndimage.label(mask, np.ones((3, 3)))
    return [(across.start, down.start, across.stop, down.stop) for down, across in ndimage.find_objects(parts)]


def _choose(proposals: list[Box], count: int) -> list[Box]:
    """The whole picture, proposals that do not repeat each other, and fixed crops up to `count`."""
    chosen: list[Box] = [(0.0, 0.0, 1.0, 1.0)]
    for box in proposals:
        if len(chosen) < count and all(_overlap(box, other) <= _OVERLAP for other in chosen):
            chosen.append(box)
    crops = _crops()
    while len(chosen) < count:
        chosen.append(next(crops))
    return chosen


def _crops() -> Iterator[Box]:
    """The middle, then grids of 2×2, 3×3 … without end."""
    yield 0.25, 0.25, 0.75, 0.75
    side = 2
    while True:
        for row in range(side):
            for column in range(side):
                yield column / side, row / side, (column + 1) / side, (row + 1) / side
        side += 1


def _overlap(first: Box, second: Box) -> float:
    """Intersection over union."""
    width = min(first[2], second[2]) - max(first[0], second[0])
    height = min(first[3], second[3]) - max(first[1], second[1])
    if width <= 0 or height <= 0:
        return 0.0
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (first, second)]
    return width * height / (sum(areas) - width * height)


def _describe(image: Image.Image, boxes: Floats) -> Floats:
    """Descriptors (R, DIM) of boxes: shape, colour and position, each part of a like scale."""
    crops: Floats = np.stack([_crop(image, box) for box in boxes.tolist()])
    x1, y1, x2, y2 = boxes.T
    position = np.stack([x1, y1, x2, y2, (x1 + x2) / 2, (y1 + y2) / 2, x2 - x1, y2 - y1], axis=1)
    parts = [_gradients(crops), _mean_colours(crops), _colour_histogram(crops), position, _steps(boxes)]
    return np.concatenate(parts, axis=1).astype(np.float32)


def _steps(boxes: Floats) -> Floats:
    """How near the centre and the longer side of boxes (R, 4) are to a few steps, as (R, 18) in 0…1.

    So a linear layer knows the middle from both sides, and sizes from each other.
    """
    x1, y1, x2, y2 = boxes.T
    side = np.maximum(x2 - x1, y2 - y1).clip(1e-3)
    places = np.arange(_PLACES)
    parts = [(x1 + x2)[:, None] / 2 * _PLACES - 0.5 - places, (y1 + y2)[:, None] / 2 * _PLACES - 0.5 - places]
    parts.append(np.log(side / 0.12)[:, None] / np.log(1.35) - np.arange(_SIDES))
    return np.exp(-2 * np.concatenate(parts, axis=1) ** 2).astype(np.float32)


def _crop(image: Image.Image, box: Box) -> Floats:
    """The square round a box, a little larger so that outlines are inside, as (56, 56, 3) in 0…1."""
    width, height = image.size
    x1, y1, x2, y2 = box[0] * width, box[1] * height, box[2] * width, box[3] * height
    half = 0.55 * max(x2 - x1, y2 - y1, 2.0)
    x, y = (x1 + x2) / 2, (y1 + y2) / 2
    corners = (max(x - half, 0.0), max(y - half, 0.0), min(x + half, width), min(y + half, height))
    return np.asarray(image.resize((_SIDE, _SIDE), Image.Resampling.BILINEAR, corners), np.float32) / np.float32(255)


def _gradients(crops: Floats) -> Floats:
    """Histograms of gradient directions (R, 392), normalised over blocks of 2×2 cells, then as a whole."""
    dy = np.zeros_like(crops)
    dx = np.zeros_like(crops)
    dy[:, 1:-1] = crops[:, 2:] - crops[:, :-2]
    dx[:, :, 1:-1] = crops[:, :, 2:] - crops[:, :, :-2]
    strongest = (dx * dx + dy * dy).argmax(3)[..., None]  # of the three channels: yellow shows in blue only
    dx, dy = (np.take_along_axis(d, strongest, 3)[..., 0] for d in (dx, dy))
    strength = np.hypot(dx, dy)
    turn = np.arctan2(dy, dx) * (_BINS / np.pi)  # a line has no direction: angles are modulo half a circle
    lower = np.floor(turn)
    share = turn - lower
    cells = np.arange(_SIDE) // _CELL
    cell = (np.arange(len(crops))[:, None, None] * _CELLS + cells[:, None]) * _CELLS + cells
    count = len(crops) * _CELLS**2 * _BINS
    histogram = np.zeros(count)
    for step, weight in ((0, 1 - share), (1, share)):
        index = cell * _BINS + (lower.astype(np.int64) + step) % _BINS
        histogram += np.bincount(index.ravel(), (strength * weight).ravel(), count)
    return _normalise_blocks(histogram.reshape(-1, _CELLS, _CELLS, _BINS))


def _normalise_blocks(histogram: NDArray[np.float64]) -> Floats:
    """Each cell over the mean length of the (up to four) blocks of 2×2 cells that it lies in."""
    energy = (histogram**2).sum(3)
    padded = np.pad(energy, ((0, 0), (1, 1), (1, 1)), mode="edge")
    blocks = np.sqrt(padded[:, 1:, 1:] + padded[:, :-1, 1:] + padded[:, 1:, :-1] + padded[:, :-1, :-1])
    around = (blocks[:, 1:, 1:] + blocks[:, :-1, 1:] + blocks[:, 1:, :-1] + blocks[:, :-1, :-1]) / 4
    cells = np.sqrt(histogram / (around[..., None] + 0.5))  # 0.5: else noise would be scaled up to a shape
    return _unit(cells.reshape(len(cells), -1))


def _mean_colours(crops: Floats) -> Floats:
    """Mean colours of a 4×4 grid (R, 48), from -½ to ½ and scaled to a length of about 1."""
    step = _SIDE // _COLOUR_GRID
    grid = crops.reshape(-1, _COLOUR_GRID, step, _COLOUR_GRID, step, 3).mean((2, 4)) - 0.5
    return (grid.reshape(len(crops), -1) / _COLOUR_GRID).astype(np.float32)


def _colour_histogram(crops: Floats) -> Floats:
    """Square roots of the shares of 4×4×4 colours (R, 64)."""
    levels = np.minimum((crops * _LEVELS).astype(np.int64), _LEVELS - 1)
    index = (levels[..., 0] * _LEVELS + levels[..., 1]) * _LEVELS + levels[..., 2]
    index += np.arange(len(crops))[:, None, None] * _LEVELS**3
    counts = np.bincount(index.ravel(), minlength=len(crops) * _LEVELS**3).reshape(len(crops), -1)
    return np.sqrt(counts / _SIDE**2).astype(np.float32)


def _unit(rows: NDArray[np.floating]) -> Floats:
    return (rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-6)).astype(np.float32)
