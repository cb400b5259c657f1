"""Names of languages, which of several a sentence is in, and which languages a text has."""

import math
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from functools import cache
from typing import NamedTuple

from py3langid.langid import MODEL_FILE, LanguageIdentifier

from data.errors import DataError
from data.processes import in_parallel
from data.text.characters import plain_characters
from data.text.language_codes import LANGUAGE_NAMES, NLLB, UNSPACED

_CHUNK = 8000  # sentences whose language a process looks at, in about two seconds
_READ = 1000  # captions that `detect_languages` reads
_UNKNOWN = "en"
_MARGIN_OF_ALL, _MARGIN, _SHARE = 10.0, 5.0, 0.1  # see `detect_languages`
_OF_DOUBTFUL, _OF_OTHERS = 5.0, 3.0  # see `foreign_language`
CERTAIN = 8.0
"""The evidence from which on a sentence is certainly in another language: the logarithm of how much likelier it is."""
_SCRIPTS = {
    "Arab": ["ARABIC"], "Armn": ["ARMENIAN"], "Beng": ["BENGALI"], "Cyrl": ["CYRILLIC"], "Deva": ["DEVANAGARI"],
    "Ethi": ["ETHIOPIC"], "Geor": ["GEORGIAN"], "Grek": ["GREEK"], "Gujr": ["GUJARATI"], "Guru": ["GURMUKHI"],
    "Hang": ["HANGUL"], "Hans": ["CJK"], "Hebr": ["HEBREW"], "Jpan": ["CJK", "HIRAGANA", "KATAKANA"],
    "Khmr": ["KHMER"], "Knda": ["KANNADA"], "Laoo": ["LAO"], "Latn": ["LATIN"], "Mlym": ["MALAYALAM"],
    "Mymr": ["MYANMAR"], "Orya": ["ORIYA"], "Sinh": ["SINHALA"], "Taml": ["TAMIL"], "Telu": ["TELUGU"],
    "Thai": ["THAI"], "Tibt": ["TIBETAN"], "Hant": ["CJK"],
}  # fmt: skip
"""Script of a code of NLLB → what the Unicode names of its letters begin with."""
_JAPANESE = _SCRIPTS["Jpan"]
_SEVERAL = {"az", "bs", "kk", "ku", "ky", "mn", "pa", "sd", "sr", "tg", "uz"}  # languages written in several of these:
_OF_SEVERAL = {"ARABIC", "CYRILLIC", "DEVANAGARI", "GURMUKHI", "LATIN", "MONGOLIAN"}
_READABLE = tuple(sorted(NLLB.keys() - {"bs", "nb", "nn", "yue"}))  # hardly told from hr, no and zh; nb is no there


def language_name(code: str) -> str:
    """The English name of a language; its code if it has none here."""
    return LANGUAGE_NAMES.get(code, code)


def language_of(text: str, languages: Sequence[str]) -> str:
    """Detect the language of a sentence.

    Args:
        text: the sentence.
        languages: codes that it may be in; one that the identifier does not know is returned only where no other is
            written in the script of the sentence.

    Returns:
        one of them, of those that are written in the script of the sentence if there are some; the first if there is
        no evidence for any.

    Examples:
        >>> language_of("ein roter Ball", ["en", "de"]), language_of("123", ["en", "de"])  # no letters: the first
        ('de', 'en')
        >>> language_of("犬", ["en", "ar", "ja"])
        'ja'
    """
    text = plain_characters(text)
    spaced = [language for language in languages if language not in UNSPACED]  # a word of another script stays one
    languages = in_its_script(text, languages) or spaced or languages
    if len(languages) == 1 or not any(map(str.isalpha, text)):
        return languages[0]
    named = {_identified(language): language for language in reversed(languages)}
    known = [code for code in reversed(named) if code in _whole_identifier().labels]
    identifier = _identifier(tuple(known))
    found = known[:1] if identifier is None else [str(identifier.classify(text)[0])]
    return named[found[0]] if found else languages[0]


def in_its_script(text: str, languages: Sequence[str]) -> list[str]:
    """Those of some languages that are written in the script of a sentence, or of most of its letters.

    Examples:
        >>> in_its_script("собака", ["en", "uk", "ru"]), in_its_script("走る", ["en", "ja"])
        (['uk', 'ru'], ['ja'])
    """
    scripts = [_script(letter) for letter in text if letter.isalpha()]
    together = ["KATAKANA" if one in _JAPANESE else one for one in scripts]  # a word of Japanese mixes its scripts
    found = _of_most(scripts) or _of_most(together)

    def written_so(language: str) -> bool:
        """May it be written in this script?"""
        several = language in _SEVERAL and found in _OF_SEVERAL
        return language not in NLLB or several or found in _SCRIPTS[NLLB[language].partition("_")[2]]

    return [*languages] if found is None else list(filter(written_so, languages))


def _of_most(scripts: Sequence[str]) -> str | None:
    """The script of more than half of some letters."""
    script, count = next(iter(Counter(scripts).most_common(1)), (None, 0))
    return script if 2 * count > len(scripts) else None


@cache
def _script(letter: str) -> str:
    """What the Unicode name of a letter begins with; ー is one of katakana, 々 one of Chinese."""
    name = unicodedata.name(letter, "").partition(" ")[0]
    return {"KATAKANA-HIRAGANA": "KATAKANA", "IDEOGRAPHIC": "CJK"}.get(name, name)


