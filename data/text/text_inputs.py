"""Text inputs of retrieval models: whole words, or sub-words of a text model of `transformers`."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from data.errors import DataError, one_line
from data.text.characters import composed
from data.text.languages import in_its_script
from data.text.reading import TOKENIZERS, Words, words_of_pieces, words_read
from data.text.segmentation import PACKAGES, segment
from data.text.tokenisation import (
    CHARACTERS,
    MAX_TOKENS,
    PADDING,
    SPECIALS,
    UNKNOWN,
    UNSPACED,
    WORDS,
    as_typed,
    detokenize,
    joined,
    spaced,
    tokenize_all,
    typed_words,
    words_of,
)
from data.text.tokens import Tokens

if TYPE_CHECKING:  # takes a second to import
    from datasets import Dataset as Table


class TextInput(Protocol):
    """How a retrieval model turns text into token numbers; chosen by the model, saved with its weights."""

    by: str
    """What languages that are written without spaces are shown by: `CHARACTERS` or `WORDS`, as `words_of` has it."""

    def encode(self, text: str, language: str) -> list[int]:
        """Token numbers of a sentence, never empty, at most `MAX_TOKENS`."""

    def encode_all(self, captions: "Table") -> Tokens:
        """Token numbers of all sentences of a caption table, as `encode` gives them."""

    def read_words(self, text: str, language: str) -> Words:
        """The words of a sentence, and which of them are unknown."""

    def __len__(self) -> int:
        """The number of different tokens."""

    def save(self, path: Path) -> None:
        """Write it to one file."""


_CHUNK = 10_000  # sentences that a tokenizer reads together


class PretrainedTokens:
    """Sub-words of a text model of `transformers`; its numbers plus 1, as 0 is padding.

    Args:
        name: a folder, or a name on the hub.
        longest: sub-words of a sentence at most; None: as many as the tokenizer says, and at most `MAX_TOKENS`.
        lower: sentences are lower-cased first.

    Raises:
        DataError: there is no tokenizer.
    """

    by = CHARACTERS

    def __init__(self, name: str, longest: int | None = None, lower: bool = False) -> None:
        from transformers import AutoTokenizer

        try:
            self.tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=False)
        except Exception as error:  # a damaged file can raise anything
            reason = one_line(error)
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
        with TOKENIZERS:
            numbers = self.tokenizer.encode(self._read(text), truncation=True, max_length=self.longest)
        return [number + 1 for number in numbers or [self.tokenizer.unk_token_id or 0]]

    def encode_all(self, captions: "Table") -> Tokens:
        """Token numbers of all sentences of a caption table, as `encode` gives them."""
        texts, unknown = [self._read(text) for text in captions["text"][:]], self.tokenizer.unk_token_id or 0
        parts = (texts[start : start + _CHUNK] for start in range(0, len(texts), _CHUNK))
        encodings = (self.tokenizer(part, truncation=True, max_length=self.longest)["input_ids"] for part in parts)
        tokens = Tokens.of(numbers or [unknown] for encoding in encodings for numbers in encoding)
        return Tokens(tokens.numbers + 1, tokens.starts)

    def read_words(self, text: str, language: str) -> Words:
        """The words of a sentence; one is unknown if a sub-word of it is."""
        words = typed_words(self._read(text), language)
        return words_of_pieces(words, self.tokenizer)._replace(cut=self.size(text) > self.longest)

    def size(self, text: str) -> int:
        """The number of sub-words of a sentence before it is cut, its marks among them."""
        with TOKENIZERS:
            return len(self.tokenizer.encode(self._read(text), verbose=False))

    def save(self, path: Path, name: str | None = None) -> None:
        """Write the model's name, or another one for it, and how it is read to one JSON file."""
        content = {"pretrained": name or self.name, "longest": self.longest, "lower": self.lower}
        path.write_text(json.dumps(content), encoding="utf-8")

    def _read(self, text: str) -> str:
        return composed(text.lower() if self.lower else text)


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
        cls, texts: Sequence[str], languages: Sequence[str], min_count: int = 4, shared: bool = True,
        by: str = CHARACTERS,
    ) -> "WordVocabulary":  # fmt: skip
        """Count the words of training sentences and keep those seen at least `min_count` times."""
        return cls.count(tokenize_all(texts, languages), languages, min_count, shared, by)

    @classmethod
    def count(
        cls, tokens: Sequence[str], languages: Sequence[str], min_count: int = 4, shared: bool = True,
        by: str = CHARACTERS,
    ) -> "WordVocabulary":  # fmt: skip
        """`build` from sentences as `tokenize` gives them."""
        words, numbers, _ = _words(tokens, languages, shared, by)
        counts = dict(zip(words, np.bincount(numbers, minlength=len(words)).tolist(), strict=True))
        frequent = (word for word, count in counts.items() if count >= min_count and word)
        return cls([SPECIALS[PADDING], SPECIALS[UNKNOWN], *sorted(frequent, key=lambda w: (-counts[w], w))], shared, by)

    def encode(self, text: str, language: str) -> list[int]:
        """Token numbers of a surface sentence, cut at `MAX_TOKENS`; an empty sentence is one unknown word."""
        words = words_of(text, language, self.by).split()[:MAX_TOKENS]
        return [self._number.get(self._key(word, language), self.UNKNOWN) for word in words] or [self.UNKNOWN]

    def read_words(self, text: str, language: str) -> Words:
        """The words of a sentence that `encode` does not cut off, and which of them are unknown."""
        words = words_of(text, language, self.by).split()

        def known(word: str) -> bool:
            """Has the vocabulary it?"""
            return self._key(word, language) in self._number

        read = words_read(words[:MAX_TOKENS], known, lambda: as_typed(text, language, words))
        return read._replace(cut=len(words) > MAX_TOKENS)

    def _key(self, word: str, language: str) -> str:
        """A word as the vocabulary names it."""
        return word if self.shared else f"{language}:{word}"

    def encode_all(self, captions: "Table") -> Tokens:
        """Token numbers of all sentences of a caption table, as `encode` gives them."""
        words, numbers, starts = _words(tokens_of(captions), captions["language"][:], self.shared, self.by)
        own = np.array([self._number.get(word, self.UNKNOWN) for word in words], np.int32)
        return Tokens(own[numbers], starts).cut(MAX_TOKENS)

    def decode(self, tokens: Sequence[int], language: str) -> str:
        """A surface sentence (lower-case, detokenised) from token numbers."""
        words = (self.words[number] for number in tokens if number > self.UNKNOWN)
        text = detokenize(" ".join(word if self.shared else word.partition(":")[2] for word in words), language)
        return joined(text) if language in UNSPACED and self.by == CHARACTERS else text

    def words_of(self, language: str) -> dict[str, int]:
        """The words of a language as they are written, and their numbers; all words if languages share them."""
        start = "" if self.shared else f"{language}:"
        own = ((word, number) for number, word in enumerate(self.words) if number > self.UNKNOWN)
        return {word.removeprefix(start): number for word, number in own if word.startswith(start)}

    def words_in_script(self, language: str) -> list[str]:
        """The words of a language without punctuation and, where languages share them, those of other scripts.

        Where a language is written without spaces, a word of another is no word of it but letters.

        Examples:
            >>> WordVocabulary(["<pad>", "<unk>", "dog", "赤", "2", "."]).words_in_script("ja")
            ['赤', '2']
        """
        return [
            word for word in self.words_of(language)
            if any(map(str.isalnum, word)) and in_its_script(word, [language])
            and (self.by != CHARACTERS or " " not in spaced(word, language))
        ]  # fmt: skip

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
            raise DataError(
                f"{path}: not a word vocabulary ({error!r}); delete its folder and run the stage vse again"
            ) from None


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
        raise DataError(
            f"{path}: not a text input ({error!r}); delete its folder and run the stage vse again"
        ) from None
    return WordVocabulary.load(path)


