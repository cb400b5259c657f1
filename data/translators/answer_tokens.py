"""Sub-words of vision-language models of `transformers` (`modules.translators.image_text`)."""

from collections.abc import Sequence
from typing import Any

from data.text.reading import Words, words_of_pieces
from data.text.tokenisation import MAX_TOKENS, tokenize, typed_words


class AnswerTokens:
    """Sub-words of a vision-language model that answers in one language; its numbers plus 1, as 0 is padding.

    Marks of its tokenizer (the picture's, the end …) are left out of sentences and answers.

    Args:
        tokenizer: of the library.
        target: language of the answers, `de`.
    """

    def __init__(self, tokenizer: Any, target: str) -> None:
        self.tokenizer, self.target = tokenizer, target

    def encode_all(self, texts: Sequence[str], language: str) -> list[list[int]]:
        """Token numbers of surface sentences, cut at `MAX_TOKENS`; an empty one is a mark alone."""
        mark = self.tokenizer.all_special_ids[0]
        return [[number + 1 for number in self._numbers(text)[:MAX_TOKENS] or [mark]] for text in texts]

    def size(self, text: str, language: str) -> int:
        """The number of sub-words of a sentence before it is cut; 0 for an empty one."""
        return len(self._numbers(text)) if tokenize(text, language) else 0

    def read_words(self, text: str, language: str) -> Words:
        """The words of a sentence; one is unknown if a sub-word of it is."""
        words = typed_words(text, language)
        return words_of_pieces(words, self.tokenizer)._replace(cut=self.size(text, language) > MAX_TOKENS)

    def decode(self, tokens: Sequence[int], language: str) -> str:
        """An answer in one line."""
        text: str = self.tokenizer.decode([token - 1 for token in tokens], skip_special_tokens=True)
        return " ".join(text.split())

    def decode_tokens(self, tokens: Sequence[int]) -> str:
        """A Moses-tokenised lower-cased sentence of the target language from token numbers."""
        return tokenize(self.decode(tokens, self.target), self.target)

    def _numbers(self, text: str) -> list[int]:
        numbers: list[int] = self.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        return numbers
