"""How a sentence is read: unknown words of each kind of vocabulary, and the language that it is in."""

from pathlib import Path

import pytest
from transformers import AutoTokenizer

from data.text.languages import foreign_language
from data.text.reading import reading_of
from data.text.text_inputs import PretrainedTokens, WordVocabulary
from data.text.tokenisation import MAX_TOKENS, JointBPE, tokenize
from data.translators.answer_tokens import AnswerTokens
from data.translators.translator_tokens import TranslatorTokens
from tests.modules.text_models import save
from tests.modules.translation_models import save_nllb

WORDS = ["<pad>", "<unk>", "a", "dog", "ein", "am", "on", "the", "beach"]
ENGLISH = ["a big dog runs on the beach", "two dogs play in the snow", "a small ball", "the dog jumps over the ball"]
GERMAN = ["ein großer hund rennt am strand", "zwei hunde spielen im schnee", "ein kleiner ball", "der hund springt"]


@pytest.mark.parametrize(
    ("text", "total", "unknown"),
    [
        ("A dog on the beach!", 5, []), ("ein Hund am Strand", 4, ["Hund", "Strand"]), ("", 0, []),
        ("qwertz UIOP", 2, ["qwertz", "UIOP"]), ("🐕 dog", 2, ["🐕"]), ("!?", 2, ["!", "?"]),
        ("dog, dog; Katze", 3, ["Katze"]), ("dog " * 99 + "Katze Katze", 100, ["Katze"]),
    ],
)  # fmt: skip
def test_words_that_a_vocabulary_does_not_hold_are_named_as_they_are_typed(
    text: str, total: int, unknown: list[str]
) -> None:
    vocabulary = WordVocabulary(WORDS)
    read = vocabulary.read_words(text, "en")
    assert (read.total, read.unknown, read.telling) == (total, unknown, True)
    assert vocabulary.encode(text, "en").count(vocabulary.UNKNOWN) >= len(unknown)


def test_each_language_has_its_own_words_and_chinese_characters_are_words() -> None:
    vocabulary = WordVocabulary(["<pad>", "<unk>", "en:dog", "de:hund", "zh:狗"], shared=False)
    assert vocabulary.read_words("dog hund", "en").unknown == ["hund"]
    assert vocabulary.read_words("dog hund", "de").unknown == ["dog"]
    assert vocabulary.read_words("狗跑", "zh").unknown == ["跑"]


def test_sub_words_read_every_word_but_those_with_an_unknown_piece(tmp_path: Path) -> None:
    tokens = PretrainedTokens(str(save("bert", tmp_path / "bert")), lower=True)
    assert tokens.read_words("a RED dog", "en") == (3, [], False, False)
    assert tokens.read_words("a qwertz dog", "en") == (3, ["qwertz"], False, False)
    assert tokens.read_words("a dog " * tokens.longest, "en").cut
    nllb = TranslatorTokens(str(save_nllb(tmp_path / "nllb", ["a red dog"])), "en-de")
    assert nllb.read_words("a red dog", "en") == (3, [], False, False)
    assert nllb.read_words("a 犬", "en").unknown == ["犬"]
    assert tokens.read_words("a犬 DOG 象", "zh") == (4, ["犬", "象"], False, False)  # no spaces between words
    assert nllb.read_words("犬a象", "ja") == (3, ["犬", "象"], False, False)


def test_a_translator_knows_the_words_of_its_sentences_and_those_made_of_their_parts(tmp_path: Path) -> None:
    bpe = JointBPE.train([tokenize(text, "en") for text in ENGLISH + GERMAN], 160)
    assert bpe.read_words("zwei Hunde", "en").unknown == []  # nobody wrote down what it reads
    assert bpe.read_words("qwertz uiop", "en") == (2, ["qwertz", "uiop"], False, False)
    bpe.source_words = frozenset(" ".join(tokenize(text, "en") for text in ENGLISH).split())
    del bpe._long_pieces
    assert bpe.read_words("A dog plays on the BEACH", "en").unknown == []
    assert bpe.read_words("zwei Hunde im snow", "en") == (4, ["zwei", "Hunde", "im"], True, False)
    assert bpe.read_words("Beachdog 犬dog", "en").unknown == ["犬"]


