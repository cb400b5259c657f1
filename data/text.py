"""From surface text to token numbers and back: Moses, joint BPE for translation, words for retrieval."""

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Protocol

from sacremoses import MosesDetokenizer, MosesPunctNormalizer, MosesTokenizer
from tokenizers import Tokenizer
from tokenizers.decoders import Metaspace as MetaspaceDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import Metaspace
from tokenizers.trainers import BpeTrainer

from data.errors import DataError
from data.segmentation import PACKAGES, segment
from data.sentences import normalise_sentence

PADDING, BEGIN, END, UNKNOWN = range(4)
SPECIALS = ("<pad>", "<s>", "</s>", "<unk>")
UNSPACED = frozenset(["ja", "zh", "th"])  # written without spaces: a character is a word, if no segmenter finds them
CHARACTERS, WORDS = "characters", "words"
MAX_TOKENS = 100  # sentences are cut here (mmt-retrieval, section 4.2)

_MARKS = "".join(mark for mark in map(chr, range(0x300, 0xFE00)) if unicodedata.category(mark).startswith("M"))
_JOINERS = "\u200c\u200d"  # inside Persian and Indic words
_CLOSING = re.compile(r" (?=[।॥،؛؟։။၊។])")  # before signs that close a part of a sentence and that Moses does not know
_AROUND_IDEOGRAPHS = re.compile(r"(?<=[^\x00-\x7f]) | (?=[^\x00-\x7f])")


@cache
def _moses(language: str) -> tuple[MosesPunctNormalizer, MosesTokenizer, MosesDetokenizer]:
    tokenizer = MosesTokenizer(language)
    # a vowel or tone sign belongs to its letter; without this, those of Thai and Burmese are cut off as punctuation is
    tokenizer.PAD_NOT_ISALNUM = re.compile(rf"([^{tokenizer.IsAlnum}{_MARKS}{_JOINERS}\s.'`,\-])"), r" \1 "
    return MosesPunctNormalizer(language), tokenizer, MosesDetokenizer(language)


def tokenize(text: str, language: str) -> str:
    """Compose accents (NFC), normalise punctuation, tokenise as Moses does and lower-case; tokens joined by spaces."""
    normalizer, tokenizer, _ = _moses(language)
    text = normalizer.normalize(unicodedata.normalize("NFC", text))
    return tokenizer.tokenize(text, escape=False, return_str=True).lower()


def words_of(text: str, language: str, by: str = CHARACTERS) -> str:
    """`tokenize`d, as words are counted: a character is one in languages that are written without spaces.

    By `WORDS`, those of Chinese and Japanese are found by a segmenter.

    Raises:
        DataError: it is not installed.
    """
    tokens = tokenize(text, language)
    return " ".join(segment(tokens, language)) if by == WORDS and language in PACKAGES else spaced(tokens, language)


def spaced(tokens: str, language: str) -> str:
    """Moses tokens as `words_of` has them."""
    return " ".join(re.findall(r"[a-z0-9]+|\S", tokens)) if language in UNSPACED else tokens


def plain_words(text: str, language: str) -> list[str]:
    """Words in lower case without punctuation, as the captions of an image are compared with one another.

    A character is a word in languages that are written without spaces. Surface text and Moses tokens have the same.
    """
    return spaced(normalise_sentence(text), language).split()


def without_each_word(text: str, language: str, by: str = CHARACTERS) -> tuple[list[str], list[str]]:
    """The words of a sentence as they are typed, and the sentence without each of them.

    In languages that are written without spaces, a character is a word, or with `by` `WORDS` what a segmenter finds.
    """
    if by == WORDS and language in PACKAGES:
        words = segment(text, language)
    else:
        words = [character for character in text if not character.isspace()] if language in UNSPACED else text.split()
    space = "" if language in UNSPACED else " "
    return words, [space.join(words[:place] + words[place + 1 :]) for place in range(len(words))]


def detokenize(text: str, language: str) -> str:
    """Undo Moses tokenisation (not the lower-casing)."""
    text = _CLOSING.sub("", _moses(language)[2].detokenize(text.split()))
    return _AROUND_IDEOGRAPHS.sub("", text) if language in ("ja", "zh") else text


class TextInput(Protocol):
    """How a retrieval model turns text into token numbers; chosen by the model, saved with its weights."""

    def encode(self, text: str, language: str) -> list[int]:
        """Token numbers of a sentence, never empty, at most `MAX_TOKENS`."""

    def __len__(self) -> int:
        """The number of different tokens."""

    def save(self, path: Path) -> None:
        """Write it to one file."""


