"""Every word form of the scenes, against tables written by hand."""

import random

import pytest

from data.corpora.scenes.grammar import (
    AMBIGUOUS,
    COLOURS,
    LANGUAGES,
    PLACES,
    PLAIN,
    SENSES,
    SIZES,
    WORDS,
    Telling,
    Thing,
    noun_phrase,
    sentence,
    sentences,
)

# Every noun with an adjective before and (in French) one after it: sense, then "small red" in de, fr, cs.
NOUNS = """
bat.animal | eine kleine rote Fledermaus | une petite chauve-souris rouge | malý červený netopýr
bat.club | ein kleiner roter Schläger | une petite batte rouge | malá červená pálka
bow.ribbon | eine kleine rote Schleife | un petit nœud rouge | malá červená mašle
bow.weapon | ein kleiner roter Bogen | un petit arc rouge | malý červený luk
fan.electric | ein kleiner roter Ventilator | un petit ventilateur rouge | malý červený ventilátor
fan.hand | ein kleiner roter Fächer | un petit éventail rouge | malý červený vějíř
key.metal | ein kleiner roter Schlüssel | une petite clé rouge | malý červený klíč
key.board | eine kleine rote Taste | une petite touche rouge | malá červená klávesa
nut.food | eine kleine rote Nuss | une petite noix rouge | malý červený ořech
nut.hex | eine kleine rote Schraubenmutter | un petit écrou rouge | malá červená matice
seal.animal | eine kleine rote Robbe | un petit phoque rouge | malý červený tuleň
seal.wax | ein kleines rotes Siegel | un petit sceau rouge | malá červená pečeť
crane.bird | ein kleiner roter Kranich | une petite grue rouge | malý červený jeřáb
crane.machine | ein kleiner roter Kran | une petite grue rouge | malý červený jeřáb
castle | ein kleines rotes Schloss | un petit château rouge | malý červený zámek
lock | ein kleines rotes Schloss | un petit cadenas rouge | malý červený zámek
bouquet | ein kleiner roter Strauß | un petit bouquet rouge | malá červená kytice
ostrich | ein kleiner roter Strauß | une petite autruche rouge | malý červený pštros
ball | ein kleiner roter Ball | un petit ballon rouge | malý červený míč
house | ein kleines rotes Haus | une petite maison rouge | malý červený dům
tree | ein kleiner roter Baum | un petit arbre rouge | malý červený strom
star | ein kleiner roter Stern | une petite étoile rouge | malá červená hvězda
car | ein kleines rotes Auto | une petite voiture rouge | malé červené auto
cup | eine kleine rote Tasse | une petite tasse rouge | malý červený šálek
fish | ein kleiner roter Fisch | un petit poisson rouge | malá červená ryba
ladder | eine kleine rote Leiter | une petite échelle rouge | malý červený žebřík
boat | ein kleines rotes Boot | un petit bateau rouge | malá červená loď
hat | ein kleiner roter Hut | un petit chapeau rouge | malý červený klobouk
flower | eine kleine rote Blume | une petite fleur rouge | malá červená květina
umbrella | ein kleiner roter Regenschirm | un petit parapluie rouge | malý červený deštník
gift | ein kleines rotes Geschenk | un petit cadeau rouge | malý červený dárek
bike | ein kleines rotes Fahrrad | un petit vélo rouge | malé červené kolo
stone | ein kleiner roter Stein | une petite pierre rouge | malý červený kámen
couch | ein kleines rotes Sofa | un petit canapé rouge | malá červená pohovka
"""