def test_each_translator_says_that_a_sentence_is_longer_than_what_it_reads(tmp_path: Path) -> None:
    nllb = TranslatorTokens(str(save_nllb(tmp_path / "nllb", ["a red dog"])), "en-de")
    for bpe in (JointBPE.train([tokenize(text, "en") for text in ENGLISH], 160), nllb,
                AnswerTokens(AutoTokenizer.from_pretrained(save("bert", tmp_path / "bert")), "de")):  # fmt: skip
        longest = next(count for count in range(1, 200) if bpe.size("a " * count, "en") >= MAX_TOKENS)
        assert not bpe.read_words("a " * longest, "en").cut
        read = bpe.read_words("a " * (longest + 1), "en")
        assert read.cut
        note = reading_of("a", read, ["en"], "en", reader="translator").note
        assert note.endswith("this is too long: the translator reads only its beginning")


@pytest.mark.parametrize(
    ("text", "languages", "doubtful", "language"),
    [
        ("ein Hund am Strand", ["en"], True, "de"), ("ein Hund am Strand", ["en", "de"], True, None),
        ("zwei Hunde spielen im Schnee", ["en"], False, "de"),
        ("un chien court sur la plage", ["en", "de"], True, "fr"),
        ("كلب أحمر", ["en"], False, "ar"), ("a dog with a frisbee", ["en"], True, None),
        ("qwertz uiop", ["en"], True, None), ("red truck", ["en"], True, None), ("Hund", ["en"], True, None),
        ("12 !", ["en"], True, None), ("", ["en"], True, None),
    ],
)  # fmt: skip
def test_a_language_is_named_only_where_it_is_certain(
    text: str, languages: list[str], doubtful: bool, language: str | None
) -> None:
    assert foreign_language(text, languages, doubtful) == language


@pytest.mark.parametrize(
    ("text", "languages", "language", "note"),
    [
        ("A dog.", ["en"], "en", ""),
        ("the dog qwertz", ["en"], "en", "1 of 3 words unknown: qwertz; this model reads English"),
        ("qwertz uiop", ["en", "fr", "cs"], None,
         "2 of 2 words unknown: qwertz, uiop; this model reads English, French and Czech"),
        ("ein Hund am Strand", ["en"], "de",
         "2 of 4 words unknown: Hund, Strand; this looks like German; this model reads English"),
        ("on the " + "x" * 99, ["en"], "en", f"1 of 3 words unknown: {'x' * 30}…; this model reads English"),
    ],
)  # fmt: skip
def test_one_line_says_what_is_not_read(text: str, languages: list[str], language: str | None, note: str) -> None:
    words = WordVocabulary(WORDS).read_words(text, "en")
    reading = reading_of(text, words, languages, "en")
    assert (reading.language, reading.note, reading.read_as) == (language, note, "en")
    assert reading.known == (language is not None)
    assert reading.certain == (not note)
    assert reading_of(text, words, languages, "en", guessed=False).language == "en"
    assert len(reading_of("", WordVocabulary(WORDS).read_words("b c d e f g h i j k", "en"), ["en"], "en").note) < 80


def test_where_sub_words_spell_any_word_only_identification_tells(tmp_path: Path) -> None:
    tokens = PretrainedTokens(str(save("bert", tmp_path / "bert")))
    text = "un chien court sur la plage"
    words = tokens.read_words(text, "en")._replace(unknown=[])
    assert reading_of(text, words, ["en"], "en").note == "this looks like French; this model reads English"
    assert reading_of("dog", words, ["en"], "en").note == ""
