"""From surface text to tokens and back: Moses, words, joint BPE for translation."""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from sacremoses import MosesDetokenizer, MosesPunctNormalizer, MosesTokenizer
from tokenizers import Tokenizer
from tokenizers.decoders import Metaspace as MetaspaceDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import Metaspace
from tokenizers.trainers import BpeTrainer

from data.errors import DataError
from data.processes import in_parallel
from data.text.characters import lowered, plain_characters
from data.text.language_codes import UNSPACED
from data.text.reading import Words, words_read
from data.text.segmentation import PACKAGES, segment
from data.text.sentences import normalise_sentence

PADDING, BEGIN, END, UNKNOWN = range(4)
SPECIALS = ("<pad>", "<s>", "</s>", "<unk>")
CHARACTERS, WORDS = "characters", "words"
_CHUNK = 10_000  # sentences that a process tokenises at a time, in about two seconds
MAX_TOKENS = 100  # sentences are cut here (mmt-retrieval, section 4.2)
_LONG, _START = 3, "▁"  # letters of a sub-word that says what it means; before the first sub-word of a word

_MARKS = "".join(mark for mark in map(chr, range(0x300, 0xFE00)) if unicodedata.category(mark).startswith("M"))
_JOINERS = "\u200c\u200d"  # inside Persian and Indic words
_CLOSING = re.compile(r" (?=[।॥،؛؟։။၊។۔።፣፤፥፧།])")  # before signs that close a part of a sentence
_APOSTROPHE = re.compile(r"(?<=\w) ?' ?(?=\w)")
_INSIDE_WORDS = {
    **dict.fromkeys(["br", "ca", "oc"], re.compile(r"(?<=\b[lsdnmtcj]) ?' ?(?=\w)|(?<=\bqu) ?' ?(?=\w)")),
    **dict.fromkeys(["be", "uk"], re.compile(r"(?<=\w) ?' ?(?=[яюєїеёі])")),
    **dict.fromkeys(["az", "tr"], re.compile(r"(?<=\w) ?' ?(?=(?:[ny]?[ıiuüaeə]n?|[dt][aeə]n?|l[aeə]r?)\b)")),
    "uz": re.compile(r"(?<=[og]) ?' ?(?=\w)"),
    **dict.fromkeys(["he", "yi"], re.compile(r"(?<=[גזצ]) ?' ?(?=[א-ת])")),
    "sw": re.compile(r"(?<=\bng) ?' ?(?=\w)"),
    "sq": re.compile(r"(?<=\b[stmç]) ?' ?(?=\w)"),
    "ht": re.compile(r"(?<=\b[lmntwk]) ?' ?(?=\w)"),
    "lb": re.compile(r"(?<=\b[ds]) ?' ?(?=\w)"),
    "ga": re.compile(r"(?<=\b[bdm]) ?' ?(?=\w)"),
    "af": re.compile(r"(?<=[aeiouyé]) ?' ?(?=s\b)"),
    "nl": re.compile(r"(?<=[aiouyé]) ?' ?(?=s\b)|(?<=\b[dmz]) ?' ?(?=[nr]\b)|(?<=\bzo) ?' ?(?=n\b)"),
}
"""Language → an apostrophe inside a word, where a sentence may hold quotations too; Moses knows those of en, fr, it."""
_BEFORE_WORDS = {"af": re.compile(r"(?<!\S)' (?=n\b)"), "nl": re.compile(r"(?<!\S)' (?=[nst]\b)")}
"""Language → an apostrophe that a word begins with: `'n hond`, `'s avonds`."""
_HEBREW = re.compile(r"(?<=[א-ת]) (׳) (?=[א-ת])|(?<=[א-ת]) ([\"״]) (?=[א-ת]\b)")  # inside words: צה"ל
_TIBETAN = re.compile(" ?(\u0f0b) ?")  # between syllables
_AROUND_IDEOGRAPHS = re.compile(r"(?<=[^\x00-\u024f]) | (?=[^\x00-\u024f])")
_LETTER = rf"\S[{_MARKS}{_JOINERS}]*"
_PIECES = re.compile(rf"[A-Za-z0-9]+|{_LETTER}")


