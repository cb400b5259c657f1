"""The first screen of the page: what this is, sentences to search for, the demonstration, and some of the pictures."""

from collections.abc import Callable

import streamlit as st

from data.text.languages import language_name
from pipeline.app.page_results import in_words
from pipeline.app.page_text import choice_of, isolated, plain, thumbnail
from pipeline.app.page_translation import targets_of
from pipeline.gallery.examples import Sentence, example_queries
from pipeline.gallery.gallery import Gallery

_PICTURES, _SEED, _WIDTH = 16, 2, 116  # of the strip: how many, which, and how wide in pixels


def introduction(gallery: Gallery) -> None:
    """One sentence on what the page does, and a line of facts about the gallery and its model."""
    languages = choice_of(sorted(language_name(language) for language in gallery.exported.languages))
    with st.container(gap="small"):
        st.title("Bildwort", anchor=False)
        st.markdown(plain(f"Search {len(gallery):,} pictures with words in {languages}, or with another picture."))
        st.caption("  ·  ".join(plain(fact) for fact in _facts(gallery)))


def _facts(gallery: Gallery) -> list[str]:
    """The entries of the line of facts."""
    facts = [f"Model: {gallery.exported.name}"]
    if gallery.exported.reranker is not None:
        facts.append(f"reranked by {gallery.exported.reranker.name}")
    shares = [f"{language_name(language)} {share:.1f} %" for language, share in gallery.exported.first_right.items()]
    return [*facts, f"first answer right, on test captions: {', '.join(shares)}"] if shares else facts


def start(gallery: Gallery, ask: Callable[[Sentence], None], demonstrate: Callable[[], None]) -> None:
    """Show the first screen: `ask` is called with the example that is clicked, `demonstrate` for the demonstration."""
    queries = example_queries(gallery)
    comparable = any(targets_of(gallery.exported, language) for language in gallery.languages)
    places = st.columns([3, 2] if queries and comparable else 1)
    if queries:
        with places[0].container(border=True, height="stretch", gap=None):
            st.markdown("**Try an example**")
            for number, query in enumerate(queries):
                label = f"{isolated(plain(query.text))}  :gray-badge[{plain(language_name(query.language))}]"
                st.button(label, key=f"example-{number}", on_click=ask, args=(query,), type="tertiary",
                          icon=":material/search:")  # fmt: skip
    if comparable:
        with places[-1].container(border=True, height="stretch"):
            st.markdown("**Translate with and without a picture**")
            st.markdown(
                "Some words have several translations, and only the picture tells which one is meant. Compare a "
                "translator that reads the text alone (MT) with one that also looks at the picture (MMT), on one "
                "sentence and two pictures of this gallery."
            )
            st.button("Show the translations", type="primary", icon=":material/translate:", on_click=demonstrate)
    _strip(gallery)


def _strip(gallery: Gallery) -> None:
    """Some of the gallery's pictures, in rows as wide as the window."""
    drawn = [(in_words(gallery, hit), thumbnail(hit)) for hit in gallery.draw_pictures(_PICTURES, _SEED)]
    shown = [(words, picture) for words, picture in drawn if picture is not None]
    if shown:
        st.markdown("**Some of the pictures**")
        with st.container(horizontal=True, horizontal_alignment="distribute"):
            for words, picture in shown:
                st.image(picture, width=_WIDTH, alt=words)
