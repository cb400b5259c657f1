"""Examples drawn from a gallery: sentences to search for, and one whose translation depends on the picture."""

from difflib import SequenceMatcher
from itertools import combinations, cycle, islice
from typing import NamedTuple

from data.text.tokenisation import typed_words
from pipeline.gallery.gallery import Gallery
from pipeline.gallery.hits import Hit

_SEED = 1
_SENTENCES, _PICTURES = 32, 6  # captions that are tried, and pictures for each of them


class Sentence(NamedTuple):
    """A sentence and its language."""

    text: str
    language: str


class Ambiguous(NamedTuple):
    """A sentence that has two translations, each for a picture of its own."""

    sentence: Sentence
    target: str
    pictures: tuple[Hit, Hit]


def example_queries(gallery: Gallery, count: int = 5) -> list[Sentence]:
    """Captions of a gallery, its languages in turn, English first; the same ones for the same gallery."""
    languages = sorted(gallery.languages, key=lambda language: language != "en")
    drawn = {language: iter(gallery.draw_captions(language, count, _SEED)) for language in languages}
    sentences = [
        Sentence(text, language) for language in islice(cycle(languages), count) if (text := next(drawn[language], ""))
    ]
    return sorted(sentences, key=lambda sentence: languages.index(sentence.language))


def ambiguous_example(gallery: Gallery) -> Ambiguous | None:
    """A caption of a gallery that a multimodal translator renders differently beside two pictures.

    Some captions are drawn and translated beside the pictures found for them. Among pairs of different translations
    those come first that differ in one place and mean the same to MT (it translates both back into the same
    sentence). Then decides the retrieval model: how near picture, caption and translation are to each other, and by
    how much it prefers each translation to the other for its own picture.

    Returns:
        the best of the first pair of languages that has one, English captions first; None if there is none.
    """
    translators = gallery.exported.translators
    ways = [(source, *way) for source in gallery.languages for way in translators.looking(source).items()]
    for source, target, system in sorted(ways, key=lambda way: way[0] != "en"):
        if target in gallery.exported.languages:
            texts = gallery.draw_captions(source, _SENTENCES, _SEED)
            pairs = [pair for text in texts for pair in _rated(gallery, Sentence(text, source), target, system)]
            if pairs:
                return max(pairs, key=lambda pair: pair[0])[1]
    return None


def _rated(
    gallery: Gallery, sentence: Sentence, target: str, system: str
) -> list[tuple[tuple[bool, float], Ambiguous]]:
    """Pairs of pictures with different translations of a sentence, each preferred for its own; with their rank."""
    exported, (text, source) = gallery.exported, sentence
    hits = gallery.search(text, _PICTURES, source)
    if len(hits) < 2:
        return []
    regions, _ = gallery.regions_of(hits)
    translations = exported.translators.translate_all([text] * len(hits), system, source, target, regions)
    if len(set(translations)) == 1:
        return []
    pictures, captions = exported.encode_regions(regions), exported.encode_captions(translations, target)
    scores = (pictures.single() @ captions.single().T).numpy()
    own = scores.diagonal()
    preferred = own[:, None] - scores  # (N, N), a picture's own translation to that of another
    near = own + [hit.score for hit in hits]
    back = translations  # without a translator that leads back, different ones do not mean the same
    if source in exported.translators.targets("mt", target):
        back = exported.translators.translate_all(translations, "mt", target, source)
    pairs = []
    for first, second in combinations(range(len(hits)), 2):
        margin = float(min(preferred[first, second], preferred[second, first]))
        if translations[first] != translations[second] and margin > 0:
            clear = back[first] == back[second] and _places(translations[first], translations[second], target) == 1
            rank = (clear, margin + float(min(near[first], near[second])))
            pairs.append((rank, Ambiguous(sentence, target, (hits[first], hits[second]))))
    return pairs


def _places(text: str, other: str, language: str) -> int:
    """In how many places two sentences differ."""
    words, others = (typed_words(one, language) for one in (text, other))
    changes = SequenceMatcher(None, words, others, autojunk=False).get_opcodes()
    return sum(change[0] != "equal" for change in changes)
