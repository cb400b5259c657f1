"""Pictures of grounding: which regions each attention head, and each word of a caption, looks at."""

import textwrap
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray
from PIL import Image

from data.text.function_words import is_content_word
from data.text.languages import language_name
from data.text.tokenisation import CHARACTERS, without_each_word
from modules.retrieval_models import RetrievalModel
from modules.retrieval_models.encoded import Encode, device_of, encoded_captions
from modules.search.grounding import ground
from pipeline.visualization.plots import DPI, as_label

_COLUMNS = 8  # of panels, half of them for each of two languages
_WIDE, _HIGH, _TEXT = 1.45, 1.65, 0.75  # inches: a panel, and lines of text
_WORDS = 8  # at most, of a caption
_FRAMED = 2  # regions in a panel, the strongest
_LEAST = 0.3  # of the strongest region's share: weaker regions have no frame
_DARK = 0.2  # brightness where nothing is looked at
_LABEL = 0.11  # height of a percentage, of the picture's
_EMPTY = 200  # pixels of the frame that stands for a picture that is not at hand
_FRAME = "#d55e00"  # vermilion of Okabe and Ito
HOW = (
    "Bright: looked at. Framed: the strongest regions. Head: % of its attention. Word: how much more it adds to the\n"
    "score with a region than without it, in % of the sum over all regions."
)
NOTHING = "no region"
"""What stands in the panel of a word that adds no more to the score with any of the regions than without it."""


class View(NamedTuple):
    """What a head or a word looks at.

    Attributes:
        title: of its panel.
        shares: (R,) by region, of sum 1; all 0 for a word that depends on no region.
    """

    title: str
    shares: NDArray[np.floating]


class Side(NamedTuple):
    """A caption, and what its content words look at."""

    title: str
    words: Sequence[View]


def grounded(
    model: RetrievalModel, encode: Encode, regions: NDArray[np.floating], captions: Sequence[tuple[str, str]],
    by: str = CHARACTERS,
) -> tuple[list[View], list[Side]]:  # fmt: skip
    """What a model's heads and the words of captions look at in an image.

    Args:
        encode: the text input's.
        regions: (R, D) of the image.
        captions: of the image, each a text and its language.
        by: what languages that are written without spaces are read by, as a `WordVocabulary` has it.
    """
    vectors = torch.from_numpy(regions.astype(np.float32)).to(device_of(model))
    real = vectors.new_ones(len(vectors), dtype=torch.bool)
    with torch.no_grad():
        weights = model.region_weights(vectors[None], real[None])
    shares = np.empty((0, len(regions))) if weights is None else weights[0].float().cpu().numpy()
    heads = [View(f"head {number}", of_head) for number, of_head in enumerate(shares, 1)]
    return heads, [_side(model, encode, vectors, real, *caption, by) for caption in captions]


def _side(
    model: RetrievalModel, encode: Encode, regions: torch.Tensor, real: torch.Tensor, text: str, language: str, by: str
) -> Side:
    """A caption and its content words; of many, those that add most to the score; in the order of the caption."""
    words, without = without_each_word(text, language, by)
    with torch.no_grad():
        captions = encoded_captions(model, encode, [(sentence, language) for sentence in (text, *without)])
    effects, parts = (tensor.float().cpu().numpy() for tensor in ground(model, regions, real, captions))
    content = [place for place, word in enumerate(words) if is_content_word(word, language)]
    kept = sorted(sorted(content, key=lambda place: -effects[place])[:_WORDS])
    added = parts.clip(0)
    shares = added / added.sum(1, keepdims=True).clip(1e-12)
    views = [View(words[place].strip(".,;:!?"), shares[place]) for place in kept]
    return Side(f"{language_name(language)}: “{text}”", views)


