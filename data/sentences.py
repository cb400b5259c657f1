"""When two sentences count as the same: compared in lower case, without punctuation, with single spaces."""

import hashlib
import unicodedata

from data.characters import lowered, plain_characters


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


_SPACES = _Spaces()


def normalise_sentence(text: str) -> str:
    """`text` in lower case, punctuation and symbols replaced by spaces, spaces single; letters of any script are kept.

    The dotless i of Turkish counts as the other one, since the language is not known. Of a sentence of symbols alone
    the emoji are kept.

    Examples:
        >>> normalise_sentence("Zwei Männer –  draußen,im T-Shirt!")
        'zwei männer draußen im t shirt'
    """
    small = lowered(plain_characters(text), "").replace("ı", "i")
    words = small.translate(_SPACES).split()
    return " ".join(words or (sign for sign in small if unicodedata.category(sign) == "So"))


def sentence_hash(text: str) -> int:
    """A number in 0 … 2^63 − 1 that sentences share if they are the same when normalised; equal on every machine.

    Examples:
        >>> sentence_hash("A dog!") == sentence_hash("a  dog"), sentence_hash("a dog") == sentence_hash("a dogs")
        (True, False)
    """
    digest = hashlib.blake2b(normalise_sentence(text).encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1