@cache
def _moses(language: str) -> tuple[MosesPunctNormalizer, MosesTokenizer, MosesDetokenizer]:
    tokenizer = MosesTokenizer(language)
    # a vowel or tone sign belongs to its letter; without this, those of Thai and Burmese are cut off as punctuation is
    tokenizer.PAD_NOT_ISALNUM = re.compile(rf"([^{tokenizer.IsAlnum}{_MARKS}{_JOINERS}\s.'`,\-])"), r" \1 "
    # its rules for Czech read the end of the sentence at every word; without them "3 , 5" alone stays apart
    return MosesPunctNormalizer(language), tokenizer, MosesDetokenizer("sk" if language == "cs" else language)


def tokenize(text: str, language: str) -> str:
    """Give characters one form, normalise punctuation, tokenise as Moses does, lower-case; tokens joined by spaces.

    Examples:
        >>> tokenize("Ein Mann im T-Shirt, draußen.", "de")
        'ein mann im t-shirt , draußen .'
    """
    return lowered(_cased(text, language), language)


@lru_cache(1024)  # a query is tokenised for its vector, for its unknown words, and as it was typed
def _cased(text: str, language: str) -> str:
    """`tokenize` without lower-casing."""
    normalizer, tokenizer, _ = _moses(language)
    if language in UNSPACED:
        text = text.replace("\u200b", "")  # where a line may end
    text = normalizer.normalize(plain_characters(text))
    tokens: str = tokenizer.tokenize(text, escape=False, return_str=True)
    return " ".join(tokens.split())  # its rule for a last full stop in quotes leaves more spaces


def as_typed(text: str, language: str, words: Sequence[str]) -> Sequence[str]:
    """The words that `words_of` gives of a sentence, as they are typed where its Moses tokens are words."""
    typed = _cased(text, language).split()
    return typed if [lowered(word, language) for word in typed] == [*words] else words


def tokenize_all(texts: Sequence[str], languages: Sequence[str]) -> list[str]:
    """`tokenize` many sentences, equal ones once, by all cores if they are very many."""
    pairs = list(dict.fromkeys(zip(texts, languages, strict=True)))
    tokens = dict(zip(pairs, in_parallel(_tokenize_some, pairs, _CHUNK), strict=True))
    return [tokens[pair] for pair in zip(texts, languages, strict=True)]


def _tokenize_some(pairs: Sequence[tuple[str, str]]) -> list[str]:
    return [tokenize(*pair) for pair in pairs]


def words_of(text: str, language: str, by: str = CHARACTERS) -> str:
    """`tokenize`d, as words are counted: a letter is one in languages that are written without spaces.

    By `WORDS`, those of Chinese and Japanese are found by a segmenter.

    Raises:
        DataError: it is not installed.
    """
    tokens = tokenize(text, language)
    return " ".join(segment(tokens, language)) if by == WORDS and language in PACKAGES else spaced(tokens, language)


def spaced(tokens: str, language: str) -> str:
    """Moses tokens as `words_of` has them.

    Examples:
        >>> spaced("two dogs", "en"), spaced("t シャツ の男", "ja"), spaced("ผู้ชาย", "th")
        ('two dogs', 't シ ャ ツ の 男', 'ผู้ ช า ย')
    """
    return " ".join(_PIECES.findall(tokens)) if language in UNSPACED else tokens


def plain_words(text: str, language: str) -> list[str]:
    """Words in lower case without punctuation, as the captions of an image are compared with one another.

    A letter is a word in languages that are written without spaces. Surface text and Moses tokens have the same.
    """
    return spaced(normalise_sentence(text), language).split()


def typed_words(text: str, language: str, by: str = CHARACTERS) -> list[str]:
    """The words of a sentence as they are typed, found as `words_of` finds them; marks at a word stay with it.

    Examples:
        >>> typed_words("A dog runs.", "en"), typed_words("赤い T恤", "ja")
        (['A', 'dog', 'runs.'], ['赤', 'い', 'T', '恤'])
    """
    if by == WORDS and language in PACKAGES:
        return segment(text, language)
    return _PIECES.findall(text) if language in UNSPACED else text.split()