# Every adjective in every gender: a noun of that gender stands for all of them.
# English size and colour | de m, f, n | fr m, f | cs m, f, n
ADJECTIVES = """
big red | großer roter, große rote, großes rotes | grand rouge, grande rouge \
| velký červený, velká červená, velké červené
big blue | großer blauer, große blaue, großes blaues | grand bleu, grande bleue | velký modrý, velká modrá, velké modré
big green | großer grüner, große grüne, großes grünes | grand vert, grande verte \
| velký zelený, velká zelená, velké zelené
big yellow | großer gelber, große gelbe, großes gelbes | grand jaune, grande jaune \
| velký žlutý, velká žlutá, velké žluté
big black | großer schwarzer, große schwarze, großes schwarzes | grand noir, grande noire \
| velký černý, velká černá, velké černé
big purple | großer violetter, große violette, großes violettes | grand violet, grande violette \
| velký fialový, velká fialová, velké fialové
small red | kleiner roter, kleine rote, kleines rotes | petit rouge, petite rouge \
| malý červený, malá červená, malé červené
small blue | kleiner blauer, kleine blaue, kleines blaues | petit bleu, petite bleue \
| malý modrý, malá modrá, malé modré
small green | kleiner grüner, kleine grüne, kleines grünes | petit vert, petite verte \
| malý zelený, malá zelená, malé zelené
small yellow | kleiner gelber, kleine gelbe, kleines gelbes | petit jaune, petite jaune \
| malý žlutý, malá žlutá, malé žluté
small black | kleiner schwarzer, kleine schwarze, kleines schwarzes | petit noir, petite noire \
| malý černý, malá černá, malé černé
small purple | kleiner violetter, kleine violette, kleines violettes | petit violet, petite violette \
| malý fialový, malá fialová, malé fialové
"""
STANDS_FOR = {  # language: a sense of each gender, its noun, its article
    "de": [("ball", "Ball", "ein"), ("cup", "Tasse", "eine"), ("house", "Haus", "ein")],
    "fr": [("hat", "chapeau", "un"), ("house", "maison", "une")],
    "cs": [("hat", "klobouk", ""), ("fish", "ryba", ""), ("bike", "kolo", "")],
}

BAT_AND_BALL = (Thing("bat.animal", "red", "small", "left"), Thing("ball", "blue", "big", "top"))
NUT_AND_HOUSE = (Thing("nut.hex", "green", "big", "right"), Thing("house", "black", "small", "bottom"))
SEAL_AND_COUCH = (Thing("seal.wax", "purple", "small", "centre"), Thing("couch", "yellow", "big", "left"))
SENTENCES = [
    (BAT_AND_BALL, "en", "a small red bat on the left and a big blue ball at the top"),
    (BAT_AND_BALL, "de", "links eine kleine rote Fledermaus und oben ein großer blauer Ball"),
    (BAT_AND_BALL, "fr", "à gauche une petite chauve-souris rouge et en haut un grand ballon bleu"),
    (BAT_AND_BALL, "cs", "vlevo malý červený netopýr a nahoře velký modrý míč"),
    (NUT_AND_HOUSE, "en", "a big green nut on the right and a small black house at the bottom"),
    (NUT_AND_HOUSE, "de", "rechts eine große grüne Schraubenmutter und unten ein kleines schwarzes Haus"),
    (NUT_AND_HOUSE, "fr", "à droite un grand écrou vert et en bas une petite maison noire"),
    (NUT_AND_HOUSE, "cs", "vpravo velká zelená matice a dole malý černý dům"),
    (SEAL_AND_COUCH, "en", "a small purple seal in the middle and a big yellow couch on the left"),
    (SEAL_AND_COUCH, "de", "in der Mitte ein kleines violettes Siegel und links ein großes gelbes Sofa"),
    (SEAL_AND_COUCH, "fr", "au milieu un petit sceau violet et à gauche un grand canapé jaune"),
    (SEAL_AND_COUCH, "cs", "uprostřed malá fialová pečeť a vlevo velká žlutá pohovka"),
]


def rows(table: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("|")] for line in table.strip().splitlines()]


@pytest.mark.parametrize(("things", "language", "expected"), SENTENCES)
def test_sentences(things: tuple[Thing, ...], language: str, expected: str) -> None:
    assert sentence(things, language) == expected
    assert sentences(things)[language] == expected