class SubWords(Protocol):
    """How a translator reads and writes text."""

    def encode_all(self, texts: Sequence[str], language: str) -> list[list[int]]:
        """Token numbers from 1 of surface sentences, never empty, cut at `MAX_TOKENS`."""

    def size(self, text: str, language: str) -> int:
        """The number of sub-words of a sentence before it is cut; 0 for an empty one."""

    def decode(self, tokens: Sequence[int], language: str) -> str:
        """A surface sentence from token numbers."""

    def decode_tokens(self, tokens: Sequence[int]) -> str:
        """A Moses-tokenised lower-cased translation from token numbers."""


class JointBPE:
    """Sub-words shared by all languages of a corpus, for translation.

    Args:
        tokenizer: a `tokenizers` BPE whose first four entries are `SPECIALS`.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer

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
            raise DataError(f"{path}: no such file; `make stage-mmt` writes it")
        try:
            tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises a plain Exception
            raise DataError(f"{path}: not a BPE vocabulary ({error}); run `make stage-mmt` again") from None
        if [tokenizer.id_to_token(number) for number in range(len(SPECIALS))] != list(SPECIALS):
            raise DataError(f"{path}: its first entries are not {', '.join(SPECIALS)}; run `make stage-mmt` again")
        return cls(tokenizer)

    def save(self, path: Path) -> None:
        """Write it to one JSON file."""
        self.tokenizer.save(str(path))

    def encode_all(self, texts: Sequence[str], language: str) -> list[list[int]]:
        """Token numbers of surface sentences, cut at `MAX_TOKENS`; an empty sentence is one unknown token."""
        encodings = self.tokenizer.encode_batch([tokenize(text, language) for text in texts])
        return [encoding.ids[:MAX_TOKENS] or [UNKNOWN] for encoding in encodings]

    def size(self, text: str, language: str) -> int:
        """The number of sub-words of a sentence before it is cut; 0 for an empty one."""
        return len(self.tokenizer.encode(tokenize(text, language)).ids)

    def decode(self, tokens: Sequence[int], language: str) -> str:
        """A surface sentence (lower-case, detokenised) from token numbers."""
        return detokenize(self.decode_tokens(tokens), language)

    def decode_tokens(self, tokens: Sequence[int]) -> str:
        """A Moses-tokenised sentence from token numbers."""
        return self.tokenizer.decode(list(tokens)).strip()


class PretrainedTokens:
    """Sub-words of a text model of `transformers`; its numbers plus 1, as 0 is padding.

    Args:
        name: a folder, or a name on the hub.
        longest: sub-words of a sentence at most; None: as many as the tokenizer says, and at most `MAX_TOKENS`.
        lower: sentences are lower-cased first.

    Raises:
        DataError: there is no tokenizer.
    """

    def __init__(self, name: str, longest: int | None = None, lower: bool = False) -> None:
        from transformers import AutoTokenizer

        try:
            self.tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=False)
        except (OSError, ValueError) as error:
            reason = " ".join(str(error).split())[:200]
            raise DataError(f"vse.pretrained {name!r}: no tokenizer of transformers there ({reason})") from None
        if len(self.tokenizer) <= len(self.tokenizer.all_special_ids):  # transformers returns an empty tokenizer
            raise DataError(f"vse.pretrained {name!r}: no tokenizer of transformers there (it knows no words)")
        self.name, self.lower = name, lower
        self.longest = min(MAX_TOKENS, self.tokenizer.model_max_length if longest is None else longest)

    def __len__(self) -> int:
        return len(self.tokenizer) + 1

    def encode(self, text: str, language: str) -> list[int]:
        """Token numbers of a surface sentence between the model's own marks, cut at `MAX_TOKENS` or the model's end.

        An empty sentence of a model without marks is one unknown token.
        """
        numbers = self.tokenizer.encode(self._read(text), truncation=True, max_length=self.longest)
        return [number + 1 for number in numbers or [self.tokenizer.unk_token_id or 0]]

    def size(self, text: str) -> int:
        """The number of sub-words of a sentence before it is cut, its marks among them."""
        return len(self.tokenizer.encode(self._read(text), verbose=False))

    def save(self, path: Path, name: str | None = None) -> None:
        """Write the model's name, or another one for it, and how it is read to one JSON file."""
        content = {"pretrained": name or self.name, "longest": self.longest, "lower": self.lower}
        path.write_text(json.dumps(content), encoding="utf-8")

    def _read(self, text: str) -> str:
        return text.lower() if self.lower else text


