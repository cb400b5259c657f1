"""`make app`: a local page that searches a gallery by words and by pictures, and shows which regions decide.

Streamlit runs this file: `streamlit run pipeline/search/app.py -- GALLERY`. It shows pictures of the gallery
alone, out of memory; no path of a request is opened, and names, captions and errors are shown as they are, never as
markup.
"""

import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
import streamlit as st
import torch
from numpy.typing import NDArray
from streamlit.delta_generator import DeltaGenerator

from data.errors import DataError
from data.languages import language_of
from data.pictures import SUFFIXES
from modules.errors import ModelError
from pipeline.drawing.attention import frame
from pipeline.drawing.pictures import read_thumbnail
from pipeline.errors import RecipeError
from pipeline.search.exported_model import ExportedModel
from pipeline.search.gallery import Gallery, Hit

LONGEST = 1000  # characters of a query; the model reads 100 words
COLUMNS, SIZE = 4, 320
_AUTO = "detected"


def page(folder: Path) -> None:
    """The whole page, run anew with everything that is typed or dropped."""
    st.set_page_config("Bildwort", layout="wide")
    st.title("Bildwort")
    try:
        gallery = _gallery(str(folder), (folder / "gallery.json").stat().st_mtime_ns)
    except (RecipeError, OSError) as error:
        st.error(
            plain(str(error) if isinstance(error, RecipeError) else f"{folder}: no gallery here; run `make index`")
        )
        return
    st.caption(plain(f"{len(gallery):,} pictures; {gallery.exported.name}; {', '.join(gallery.exported.languages)}"))
    words, choice, number = st.columns([6, 1, 1])
    query = words.text_input("What is to be seen?", max_chars=LONGEST, placeholder="a few words")
    language = choice.selectbox("Language", [_AUTO, *_languages(gallery.exported)])
    top = int(number.number_input("Pictures", 1, 100, 12))
    choices = st.columns([1, 1, 4])
    framed = choices[0].toggle("Regions", help="frames what the score owes most: red before yellow before blue")
    translated = choices[1].toggle(
        "Translations", disabled=not gallery.exported.translator_names,
        help="the query translated and searched beside it; with a picture, words translated with it and without"
    )  # fmt: skip
    request = Request(query.strip(), None if language == _AUTO else language, top, framed, translated)
    dropped = st.file_uploader("… or a picture", type=sorted(one[1:] for one in SUFFIXES))
    try:
        if request.query:
            _by_words(gallery, request)
        if dropped is not None:
            _by_picture(gallery, dropped.getvalue(), dropped.name, request)
    except (DataError, ModelError, RecipeError) as error:
        st.error(plain(str(error)))


class Request(NamedTuple):
    """What is entered on the page: words, their language, how many pictures, and what is shown beside them."""

    query: str
    language: str | None
    top: int
    framed: bool
    translated: bool


def plain(text: str) -> str:
    """A text that Streamlit's Markdown shows as it is."""
    return "".join(f"\\{one}" if one in r"\`*_{}[]()<>#+-.!|~$:&" else one for one in text if one.isprintable())


@st.cache_resource(max_entries=2, show_spinner="opening the gallery")
def _gallery(folder: str, changed: int) -> Gallery:
    """Opened once for each update."""
    return Gallery.open(folder)


def _languages(exported: ExportedModel) -> list[str]:
    """Those that the model reads, and those that its translators do."""
    return sorted({*exported.languages, *(name.split("-")[1] for name in exported.translator_names)})


def _language_of(request: Request, exported: ExportedModel) -> str:
    """The language of the words: as chosen, or detected among those that will be read."""
    known = _languages(exported) if request.translated else exported.languages
    return request.language or language_of(request.query, known)


def _by_words(gallery: Gallery, request: Request) -> None:
    """Pictures for words; beside them those for each translation of the words that the model reads."""
    exported = gallery.exported
    written_in = _language_of(request, exported)
    sentences = [(written_in, request.query, request.query)]
    if request.translated:
        if written_in not in exported.languages:
            sentences.clear()
        for target in exported.translators.targets("mt", written_in):
            if target in exported.languages:
                text = exported.translators.translate(request.query, "mt", written_in, target)
                sentences.append((target, text, f"translated: {text}"))
    if not sentences:
        st.info(plain(f"No translator of this model leads from {written_in} into {', '.join(exported.languages)}."))
        return
    for place, (language, text, title) in zip(st.columns(len(sentences)), sentences, strict=True):
        with place:
            st.subheader(plain(f"{title[:80]} ({language})"))
            hits = gallery.search(text, request.top, language) if text.strip() else []
            vector = exported.encode_captions([text], language).single() if request.framed else None
            _show(gallery, hits, max(1, COLUMNS // len(sentences)), vector)


def _by_picture(gallery: Gallery, content: bytes, name: str, request: Request) -> None:
    exported = gallery.exported
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"dropped{Path(name).suffix[:5]}"
        path.write_bytes(content)
        try:
            regions, boxes = exported.regions_of(path)
        except DataError as error:
            raise DataError(str(error).replace(str(path), name)) from None
        shown = read_thumbnail(path, SIZE)
    vector = exported.encode_regions(regions[None]).single()
    captions = gallery.captions_near(vector)
    words = [Hit(request.query, 0.0, None, _language_of(request, exported))] if request.query else []
    words += sorted((hit for nearest in captions.values() for hit in nearest), key=lambda hit: -hit.score)
    left, right = st.columns([1, 3])
    if shown is not None:
        readable = [hit for hit in words if hit.language in exported.languages]
        if request.framed and readable:
            nearest = exported.encode_captions([readable[0].name], readable[0].language).single()
            frame(shown, boxes, exported.region_shares(regions[None], nearest)[0])
        left.image(shown)
    for language, found in captions.items():
        right.markdown(f"**{plain(language)}**")
        for hit in found:
            right.text(f"{hit.score:.3f}  {hit.name}")
    if request.translated and words:
        _translations(right, exported, words[0].name, str(words[0].language), regions)
    st.subheader("Pictures like it")
    _show(gallery, gallery.pictures_near(vector, request.top))


def _translations(
    place: DeltaGenerator, exported: ExportedModel, text: str, written_in: str, regions: NDArray[np.floating]
) -> None:
    """A caption's translations without its picture (MT) and with it (MMT)."""
    place.markdown(plain(f"“{text[:200]}”, translated"))
    for system, title in (("mt", "without the picture"), ("mmt", "with the picture")):
        for target in exported.translators.targets(system, written_in):
            place.text(
                f"{title}, {target}:  {exported.translators.translate(text, system, written_in, target, regions)}"
            )


def _show(gallery: Gallery, hits: list[Hit], columns: int = COLUMNS, vector: torch.Tensor | None = None) -> None:
    """Pictures in rows, best first; with a caption's vector (1, H), the regions that its score owes most are framed."""
    if not hits:
        st.info("Nothing was found.")
    looked = [None] * len(hits) if vector is None else gallery.looked_at(vector, hits)
    for start in range(0, len(hits), columns):
        for number, column in enumerate(st.columns(columns)[: len(hits) - start], start):
            hit, seen = hits[number], looked[number]
            picture = read_thumbnail(hit.path, SIZE)
            if picture is None:
                column.info("not at hand")
            else:
                if seen is not None:
                    frame(picture, *seen)
                column.image(picture)
            column.text(f"{hit.score:.3f}  {hit.name}")


if __name__ == "__main__":
    page(Path(sys.argv[1] if len(sys.argv) > 1 else "gallery"))