@pytest.mark.parametrize(
    ("language", "telling", "expected"),
    [
        ("en", Telling(usual=False), "on the left a small red bat and at the top a big blue ball"),
        ("de", Telling(usual=False), "eine kleine rote Fledermaus links und ein großer blauer Ball oben"),
        ("fr", Telling(usual=False), "une petite chauve-souris rouge à gauche et un grand ballon bleu en haut"),
        ("cs", Telling(usual=False), "malý červený netopýr vlevo a velký modrý míč nahoře"),
        ("en", Telling(article=False, size=False, place=False), "red bat and blue ball"),
        ("de", Telling(article=False, size=False, place=False), "rote Fledermaus und blauer Ball"),
        ("fr", Telling(article=False, colour=False), "à gauche petite chauve-souris et en haut grand ballon"),
        ("cs", Telling(colour=False, place=False), "malý netopýr a velký míč"),
        ("de", Telling(size=False, colour=False, place=False), "eine Fledermaus und ein Ball"),
        ("en", Telling(False, False, False, False), "bat and ball"),
    ],
)
def test_sentences_with_parts_left_out_and_in_the_other_order(language: str, telling: Telling, expected: str) -> None:
    assert sentence(BAT_AND_BALL, language, telling=telling) == expected


def test_a_noun_alone_may_begin_with_a_vowel() -> None:
    assert noun_phrase("umbrella", None, None, "en") == "an umbrella"
    assert noun_phrase("ostrich", "red", None, "en") == "a red ostrich"
    vowels = {name for sense in SENSES.values() for name in sense.en if name[0] in "aeiou"}
    assert {noun_phrase(sense, None, None, "en") for sense in SENSES} >= {f"an {name}" for name in vowels}


def test_every_noun_agrees_with_article_and_adjectives() -> None:
    table = rows(NOUNS)
    assert [row[0] for row in table] == list(SENSES)
    for sense, *expected in table:
        assert [noun_phrase(sense, "red", "small", language) for language in ("de", "fr", "cs")] == expected


def test_every_adjective_in_every_gender() -> None:
    table = rows(ADJECTIVES)
    assert {row[0] for row in table} == {f"{size} {colour}" for size in SIZES for colour in COLOURS}
    for words, *cells in table:
        size, colour = words.split()
        assert noun_phrase("star", colour, size, "en") == f"a {words} star"
        for language, cell in zip(("de", "fr", "cs"), cells, strict=True):
            for form, (sense, noun, article) in zip(cell.split(", "), STANDS_FOR[language], strict=True):
                before, after = form.split()
                order = (article, before, noun, after) if language == "fr" else (article, before, after, noun)
                expected = " ".join(word for word in order if word)
                assert noun_phrase(sense, colour, size, language) == expected


def test_english_synonyms_are_both_used_and_leave_the_other_languages_alone() -> None:
    rng = random.Random(0)
    thing = (Thing("couch", "red", "big", "left"),)
    said = [sentences(thing, rng) for _ in range(40)]
    assert {texts["en"] for texts in said} == {
        f"a {size} red {noun} on the left" for size in ("big", "large") for noun in ("couch", "sofa")
    }
    assert {texts["de"] for texts in said} == {"links ein großes rotes Sofa"}


def test_words_that_are_split() -> None:
    for word in (*AMBIGUOUS, "crane"):
        first, second = (SENSES[key] for key in WORDS[word])
        assert first.en == second.en == (word,)
        assert first.de[0] != second.de[0]
        assert (first.fr[0] != second.fr[0]) == (first.cs[0] != second.cs[0]) == (word in AMBIGUOUS)
    for word in ("Schloss", "Strauß"):
        first, second = (SENSES[key] for key in WORDS[word])
        assert first.de == second.de == (word, first.de[1])
        assert first.en != second.en


@pytest.mark.parametrize("language", LANGUAGES)
def test_no_other_two_senses_share_a_noun(language: str) -> None:
    nouns: dict[str, set[str]] = {}
    for word, keys in WORDS.items():
        for key in keys:
            names = SENSES[key].en if language == "en" else getattr(SENSES[key], language)[:1]
            for name in names:
                nouns.setdefault(name, set()).add(word)
    assert all(len(words) == 1 for words in nouns.values())
    assert set(PLAIN) == {key for word, keys in WORDS.items() if len(keys) == 1 for key in keys}
    assert len({forms[language] for forms in PLACES.values()}) == len(PLACES)