def tokens_of(captions: "Table") -> list[str]:
    """The sentences of a caption table as `tokenize` gives them; they are in the table, or computed."""
    if "tokens" in captions.column_names:
        tokens: list[str] = captions["tokens"][:]
        return tokens
    return tokenize_all(captions["text"][:], captions["language"][:])


def words_of_all(tokens: Sequence[str], languages: Sequence[str], by: str = CHARACTERS) -> list[str]:
    """`words_of` many sentences, from what `tokenize` gives of them."""

    def words(sentence: str, language: str) -> str:
        """Of a language that is written without spaces."""
        found = by == WORDS and language in PACKAGES
        return " ".join(segment(sentence, language)) if found else spaced(sentence, language)

    if not UNSPACED.intersection(languages):
        return list(tokens)
    return [words(*pair) for pair in zip(tokens, languages, strict=True)]


def _words(
    tokens: Sequence[str], languages: Sequence[str], shared: bool, by: str
) -> tuple[list[str], NDArray[np.int64], NDArray[np.int64]]:  # fmt: skip
    """The different words of S sentences, as a vocabulary names them, and where each sentence has which.

    Returns:
        words (of an empty sentence `""`), their numbers (T,) in all sentences, and where each sentence starts (S + 1,).
    """
    column = pa.array(words_of_all(tokens, languages, by), pa.large_string())
    lists = pc.split_pattern(column, " ")
    flat, starts = lists.flatten().dictionary_encode(), lists.offsets.to_numpy().astype(np.int64)
    words, numbers = flat.dictionary.to_pylist(), flat.indices.to_numpy().astype(np.int64)
    if shared:
        return words, numbers, starts
    codes = pa.array(languages).dictionary_encode()
    names, of_sentence = codes.dictionary.to_pylist(), codes.indices.to_numpy().astype(np.int64)
    pairs, numbers = np.unique(np.repeat(of_sentence, np.diff(starts)) * len(words) + numbers, return_inverse=True)
    own = [divmod(pair, len(words)) for pair in pairs.tolist()]
    return [words[word] and f"{names[language]}:{words[word]}" for language, word in own], numbers, starts
