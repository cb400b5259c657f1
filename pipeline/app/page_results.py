"""A part of the page: pictures that were found, each with its captions and, if wanted, why it was found."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import streamlit as st
from numpy.typing import NDArray
from PIL import Image

from data.text.languages import language_name
from pipeline.app.page_text import COLOURS, errors_shown, isolated, plain, runs, shortened, thumbnail
from pipeline.app.page_translation import PictureRegions, seen_in, targets_of, translation_dialog
from pipeline.export.exported_model import ExportedModel
from pipeline.export.generation import generating, picture_of
from pipeline.gallery.examples import Sentence
from pipeline.gallery.explanation import Word, explain
from pipeline.gallery.gallery import Gallery
from pipeline.gallery.hits import SIMILAR, Hit
from pipeline.visualization.attention import outline

COLUMNS, _SHOWN = 4, 200  # pictures in a row, and letters of a sentence above them
DRAWN = "What the model draws of these words"
_DRAWN = 128  # pixels of that picture
_LEAST = 0.25  # of the strongest word's effect: weaker words have no colour
WHY = (
    "Why? A word has the colour and number of the frame around the region that it depends on most: without this region "
    "it adds least to the score. Words without a colour add little."
)


class SearchRequest(NamedTuple):
    """What is wanted.

    Attributes:
        why: words and regions are explained.
        both: pictures for its translations too.
        guessed: the language of the sentence was detected.
    """

    sentence: Sentence
    top: int
    why: bool
    both: bool
    guessed: bool = False


def results(gallery: Gallery, request: SearchRequest) -> None:
    """Show the pictures for a sentence, and beside them those for its translations that the model reads."""
    exported, source = gallery.exported, request.sentence.language
    found = [_found(gallery, request)] if source in exported.languages else []
    if request.both:
        found += [
            _found_translated(gallery, request, target)
            for target in exported.translators.targets("mt", source) if target in exported.languages
        ]  # fmt: skip
    if not found:
        names = ", ".join(language_name(language) for language in exported.languages)
        st.info(plain(f"The model has no translator from {language_name(source)} into {names}."))
        return
    if request.why:
        st.caption(WHY)
    for place, (title, sentence, notes, hits) in zip(st.columns(len(found), gap="medium"), found, strict=True):
        with place:
            with st.container(gap="small"):
                st.header(plain(title), anchor=False)
                if hits is not None:
                    st.markdown(f"“{isolated(plain(shortened(sentence.text, _SHOWN)))}”")
                for note in notes:
                    st.warning(plain(note))
            if hits is not None:
                _drawn(exported, sentence)
                show_hits(gallery, hits, sentence, request.why, COLUMNS // len(found))


class _Column(NamedTuple):
    """A title, the sentence that is searched for, what a person should know of it, and the pictures.

    The pictures are None where there is no sentence, as no word could be translated.
    """

    title: str
    sentence: Sentence
    notes: Sequence[str]
    hits: Sequence[Hit] | None


def _found(gallery: Gallery, request: SearchRequest) -> _Column:
    """The pictures for a sentence."""
    text, source = request.sentence
    hits = gallery.search(text, request.top, None if request.guessed else source)
    language = hits.reading.language
    title = "Unknown language" if language is None else language_name(language)
    return _Column(title, Sentence(text, hits.reading.read_as), hits.notes, hits)


def _found_translated(gallery: Gallery, request: SearchRequest, target: str) -> _Column:
    """The pictures for a translation by MT."""
    text, source = request.sentence
    translation = gallery.exported.translators.translate(text, "mt", source, target)
    title, sentence = f"{language_name(target)}, translated by MT", Sentence(translation.strip(), target)
    notes = [translation.reading.note] if translation.reading.note else []
    if not translation.reading.known:
        return _Column(title, sentence, [*notes, "it is not translated"], None)
    if not sentence.text:
        return _Column(title, sentence, notes, [])
    hits = gallery.search(sentence.text, request.top, target)
    return _Column(title, sentence, [*notes, *hits.notes], hits)


def _drawn(exported: ExportedModel, sentence: Sentence) -> None:
    """The small picture that the model draws of a sentence, if it draws and reads the language."""
    drawer = generating(exported, "draws")
    if drawer is not None and sentence.text.strip() and sentence.language in drawer.languages:
        st.image(picture_of(drawer, *sentence), DRAWN, width=_DRAWN, alt=DRAWN)


def show_hits(
    gallery: Gallery, hits: Sequence[Hit], sentence: Sentence | None = None, why: bool = False, columns: int = COLUMNS
) -> None:
    """Pictures in rows, best first.

    Args:
        sentence: that they were found for, if any.
        why: frame the regions that its words depend on.
        columns: pictures side by side.
    """
    if not hits:
        st.info("Nothing was found.")
        return
    columns, seen = max(1, columns), seen_in(gallery, hits) if why and sentence is not None else None
    for start in range(0, len(hits), columns):
        for number, column in enumerate(st.columns(columns)[: len(hits) - start], start):
            with column.container(gap="xxsmall"):
                words = in_words(gallery, hits[number])
                if seen is not None and sentence is not None:
                    explained(gallery.exported, seen[number], sentence, words)
                else:
                    shown(thumbnail(hits[number]), words)
                _below(gallery, number + 1, hits[number], sentence)


def in_words(gallery: Gallery, hit: Hit) -> str:
    """What a picture shows, for those who do not see it: its first caption, or its name where it has none."""
    return next((texts[0] for texts in gallery.own_captions(hit.name).values() if texts), hit.name)


def shown(picture: Image.Image | None, words: str) -> None:
    """A picture; a note where it is not at hand."""
    if picture is None:
        st.info("The picture is not at hand.")
    else:
        st.image(picture, width="stretch", alt=words)


def explained(exported: ExportedModel, seen: PictureRegions, sentence: Sentence, alt: str) -> None:
    """A picture, and below it the words of a sentence in the colours of the regions that they depend on.

    Args:
        exported: the model whose order is explained.
        sentence: that it was found for.
        alt: what it shows, for those who do not see it.
    """
    picture = None if seen.picture is None else seen.picture.copy()
    (explanation,) = explain(_judge(exported, sentence.language), *sentence, seen.regions[None])
    words = coloured_words(picture, explanation, seen.boxes)
    shown(picture, alt)
    if words:
        st.markdown(words)


def _judge(exported: ExportedModel, language: str) -> ExportedModel:
    """The model whose order is shown: the reranker, if there is one that knows the language."""
    second = exported.reranker
    return second if second is not None and language in second.languages else exported


def coloured_words(picture: Image.Image | None, words: Sequence[Word], boxes: NDArray[np.floating]) -> str:
    """Frame the regions (R, 4) that words depend on, and give the words in the colours of their frames, as Markdown.

    Each colour has a number too, for those who cannot tell colours apart.
    """
    least = _LEAST * max((word.effect for word in words), default=0.0)
    regions = [word.region if word.effect >= least else None for word in words]
    effects: dict[int, float] = {}  # by region, in the order of the words
    for word, region in zip(words, regions, strict=True):
        if region is not None:
            effects[region] = effects.get(region, 0.0) + word.effect
    kept = sorted(effects, key=lambda region: -effects[region])[: len(COLOURS)]
    colours = dict(zip([region for region in effects if region in kept], COLOURS, strict=False))
    numbers = {region: str(number) for number, region in enumerate(colours, 1)}
    for region, frame in colours.items():
        if picture is not None:
            outline(picture, boxes[region], frame, 4, numbers[region])
    before = [None, *regions]
    texts = [
        f"{numbers[region]} {word.text}" if region in numbers and region != last else word.text
        for word, region, last in zip(words, regions, before, strict=False)
    ]
    return runs(texts, [None if region is None else colours.get(region) for region in regions])


def _below(gallery: Gallery, rank: int, hit: Hit, sentence: Sentence | None) -> None:
    """Below a picture: its rank, score and name; its captions; a button that translates with it."""
    st.markdown(f"**{rank}**  ·  {hit.score:.3f}  ·  {plain(hit.name)}")
    _captions(gallery, rank, hit, sentence)
    if (
        sentence is not None
        and targets_of(gallery.exported, sentence.language)
        and st.button(f"Translate with picture {rank}", key=f"{sentence.language}-{rank}", icon=":material/translate:",
                      type="tertiary")
    ):  # fmt: skip
        translation_dialog(gallery, sentence, hit)


@st.fragment
@errors_shown()
def _captions(gallery: Gallery, rank: int, hit: Hit, sentence: Sentence | None) -> None:
    """The first caption of a picture itself; when they are opened its others, and a similar one of another picture.

    They are in the language of the sentence that was searched for, if the picture has such captions.
    """
    captions = gallery.own_captions(hit.name)
    wanted = [language for language in gallery.languages if sentence is None or language == sentence.language]
    languages = [language for language in captions if language in wanted] or list(captions)
    own = [f"caption: {isolated(plain(text))}" for language in languages for text in captions[language]]
    for text in own[:1]:
        st.caption(text)
    if not (own[1:] or wanted):
        return
    key = f"captions-{'' if sentence is None else sentence.language}-{rank}-{hit.name}"
    label = f"More captions of picture {rank}" if own else f"Picture {rank}: {SIMILAR}"
    more = st.expander(label, key=key, on_change="rerun")
    if more.open:
        for text in [*own[1:], *_similar(gallery, hit, wanted, bool(own))]:
            more.caption(text)


def _similar(gallery: Gallery, hit: Hit, languages: Sequence[str], own: bool) -> list[str]:
    """The nearest caption of the gallery in some languages that is not the picture's own, as text; none if none is."""
    described = gallery.describe_known(hit.name, 1)
    near = [caption for language in languages for caption in described.get(language, [])]
    nearest = sorted(near, key=lambda caption: -caption.score)[:1]
    return [
        f"{'similar caption of another picture: ' if own else ''}{isolated(plain(caption.name))}" for caption in nearest
    ]