def grounding_figure(
    title: str, picture: Image.Image | None, boxes: NDArray[np.floating], heads: Sequence[View], sides: Sequence[Side]
) -> Figure:
    """An image with its regions, and what each head and each word of its captions looks at.

    Args:
        picture: the image; None where it is not at hand: regions are drawn in an empty frame.
        boxes: (R, 4) of its regions, corners x1, y1, x2, y2 in 0…1.
        sides: captions, a language each.
    """
    half = _COLUMNS // max(1, len(sides))
    above = -(-(len(heads) + 1) // _COLUMNS)
    below = max((-(-len(side.words) // half) for side in sides), default=0)
    heights = [_TEXT, above * _HIGH, _TEXT + below * _HIGH]
    figure = Figure((_COLUMNS * _WIDE, sum(heights)), dpi=DPI, layout="constrained")
    text, first, second = figure.subfigures(3, 1, height_ratios=heights, squeeze=False)[:, 0]
    text.text(0.01, 0.9, as_label(title), size="large", weight="bold", va="top")
    text.text(0.01, 0.5, HOW if heads else f"{HOW} This model has no heads.", va="top")
    pixels = np.asarray(picture) if picture is not None else np.full((_EMPTY, _EMPTY, 3), 0xD8, np.uint8)
    panels = _panels(first, above, _COLUMNS)
    _draw_regions(panels[0], pixels, boxes)
    for axes, head in zip(panels[1:], heads, strict=False):
        _draw_view(axes, pixels, boxes, head)
    for side, part in zip(sides, second.subfigures(1, len(sides), squeeze=False)[0], strict=True):
        lines = textwrap.wrap(side.title, 17 * half, max_lines=2, placeholder=" …")
        part.suptitle(as_label("\n".join([*lines, ""][:2])), x=0.02, ha="left", size="medium", weight="bold")
        for axes, word in zip(_panels(part, below, half), side.words, strict=False):
            _draw_view(axes, pixels, boxes, word)
    return figure


def _panels(figure: SubFigure, rows: int, columns: int) -> list[Axes]:
    """Places for pictures, row by row."""
    panels = list(figure.subplots(rows, columns, squeeze=False).flat) if rows else []
    for axes in panels:
        axes.set_axis_off()
    return panels


def _draw_regions(axes: Axes, pixels: NDArray[np.uint8], boxes: NDArray[np.floating]) -> None:
    """The picture and the frame of each region."""
    _show(axes, pixels, f"{len(boxes)} regions")
    for box in boxes:
        _frame(axes, box, 1)


def _draw_view(axes: Axes, pixels: NDArray[np.uint8], boxes: NDArray[np.floating], view: View) -> None:
    """The picture, bright where the shares of its regions are large; the strongest are framed, with percentages."""
    _show(axes, lit(pixels, boxes, view.shares), view.title)
    if not view.shares.any():
        axes.text(0.5, 0.5, NOTHING, ha="center", va="center", color="white")
    for region in view.shares.argsort(kind="stable")[::-1][:_FRAMED]:
        if view.shares[region] > _LEAST * view.shares.max():
            x, above, below = _frame(axes, boxes[region], 2)
            inside = above < _LABEL  # no room above
            y = min(below, 1.0) if inside and below > 1 - _LABEL else below + _LABEL if inside else above
            axes.text(x, y, f"{100 * view.shares[region]:.0f} %", va="bottom", size="small", color="white",
                      bbox={"facecolor": _FRAME, "edgecolor": "none", "pad": 1})  # fmt: skip


def lit(pixels: NDArray[np.uint8], boxes: NDArray[np.floating], shares: NDArray[np.floating]) -> NDArray[np.uint8]:
    """A picture (height, width, 3), each pixel as bright as the shares (R,) of the regions (R, 4) over it together."""
    height, width, _ = pixels.shape
    light = np.zeros((height, width, 1))
    corners = (boxes.clip(0, 1) * [width, height, width, height]).round().astype(int)
    for (x1, y1, x2, y2), share in zip(corners, shares, strict=True):
        light[y1:y2, x1:x2] += share
    return (pixels * (_DARK + (1 - _DARK) * light / max(light.max(), 1e-12))).astype(np.uint8)


def _show(axes: Axes, pixels: NDArray[np.uint8], title: str) -> None:
    height, width, _ = pixels.shape
    axes.imshow(pixels, extent=(0, 1, 1, 0), aspect=height / width, interpolation="antialiased")
    axes.set_title(as_label(title), size="medium")


def _frame(axes: Axes, box: NDArray[np.floating], width: float) -> tuple[float, float, float]:
    """Draw the frame of a region, and give its left, upper and lower sides."""
    x1, y1, x2, y2 = (float(side) for side in box.clip(0, 1))
    axes.add_patch(Rectangle((x1, y1), x2 - x1, y2 - y1, fill=False, edgecolor=_FRAME, linewidth=width))
    return x1, y1, y2
