"""Names of languages, which of several a sentence is in, and which languages a text has."""

import math
from collections import defaultdict
from collections.abc import Sequence
from functools import cache

from py3langid.langid import MODEL_FILE, LanguageIdentifier

_NAMES = {
    "ar": "Arabic", "cs": "Czech", "de": "German", "en": "English", "es": "Spanish", "fr": "French", "it": "Italian",
    "ja": "Japanese", "nl": "Dutch", "pl": "Polish", "pt": "Portuguese", "ru": "Russian", "th": "Thai",
    "tr": "Turkish", "zh": "Chinese",
}  # fmt: skip
_READ = 1000  # sentences that `languages_in` reads


def language_name(code: str) -> str:
    """The English name of a language; its code if it has none here."""
    return _NAMES.get(code, code)


def language_of(text: str, languages: Sequence[str]) -> str:
    """Detect the language of a sentence.

    Args:
        text: the sentence.
        languages: codes that it may be in; those that the identifier does not know are never returned.

    Returns:
        one of them; the first if there is no evidence for any.
    """
    identifier = _identifier(tuple(languages))
    if identifier is None or not any(map(str.isalpha, text)):
        return languages[0]
    return str(identifier.classify(text)[0])


def languages_in(texts: Sequence[str], share: float = 0.1) -> list[str]:
    """Detect the languages of sentences that may be in any language.

    Args:
        texts: the sentences; at most 1,000 of them are read, at equal distances.
        share: of the sentences that a language has at least; single sentences are often taken for another language.

    Returns:
        codes, the most frequent first; none if no sentence has a letter.
    """
    read = [text for text in texts[:: math.ceil(len(texts) / _READ) or 1] if any(map(str.isalpha, text))]
    identifier, of = LanguageIdentifier.from_model_file(MODEL_FILE), defaultdict[str, list[str]](list)
    for text in read:
        of[identifier.classify(text)[0]].append(text)
    found = [one for one in sorted(of, key=lambda one: -len(of[one])) if len(of[one]) >= share * len(read)]
    # What is falsely taken for a language is not taken for it when it is read as one text.
    sure = [one for one in found if identifier.classify(" ".join(of[one]))[0] == one]
    return sure or ([str(identifier.classify(" ".join(read))[0])] if read else [])


@cache
def _identifier(languages: tuple[str, ...]) -> LanguageIdentifier | None:
    """One that knows these languages alone; None if it knows less than two of them."""
    identifier = LanguageIdentifier.from_model_file(MODEL_FILE)
    known = [language for language in languages if language in identifier.labels]
    if len(known) < 2:
        return None
    identifier.set_languages(known)
    return identifier
