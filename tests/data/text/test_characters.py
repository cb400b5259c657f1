"""Sentences of many scripts: one form of each character, small and capital letters, words, languages."""

import unicodedata
from pathlib import Path

import pytest

from data.captions.table import Caption, Pair
from data.captions.tables import columns_of
from data.corpora import Corpus
from data.text.characters import plain_characters
from data.text.language_codes import language_called
from data.text.languages import foreign_language, language_of
from data.text.sentences import normalise_sentence, sentence_hash
from data.text.text_inputs import WordVocabulary
from data.text.tokenisation import JointBPE, joined, tokenize, tokenize_all, without_each_word, words_of
from data.translators.casing import Casing

SENTENCES = {
    "ja": "左に青い箱があります。", "zh": "一只狗在海滩上跑。", "th": "ผู้ชายสองคนวิ่งบนชายหาด", "km": "បុរសពីរនាក់រត់លើឆ្នេរ",
    "lo": "ຜູ້ຊາຍສອງຄົນແລ່ນຢູ່ຫາດຊາຍ", "my": "လူနှစ်ယောက်ပြေးနေသည်", "de": "Zwei Männer laufen.",
}  # fmt: skip


@pytest.mark.parametrize("language", SENTENCES)
def test_a_translator_knows_the_words_that_it_was_trained_to_read(language: str) -> None:
    text = SENTENCES[language]
    tokens = tokenize_all([text], [language])
    bpe = JointBPE.train(tokens, 60)
    bpe.source_words = bpe.words_in(bpe.encode_tokenized(tokens))
    read = bpe.read_words(text, language)
    assert read.unknown == []
    assert read.total >= 3
    assert bpe.read_words("xyzzy", language).unknown


@pytest.mark.parametrize("language", ["th", "km", "lo", "my"])
def test_a_letter_with_its_marks_is_a_word(language: str) -> None:
    pieces = words_of(SENTENCES[language], language).split()
    assert len(pieces) > 5
    assert not any(unicodedata.category(piece[0]).startswith("M") for piece in pieces)
    assert joined(" ".join(pieces)) == tokenize(SENTENCES[language], language)
    vocabulary = WordVocabulary.build([SENTENCES[language]], [language], 1)
    assert vocabulary.decode(vocabulary.encode(SENTENCES[language], language), language) == SENTENCES[language]
    assert "".join(without_each_word(SENTENCES[language], language)[0]) == SENTENCES[language]


@pytest.mark.parametrize(
    ("written", "same", "language"),
    [
        ("\u200fكلب يجري\u200f.", "كلب يجري.", "ar"), ("can\u00adada", "canada", "en"), ("\ufeffa dog", "a dog", "en"),
        ("two\u200bdogs", "two dogs", "en"), ("❤️", "❤", "en"), ("ﾎﾞｰﾙ", "ボール", "ja"),
        ("３個 Ｔシャツ", "3個 tシャツ", "ja"),
        ("\u0e40\u0e40มว", "\u0e41มว", "th"), ("\u0ec0\u0ec0ມວ", "\u0ec1ມວ", "lo"),
        ("ก\u0e4d\u0e32ลัง", "กำลัง", "th"), ("м\u02bcяч", "м'яч", "uk"), ("كـــرة", "كرة", "ar"), ("ﬁsh", "fish", "en"),
        ("gru\u0308n", "grün", "de"), ("Ϊ\u0301", "ΐ", "el"), ("İnce", "ince", "tr"), ("IŞIKLI", "ışıklı", "tr"),
    ],
)  # fmt: skip
def test_a_word_is_one_however_it_was_typed(written: str, same: str, language: str) -> None:
    assert tokenize(written, language) == tokenize(same, language)
    assert sentence_hash(written) == sentence_hash(same)


def test_plain_characters_are_plain() -> None:
    for text in [*SENTENCES.values(), "a‌b", "नमस्ते", "👨‍👩‍👧", "，！", "ŒUVRE", "ﷺ"]:
        assert plain_characters(plain_characters(text)) == plain_characters(text)
    assert plain_characters("，！") == "，！"  # of Chinese, not of another width


