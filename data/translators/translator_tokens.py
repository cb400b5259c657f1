"""Sub-words of pretrained translators of `transformers`: OPUS-MT (Marian), M2M100 and NLLB."""

from collections.abc import Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from typing import Any

from data.errors import DataError, one_line
from data.text.language_codes import NLLB, code_of, spellings
from data.text.reading import TOKENIZERS, Words, words_of_pieces
from data.text.tokenisation import MAX_TOKENS, tokenize, typed_words

PACKAGE = "sentencepiece"
"""What the tokenizers of Marian and M2M100 need; it is the extra `translators` of `pyproject.toml`."""
INSTALL = "`make setup EXTRA=translators` or `pip install sentencepiece`"


class TranslatorTokens:
    """Sub-words of a pretrained translator in one direction; its numbers plus 1, as 0 is padding.

    Source sentences have the marks that the translator expects: the end, and the language where it knows several.

    Args:
        name: a folder, or a name on the hub.
        direction: `en-de`.
        codes: language → the translator's code for it, where `data.text.language_codes` does not find it.
        revision: of a name on the hub.

    Attributes:
        first: number of the mark that each translation begins with, as the translator has it; None: there is none.

    Raises:
        DataError: there is no tokenizer of such a translator, a package is missing, or it does not know a language.
    """

    def __init__(
        self, name: str, direction: str, codes: Mapping[str, str] | None = None, revision: str | None = None
    ) -> None:
        self.source, self.target = direction.split("-")
        self._where = f"mmt.pretrained {name!r}"
        self.tokenizer = self._load(name, revision)
        self.first: int | None = None
        self._prefix, marks = "", list[int]()
        find = partial(code_of, chosen=codes or {}, where=self._where)
        if hasattr(self.tokenizer, "supported_language_codes"):  # Marian
            self._check_pair()
            known = self.tokenizer.encoder  # supported_language_codes is empty where vocabularies are apart
            offered = {code[2:-2]: code for code in known if code[:2] == ">>" and code[-2:] == "<<"}
            if offered:
                code = offered[find(self.target, offered)]
                self._prefix, marks = f"{code} ", [self.tokenizer.convert_tokens_to_ids(code)]
        else:
            offered = self._marks_of_languages()
            self.tokenizer.src_lang = find(self.source, offered)
            self.first = self.tokenizer.convert_tokens_to_ids(offered[find(self.target, offered)])
            marks = self.tokenizer.convert_tokens_to_ids(list(offered.values()))
        special, unknown = self.tokenizer.all_special_ids, self.tokenizer.unk_token_id
        if getattr(self.tokenizer, "separate_vocabs", False):  # translations have numbers of their own
            known = self.tokenizer.target_encoder
            marks, unknown = [], known.get(self.tokenizer.unk_token)
            special = [known[mark] for mark in self.tokenizer.all_special_tokens if mark in known]
        self._marks = {*marks, *special} - {unknown}
        self._longest = min(MAX_TOKENS, self.tokenizer.model_max_length)

    def encode_all(self, texts: Sequence[str], language: str) -> list[list[int]]:
        """Token numbers of surface sentences of the source language, cut at `MAX_TOKENS` or the model's end."""
        if not texts:
            return []
        with TOKENIZERS:
            encoding = self.tokenizer(
                [self._prefix + text for text in texts], truncation=True, max_length=self._longest
            )
        return [[number + 1 for number in numbers] for numbers in encoding["input_ids"]]

    def size(self, text: str, language: str) -> int:
        """The number of sub-words of a sentence with its marks, before it is cut; 0 for an empty one."""
        if not tokenize(text, language):
            return 0
        with TOKENIZERS:
            return len(self.tokenizer(self._prefix + text, truncation=False, verbose=False)["input_ids"])

    def read_words(self, text: str, language: str) -> Words:
        """The words of a sentence; one is unknown if a sub-word of it is."""
        words = typed_words(text, language)
        return words_of_pieces(words, self.tokenizer)._replace(cut=self.size(text, language) > self._longest)

    def decode(self, tokens: Sequence[int], language: str) -> str:
        """A surface sentence from token numbers, without marks."""
        numbers = [token - 1 for token in tokens if token - 1 not in self._marks]
        text: str = self.tokenizer.decode(numbers)
        return " ".join(text.split())

    def decode_tokens(self, tokens: Sequence[int]) -> str:
        """A Moses-tokenised lower-cased sentence of the target language from token numbers."""
        return tokenize(self.decode(tokens, self.target), self.target)

    def _load(self, name: str, revision: str | None) -> Any:
        """The tokenizer; DataError if there is none."""
        from transformers import AutoTokenizer, NllbTokenizer

        wanted: tuple[type, ...] = (NllbTokenizer,)
        if find_spec(PACKAGE) is not None:
            from transformers import M2M100Tokenizer, MarianTokenizer

            wanted = (NllbTokenizer, M2M100Tokenizer, MarianTokenizer)
        try:
            tokenizer = AutoTokenizer.from_pretrained(name, revision=revision or "main", trust_remote_code=False)
        except Exception as error:  # of many kinds, RuntimeError by sentencepiece among them
            if len(wanted) == 1 and PACKAGE in str(error):
                raise self._no_package() from None
            reason = one_line(error)
            if isinstance(error, TypeError):  # transformers opens a file that it has not found
                reason = "a file of it is missing: source.spm, target.spm, vocab.json or sentencepiece.bpe.model"
            raise DataError(f"{self._where}: no tokenizer of a translator there ({reason})") from None
        if isinstance(tokenizer, wanted):
            return tokenizer
        if len(wanted) == 1:
            raise self._no_package()
        raise DataError(f"{self._where}: its tokenizer is a {type(tokenizer).__name__}; expected that of OPUS-MT "
                        "(Marian), M2M100 or NLLB")  # fmt: skip

    def _no_package(self) -> DataError:
        return DataError(f"{self._where}: its tokenizer needs {PACKAGE}, which is not installed; run {INSTALL}")

    def _marks_of_languages(self) -> dict[str, str]:
        """The codes of M2M100 or NLLB, and the token of each."""
        if hasattr(self.tokenizer, "lang_code_to_token"):
            return dict(self.tokenizer.lang_code_to_token)
        return {token: token for token in self.tokenizer.all_special_tokens if token[3:4] == "_" and len(token) == 8}

    def _check_pair(self) -> None:
        """Refuse a direction that a Marian translator of two languages does not have, by a DataError."""
        known = {*NLLB, *(code.partition("_")[0] for code in NLLB.values())}
        own = self.tokenizer.source_lang, self.tokenizer.target_lang
        for language, mine in zip((self.source, self.target), own, strict=True):
            if mine in known and mine not in spellings(language):  # other names are of groups: `ROMANCE`
                raise DataError(f"{self._where}: translates {'-'.join(map(str, own))}, not {self.source}-{self.target};"
                                " name a model of that direction")  # fmt: skip
