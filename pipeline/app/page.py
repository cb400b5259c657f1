"""`make app`: a local page that searches a gallery by words and by pictures, and shows why a picture was found.

Streamlit runs this file: `streamlit run pipeline/app/page.py -- GALLERY`. It shows pictures of the gallery
alone, out of memory; no path of a request is opened, and names, captions and errors are shown as they are, never as
markup. Its parts are the files `page_*.py`.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import streamlit as st
from streamlit.runtime.uploaded_file_manager import UploadedFile

from data.pictures.folder import SUFFIXES
from data.text.language_codes import language_called
from data.text.languages import language_name
from pipeline.app.page_picture import uploaded
from pipeline.app.page_results import SearchRequest, results, show_hits
from pipeline.app.page_start import introduction, start
from pipeline.app.page_text import LONGEST, errors_shown, plain
from pipeline.app.page_translation import demonstration
from pipeline.engine.machine_errors import line_of
from pipeline.errors import RecipeError
from pipeline.gallery.examples import Ambiguous, Sentence, ambiguous_example
from pipeline.gallery.gallery import Gallery
from pipeline.gallery.generation import POINTER
from pipeline.gallery.hits import no_gallery

_DETECT, _LANGUAGE = "detect", "language"
_QUERY, _EXAMPLE, _DEMONSTRATED, _UPLOADS = "q", "example", "demonstrated", "uploads"  # what a session keeps
_ADDRESS = "address"  # the query and the language that the session last read in the page's address, or wrote there
_IN_ADDRESS: Final = "query-params"  # an entry stands in the page's address too, by its key, so that it can be shared
_STYLE = """<style>
.stMainBlockContainer {padding-top: 1rem; padding-bottom: 2rem; max-width: 1400px;}
.stMainBlockContainer h1 {padding: 0; font-size: 2.2rem;}
.stMainBlockContainer h2 {padding: 0.4rem 0; font-size: 1.4rem;}
.stMainBlockContainer .stButton p {text-align: left;}
.stMainBlockContainer img {border-radius: 0.4rem;}
[data-testid="stCaptionContainer"], [data-testid="stCaptionContainer"] p {
    color: light-dark(#59636e, #9aa1a9); opacity: 1;
}
label:has(input:focus-visible) {outline: 2px solid; outline-offset: 2px;}
</style>"""


def page(folder: Path) -> None:
    """The whole page, run anew with everything that is typed, clicked or uploaded."""
    st.set_page_config("Bildwort", layout="wide")
    st.html(_STYLE)
    try:
        changed = (folder / POINTER).stat().st_mtime_ns
        gallery = _gallery(str(folder), changed)
    except (RecipeError, OSError) as error:
        absent = isinstance(error, FileNotFoundError | NotADirectoryError)
        known = line_of(error) if isinstance(error, OSError) else None
        st.error(plain(no_gallery(folder) if absent else known or str(error)))
        return
    introduction(gallery)
    with errors_shown():
        request, picture = _inputs(gallery)
        near = None
        if picture is not None:
            with errors_shown():
                near = uploaded(gallery, picture.getvalue(), picture.name, request)
        if request.sentence.text:
            results(gallery, request)
        elif picture is None and st.session_state.get(_DEMONSTRATED):
            demonstration(gallery, _ambiguous(str(folder), changed))
        elif picture is None:
            start(gallery, _ask, _demonstrate)
        if near is not None:
            st.header("Similar pictures", anchor=False)
            show_hits(gallery, near)


def _inputs(gallery: Gallery) -> tuple[SearchRequest, UploadedFile | None]:
    """The fields for words and a picture, side by side, and the options; what is entered."""
    exported = gallery.exported
    codes = [_DETECT, *(sorted({*exported.languages, *exported.translators.sources("mt")}))]
    _follow_address(codes)
    left, right = st.columns([3, 2])
    with left:
        with st.container(horizontal=True, vertical_alignment="bottom"):
            typed = st.text_input("Search with words", key=_QUERY, icon=":material/search:",
                                  placeholder="describe a picture", on_change=_demonstrate, args=(False,))  # fmt: skip
            st.button("Search", type="primary")
        with st.container(horizontal=True, vertical_alignment="center"):
            why = st.toggle(
                "Why?",
                key="why",
                bind=_IN_ADDRESS,
                help="frames the regions that the words of the query depend on, in their colours",
            )
            both = st.toggle("Both languages", bool(exported.translator_names), disabled=not exported.translator_names,
                             key="both", bind=_IN_ADDRESS,
                             help="translates the query (MT) and searches with the translation too"
                             if exported.translator_names else "this model has no translators")  # fmt: skip
            options = st.popover("Options", icon=":material/tune:", type="tertiary")
            if _used():
                st.button("Start page", icon=":material/home:", type="tertiary", on_click=_reset)
    language = options.selectbox("Language of the query", codes, format_func=language_name, key=_LANGUAGE)
    _write_address(typed, language)
    top = int(options.number_input("Number of pictures", 1, 100, 12, key="top", bind=_IN_ADDRESS))
    picture = right.file_uploader(
        "Search with a picture", sorted(suffix[1:] for suffix in SUFFIXES), key=_upload_key(),
        disabled=exported.extractor is None,
        help="finds similar pictures and captions, and translates with it" if exported.extractor
        else "this model reads regions that were made elsewhere, not pixels",
    )  # fmt: skip
    query = " ".join(typed.split())
    if len(query) > LONGEST:
        left.info(f"Only the first {LONGEST:,} letters are searched for.")
        query = query[:LONGEST]
    guessed = language == _DETECT
    example: Sentence | None = st.session_state.get(_EXAMPLE)
    if guessed and example is not None and example.text == query:
        guessed, language = False, example.language
    elif guessed:
        reading = exported.reading(query)
        known = codes[1:] if both and not reading.certain else exported.languages
        language = exported.language_of(query, known)
    return SearchRequest(Sentence(query, language), top, why, both, guessed), picture


@st.cache_resource(max_entries=2, show_spinner="Opening the gallery")
def _gallery(folder: str, changed: int) -> Gallery:
    """Opened once for each update."""
    return Gallery.open(folder)


@st.cache_resource(max_entries=2, show_spinner="Looking for a sentence whose translation depends on the picture")
def _ambiguous(folder: str, changed: int) -> Ambiguous | None:
    """Found once for each update of a gallery."""
    return ambiguous_example(_gallery(folder, changed))


def _ask(example: Sentence) -> None:
    """Search with an example, in its own language."""
    st.session_state[_QUERY], st.session_state[_EXAMPLE] = example.text, example
    st.session_state[_LANGUAGE] = _DETECT  # else it would be read as another one


def _follow_address(languages: Sequence[str]) -> None:
    """Take the query and its language from the address, where it is another one than the session wrote: it was opened,
    or left by *Back*. Streamlit's own fields would replace the address, so that *Back* would leave the page."""
    address = st.query_params.get(_QUERY, ""), st.query_params.get(_LANGUAGE, "")
    if st.session_state.get(_ADDRESS, ("", "")) != address:
        query, language = st.session_state[_ADDRESS] = address
        code = language_called(language) if language else None
        st.session_state[_QUERY], st.session_state[_LANGUAGE] = query, code if code in languages else _DETECT


def _write_address(query: str, language: str) -> None:
    """Put a query and its language into the address, a step of the browser's history, if they are others."""
    wanted = query, "" if language == _DETECT else language
    if st.session_state.get(_ADDRESS, ("", "")) != wanted:
        st.session_state[_ADDRESS] = wanted
        for key, value in zip((_QUERY, _LANGUAGE), wanted, strict=True):
            if value:
                st.query_params[key] = value
            elif key in st.query_params:
                del st.query_params[key]


def _demonstrate(shown: bool = True) -> None:
    """Show the demonstration, or no longer: not again after a search."""
    st.session_state[_DEMONSTRATED] = shown


def _reset() -> None:
    """Back to the first screen, with empty fields."""
    st.session_state[_QUERY], st.session_state[_DEMONSTRATED], st.session_state[_LANGUAGE] = "", False, _DETECT
    st.session_state[_UPLOADS] = st.session_state.get(_UPLOADS, 0) + 1


def _upload_key() -> str:
    """Of the field for a picture; another one empties it."""
    return f"picture-{st.session_state.get(_UPLOADS, 0)}"


def _used() -> bool:
    """Is anything entered or shown?"""
    return any(st.session_state.get(key) for key in (_QUERY, _DEMONSTRATED, _upload_key()))


if __name__ == "__main__":
    page(Path(sys.argv[1] if len(sys.argv) > 1 else "gallery"))
