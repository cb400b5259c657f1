"""Vectors in the plane by t-SNE: the joint space of images, regions, captions and words; a model's word vectors.

Word vectors are shown as in GXN (Gu et al. 2018, Fig. 6).
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import product

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray
from PIL import Image
from torch.nn import functional as F

from data.text.characters import lowered
from data.text.languages import language_name
from data.text.text_inputs import WordVocabulary
from modules.retrieval_models import RetrievalModel
from modules.search.joint_space import CAPTIONS, IMAGES, REGIONS, WORDS, Groups, farthest, t_sne
from pipeline.visualization.plots import DPI, as_label

_SIDE, _LEGEND = 9.0, 0.7  # inches: the plane, the legend below it
_EDGES = np.array([[0.5, 0.3], [0.5, 0.7]])  # inches that are left free: left and bottom, right and top
_LETTER, _LINE, _POINTS = 0.082, 0.15, 9  # of a word: inches of a letter and of a line, size in points
_CROP, _CROPS = 0.34, 24  # inches of a region's picture; how many are shown: those that lie farthest apart
_RINGS = 5  # how far a word may stand from its point, in lines
_COLOURS = {IMAGES: ("#7f7f7f",), REGIONS: ("#e69f00",), CAPTIONS: ("#56b4e9", "#cc79a7"),
            WORDS: ("#0b4f8a", "#a01c5f")}  # fmt: skip
_MARKS = {IMAGES: "s", REGIONS: "^", CAPTIONS: ".", WORDS: "D"}
_DIRECTIONS = ((1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (-1, 1), (1, -1), (-1, -1))  # right, up
CropOf = Callable[[int], Image.Image | None]
"""What a region looks like, by its row; None where the picture is not at hand."""
_Box = tuple[float, float, float, float]  # left, bottom, right, top in inches


def known_words(words: Mapping[str, Sequence[str]], vocabulary: WordVocabulary) -> dict[str, list[str]]:
    """Those of some words, by language, that the vocabulary has, in lower case; languages without one are left out."""
    entries = {language: vocabulary.words_of(language) for language in words}
    known = {language: [word for each in some if (word := lowered(each, language)) in entries[language]]
             for language, some in words.items()}  # fmt: skip
    return {language: some for language, some in known.items() if some}


def word_vectors(model: RetrievalModel, vocabulary: WordVocabulary, words: Mapping[str, Sequence[str]]) -> Groups:
    """The word vectors of words, by language, that the vocabulary has, of unit norm; the model has some of its own."""
    table, groups = model.word_tables[0].weight.detach().float().cpu(), Groups()
    for language, some in words.items():
        number = vocabulary.words_of(language)
        groups[WORDS, language] = F.normalize(table[[number[word] for word in some]], dim=1).numpy()
    return groups


def plane_figure(
    heading: str, how: str, groups: Groups, words: Mapping[str, Sequence[str]], crop: CropOf = lambda _: None
) -> Figure:
    """Vectors in the plane by t-SNE: kinds and languages by colour, words with their text, some regions as pictures.

    Args:
        how: how the vectors were made.
        groups: vectors by kind and language.
        words: language -> the words that its vectors of kind `words` are of.
        crop: what a region looks like, by its row; None where the picture is not at hand.
    """
    places = _in_inches(t_sne(np.concatenate(list(groups.values()))))
    points = dict(zip(groups, np.split(places, np.cumsum([len(rows) for rows in groups.values()])[:-1]), strict=True))
    figure = Figure((_SIDE, _SIDE + _LEGEND), dpi=DPI)
    axes = figure.add_axes((0, _LEGEND / (_SIDE + _LEGEND), 1, _SIDE / (_SIDE + _LEGEND)))
    axes.set(xlim=(0, _SIDE), ylim=(0, _SIDE), xticks=[], yticks=[])
    axes.text(0.1, _SIDE - 0.1, as_label(f"{heading} by t-SNE"), va="top", size="large", weight="bold")
    axes.text(0.1, _SIDE - 0.4, how, va="top")
    languages = list(dict.fromkeys(language for _, language in points if language))
    colours = {(kind, language): _colour(kind, language, languages) for kind, language in points}
    for (kind, language), some in points.items():
        name = f"{kind}, {language_name(language)}" if language else kind
        axes.scatter(some[:, 0], some[:, 1], s=24, marker=_MARKS[kind], color=colours[kind, language],
                     alpha=0.7, linewidths=0, label=name)  # fmt: skip
    taken = _draw_crops(axes, points.get((REGIONS, ""), np.empty((0, 2))), crop)
    for (kind, language), some in points.items():
        if kind == WORDS:
            for place, word in zip(some, words[language], strict=True):
                taken.append(_write_word(axes, place, word, colours[kind, language], taken))
    figure.legend(loc="lower center", ncols=3, frameon=False, markerscale=1.5)
    return figure


def _in_inches(places: NDArray[np.floating]) -> NDArray[np.floating]:
    """Positions (N, 2) spread over the plane."""
    low, high = places.min(0), places.max(0)
    return _EDGES[0] + (places - low) / np.maximum(high - low, 1e-12) * (_SIDE - _EDGES.sum(0))


def _colour(kind: str, language: str, languages: Sequence[str]) -> str:
    colours = _COLOURS[kind]
    return colours[languages.index(language) % len(colours)] if language else colours[0]


def _draw_crops(axes: Axes, points: NDArray[np.floating], crop_of: CropOf) -> list[_Box]:
    """Pictures of those regions that lie farthest apart, and the places that they take."""
    taken = []
    for region in farthest(points, _CROPS):
        crop = crop_of(region)
        if crop is not None:
            scale = _CROP / max(crop.size)
            (x, y), width, height = points[region], crop.width * scale, crop.height * scale
            box = (x - width / 2, y - height / 2, x + width / 2, y + height / 2)
            axes.imshow(crop, extent=(box[0], box[2], box[1], box[3]), zorder=2)
            axes.add_patch(Rectangle(box[:2], width, height, fill=False, edgecolor=_COLOURS[REGIONS][0], zorder=3))
            taken.append(box)
    return taken


def _write_word(axes: Axes, place: NDArray[np.floating], word: str, colour: str, taken: Sequence[_Box]) -> _Box:
    """Write a word next to its point, with a line to it, at the nearest place that is free."""
    x, y = (float(value) for value in place)
    wide, boxes = _LETTER * len(word), []
    for ring, (right, up) in product(range(1, _RINGS + 1), _DIRECTIONS):
        left, bottom = x + right * (0.06 + wide / 2 + 0.1 * ring) - wide / 2, y + up * _LINE * ring - _LINE / 2
        boxes.append((left, bottom, left + wide, bottom + _LINE))
    inside = [candidate for candidate in boxes if min(candidate) > 0 and max(candidate) < _SIDE] or boxes
    box = min(inside, key=lambda candidate: sum(_overlap(candidate, other) for other in taken))
    axes.annotate(
        as_label(word), (x, y), ((box[0] + box[2]) / 2, (box[1] + box[3]) / 2), color=colour, size=_POINTS, ha="center",
        va="center", arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.5, "shrinkA": 4}, zorder=4,
        weight="bold",
    )  # fmt: skip
    return box


def _overlap(first: _Box, second: _Box) -> float:
    """The area that two places share."""
    width = min(first[2], second[2]) - max(first[0], second[0])
    height = min(first[3], second[3]) - max(first[1], second[1])
    return max(0.0, width) * max(0.0, height)
