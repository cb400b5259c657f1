"""How a sentence is read: which of its words are unknown, and which language it is in."""

import re
import threading
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from data.text.languages import foreign_language, language_name

_SHOWN, _LONGEST = 8, 30  # unknown words that a note names, and letters of one
_QUOTED = re.compile(r"(?<!\w)['‘](?=\w)(.+?)(?<=[\w.,!?])['’](?!\w)")


class Words(NamedTuple):
    """The words of a sentence, as far as they are read.

    Attributes:
        total: how many; punctuation is none, unless there is nothing else.
        unknown: those that the vocabulary does not hold, as they are typed, in their order.
        telling: the others are words of the languages that are read. False: sub-words spell words of any language.
        cut: the sentence is longer than what is read of it.
    """

    total: int
    unknown: list[str]
    telling: bool = True
    cut: bool = False


@dataclass(frozen=True)
class Reading:
    """How a model, or a translator, reads a sentence.

    Attributes:
        words: how many it has; punctuation is none.
        unknown: those that the vocabulary does not hold, as they are typed, in their order.
        languages: codes of the languages that are read.
        read_as: the one that the sentence is read as.
        language: the one that it is in: the given one, or the detected one, also if it is not read. None: it cannot be
            told, as no word is known.
        certain: all words are known, and are of the languages that are read: sub-words would spell any words.
        reader: what reads it, as a note names it.
        cut: it is longer than what is read of it.
    """

    words: int
    unknown: tuple[str, ...]
    languages: tuple[str, ...]
    read_as: str
    language: str | None
    certain: bool
    reader: str = "model"
    cut: bool = False

    @property
    def known(self) -> bool:
        """Is a word known?"""
        return len(self.unknown) < self.words

    @property
    def note(self) -> str:
        """What a person should know, in one line; empty if all words are known and read, and the language is read."""
        parts = []
        if self.unknown:
            parts.append(f"{len(self.unknown)} of {self.words} words unknown: {_listed(self.unknown)}")
        if self.language not in (None, *self.languages):
            parts.append(f"this looks like {language_name(str(self.language))}")
        if parts:
            *names, last = map(language_name, self.languages)
            parts.append(f"this {self.reader} reads {' and '.join(filter(None, [', '.join(names), last]))}")
        if self.cut:
            parts.append(f"this is too long: the {self.reader} reads only its beginning")
        return "; ".join(parts)


def plain_quotes(text: str) -> str:
    """A query in which pairs of apostrophes around words are quotation marks; others stay as they are.

    Apostrophes stay part of a word when it is tokenised, so those around it would make another word of it.

    Examples:
        >>> plain_quotes("'dog'"), plain_quotes("a ‘red ball’"), plain_quotes("the dogs' ball isn't red")
        ('"dog"', 'a "red ball"', "the dogs' ball isn't red")
    """
    return _QUOTED.sub(r'"\1"', text)


def reading_of(
    text: str, words: Words, languages: Sequence[str], read_as: str, guessed: bool = True, reader: str = "model"
) -> Reading:
    """How a sentence is read, from its words.

    Args:
        text: the sentence.
        words: of it, as they are read.
        languages: that are read.
        read_as: the one that the sentence is read as.
        guessed: nobody has said that it is in that language.
        reader: what reads it.
    """
    language: str | None = read_as
    doubtful = words.telling and 2 * len(words.unknown) >= words.total
    if guessed and (doubtful or not words.telling):
        untold = None if len(words.unknown) == words.total else read_as
        language = foreign_language(text, languages, doubtful) or untold
    certain = words.telling and not words.unknown
    return Reading(words.total, tuple(words.unknown), tuple(languages), read_as, language, certain, reader, words.cut)


def words_read(tokens: Sequence[str], known: Callable[[str], bool], typed: Callable[[], Sequence[str]]) -> Words:
    """The words among tokens.

    Args:
        tokens: as the vocabulary has them.
        known: does the vocabulary hold a token?
        typed: gives the same tokens as they are typed; called if one is unknown.
    """
    places = [place for place, token in enumerate(tokens) if _is_word(token)] or [*range(len(tokens))]
    unknown = [place for place in places if not known(tokens[place])]
    shown = typed() if unknown else tokens
    return Words(len(places), [shown[place] for place in unknown])


TOKENIZERS = threading.Lock()
"""Held while a tokenizer of `transformers` is called: it keeps between calls whether it cuts, for all threads."""


def words_of_pieces(words: Sequence[str], tokenizer: Any) -> Words:
    """The words of a sentence, as typed, for a tokenizer of `transformers`; one is unknown if a piece of it is."""

    def known(word: str) -> bool:
        """Is each piece of it an entry of the vocabulary?"""
        with TOKENIZERS:
            return tokenizer.unk_token_id not in tokenizer(word, add_special_tokens=False)["input_ids"]

    return words_read(words, known, lambda: words)._replace(telling=False)


def _is_word(token: str) -> bool:
    """Has a token a letter, a digit, or a small picture?"""
    return any(letter.isalnum() or unicodedata.category(letter) == "So" for letter in token)


def _listed(words: Sequence[str]) -> str:
    shown = [word if len(word) <= _LONGEST else f"{word[:_LONGEST]}…" for word in dict.fromkeys(words)]
    return ", ".join(shown[:_SHOWN] + ["…"] * (len(shown) > _SHOWN))
