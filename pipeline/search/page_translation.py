"""A part of the page: a sentence translated without a picture (MT) and with one (MMT), side by side."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import streamlit as st
from numpy.typing import NDArray
from PIL import Image

from data.languages import language_name
from pipeline.errors import RecipeError
from pipeline.search.examples import Ambiguous, Sentence
from pipeline.search.exported_model import ExportedModel
from pipeline.search.gallery import Gallery, Hit
from pipeline.search.page_text import BROWN, GREEN, marked, plain, thumbnail

TITLE = "Translation with and without the picture"
_WIDTH = 180  # pixels of a picture


class Seen(NamedTuple):
    """A picture that is translated with.

    Attributes:
        picture: to be shown; None where it is not at hand.
        name: of it.
        regions: (R, D), as the model reads them.
        boxes: (R, 4) of them, corners x1, y1, x2, y2 in 0…1.
    """

    picture: Image.Image | None
    name: str
    regions: NDArray[np.floating]
    boxes: NDArray[np.floating]


def demonstration(gallery: Gallery, example: Ambiguous | None) -> None:
    """Show a sentence that two pictures give two translations."""
    st.subheader(TITLE, anchor=False)
    if example is None:
        st.info("No sentence was found whose translation depends on the picture.")
        return
    st.markdown(
        "The sentence alone does not tell which meaning of a word is meant. The text-only system (MT) has to guess; "
        "the multimodal system (MMT) looks at the picture. Change the sentence to try others."
    )
    compare_translations(gallery.exported, example.sentence, seen_in(gallery, example.pictures))


@st.dialog(TITLE, width="large")
def translation_dialog(gallery: Gallery, sentence: Sentence, hit: Hit) -> None:
    """Show the translations of a sentence for one picture of the gallery, above the page."""
    try:
        compare_translations(gallery.exported, sentence, seen_in(gallery, [hit]))
    except RecipeError as error:  # the gallery was updated
        st.error(plain(str(error)))


def seen_in(gallery: Gallery, hits: Sequence[Hit]) -> list[Seen]:
    """Pictures of a gallery, to be explained and translated with."""
    return [Seen(thumbnail(hit), hit.name, *one) for hit, *one in zip(hits, *gallery.regions_of(hits), strict=True)]


def can_compare(exported: ExportedModel, language: str) -> bool:
    """Does the model bring MT and MMT from this language into the same one?"""
    return bool(_targets(exported, language))


def compare_translations(exported: ExportedModel, sentence: Sentence, seen: Sequence[Seen]) -> None:
    """Show the translations of a sentence, a row for each picture; words that differ are marked."""
    text, source = sentence
    typed = st.text_input(f"Sentence to translate ({language_name(source)})", text, max_chars=300, key=f"to-{text}")
    if not (typed or "").strip():
        return
    for target in _targets(exported, source):
        without = exported.translators.translate(typed, "mt", source, target)
        regions = np.stack([one.regions for one in seen])
        found = exported.translators.translate_all([typed] * len(seen), "mmt", source, target, regions)
        pairs = sorted(zip(seen, found, strict=True), key=lambda pair: pair[1] == without)  # those that differ first
        for one, text_with in pairs:
            _row(one, language_name(target), without, text_with)


def _row(seen: Seen, language: str, without: str, with_it: str) -> None:
    """A picture, and beside it its two translations, different words marked."""
    picture, left, right = st.columns([2, 5, 5], vertical_alignment="center")
    if seen.picture is None:
        picture.info("The picture is not at hand.")
    else:
        picture.image(seen.picture, width=_WIDTH, alt=seen.name)
    same = ", the same" if without == with_it else ""
    for place, title, text in (
        (left, f"Without the picture (MT, {language})", marked(without, with_it, BROWN)),
        (right, f"With the picture (MMT, {language}){same}", marked(with_it, without, GREEN)),
    ):
        with place.container(border=True, gap="xxsmall"):
            st.caption(plain(title))
            st.markdown(text)


def _targets(exported: ExportedModel, source: str) -> list[str]:
    """The languages that both MT and MMT translate a language into."""
    return [one for one in exported.translators.targets("mmt", source)
            if one in exported.translators.targets("mt", source)]  # fmt: skip
