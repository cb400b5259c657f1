"""A part of the page: a picture that was uploaded, its translations, similar captions and pictures."""

from collections.abc import Mapping, Sequence

import streamlit as st

from data.pictures.images import open_picture, picture_in
from data.text.languages import language_name
from pipeline.app.page_results import WHY, SearchRequest, explained, shown
from pipeline.app.page_text import SIZE, isolated, plain, scaled
from pipeline.app.page_translation import TITLE, PictureRegions, compare_translations, targets_of
from pipeline.export.exported_model import ExportedModel
from pipeline.export.generation import captions_of_regions, generating
from pipeline.gallery.examples import Sentence
from pipeline.gallery.gallery import Gallery
from pipeline.gallery.hits import Hit

_CAPTIONS = 3  # similar ones that are shown, of each language


def uploaded(gallery: Gallery, content: bytes, name: str, request: SearchRequest) -> Sequence[Hit]:
    """Show an uploaded picture, captions near it, its translations, and what the model writes of it if it can.

    Args:
        request: what is wanted; without words, those of the most similar caption are explained and translated.

    Returns:
        pictures near it.

    Raises:
        DataError: it cannot be read as a picture.
        RecipeError: the model reads no pixels.
    """
    exported = gallery.exported
    seen = _read(exported, content, name)
    vector = exported.encode_regions(seen.regions[None]).single()
    captions = gallery.captions_near(seen.regions[None], [_CAPTIONS])[0]
    nearest = sorted((hit for hits in captions.values() for hit in hits), key=lambda hit: -hit.score)
    sentences = [request.sentence] if request.sentence.text else []
    sentences += [Sentence(hit.name, str(hit.language)) for hit in nearest]
    read = next((sentence for sentence in sentences if sentence.language in exported.languages), None)
    st.header("Your picture", anchor=False)
    picture, right = st.columns([1, 4])
    with picture:
        if request.why and read is not None:
            explained(gallery.exported, seen, read, seen.name)
        else:
            shown(seen.picture, seen.name)
        if request.why:
            st.caption(WHY)
    with right:
        for note in captions.notes:
            st.warning(plain(note))
        if (writer := generating(exported, "writes")) is not None:
            own = {language: captions_of_regions(writer, seen.regions[None], language) for language in writer.languages}
            written = {
                language: [isolated(plain(text)) or "*an empty caption*" for text in texts]
                for language, texts in own.items()
            }
            _columns("The model's own caption, ", written)
        lines = {
            language: [f"{hit.score:.3f}  {isolated(plain(hit.name))}" for hit in hits]
            for language, hits in captions.items()
        }
        if lines:
            with st.expander(captions.title.capitalize()):
                _columns("", lines)
    translated = next((sentence for sentence in sentences if targets_of(exported, sentence.language)), None)
    if translated is not None:
        st.header(TITLE, anchor=False)
        compare_translations(exported, translated, [seen], "picture")
    return gallery.pictures_near(vector, request.top)


def _read(exported: ExportedModel, content: bytes, name: str) -> PictureRegions:
    """The picture as it is shown and as the model reads it."""
    picture = picture_in(content, name)
    return PictureRegions(scaled(open_picture(picture, SIZE)), name, *exported.regions_of(picture))


def _columns(title: str, lines: Mapping[str, Sequence[str]]) -> None:
    """Lines of Markdown below a title and the name of the language, a column for each."""
    for place, (language, texts) in zip(st.columns(max(1, len(lines))), lines.items(), strict=False):
        with place.container(gap="xxsmall"):
            st.markdown(f"**{title}{plain(language_name(language))}**")
            for text in texts:
                st.markdown(text)