def language_evidence(text: str, language: str) -> float:
    """By how much a sentence is likelier in a language than in any other: a difference of log-probabilities.

    Returns:
        above 0 where the language is the likeliest; 0 for a sentence without letters.

    Raises:
        DataError: the identifier does not know the language.
    """
    language = _identified(language)
    identifier = _identifier(tuple(sorted({*_READABLE, language})))
    assert identifier is not None
    if language not in identifier.labels:
        raise DataError(f"{language_name(language)} ({language}) cannot be told from other languages")
    if not any(map(str.isalpha, text)):
        return 0.0
    scores = {str(code): float(score) for code, score in identifier.rank(text.lower())}
    return scores[language] - max(score for code, score in scores.items() if code != language)


def foreign_language(text: str, languages: Sequence[str], doubtful: bool) -> str | None:
    """The language of a sentence, if it is certainly in none of some languages.

    It must be e^8 times likelier than each of these, and e^3 times likelier than any other one. Of parts of English
    captions (Multi30K, 300 each of 1, 2, 3, 4 and 6 words) at most one in a hundred is taken for another language so.

    Args:
        text: the sentence.
        languages: codes.
        doubtful: there are other signs that it is in none of them; then e^5 is enough.

    Returns:
        a code; None if that is not certain, or the identifier does not know one of `languages`.

    Examples:
        >>> foreign_language("un chien court sur la plage", ["en", "de"], doubtful=False)
        'fr'
        >>> foreign_language("red truck", ["en", "de"], doubtful=False) is None
        True
    """
    language, evidence = foreign_evidence(text, languages)
    return language if evidence >= (_OF_DOUBTFUL if doubtful else CERTAIN) else None


def foreign_evidence(text: str, languages: Sequence[str]) -> tuple[str | None, float]:
    """The language of a sentence if it is likelier than some languages, and by how much: a difference of logarithms.

    Args:
        text: the sentence.
        languages: codes.

    Returns:
        a code and the difference to the likeliest of `languages`, at least `CERTAIN` where none of them is written in
        the script of the sentence; None and 0 where one of these is the likeliest, where another language is nearly as
        likely, or where the identifier does not know one of `languages`.
    """
    languages = [_identified(language) for language in languages]
    identifier = _identifier(tuple(sorted({*_READABLE, *languages})))
    assert identifier is not None
    text = plain_characters(text).lower()
    if not any(map(str.isalpha, text)) or not {*languages} <= {*identifier.labels}:
        return None, 0.0
    scores = {str(code): float(score) for code, score in identifier.rank(text)}
    if not in_its_script(text, languages):
        best = next(iter(in_its_script(text, [*scores])), None)
        most = max((scores[language] for language in languages), default=0.0)
        return (best, max(CERTAIN, scores[best] - most)) if best else (None, 0.0)
    (best, score), (_, next_score), *_ = scores.items()
    if best in languages or score - next_score < _OF_OTHERS:
        return None, 0.0
    return best, score - max(scores[language] for language in languages)


def foreign_evidence_all(texts: Sequence[tuple[str, str]]) -> Iterator[tuple[str | None, float]]:
    """`foreign_evidence` of many sentences, each with its one language; by all cores if they are very many."""
    return in_parallel(_foreign_evidence_some, texts, _CHUNK)


def _foreign_evidence_some(texts: Sequence[tuple[str, str]]) -> list[tuple[str | None, float]]:
    return [foreign_evidence(text, [language]) for text, language in texts]


class Detected(NamedTuple):
    """The languages of some captions: codes, the most frequent first, and whether they could be told."""

    languages: list[str]
    sure: bool


def detect_languages(captions: Iterable[str]) -> Detected:
    """Detect the languages of captions, all of them together; equal captions count once.

    The first language is that of all captions read as one text, if it is e^10 times likelier than any other. Another
    one is added if, for a tenth of the captions, it is e^5 times likelier than the first: real captions of another
    language are far above that, short ones that are only taken for it (`red truck` for Dutch) below.

    Args:
        captions: in any languages; at most 1,000 of them are read, at equal distances.

    Returns:
        the languages; English, and not sure, if they cannot be told.

    Examples:
        >>> detect_languages(["A dog runs on the beach.", "Ein Hund rennt am Strand.", "Two men play football."])
        Detected(languages=['en', 'de'], sure=True)
        >>> detect_languages(["123", "?"])
        Detected(languages=['en'], sure=False)
    """
    distinct = [
        caption for caption in dict.fromkeys(text.lower() for text in captions) if any(map(str.isalpha, caption))
    ]
    read = distinct[:: math.ceil(len(distinct) / _READ) or 1]
    identifier = _identifier(_READABLE)
    assert identifier is not None
    (first, score), (_, next_score) = identifier.rank(" . ".join(read))[:2]
    if not read or score - next_score < _MARGIN_OF_ALL:
        return Detected([_UNKNOWN], False)
    counts = Counter[str]()
    for text in read:
        scores = dict(identifier.rank(text))
        best = max(scores, key=lambda language: scores[language])
        counts[best if scores[best] - scores[first] >= _MARGIN else first] += 1
    least = _SHARE * len(read)
    return Detected([language for language, count in counts.most_common() if language == first or count >= least], True)


def _identified(language: str) -> str:
    """The code that the identifier has for a language: one for Norwegian."""
    return "no" if language == "nb" else language


@cache
def _whole_identifier() -> LanguageIdentifier:
    """Read once: the library unpacks 65 MB into a temporary file."""
    return LanguageIdentifier.from_model_file(MODEL_FILE)


@cache
def _identifier(languages: tuple[str, ...]) -> LanguageIdentifier | None:
    """One that knows these languages alone; None if it knows less than two of them."""
    identifier = copy(_whole_identifier())
    known = [language for language in languages if language in identifier.labels]
    if len(known) < 2:
        return None
    identifier.set_languages(known)
    return identifier
