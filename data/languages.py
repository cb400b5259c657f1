"""Names of languages, and which of several a sentence is in."""

from collections.abc import Sequence
from functools import cache

from py3langid.langid import MODEL_FILE, LanguageIdentifier

_NAMES = {
    "ar": "Arabic", "cs": "Czech", "de": "German", "en": "English", "es": "Spanish", "fr": "French", "it": "Italian",
    "ja": "Japanese", "nl": "Dutch", "pl": "Polish", "pt": "Portuguese", "ru": "Russian", "th": "Thai",
    "tr": "Turkish", "zh": "Chinese",
}  # fmt: skip


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


@cache
def _identifier(languages: tuple[str, ...]) -> LanguageIdentifier | None:
    """One that knows these languages alone; None if it knows less than two of them."""
    identifier = LanguageIdentifier.from_model_file(MODEL_FILE)
    known = [language for language in languages if language in identifier.labels]
    if len(known) < 2:
        return None
    identifier.set_languages(known)
    return identifier
