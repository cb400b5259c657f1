"""One form of each character, whatever keyboard, file or system wrote it; small and capital letters."""

import re
import unicodedata

_LEFT_OUT = "\u00ad\u0640\u200e\u200f\u202a-\u202e\u2060-\u2069\ufe00-\ufe0f\ufeff"
"""Soft hyphens, strokes that lengthen Arabic words, marks of direction, variants of a sign, marks of the byte order."""
_INVISIBLE = re.compile(f"[{_LEFT_OUT}]")
_OTHER_WIDTHS = re.compile(  # of Latin letters and digits, kana and hangul; ligatures and joined Arabic letters
    r"[\uff10-\uff19\uff21-\uff3a\uff41-\uff5a\uff61-\uffdc\ufb00-\ufdff\ufe70-\ufefc]+"
)
_SAME = {ord("\u02bc"): "'", ord("\u200b"): " "}  # an apostrophe that is a letter; a space without width
_TWO_SIGNS = (  # vowels of Thai and of Lao, typed as two
    ("\u0e4d\u0e32", "\u0e33"), ("\u0ecd\u0eb2", "\u0eb3"), ("\u0e40\u0e40", "\u0e41"), ("\u0ec0\u0ec0", "\u0ec1"),
)  # fmt: skip
_TURKIC = frozenset(["az", "tr"])  # with and without a dot, i is two letters


def composed(text: str) -> str:
    """A text with each letter and its accents as one character (NFC); nothing that can be seen changes."""
    return unicodedata.normalize("NFC", text)


def plain_characters(text: str) -> str:
    """A sentence without signs that cannot be seen, and each letter in one form: its own width, with its accents.

    Examples:
        >>> plain_characters("Ｔシャツ ﾎﾞｰﾙ"), plain_characters("can\u00adada\u200f."), plain_characters("gru\u0308n")
        ('Tシャツ ボール', 'canada.', 'grün')
    """
    if text.isascii():
        return text
    text = _INVISIBLE.sub("", text).translate(_SAME)
    text = _OTHER_WIDTHS.sub(lambda match: unicodedata.normalize("NFKC", match[0]), text)
    for typed, letter in _TWO_SIGNS:
        text = text.replace(typed, letter)
    return composed(text)


def lowered(text: str, language: str) -> str:
    """A text in small letters, by the rules of its language.

    Examples:
        >>> lowered("IŞIKLI İnce Top", "tr"), lowered("IN", "en"), lowered("İzmir", "de")
        ('ışıklı ince top', 'in', 'izmir')
    """
    if text.isascii() and language not in _TURKIC:
        return text.lower()
    text = text.replace("İ", "i")
    if language in _TURKIC:
        text = text.replace("I", "ı")
    return composed(text.lower())


def capitalised(letter: str, language: str) -> str:
    """A small letter as a capital, by the rules of its language.

    Examples:
        >>> capitalised("i", "tr"), capitalised("i", "en"), capitalised("კ", "ka")  # Georgian sentences begin with none
        ('İ', 'I', 'კ')
    """
    return "İ" if letter == "i" and language in _TURKIC else letter.title()