class WordVocabulary:
    """Whole words, for retrieval; rare ones are unknown.

    Args:
        words: in the order of their numbers, the first two being padding and unknown.
        shared: languages share a word that is written alike; else each language has its own words.
        by: what languages that are written without spaces are read by, `CHARACTERS`, or `WORDS` where a segmenter
            finds them.
    """

    PADDING, UNKNOWN = 0, 1

    def __init__(self, words: Sequence[str], shared: bool = True, by: str = CHARACTERS) -> None:
        self.words = list(words)
        self.shared, self.by = shared, by
        self._number = {word: number for number, word in enumerate(self.words)}

    def __len__(self) -> int:
        return len(self.words)

    @classmethod
    def build(
        cls, texts: Iterable[str], languages: Iterable[str], min_count: int = 4, shared: bool = True,
        by: str = CHARACTERS,
    ) -> "WordVocabulary":  # fmt: skip
        """Count the words of training sentences and keep those seen at least `min_count` times."""
        counts: Counter[str] = Counter()
        for text, language in zip(texts, languages, strict=True):
            counts.update(_keys(text, language, shared, by))
        kept = sorted((word for word, count in counts.items() if count >= min_count), key=lambda w: (-counts[w], w))
        return cls([SPECIALS[PADDING], SPECIALS[UNKNOWN], *kept], shared, by)

    def encode(self, text: str, language: str) -> list[int]:
        """Token numbers of a surface sentence, cut at `MAX_TOKENS`; an empty sentence is one unknown word."""
        keys = _keys(text, language, self.shared, self.by)[:MAX_TOKENS]
        return [self._number.get(key, self.UNKNOWN) for key in keys] or [self.UNKNOWN]

    def decode(self, tokens: Sequence[int], language: str) -> str:
        """A surface sentence (lower-case, detokenised) from token numbers."""
        words = (self.words[number] for number in tokens if number > self.UNKNOWN)
        return detokenize(" ".join(word if self.shared else word.partition(":")[2] for word in words), language)

    def words_of(self, language: str) -> dict[str, int]:
        """The words of a language as they are written, and their numbers; all words if languages share them."""
        start = "" if self.shared else f"{language}:"
        own = ((word, number) for number, word in enumerate(self.words) if number > self.UNKNOWN)
        return {word.removeprefix(start): number for word, number in own if word.startswith(start)}

    def save(self, path: Path) -> None:
        """Write it to one JSON file."""
        content = {"shared": self.shared, "words": self.words} | ({} if self.by == CHARACTERS else {"by": self.by})
        path.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> "WordVocabulary":
        """Read what `save` wrote.

        Raises:
            DataError: the file is missing or holds no vocabulary of ours.
        """
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            if content["words"][:2] != [SPECIALS[PADDING], SPECIALS[UNKNOWN]]:
                raise ValueError("its first entries are not <pad> and <unk>")
            if (by := content.get("by", CHARACTERS)) not in (CHARACTERS, WORDS):
                raise ValueError(f"read by {by!r}")
            return cls(content["words"], content["shared"], by)
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise DataError(f"{path}: not a word vocabulary ({error!r}); run `make stage-vse` again") from None


def load_text_input(path: Path, pretrained: str | None = None) -> TextInput:
    """Read what a text input of a retrieval model saved.

    Args:
        path: of the file.
        pretrained: where the text model lies now; None: where it was.

    Raises:
        DataError: the file is missing or damaged, or a pretrained model is gone.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if "pretrained" in content:
            longest, lower = content.get("longest"), content.get("lower", False)
            if not (isinstance(longest, int | None) and isinstance(lower, bool)):
                raise ValueError(f"longest is {longest!r} and lower {lower!r}")
            return PretrainedTokens(pretrained or content["pretrained"], longest, lower)
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise DataError(f"{path}: not a text input ({error!r}); run `make stage-vse` again") from None
    return WordVocabulary.load(path)


def _keys(text: str, language: str, shared: bool, by: str) -> list[str]:
    words = words_of(text, language, by).split()
    return words if shared else [f"{language}:{word}" for word in words]
