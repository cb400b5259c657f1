"""Capital letters of translations: translators write lower case, people's captions tell how a word is written."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path

from data.captions.table import TRAINING_SPLITS, read_captions
from data.text.characters import capitalised, composed, lowered

_LETTERS = r"\w[\w\u0300-\u036f]*"  # with accents that no one character has
_WORD, _LETTER = re.compile(rf"{_LETTERS}(?:-{_LETTERS})*"), re.compile(r"[^\W\d_]")


class Casing:
    """The form in which people write each word of a language most often (truecasing, Lita et al. 2003).

    Args:
        forms: one of each word, `["ein", "Ball", "T-Shirt"]`.
        language: of the words.
    """

    def __init__(self, forms: Iterable[str] = (), language: str = "") -> None:
        self._language = language
        self._form_of = {lowered(form, language): form for form in forms}

    @classmethod
    def learn(cls, texts: Iterable[str], language: str = "") -> "Casing":
        """Learn it from sentences.

        The first word of each is left out, since its capital letter may be that of the sentence, and sentences without
        a small letter, which tell nothing. Of forms that are equally frequent the first is taken.

        Args:
            texts: as people wrote them, in one language.
            language: which.

        Examples:
            >>> Casing.learn(["Ein Mann im T-Shirt", "Der Hund sieht ein T-Shirt"]).forms
            ['Hund', 'Mann', 'T-Shirt', 'ein', 'im', 'sieht']
        """
        counts: dict[str, Counter[str]] = defaultdict(Counter)
        for text in map(composed, texts):
            for word in [] if text == text.upper() else _WORD.findall(text)[1:]:
                counts[lowered(word, language)][word] += 1
        return cls((forms.most_common(1)[0][0] for forms in counts.values()), language)

    @classmethod
    def of_corpus(cls, captions: Path, language: str) -> "Casing":
        """Learn it from the training captions of a caption table; raises as `read_captions`."""
        table = read_captions(captions)
        rows = zip(table["split"][:], table["language"][:], table["text"][:], strict=True)
        return cls.learn((text for split, of, text in rows if split in TRAINING_SPLITS and of == language), language)

    @property
    def forms(self) -> list[str]:
        """One form of each word, sorted."""
        return sorted(self._form_of.values())

    def apply(self, text: str, source: str) -> str:
        """A translation with capital letters; one that has some already stays as it is.

        A word that the captions do not have is written as in the source sentence, if it stands there, and a word of
        several parts by its parts. The first word begins with a capital letter if the source sentence does.

        Args:
            text: the translation, in lower case.
            source: the sentence that was translated.

        Examples:
            >>> casing = Casing(["Ball", "Hund", "ein", "roter", "sieht"])
            >>> casing.apply("ein hund sieht bello .", "A dog sees Bello.")
            'Ein Hund sieht Bello .'
            >>> casing.apply("ein roter ball", "a red ball")
            'ein roter Ball'
        """
        if text != lowered(text, self._language):
            return text
        source = composed(source)
        names = {lowered(word, of): word for of in ("", self._language) for word in _WORD.findall(source)[1:]}
        cased = _WORD.sub(lambda match: self._cased(match[0], names), text)
        if (first := _LETTER.search(source)) and first[0].isupper():
            cased = _LETTER.sub(lambda letter: capitalised(letter[0], self._language), cased, count=1)
        alike = {lowered(whole, "").replace("ı", "i") for whole in (cased, text)}  # names have an i of their own
        return cased if len(alike) == 1 else text

    def _cased(self, word: str, names: dict[str, str]) -> str:
        known = self._form_of.get(word) or names.get(word)
        return known or "-".join(self._form_of.get(part, part) for part in word.split("-"))
