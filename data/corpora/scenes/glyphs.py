"""What the objects of the scenes look like: one glyph for each sense of a noun, senses of a word unlike in shape.

A glyph is a list of strokes, later ones above earlier ones, in coordinates from -1 to 1, y downwards.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# What a stroke leaves: the object's colour, a darker tone of it, or a hole.
INK, MARK, HOLE = "ink", "mark", "hole"


@dataclass(frozen=True, slots=True)
class Stroke:
    """A polygon (`width` 0) or a line of that width through `points` (N, 2)."""

    points: NDArray[np.float64]
    what: str = INK
    width: float = 0.0


def _poly(*points: tuple[float, float], what: str = INK) -> Stroke:
    return Stroke(np.array(points, dtype=np.float64), what)


def _line(*points: tuple[float, float], width: float = 0.12, what: str = INK) -> Stroke:
    return Stroke(np.array(points, dtype=np.float64), what, width)


def _box(x1: float, y1: float, x2: float, y2: float, what: str = INK) -> Stroke:
    return _poly((x1, y1), (x2, y1), (x2, y2), (x1, y2), what=what)


def _arc(x: float, y: float, rx: float, ry: float, start: float, stop: float) -> list[tuple[float, float]]:
    """Points on an ellipse between two angles in degrees, clockwise from the right."""
    angles = np.radians(np.linspace(start, stop, max(4, round(abs(stop - start) / 15))))
    return [(x + rx * math.cos(angle), y + ry * math.sin(angle)) for angle in angles]


def _disc(x: float, y: float, rx: float, ry: float | None = None, what: str = INK) -> Stroke:
    return _poly(*_arc(x, y, rx, rx if ry is None else ry, 0, 345), what=what)


def _rays(x: float, y: float, outer: float, inner: float, count: int, what: str = INK) -> Stroke:
    """A star of `count` points, one of them upwards."""
    radii = [outer if index % 2 == 0 else inner for index in range(2 * count)]
    angles = [math.pi * index / count - math.pi / 2 for index in range(2 * count)]
    points = [(x + r * math.cos(a), y + r * math.sin(a)) for r, a in zip(radii, angles, strict=True)]
    return _poly(*points, what=what)


def _mirrored(stroke: Stroke) -> list[Stroke]:
    """A stroke and its mirror image, left for right."""
    return [stroke, Stroke(stroke.points * [-1, 1], stroke.what, stroke.width)]


def _blossom(x: float, y: float, radius: float, petals: int) -> list[Stroke]:
    """Petals round a darker middle."""
    around = [360 * index / petals - 90 for index in range(petals)]
    ring = [
        _disc(x + radius * 0.6 * math.cos(math.radians(a)), y + radius * 0.6 * math.sin(math.radians(a)), radius * 0.42)
        for a in around
    ]
    return [*ring, _disc(x, y, radius * 0.34, what=MARK)]


def _wheel(x: float, y: float, radius: float) -> list[Stroke]:
    return [_line(*_arc(x, y, radius, radius, 0, 375), width=0.12), _disc(x, y, 0.09)]


_BAT_WING = [(0.07, -0.38), (0.2, -0.62), (0.24, -0.22), (0.6, -0.55), (1, -0.3), (0.88, 0.35), (0.62, 0.12)]
_BAT_WING += [(0.46, 0.42), (0.22, 0.22), (0, 0.65)]
_BATTLEMENTS = [(-0.9, 0.9), (-0.9, -0.75), (-0.72, -0.75), (-0.72, -0.55), (-0.6, -0.55), (-0.6, -0.75), (-0.4, -0.75)]
_BATTLEMENTS += [(-0.4, -0.1), (-0.24, -0.1), (-0.24, 0.08), (-0.1, 0.08), (-0.1, -0.1), (0, -0.1), (0, 0.9)]

GLYPHS: dict[str, list[Stroke]] = {
    "bat.animal": [
        _poly(*_BAT_WING, *[(-x, y) for x, y in reversed(_BAT_WING)]),
        *_mirrored(_disc(0.09, -0.2, 0.06, what=HOLE)),
    ],
    "bat.club": [
        _poly((-0.78, 0.66), (-0.62, 0.82), (0.8, -0.42), (0.44, -0.84)),
        _disc(0.62, -0.63, 0.28),
        _disc(-0.74, 0.78, 0.18),
        _line((-0.6, 0.5), (-0.4, 0.72), width=0.08, what=MARK),
    ],
    "bow.ribbon": [
        *_mirrored(_poly((0, 0.05), (0.85, 0.95), (0.5, 0.95), (0.42, 0.72), (0.02, 0.4))),
        *_mirrored(_poly((0, -0.15), (0.8, -0.75), (0.98, -0.6), (0.98, 0.2), (0.8, 0.35), (0, 0))),
        *_mirrored(_poly((0.35, -0.2), (0.78, -0.4), (0.78, 0.02), what=MARK)),
        _disc(0, -0.12, 0.22, what=MARK),
    ],
    "bow.weapon": [
        _line(*_arc(-0.45, 0, 0.95, 0.98, -78, 78), width=0.17),
        _line((-0.25, -0.95), (-0.6, 0), (-0.25, 0.95), width=0.07),
        _line((-0.85, 0), (0.8, 0), width=0.1),
        _poly((1, 0), (0.66, -0.2), (0.66, 0.2)),
    ],
    "fan.electric": [
        _line(*_arc(0, -0.25, 0.68, 0.68, 0, 375), width=0.1),
        *[_poly((0, -0.25), *_arc(0, -0.25, 0.54, 0.54, start, start + 55), what=INK) for start in (-120, 0, 120)],
        _disc(0, -0.25, 0.14, what=MARK),
        _box(-0.08, 0.45, 0.08, 0.85),
        _poly((-0.5, 1), (0.5, 1), (0.35, 0.78), (-0.35, 0.78)),
    ],
    "fan.hand": [
        _poly((0, 0.75), *_arc(0, 0.75, 1.1, 1.3, -162, -18)),
        *[
            _line((0, 0.75), _arc(0, 0.75, 1.04, 1.22, a, a)[0], width=0.05, what=HOLE)
            for a in (-138, -114, -90, -66, -42)
        ],
        _line(*_arc(0, 0.75, 0.5, 0.6, -162, -18), width=0.1, what=MARK),
        _disc(0, 0.72, 0.13),
    ],
    "key.metal": [
        _disc(-0.55, 0, 0.43),
        _disc(-0.55, 0, 0.2, what=HOLE),
        _box(-0.2, -0.1, 0.98, 0.1),
        _box(0.45, 0, 0.6, 0.42),
        _box(0.8, 0, 0.98, 0.42),
    ],
    "key.board": [
        _poly(
            (-0.85, -0.7),
            (-0.7, -0.85),
            (0.7, -0.85),
            (0.85, -0.7),
            (0.85, 0.7),
            (0.7, 0.85),
            (-0.7, 0.85),
            (-0.85, 0.7),
        ),
        _box(-0.58, -0.66, 0.58, 0.5, what=MARK),
        _line((-0.32, 0.36), (0, -0.5), (0.32, 0.36), width=0.16, what=HOLE),
        _line((-0.2, 0.08), (0.2, 0.08), width=0.14, what=HOLE),
    ],
    "nut.food": [
        _poly(*_arc(0, 0, 0.58, 0.6, 0, 60), (0, 1), *_arc(0, 0, 0.58, 0.6, 120, 180)),
        _poly(*_arc(0, -0.02, 0.76, 0.68, 180, 360), what=MARK),
        _line((0, -0.6), (0.16, -0.95), width=0.14, what=MARK),
    ],
    "nut.hex": [_poly(*[_arc(0, 0, 0.95, 0.95, a, a)[0] for a in range(0, 360, 60)]), _disc(0, 0, 0.45, what=HOLE)],
    "seal.animal": [
        _disc(-0.6, -0.5, 0.3),
        _poly(
            (-0.88, -0.45),
            (-0.35, -0.6),
            (0.05, 0),
            (0.65, 0.3),
            (0.85, -0.1),
            (1, 0.2),
            (0.95, 0.7),
            (-0.5, 0.75),
            (-0.85, 0.3),
        ),
        _poly((-0.4, 0.4), (-0.1, 0.4), (-0.3, 0.95), (-0.75, 0.95), what=MARK),
        _disc(-0.68, -0.55, 0.07, what=HOLE),
    ],
    "seal.wax": [
        *_mirrored(_poly((0.05, 0.2), (0.5, 0.2), (0.68, 1), (0.4, 0.84), (0.2, 1))),
        _rays(0, -0.2, 0.8, 0.62, 12),
        _disc(0, -0.2, 0.46, what=MARK),
        _rays(0, -0.2, 0.36, 0.15, 5),
    ],
    "crane.bird": [
        _disc(0.2, 0, 0.5, 0.24),
        _poly((0.5, -0.15), (1, 0.2), (0.55, 0.2)),
        _line((-0.2, 0), (-0.45, -0.3), (-0.35, -0.75), width=0.13),
        _disc(-0.38, -0.82, 0.14),
        _poly((-0.42, -0.93), (-1, -0.72), (-0.42, -0.74)),
        _line((0.15, 0.1), (0.1, 1), (-0.08, 1), width=0.09),
        _line((0.35, 0.1), (0.4, 0.5), (0.18, 0.62), width=0.09),
    ],
    "crane.machine": [
        _box(-0.45, -0.95, -0.25, 0.9),
        _box(-0.75, 0.82, 0.05, 1),
        _box(-0.9, -0.65, 1, -0.49),
        _box(-0.95, -0.6, -0.65, -0.2, what=MARK),
        _line((-0.35, -0.92), (0.9, -0.6), width=0.05),
        _line((0.72, -0.5), (0.72, 0.1), width=0.06),
        _box(0.55, 0.1, 0.9, 0.4, what=MARK),
    ],
    "castle": [
        *_mirrored(_poly(*_BATTLEMENTS)),
        _poly((-0.18, 0.9), *_arc(0, 0.5, 0.18, 0.18, 180, 360), (0.18, 0.9), what=HOLE),
        *_mirrored(_box(0.6, -0.3, 0.72, 0, what=HOLE)),
    ],
    "lock": [
        _line((-0.42, 0), *_arc(0, -0.4, 0.42, 0.45, 180, 360), (0.42, 0), width=0.2),
        _box(-0.7, -0.1, 0.7, 0.95),
        _disc(0, 0.32, 0.15, what=HOLE),
        _poly((-0.06, 0.35), (0.06, 0.35), (0.12, 0.72), (-0.12, 0.72), what=HOLE),
    ],
    "bouquet": [
        _poly((-0.55, 0.0), (0.55, 0.0), (0.12, 1), (-0.12, 1)),
        _line((-0.35, 0.55), (0.35, 0.55), width=0.16, what=MARK),
        *_blossom(-0.55, -0.25, 0.42, 5),
        *_blossom(0.55, -0.25, 0.42, 5),
        *_blossom(0, -0.58, 0.42, 5),
    ],
    "ostrich": [
        _disc(-0.25, -0.02, 0.6, 0.42),
        _rays(-0.72, -0.08, 0.3, 0.16, 7, what=MARK),
        _line((0.2, 0.05), (0.5, -0.3), (0.5, -0.8), width=0.17),
        _disc(0.55, -0.82, 0.17),
        _poly((0.6, -0.92), (0.98, -0.76), (0.6, -0.7)),
        _line((-0.35, 0.3), (-0.4, 0.95), (-0.2, 0.95), width=0.12),
        _line((-0.05, 0.3), (0.1, 0.95), (0.3, 0.95), width=0.12),
    ],
    "ball": [
        _disc(0, 0, 0.9),
        _line(*_arc(-1, 0, 0.75, 0.9, -55, 55), width=0.1, what=MARK),
        _line(*_arc(1, 0, 0.75, 0.9, 125, 235), width=0.1, what=MARK),
        _line((0, -0.9), (0, 0.9), width=0.1, what=MARK),
    ],
    "house": [
        _box(-0.65, -0.1, 0.65, 0.95),
        _poly((-0.95, -0.05), (0, -0.95), (0.95, -0.05), what=MARK),
        _box(-0.15, 0.4, 0.2, 0.95, what=HOLE),
        _box(-0.5, 0.15, -0.28, 0.4, what=HOLE),
    ],
    "tree": [
        _box(-0.12, 0.5, 0.12, 1, what=MARK),
        _poly((0, -1), (0.5, -0.3), (-0.5, -0.3)),
        _poly((0, -0.6), (0.65, 0.15), (-0.65, 0.15)),
        _poly((0, -0.2), (0.8, 0.65), (-0.8, 0.65)),
    ],
    "star": [_rays(0, 0.05, 1, 0.4, 5)],
    "car": [
        _poly((-1, 0.4), (-0.95, 0), (-0.55, -0.05), (-0.3, -0.5), (0.4, -0.5), (0.65, -0.05), (1, 0.05), (1, 0.4)),
        _poly((-0.38, -0.05), (-0.2, -0.36), (0.02, -0.36), (0.02, -0.05), what=HOLE),
        _poly((0.14, -0.05), (0.14, -0.36), (0.32, -0.36), (0.48, -0.05), what=HOLE),
        *_mirrored(_disc(0.55, 0.42, 0.24, what=MARK)),
    ],
    "cup": [
        _line(*_arc(0.5, 0, 0.4, 0.34, -90, 90), width=0.16),
        _poly((-0.75, -0.6), (0.55, -0.6), (0.4, 0.6), (-0.6, 0.6)),
        _disc(-0.1, -0.6, 0.65, 0.14, what=MARK),
        _box(-0.85, 0.66, 0.65, 0.8),
    ],
    "fish": [
        _disc(-0.2, 0, 0.72, 0.45),
        _poly((0.35, 0), (0.98, -0.5), (0.85, 0), (0.98, 0.5)),
        _poly((-0.3, -0.4), (0.2, -0.7), (0.15, -0.3), what=MARK),
        _disc(-0.6, -0.1, 0.1, what=HOLE),
        _line(*_arc(-0.65, 0, 0.4, 0.45, -50, 50), width=0.07, what=MARK),
    ],
    "ladder": [
        *_mirrored(_line((0.3, -1), (0.45, 1), width=0.15)),
        *[_line((-0.38, y), (0.38, y), width=0.13) for y in (-0.7, -0.25, 0.2, 0.65)],
    ],
    "boat": [
        _poly((-0.95, 0.4), (0.95, 0.4), (0.6, 0.9), (-0.6, 0.9)),
        _line((0, -0.95), (0, 0.4), width=0.09),
        _poly((0.08, -0.9), (0.8, 0.25), (0.08, 0.25), what=MARK),
        _poly((-0.1, -0.6), (-0.6, 0.25), (-0.1, 0.25)),
    ],
    "hat": [
        _disc(0, 0.55, 0.98, 0.22),
        _poly((-0.5, 0.5), (-0.42, -0.75), (0.42, -0.75), (0.5, 0.5)),
        _poly((-0.5, 0.45), (-0.47, 0.12), (0.47, 0.12), (0.5, 0.45), what=MARK),
    ],
    "flower": [
        _line((0, 0), (0, 1), width=0.12),
        _poly((0, 0.8), (0.55, 0.35), (0.45, 0.75)),
        *_blossom(0, -0.35, 0.62, 6),
    ],
    "umbrella": [
        _poly(*_arc(0, 0.05, 0.98, 0.9, 180, 360)),
        *[_disc(x, 0.08, 0.2, 0.14, what=HOLE) for x in (-0.7, 0, 0.7)],
        _line((0, -0.98), (0, 0.8), *_arc(0.17, 0.8, 0.17, 0.17, 180, 0), width=0.1, what=MARK),
    ],
    "gift": [
        _box(-0.75, -0.35, 0.75, 0.95),
        _box(-0.12, -0.35, 0.12, 0.95, what=MARK),
        _box(-0.75, 0.18, 0.75, 0.4, what=MARK),
        *_mirrored(_line((0, -0.4), (0.5, -0.9), (0.6, -0.5), (0, -0.4), width=0.14)),
    ],
    "bike": [
        *_wheel(-0.58, 0.35, 0.38),
        *_wheel(0.58, 0.35, 0.38),
        _line((-0.58, 0.35), (-0.25, -0.3), (0.4, -0.3), (0.05, 0.35), (-0.58, 0.35), width=0.1),
        _line((0.58, 0.35), (0.36, -0.6), (0.62, -0.68), width=0.1),
        _line((0.05, 0.35), (-0.3, -0.5), width=0.1),
        _line((-0.5, -0.52), (-0.1, -0.52), width=0.14),
    ],
    "stone": [
        _poly((-0.95, 0.6), (-0.8, -0.1), (-0.35, -0.55), (0.3, -0.6), (0.75, -0.15), (0.98, 0.6)),
        _poly((0.3, -0.6), (0.75, -0.15), (0.98, 0.6), (0.4, 0.6), (0.15, -0.1), what=MARK),
    ],
    "couch": [
        _box(-0.7, -0.6, 0.7, 0.2),
        _box(-0.98, -0.2, -0.65, 0.6),
        _box(0.65, -0.2, 0.98, 0.6),
        _box(-0.65, 0.12, 0.65, 0.6, what=MARK),
        *_mirrored(_box(0.7, 0.6, 0.88, 0.85)),
        _line((0, -0.6), (0, 0.1), width=0.06, what=MARK),
    ],
}
