"""Phrases about objects of scenes as people type them, long and short: their translations, and what shows them."""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import cycle, islice, permutations, product
from typing import NamedTuple

from data.corpora.scenes.corpus import Scene
from data.corpora.scenes.grammar import JOINED, SENSES, Telling, Thing, sentence

KINDS = {
    "noun": Telling(article=False, size=False, colour=False, place=False),
    "article": Telling(size=False, colour=False, place=False),
    "colour": Telling(size=False, place=False),
    "colour, no article": Telling(article=False, size=False, place=False),
    "size": Telling(colour=False, place=False),
    "size and colour": Telling(place=False),
    "place": Telling(size=False, colour=False),
    "place, other order": Telling(size=False, colour=False, usual=False),
    "colour and place": Telling(size=False),
    "colour and place, other order": Telling(size=False, usual=False),
    "whole": Telling(),
    "whole, other order": Telling(usual=False),
}
"""What phrases say of an object."""
_DRAWS = 32  # of one object in English: each of at most four choices of synonyms is met
_CASES: tuple[Callable[[str], str], ...] = (str, str.lower, lambda text: text[0].upper() + text[1:])


class Phrase(NamedTuple):
    """A phrase in a language.

    Attributes:
        text: of it.
        language: of it.
        kind: a key of `KINDS`.
        things: what it tells of.
        scene: where these are.
    """

    text: str
    language: str
    kind: str
    things: tuple[Thing, ...]
    scene: Scene

    def translations(self, target: str) -> set[str]:
        """All translations that add and lose nothing, in lower case: any synonym, sense of a noun, and order."""
        told = KINDS[self.kind]
        return {
            text
            for things in product(*(_called_alike(thing, self.language) for thing in self.things))
            for usual in (True, False)
            for text in _said(things, target, replace(told, usual=usual))
        }

    def shown_by(self, scene: Scene) -> bool:
        """Does a picture show all that the phrase says?"""
        return self._looks(self.things) <= self._looks(scene.things)

    def _looks(self, things: Sequence[Thing]) -> set[tuple[str, str | None, str | None, str | None]]:
        told = KINDS[self.kind]
        return {
            (noun_of(thing, self.language), thing.colour if told.colour else None, thing.size if told.size else None,
             thing.place if told.place else None)
            for thing in things
        }  # fmt: skip


def compose(scenes: Sequence[Scene], language: str, count: int, seed: int, objects: int = 1) -> list[Phrase]:
    """Phrases about objects of drawn scenes, kinds in turn; as they are written, in lower case, and capitalised."""
    rng, found = random.Random(f"{seed}/{language}/{objects}"), []
    for case, kind in islice(cycle(product(_CASES, KINDS)), count):
        scene = rng.choice(scenes)
        things = tuple(rng.sample(scene.things, objects))
        text = case(sentence(things, language, rng, KINDS[kind]))
        found.append(Phrase(text, language, kind, things, scene))
    return found


def noun_of(thing: Thing, language: str) -> str:
    """What a language calls an object; the first of synonyms."""
    return SENSES[thing.sense].en[0] if language == "en" else getattr(SENSES[thing.sense], language)[0]


def fitting(things: Sequence[Thing], language: str) -> set[str]:
    """All sentences of one or two of the objects, long and short, in lower case."""
    chosen = [(one,) for one in things] + list(permutations(things, 2))
    tellings = [Telling(*coins) for coins in product((True, False), repeat=5)]
    return {text for one in chosen for telling in tellings for text in _said(one, language, telling)}


def _called_alike(thing: Thing, language: str) -> list[Thing]:
    """The object as each sense that the language calls by the same noun."""
    senses = [replace(thing, sense=sense) for sense in SENSES]
    return [one for one in senses if noun_of(one, language) == noun_of(thing, language)]


def _said(things: Sequence[Thing], language: str, telling: Telling) -> Iterator[str]:
    """A sentence with all synonyms."""
    parts = product(*(_one(thing, language, telling) for thing in things))
    return (f" {JOINED[language]} ".join(one).lower() for one in parts)


@cache
def _one(thing: Thing, language: str, telling: Telling) -> tuple[str, ...]:
    """What is said of one object, with all synonyms."""
    draws = range(_DRAWS if language == "en" else 1)
    return tuple({sentence([thing], language, random.Random(seed), telling) for seed in draws})
