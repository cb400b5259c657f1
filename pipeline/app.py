"""`make app`: a local page that searches a gallery by words and by pictures.

Streamlit runs this file: `streamlit run pipeline/app.py -- GALLERY`. It shows pictures of the gallery alone, out of
memory; no path of a request is opened, and names, captions and errors are shown as they are, never as markup.
"""

import sys
import tempfile
from pathlib import Path

import streamlit as st

from data.errors import DataError
from data.pictures import SUFFIXES
from modules.errors import ModelError
from pipeline.dashboards import read_thumbnail
from pipeline.errors import RecipeError
from pipeline.gallery import Gallery, Hit

LONGEST = 1000  # characters of a query; the model reads 100 words
COLUMNS, SIZE = 4, 320
_AUTO = "told apart"


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
    st.caption(plain(f"{len(gallery):,} pictures; {gallery.finder.name}; {', '.join(gallery.finder.languages)}"))
    words, choice, number = st.columns([6, 1, 1])
    query = words.text_input("What is to be seen?", max_chars=LONGEST, placeholder="a few words")
    language = choice.selectbox("Language", [_AUTO, *gallery.finder.languages])
    top = int(number.number_input("Pictures", 1, 100, 12))
    dropped = st.file_uploader("… or a picture", type=sorted(one[1:] for one in SUFFIXES))
    try:
        if query.strip():
            _by_words(gallery, query, None if language == _AUTO else language, top)
        if dropped is not None:
            _by_picture(gallery, dropped.getvalue(), dropped.name, top)
    except (DataError, ModelError, RecipeError) as error:
        st.error(plain(str(error)))


def plain(text: str) -> str:
    """A text that Streamlit's Markdown shows as it is."""
    return "".join(f"\\{one}" if one in r"\`*_{}[]()<>#+-.!|~$:&" else one for one in text if one.isprintable())


@st.cache_resource(max_entries=2, show_spinner="opening the gallery")
def _gallery(folder: str, changed: int) -> Gallery:
    """Opened once for each update."""
    return Gallery.open(folder)


def _by_words(gallery: Gallery, query: str, language: str | None, top: int) -> None:
    hits = gallery.search(query, top, language)
    spoken = language or gallery.finder.language_of(query)
    st.subheader(plain(f"{query.strip()[:80]} ({spoken})"))
    _show(hits)


def _by_picture(gallery: Gallery, content: bytes, name: str, top: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"dropped{Path(name).suffix[:5]}"
        path.write_bytes(content)
        try:
            vector = gallery.finder.encode_pictures([path]).single()
        except DataError as error:
            raise DataError(str(error).replace(str(path), name)) from None
        shown = read_thumbnail(path, SIZE)
    left, right = st.columns([1, 3])
    if shown is not None:
        left.image(shown)
    for language, nearest in gallery.captions_near(vector).items():
        right.markdown(f"**{plain(language)}**")
        for hit in nearest:
            right.text(f"{hit.score:.3f}  {hit.name}")
    st.subheader("Pictures like it")
    _show(gallery.pictures_near(vector, top))


def _show(hits: list[Hit]) -> None:
    """Pictures in rows, best first."""
    if not hits:
        st.info("Nothing: the gallery is empty.")
    for start in range(0, len(hits), COLUMNS):
        for column, hit in zip(st.columns(COLUMNS), hits[start : start + COLUMNS], strict=False):
            picture = read_thumbnail(hit.path, SIZE)
            if picture is None:
                column.info("not at hand")
            else:
                column.image(picture)
            column.text(f"{hit.score:.3f}  {hit.name}")


if __name__ == "__main__":
    page(Path(sys.argv[1] if len(sys.argv) > 1 else "gallery"))