def test_emoji_are_not_all_the_same_sentence() -> None:
    assert sentence_hash("🐶") != sentence_hash("🐱")
    assert normalise_sentence("A dog! 🐶") == "a dog"
    assert normalise_sentence("") == ""


def test_capital_letters_of_turkish_and_of_letters_with_accents_apart() -> None:
    casing = Casing.learn(["Bir İnce kutu", "iki Iğdır"], "tr")
    assert casing.apply("bir ince ığdır", "one") == "bir İnce Iğdır"
    assert casing.apply("iki köpek .", "Two dogs.") == "İki köpek ."
    german = Casing.learn([unicodedata.normalize("NFD", "Eine grüne Büchse")], "de")
    assert german.forms == ["Büchse", "grüne"]
    assert german.apply("eine grüne büchse .", "A green can.") == "Eine grüne Büchse ."


def test_sentences_of_a_corpus_are_composed() -> None:
    apart = unicodedata.normalize("NFD", "Eine grüne Büchse")
    caption = Caption("1", "1#0", "de", apart, "train")
    corpus = Corpus([caption], [Pair("1", None, "train", "own", {"de": apart, "en": "A can"})], {}, None, "own", "own")
    whole = "Eine grüne Büchse"
    assert corpus.captions[0].text == corpus.pairs[0].texts["de"] == whole
    assert corpus.pairs[0].texts["en"] == "A can"


def test_pretrained_tokens_are_of_composed_sentences(tmp_path: Path) -> None:
    from data.text.text_inputs import PretrainedTokens
    from tests.modules.text_models import save

    tokens = PretrainedTokens(str(save("bert", tmp_path, ["eine", "grüne", "büchse"])))
    whole = "eine grüne büchse"
    assert tokens.encode(unicodedata.normalize("NFD", whole), "de") == tokens.encode(whole, "de")


@pytest.mark.parametrize(
    ("header", "found"),
    [
        ("image,caption_ja,caption_zh-TW", "caption:ja caption:zh"), ("image,caption_zh_hant", "caption:zh"),
        ("image,English,Chinese (Simplified),Japanese", "caption:en caption:zh caption:ja"),
        ("image,caption_pt_BR", "caption:pt"), ("image,en-US,de-DE", "caption:en caption:de"),
        ("image,caption,is_gold", "caption -"), ("image,caption,raw_new", "caption -"),
    ],
)  # fmt: skip
def test_columns_of_captions_name_languages_with_regions_and_scripts(header: str, found: str) -> None:
    assert columns_of(header.split(",")) == ["picture", *found.split()]


@pytest.mark.parametrize(
    ("names", "code"),
    [
        ("jp jpn ja-JP Japanese", "ja"), ("cn chi cmn zho zh-Hant", "zh"), ("cz cze ces", "cs"), ("ger deu", "de"),
        ("fre fra", "fr"), ("gr gre ell", "el"), ("per fas", "fa"), ("ara arb", "ar"), ("ua ukr", "uk"),
    ],
)  # fmt: skip
def test_languages_are_known_by_all_their_codes(names: str, code: str) -> None:
    assert {language_called(name) for name in names.split()} == {code}


@pytest.mark.parametrize(
    ("text", "languages", "found"),
    [
        ("犬", "en ja", "ja"), ("犬", "ar ja th tr", "ja"), ("狗", "en zh", "zh"), ("꽃", "en ko", "ko"),
        ("犬", "ar cs de en es fr it ja ko pl zh", None), ("собака", "en uk de ru", None),
    ],
)  # fmt: skip
def test_a_word_is_of_a_language_of_its_script(text: str, languages: str, found: str | None) -> None:
    offered = languages.split()
    assert language_of(text, offered) in ([found] if found else {"犬": ["ja", "zh"], "собака": ["uk", "ru"]}[text])


def test_a_sentence_in_a_script_that_is_not_read_is_certainly_in_another_language() -> None:
    assert foreign_language("красный мяч", ["en", "de"], doubtful=False) == "ru"
    assert foreign_language("µ", ["en"], doubtful=False) is None
    assert foreign_language("красный мяч", ["en", "uk"], doubtful=False) is None
