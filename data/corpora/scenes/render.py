"""Pictures of scenes: glyphs on textured noise, 128×128.

The random numbers of a picture are drawn in an order that does not depend on what is drawn, so that two scenes that
differ in one sense differ in the pixels of that object only.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from data.corpora.scenes.glyphs import GLYPHS, HOLE, MARK
from data.corpora.scenes.grammar import Thing

PIXELS = 128
_SUPERSAMPLING = 4
_DIAMETER = {"small": 24.0, "big": 37.0}
_FROM_CENTRE = 42
_PLACE = {"left": (-1, 0), "right": (1, 0), "top": (0, -1), "bottom": (0, 1), "centre": (0, 0)}
_JITTER = 2  # pixels; neighbours of full size still do not touch
_TURN = 18.0  # degrees
_STRETCH = 0.1
REACH = ((1 + _STRETCH) * _DIAMETER["big"] / 2 + _JITTER) / PIXELS
"""How far the largest object reaches from the centre of its place, as a share of the picture's side."""

_RGB = {
    "red": (205, 40, 35),
    "blue": (40, 80, 205),
    "green": (40, 145, 60),
    "yellow": (238, 200, 30),
    "black": (32, 32, 36),
    "purple": (140, 55, 170),
}
_MARK_RGB = {name: tuple(round(0.5 * value) for value in rgb) for name, rgb in _RGB.items()}
_MARK_RGB["black"] = (135, 135, 140)  # black cannot be darkened, so its details are lighter


def render(things: Sequence[Thing], seed: int) -> tuple[Image.Image, NDArray[np.float32]]:
    """Draw a scene.

    Args:
        things: the objects, later ones above earlier ones.
        seed: of noise, jitter, turn, stretch and tint; the same seed gives the same bytes.

    Returns:
        The RGB picture, and the true boxes (objects, 4) as x1, y1, x2, y2 in 0…1: for tests, never for a model.
    """
    rng = np.random.default_rng(seed)
    canvas = _background(rng)
    boxes = [_draw(canvas, thing, rng) for thing in things]
    canvas += rng.standard_normal(canvas.shape, dtype=np.float32) * 5.0
    picture = Image.fromarray(np.clip(canvas, 0, 255).astype(np.uint8))
    return picture, (np.array(boxes).reshape(-1, 4) / PIXELS).astype(np.float32)


def centre_of(place: str) -> tuple[float, float]:
    """The centre of a place, a key of `PLACES`: across and down, in 0…1."""
    across, down = _PLACE[place]
    return 0.5 + across * _FROM_CENTRE / PIXELS, 0.5 + down * _FROM_CENTRE / PIXELS


def _background(rng: np.random.Generator) -> NDArray[np.float32]:
    """A light tint with clouds, (PIXELS, PIXELS, 3)."""
    tint = rng.uniform(185, 220) + rng.uniform(-10, 10, 3)
    coarse = (tint + rng.normal(0, 6, (6, 6, 3))).clip(0, 255).astype(np.uint8)
    clouds = Image.fromarray(coarse).resize((PIXELS, PIXELS), Image.Resampling.BICUBIC)
    return np.asarray(clouds, dtype=np.float32).copy()


def _draw(canvas: NDArray[np.float32], thing: Thing, rng: np.random.Generator) -> tuple[int, int, int, int]:
    """Blend one object into `canvas`; returns its box in pixels."""
    jitter, turn, stretch, tint = rng.integers(-_JITTER, _JITTER + 1, 2), *rng.uniform(-1, 1, 2), rng.normal(0, 9, 3)
    radius = _DIAMETER[thing.size] / 2 * (1 + _STRETCH * stretch)
    alpha, mark = _rasterise(thing.sense, radius, math.radians(_TURN * turn))
    across, down = _PLACE[thing.place]
    half = alpha.shape[0] // 2
    left = PIXELS // 2 + across * _FROM_CENTRE + int(jitter[0]) - half
    top = PIXELS // 2 + down * _FROM_CENTRE + int(jitter[1]) - half
    # The part of the glyph's square that lies inside the picture.
    x1, y1, x2, y2 = max(left, 0), max(top, 0), min(left + 2 * half, PIXELS), min(top + 2 * half, PIXELS)
    inside = (slice(y1 - top, y2 - top), slice(x1 - left, x2 - left))
    alpha, mark = alpha[inside], mark[inside]
    colour = np.array(_RGB[thing.colour], np.float32) * (1 - mark) + np.array(_MARK_RGB[thing.colour]) * mark + tint
    canvas[y1:y2, x1:x2] = canvas[y1:y2, x1:x2] * (1 - alpha) + colour * alpha
    rows, columns = np.nonzero(alpha[..., 0] > 0.3)
    return (
        x1 + int(columns.min()),
        y1 + int(rows.min()),
        x1 + int(columns.max()) + 1,
        y1 + int(rows.max()) + 1,
    )


def _rasterise(sense: str, radius: float, turn: float) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """How much of each pixel the glyph covers, and how much of that in the darker tone, both (2·half, 2·half, 1)."""
    half = math.ceil(1.3 * radius) + 1
    side, scale = 2 * half * _SUPERSAMPLING, radius * _SUPERSAMPLING
    cover, tone = Image.new("L", (side, side)), Image.new("L", (side, side))
    pens = ImageDraw.Draw(cover), ImageDraw.Draw(tone)
    rotation = scale * np.array([[math.cos(turn), math.sin(turn)], [-math.sin(turn), math.cos(turn)]])
    for stroke in GLYPHS[sense]:
        points = (stroke.points @ rotation + side / 2).ravel().tolist()
        for pen, value in zip(
            pens, (0 if stroke.what == HOLE else 255, 255 if stroke.what == MARK else 0), strict=True
        ):
            if stroke.width:
                pen.line(points, fill=value, width=max(1, round(stroke.width * scale)), joint="curve")
            else:
                pen.polygon(points, fill=value)
    cover, tone = (image.reduce(_SUPERSAMPLING) for image in (cover, tone))
    return tuple(np.asarray(image, np.float32)[..., None] / 255 for image in (cover, tone))  # type: ignore[return-value]
