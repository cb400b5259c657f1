"""When two sentences count as the same: compared in lower case, without punctuation, with single spaces."""

import hashlib
import re
import unicodedata

from data.text.characters import lowered, plain_characters


class _Spaces(dict[int, str]):
    """Character code → a space for punctuation, symbols and controls, nothing for joiners, else the character.

    Filled as characters are met.
    """

    def __missing__(self, code: int) -> str:
        character = chr(code)
        category = unicodedata.category(character)
        kept = "" if category == "Cf" else " " if category[0] in "PSC" else character
        self[code] = kept
        return kept


RULE = 4
"""Of `normalise_sentence`: another one wherever it leaves something else than before."""
_SPACES = _Spaces()
_UNSPACED = "\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
"""Thai, Lao, Tibetan, Burmese, Khmer, Japanese and Chinese, whose words have no spaces between them."""
_BESIDE = re.compile(f"(?<=[{_UNSPACED}]) | (?=[{_UNSPACED}])")


def normalise_sentence(text: str) -> str:
    """`text` in lower case, punctuation and symbols replaced by spaces, spaces single; letters of any script are kept.

    There are no spaces beside letters of scripts that are written without. The dotless i of Turkish counts as the
    other one, since the language is not known. Of a sentence of symbols alone the emoji are kept.

    Examples:
        >>> normalise_sentence("Zwei Männer –  draußen,im T-Shirt!")
        'zwei männer draußen im t shirt'
        >>> normalise_sentence("赤い 円、四角。"), normalise_sentence("T 恤和 2 个球")
        ('赤い円四角', 't恤和2个球')
    """
    small = lowered(plain_characters(text), "").replace("ı", "i")
    words = small.translate(_SPACES).split()
    whole = " ".join(words or (sign for sign in small if unicodedata.category(sign) == "So"))
    return whole if whole.isascii() else _BESIDE.sub("", whole)


def sentence_hash(text: str) -> int:
    """A number in 0 … 2^63 − 1 that sentences share if they are the same when normalised; equal on every machine.

    Examples:
        >>> sentence_hash("A dog!") == sentence_hash("a  dog"), sentence_hash("a dog") == sentence_hash("a dogs")
        (True, False)
    """
    digest = hashlib.blake2b(normalise_sentence(text).encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1
