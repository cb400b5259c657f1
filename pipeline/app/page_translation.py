"""A part of the page: a sentence translated without a picture (MT) and with one (MMT), side by side, or by others."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import streamlit as st
from numpy.typing import NDArray
from PIL import Image

from data.text.languages import language_name
from pipeline.app.page_text import BROWN, GREEN, LONGEST, errors_shown, marked, plain, thumbnail
from pipeline.export.exported_model import ExportedModel
from pipeline.gallery.examples import Ambiguous, Sentence
from pipeline.gallery.gallery import Gallery
from pipeline.gallery.hits import Hit
from pipeline.recipes.systems import members_of

if TYPE_CHECKING:  # imports Lightning: seconds
    from pipeline.export.exported_translators import Translation

TITLE = "Translation with and without the picture"
_WIDTH = 180  # pixels of a picture


class PictureRegions(NamedTuple):
    """A picture that is translated with.

    Attributes:
        picture: to be shown; None where it is not at hand.
        regions: (R, D), as the model reads them.
        boxes: (R, 4) of them, corners x1, y1, x2, y2 in 0…1.
    """

    picture: Image.Image | None
    name: str
    regions: NDArray[np.floating]
    boxes: NDArray[np.floating]


def demonstration(gallery: Gallery, example: Ambiguous | None) -> None:
    """Show a sentence that two pictures give two translations."""
    st.header(TITLE, anchor=False)
    if example is None:
        st.info("No sentence was found whose translation depends on the picture.")
        return
    st.markdown(
        "The sentence alone does not tell which meaning of a word is meant. The text-only system (MT) has to guess; "
        "the multimodal system (MMT) looks at the picture. Change the sentence to try others."
    )
    compare_translations(gallery.exported, example.sentence, seen_in(gallery, example.pictures), "example")


@st.dialog(TITLE, width="large")
@errors_shown()
def translation_dialog(gallery: Gallery, sentence: Sentence, hit: Hit) -> None:
    """Show the translations of a sentence for one picture of the gallery, above the page."""
    compare_translations(gallery.exported, sentence, seen_in(gallery, [hit]), "dialog")


def seen_in(gallery: Gallery, hits: Sequence[Hit]) -> list[PictureRegions]:
    """Pictures of a gallery, to be explained and translated with."""
    return [
        PictureRegions(thumbnail(hit), hit.name, *arrays)
        for hit, *arrays in zip(hits, *gallery.regions_of(hits), strict=True)
    ]


def targets_of(exported: ExportedModel, source: str) -> list[str]:
    """The languages that both MT and a system that looks at pictures translate a language into."""
    looking = exported.translators.looking(source)
    return [target for target in exported.translators.targets("mt", source) if target in looking]


def compare_translations(
    exported: ExportedModel, sentence: Sentence, seen: Sequence[PictureRegions], where: str
) -> None:
    """Show the translations of a sentence, a row for each picture; words that differ are marked.

    Args:
        sentence: to be translated, until another one is typed.
        where: a name of this part of the page: the same sentence may be translated in another one too.
    """
    text, source = sentence
    typed = st.text_input(
        f"Sentence to translate ({language_name(source)})", text, max_chars=LONGEST, key=f"to-{where}-{text}"
    )
    if not (typed or "").strip():
        return
    for target in targets_of(exported, source):
        systems = _chosen(exported, source, target, f"by-{where}-{text}-{target}")
        translations = {system: _translated(exported, typed, system, (source, target), seen) for system in systems}
        if not (readings := [some[0].reading for some in translations.values()]):
            continue
        if note := max((reading.note for reading in readings), key=len):
            st.warning(plain(note))
        if not any(reading.known for reading in readings):
            continue  # there is nothing to show
        rows = [(picture, [translations[system][place] for system in systems]) for place, picture in enumerate(seen)]
        for picture, texts in sorted(rows, key=lambda row: len(set(row[1])) == 1):  # those that differ first
            _row(picture, [_title(exported, system, source, target) for system in systems], texts, target)


def _chosen(exported: ExportedModel, source: str, target: str, key: str) -> list[str]:
    """The systems that are compared: MT and the first one that looks, unless others are chosen of more than two."""
    known = exported.translators.systems(source, target)
    usual = ["mt", exported.translators.looking(source)[target]]
    if known == usual:
        return usual
    chosen = st.multiselect(
        f"Translators into {language_name(target)}", known, usual, format_func=_label, key=key,
        help="a name behind + re-ranks what the translator before it finds",
    )  # fmt: skip
    return [system for system in known if system in chosen]


def _translated(
    exported: ExportedModel, text: str, system: str, direction: tuple[str, str], seen: Sequence[PictureRegions]
) -> "list[Translation]":
    """The translation of a sentence by one system with each picture, or once for all if it does not look."""
    if not exported.translators.looks(system, *direction):
        return [exported.translators.translate(text, system, *direction)] * len(seen)
    regions = np.stack([picture.regions for picture in seen])
    return exported.translators.translate_all([text] * len(seen), system, *direction, regions)


def _title(exported: ExportedModel, system: str, source: str, target: str) -> str:
    """What stands above a translation."""
    how = "With" if exported.translators.looks(system, source, target) else "Without"
    return f"{how} the picture ({_label(system)}, {language_name(target)})"


def _label(system: str) -> str:
    """A system's name as it is shown: `mt+channel` is MT+channel."""
    members, reranks = members_of(system)
    return "+".join([*(member.upper() for member in members), *([reranks] if reranks else [])])


def _row(seen: PictureRegions, titles: Sequence[str], texts: Sequence[str], language: str) -> None:
    """A picture, and beside it its translations: words that differ from the first are marked, and the first's own."""
    picture, *places = st.columns([2, *[10 / max(1, len(texts))] * len(texts)], vertical_alignment="center")
    if seen.picture is None:
        picture.info("The picture is not at hand.")
    else:
        picture.image(seen.picture, width=_WIDTH, alt=seen.name)
    for number, (place, title, text) in enumerate(zip(places, titles, texts, strict=True)):
        other = texts[1 if number == 0 and len(texts) > 1 else 0]
        with place.container(border=True, gap="xxsmall"):
            st.caption(plain(title + (", the same" if number and text == other else "")))
            st.markdown(marked(text, other, GREEN if number else BROWN, language))