def without_each_word(text: str, language: str, by: str = CHARACTERS) -> tuple[list[str], list[str]]:
    """The words of a sentence as they are typed, and the sentence without each of them."""
    words = typed_words(text, language, by)
    space = "" if language in UNSPACED else " "
    return words, [space.join(words[:place] + words[place + 1 :]) for place in range(len(words))]


def detokenize(text: str, language: str) -> str:
    """Undo Moses tokenisation (not the lower-casing)."""
    if language in _BEFORE_WORDS:
        text = _BEFORE_WORDS[language].sub("'", _INSIDE_WORDS[language].sub("'", text))
    elif language in _INSIDE_WORDS:
        alone = text.split().count("'") == 1  # and no mark of a quotation
        text = (_APOSTROPHE if alone else _INSIDE_WORDS[language]).sub("'", text)
    if language in ("he", "yi"):
        text = _HEBREW.sub(lambda mark: mark[1] or mark[2], text)
    elif language in ("bo", "dz"):
        text = _TIBETAN.sub(r"\1", text)
    text = _CLOSING.sub("", _moses(language)[2].detokenize(text.split()))
    return joined(text) if language in ("ja", "yue", "zh") else text


def joined(text: str) -> str:
    """A sentence without the spaces between letters that are not Latin, as `spaced` writes them.

    Examples:
        >>> joined("t シ ャ ツ の 男"), joined("un café au lait")
        ('tシャツの男', 'un café au lait')
    """
    return _AROUND_IDEOGRAPHS.sub("", text)


class SubWords(Protocol):
    """How a translator reads and writes text."""

    def encode_all(self, texts: Sequence[str], language: str) -> list[list[int]]:
        """Token numbers from 1 of surface sentences, never empty, cut at `MAX_TOKENS`."""

    def size(self, text: str, language: str) -> int:
        """The number of sub-words of a sentence before it is cut; 0 for an empty one."""

    def read_words(self, text: str, language: str) -> Words:
        """The words of a sentence, and which of them are unknown."""

    def decode(self, tokens: Sequence[int], language: str) -> str:
        """A surface sentence from token numbers."""

    def decode_tokens(self, tokens: Sequence[int]) -> str:
        """A Moses-tokenised lower-cased translation from token numbers."""


