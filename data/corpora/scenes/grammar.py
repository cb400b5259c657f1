"""The language of the scenes: every word form in four languages, and sentences made of them.

Nominative only, so that articles and adjectives agree with the gender of the noun and with nothing else.
Nothing is inflected by rule: a form that is not in these tables cannot be written.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

LANGUAGES = ("en", "de", "fr", "cs")


@dataclass(frozen=True, slots=True)
class Sense:
    """One meaning of a noun: what is drawn, and what it is called.

    `en` lists the English synonyms (any of them is right); the others are pairs of noun and gender (m, f, n).
    """

    en: tuple[str, ...]
    de: tuple[str, str]
    fr: tuple[str, str]
    cs: tuple[str, str]


@dataclass(frozen=True, slots=True)
class Thing:
    """One object of a scene: keys of `SENSES`, `COLOURS`, `SIZES` and `PLACES`."""

    sense: str
    colour: str
    size: str
    place: str


@dataclass(frozen=True, slots=True)
class Telling:
    """What a sentence says of its objects beside their nouns, and in which order.

    Attributes:
        article: there is one; Czech has none.
        size: of each object.
        colour: of each object.
        place: of each object.
        usual: the place stands where it usually does, behind the object in English (`a red bat on the left`) and
            before it in the other languages (`links eine rote Fledermaus`); else the other way round in each of them.
            So translation and back lead to the same sentence.
    """

    article: bool = True
    size: bool = True
    colour: bool = True
    place: bool = True
    usual: bool = True


WHOLE = Telling()
"""All of it, in the usual order."""

SENSES: dict[str, Sense] = {
    # English words that German splits. French and Czech split all but the crane, which is their control.
    "bat.animal": Sense(("bat",), ("Fledermaus", "f"), ("chauve-souris", "f"), ("netopýr", "m")),
    "bat.club": Sense(("bat",), ("Schläger", "m"), ("batte", "f"), ("pálka", "f")),
    "bow.ribbon": Sense(("bow",), ("Schleife", "f"), ("nœud", "m"), ("mašle", "f")),
    "bow.weapon": Sense(("bow",), ("Bogen", "m"), ("arc", "m"), ("luk", "m")),
    "fan.electric": Sense(("fan",), ("Ventilator", "m"), ("ventilateur", "m"), ("ventilátor", "m")),
    "fan.hand": Sense(("fan",), ("Fächer", "m"), ("éventail", "m"), ("vějíř", "m")),
    "key.metal": Sense(("key",), ("Schlüssel", "m"), ("clé", "f"), ("klíč", "m")),
    "key.board": Sense(("key",), ("Taste", "f"), ("touche", "f"), ("klávesa", "f")),
    "nut.food": Sense(("nut",), ("Nuss", "f"), ("noix", "f"), ("ořech", "m")),
    "nut.hex": Sense(("nut",), ("Schraubenmutter", "f"), ("écrou", "m"), ("matice", "f")),
    "seal.animal": Sense(("seal",), ("Robbe", "f"), ("phoque", "m"), ("tuleň", "m")),
    "seal.wax": Sense(("seal",), ("Siegel", "n"), ("sceau", "m"), ("pečeť", "f")),
    "crane.bird": Sense(("crane",), ("Kranich", "m"), ("grue", "f"), ("jeřáb", "m")),
    "crane.machine": Sense(("crane",), ("Kran", "m"), ("grue", "f"), ("jeřáb", "m")),
    # German words that English splits.
    "castle": Sense(("castle",), ("Schloss", "n"), ("château", "m"), ("zámek", "m")),
    "lock": Sense(("lock",), ("Schloss", "n"), ("cadenas", "m"), ("zámek", "m")),
    "bouquet": Sense(("bouquet",), ("Strauß", "m"), ("bouquet", "m"), ("kytice", "f")),
    "ostrich": Sense(("ostrich",), ("Strauß", "m"), ("autruche", "f"), ("pštros", "m")),
    # Plain nouns.
    "ball": Sense(("ball",), ("Ball", "m"), ("ballon", "m"), ("míč", "m")),
    "house": Sense(("house",), ("Haus", "n"), ("maison", "f"), ("dům", "m")),
    "tree": Sense(("tree",), ("Baum", "m"), ("arbre", "m"), ("strom", "m")),
    "star": Sense(("star",), ("Stern", "m"), ("étoile", "f"), ("hvězda", "f")),
    "car": Sense(("car",), ("Auto", "n"), ("voiture", "f"), ("auto", "n")),
    "cup": Sense(("cup",), ("Tasse", "f"), ("tasse", "f"), ("šálek", "m")),
    "fish": Sense(("fish",), ("Fisch", "m"), ("poisson", "m"), ("ryba", "f")),
    "ladder": Sense(("ladder",), ("Leiter", "f"), ("échelle", "f"), ("žebřík", "m")),
    "boat": Sense(("boat",), ("Boot", "n"), ("bateau", "m"), ("loď", "f")),
    "hat": Sense(("hat",), ("Hut", "m"), ("chapeau", "m"), ("klobouk", "m")),
    "flower": Sense(("flower",), ("Blume", "f"), ("fleur", "f"), ("květina", "f")),
    "umbrella": Sense(("umbrella",), ("Regenschirm", "m"), ("parapluie", "m"), ("deštník", "m")),
    # Plain, with two English words for the one German word: back-translation may answer with the other.
    "gift": Sense(("gift", "present"), ("Geschenk", "n"), ("cadeau", "m"), ("dárek", "m")),
    "bike": Sense(("bike", "bicycle"), ("Fahrrad", "n"), ("vélo", "m"), ("kolo", "n")),
    "stone": Sense(("stone", "rock"), ("Stein", "m"), ("pierre", "f"), ("kámen", "m")),
    "couch": Sense(("couch", "sofa"), ("Sofa", "n"), ("canapé", "m"), ("pohovka", "f")),
}

AMBIGUOUS = ("bat", "bow", "fan", "key", "nut", "seal")  # English nouns that all three other languages split

# What a scene is drawn from: a word and its senses. Two senses of a word never meet in one scene, else
# "the bat" would name two objects.
WORDS: dict[str, tuple[str, ...]] = {
    **{word: tuple(key for key in SENSES if key.startswith(f"{word}.")) for word in (*AMBIGUOUS, "crane")},
    "Schloss": ("castle", "lock"),
    "Strauß": ("bouquet", "ostrich"),
}
PLAIN = tuple(key for key in SENSES if not any(key in senses for senses in WORDS.values()))
WORDS |= {key: (key,) for key in PLAIN}

# Forms by language; where a word agrees with its noun, by gender in the order of `_GENDERS`.
_GENDERS = {"de": "mfn", "fr": "mf", "cs": "mfn"}
_Forms = dict[str, tuple[str, ...]]

COLOURS: dict[str, _Forms] = {
    "red": {
        "en": ("red",),
        "de": ("roter", "rote", "rotes"),
        "fr": ("rouge", "rouge"),
        "cs": ("červený", "červená", "červené"),
    },
    "blue": {
        "en": ("blue",),
        "de": ("blauer", "blaue", "blaues"),
        "fr": ("bleu", "bleue"),
        "cs": ("modrý", "modrá", "modré"),
    },
    "green": {
        "en": ("green",),
        "de": ("grüner", "grüne", "grünes"),
        "fr": ("vert", "verte"),
        "cs": ("zelený", "zelená", "zelené"),
    },
    "yellow": {
        "en": ("yellow",),
        "de": ("gelber", "gelbe", "gelbes"),
        "fr": ("jaune", "jaune"),
        "cs": ("žlutý", "žlutá", "žluté"),
    },
    "black": {
        "en": ("black",),
        "de": ("schwarzer", "schwarze", "schwarzes"),
        "fr": ("noir", "noire"),
        "cs": ("černý", "černá", "černé"),
    },
    "purple": {
        "en": ("purple",),
        "de": ("violetter", "violette", "violettes"),
        "fr": ("violet", "violette"),
        "cs": ("fialový", "fialová", "fialové"),
    },
}

SIZES: dict[str, _Forms] = {
    "big": {
        "en": ("big", "large"),
        "de": ("großer", "große", "großes"),
        "fr": ("grand", "grande"),
        "cs": ("velký", "velká", "velké"),
    },
    "small": {
        "en": ("small", "little"),
        "de": ("kleiner", "kleine", "kleines"),
        "fr": ("petit", "petite"),
        "cs": ("malý", "malá", "malé"),
    },
}

PLACES: dict[str, dict[str, str]] = {
    "left": {"en": "on the left", "de": "links", "fr": "à gauche", "cs": "vlevo"},
    "right": {"en": "on the right", "de": "rechts", "fr": "à droite", "cs": "vpravo"},
    "top": {"en": "at the top", "de": "oben", "fr": "en haut", "cs": "nahoře"},
    "bottom": {"en": "at the bottom", "de": "unten", "fr": "en bas", "cs": "dole"},
    "centre": {"en": "in the middle", "de": "in der Mitte", "fr": "au milieu", "cs": "uprostřed"},
}

_ARTICLES: _Forms = {"de": ("ein", "eine", "ein"), "fr": ("un", "une"), "cs": ("", "", "")}
_AFTER_AN = ("ostrich", "umbrella")  # no adjective begins with a vowel
JOINED = {"en": "and", "de": "und", "fr": "et", "cs": "a"}


def noun_phrase(
    sense: str, colour: str | None, size: str | None, language: str, rng: random.Random | None = None,
    article: bool = True,
) -> str:  # fmt: skip
    """Article, size, colour and noun in agreement: `ein großer blauer Ball`, `un grand ballon bleu`.

    Args:
        sense: a key of `SENSES`.
        colour: a key of `COLOURS`; None: it is not said.
        size: a key of `SIZES`; None: it is not said.
        language: one of `LANGUAGES`.
        rng: draws among English synonyms; without it the first is taken.
        article: begin with the article.
    """
    if language == "en":
        choose = rng.choice if rng is not None else _first
        said = [*([choose(SIZES[size]["en"])] if size else []), *(COLOURS[colour]["en"] if colour else ())]
        said.append(choose(SENSES[sense].en))
        return " ".join([*(["an" if said[0] in _AFTER_AN else "a"] if article else []), *said])
    noun, gender = getattr(SENSES[sense], language)
    form = _GENDERS[language].index(gender)
    the = _ARTICLES[language][form] if article else ""
    small, red = (
        forms[language][form] if forms else "" for forms in (SIZES.get(size or ""), COLOURS.get(colour or ""))
    )
    words = (the, small, noun, red) if language == "fr" else (the, small, red, noun)
    return " ".join(word for word in words if word)


def sentence(
    things: Sequence[Thing], language: str, rng: random.Random | None = None, telling: Telling = WHOLE
) -> str:  # fmt: skip
    """A sentence that names objects and their places, in the order given: `links eine kleine rote Fledermaus und oben
    ein großer blauer Ball`.

    Args:
        things: what the sentence names, one or two.
        language: one of `LANGUAGES`.
        rng: draws among English synonyms; without it the first is taken.
        telling: what it says of each of them.
    """
    parts = []
    for thing in things:
        colour, size = thing.colour if telling.colour else None, thing.size if telling.size else None
        phrase = noun_phrase(thing.sense, colour, size, language, rng, telling.article)
        place = PLACES[thing.place][language] if telling.place else ""
        place_last = telling.usual == (language == "en")
        parts.append(" ".join(word for word in ((phrase, place) if place_last else (place, phrase)) if word))
    return f" {JOINED[language]} ".join(parts)


def sentences(
    things: Sequence[Thing], rng: random.Random | None = None, telling: Telling = WHOLE
) -> dict[str, str]:  # fmt: skip
    """The same sentence in every language of `LANGUAGES`, translations of each other."""
    return {language: sentence(things, language, rng, telling) for language in LANGUAGES}


def _first(words: Sequence[str]) -> str:
    return words[0]