class JointBPE:
    """Sub-words shared by all languages of a corpus, for translation.

    Args:
        tokenizer: a `tokenizers` BPE whose first four entries are `SPECIALS`.

    Attributes:
        source_words: the Moses tokens of the sentences that a translator was trained to read; None: nobody wrote them
            down.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.source_words: frozenset[str] | None = None
        self._read_as = dict[str, frozenset[str]]()  # language → `source_words` as words of it are counted

    def __len__(self) -> int:
        return self.tokenizer.get_vocab_size()

    @classmethod
    def train(cls, sentences: Iterable[str], size: int) -> "JointBPE":
        """Learn `size` sub-words from Moses-tokenised lower-cased sentences."""
        tokenizer = Tokenizer(BPE(unk_token=SPECIALS[UNKNOWN]))
        tokenizer.pre_tokenizer = Metaspace()
        tokenizer.decoder = MetaspaceDecoder()
        trainer = BpeTrainer(vocab_size=size, special_tokens=list(SPECIALS), show_progress=False)
        tokenizer.train_from_iterator(sentences, trainer)
        return cls(tokenizer)

    @classmethod
    def load(cls, path: Path) -> "JointBPE":
        """Read what `save` wrote.

        Raises:
            DataError: the file is missing or holds no vocabulary of ours.
        """
        if not path.is_file():
            raise DataError(f"{path}: no such file; the stage mmt writes it")
        try:
            tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises a plain Exception
            raise DataError(
                f"{path}: not a BPE vocabulary ({error}); delete its folder and run the stage mmt again"
            ) from None
        if [tokenizer.id_to_token(number) for number in range(len(SPECIALS))] != list(SPECIALS):
            raise DataError(f"{path}: its first entries are not {', '.join(SPECIALS)}; delete its folder and run the "
                            "stage mmt again")  # fmt: skip
        return cls(tokenizer)

    def save(self, path: Path) -> None:
        """Write it to one JSON file."""
        self.tokenizer.save(str(path))

    def encode_all(self, texts: Sequence[str], language: str) -> list[list[int]]:
        """Token numbers of surface sentences, cut at `MAX_TOKENS`; an empty sentence is one unknown token."""
        return self.encode_tokenized(tokenize_all(texts, [language] * len(texts)))

    def encode_tokenized(self, sentences: Sequence[str]) -> list[list[int]]:
        """`encode_all` of sentences as `tokenize` gives them."""
        encodings = self.tokenizer.encode_batch(sentences)
        return [encoding.ids[:MAX_TOKENS] or [UNKNOWN] for encoding in encodings]

    def size(self, text: str, language: str) -> int:
        """The number of sub-words of a sentence before it is cut; 0 for an empty one."""
        return len(self.tokenizer.encode(tokenize(text, language)).ids)

    def read_words(self, text: str, language: str) -> Words:
        """The words of a sentence, and which of them are unknown.

        A word is known if it is one of `source_words`, or if at least half of its letters are in sub-words of three
        letters or more that these have too: compounds and inflected forms. Where `source_words` are not written down,
        those sub-words are all of the vocabulary, and a word that is one of its entries is known.
        """
        words = words_of(text, language).split()
        known = None if self.source_words is None else self._source_words(self.source_words, language)
        read = words_read(words, lambda word: self._knows(word, known), lambda: as_typed(text, language, words))
        return read._replace(telling=self.source_words is not None, cut=self.size(text, language) > MAX_TOKENS)

    def _source_words(self, tokens: frozenset[str], language: str) -> frozenset[str]:
        """`source_words`, which are Moses tokens, as `words_of` counts words."""
        if language not in self._read_as:
            self._read_as[language] = frozenset(word for token in tokens for word in spaced(token, language).split())
        return self._read_as[language]

    def _knows(self, word: str, known: frozenset[str] | None) -> bool:
        encoding = self.tokenizer.encode(word)
        pieces = _pieces(encoding.tokens)
        if UNKNOWN in encoding.ids:
            return False
        if word in known if known is not None else len(pieces) == 1:
            return True
        return 2 * sum(len(piece) for piece in pieces if piece in self._long_pieces) >= len(word)

    @cached_property
    def _long_pieces(self) -> frozenset[str]:
        """The sub-words of three letters or more of `source_words`, or of all."""
        if self.source_words is None:
            pieces = _pieces([*self.tokenizer.get_vocab()])
        else:
            encodings = self.tokenizer.encode_batch(sorted(self.source_words))
            pieces = [piece for encoding in encodings for piece in _pieces(encoding.tokens)]
        return frozenset(piece for piece in pieces if len(piece) >= _LONG)

    def decode(self, tokens: Sequence[int], language: str) -> str:
        """A surface sentence (lower-case, detokenised) from token numbers."""
        return detokenize(self.decode_tokens(tokens), language)

    def words_in(self, sentences: Iterable[Sequence[int]]) -> frozenset[str]:
        """The Moses tokens of sentences that are given as token numbers."""
        texts = self.tokenizer.decode_batch([list(sentence) for sentence in sentences])
        return frozenset(word for text in texts for word in text.split())

    def decode_tokens(self, tokens: Sequence[int]) -> str:
        """A Moses-tokenised sentence from token numbers."""
        return self.tokenizer.decode(list(tokens)).strip()


def _pieces(tokens: Sequence[str]) -> list[str]:
    """Sub-words without the sign of a word's beginning."""
    return [piece for token in tokens if (piece := token.removeprefix(_START))]


def mean_by_word(tokens: Sequence[str], weights: Sequence[Sequence[float]]) -> list[tuple[str, NDArray[np.floating]]]:
    """Sub-words put together to words, with the mean of their weights.

    Examples:
        >>> mean_by_word(["▁ein", "▁hu", "nd"], [[1, 0], [0, 1], [1, 0]])
        [('ein', array([1., 0.])), ('hund', array([0.5, 0.5]))]
    """
    words: list[tuple[str, list[Sequence[float]]]] = []
    for token, share in zip(tokens, weights, strict=True):
        if token.startswith(_START) or not words:
            words.append((token.lstrip(_START), [share]))
        else:
            words[-1] = (words[-1][0] + token, [*words[-1][1], share])
    return [(word, np.array(shares).mean(0)) for word, shares in words]
