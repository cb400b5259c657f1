"""Text to numbers and back: Moses, BPE and words; what is rare, long, empty, unknown or damaged."""

import json
import random
import unicodedata

import pytest

from data.errors import DataError
from data.text.text_inputs import WordVocabulary
from data.text.tokenisation import (
    BEGIN,
    END,
    MAX_TOKENS,
    PADDING,
    SPECIALS,
    UNKNOWN,
    JointBPE,
    detokenize,
    mean_by_word,
    plain_words,
    tokenize,
    words_of,
)

GERMAN = [
    "Zwei junge Männer hören draußen Musik.", "Eine Frau trägt eine grüne Mütze und läuft über die Straße.",
    "Ein großer Hund springt über den Zaun, um einen Ball zu fangen.", "Drei Kinder spielen im Müll.",
]  # fmt: skip
ENGLISH = [
    "Two young men listen to music outside.", "A woman in a green cap is walking across the street.",
    "A big dog jumps over the fence, to catch a ball.", "Three kids don't play in the rubbish.",
]  # fmt: skip


def both() -> list[str]:
    return [tokenize(text, "de") for text in GERMAN] + [tokenize(text, "en") for text in ENGLISH]


@pytest.fixture(scope="module")
def bpe() -> JointBPE:
    return JointBPE.train(both(), 150)


def test_moses_splits_punctuation_and_clitics_and_lower_cases() -> None:
    assert tokenize("Die Männer, die HÖREN.", "de") == "die männer , die hören ."
    assert tokenize("The dog doesn't bark & A<B", "en") == "the dog doesn 't bark & a < b"
    assert tokenize("„Straße“ – T-Shirt", "de") == '" straße " - t-shirt'
    assert tokenize("", "de") == ""


@pytest.mark.parametrize(("texts", "language"), [(GERMAN, "de"), (ENGLISH, "en")])
def test_detokenising_undoes_moses(texts: list[str], language: str) -> None:
    for text in texts:
        assert detokenize(tokenize(text, language), language) == text.lower()


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("th", "ผู้ชายกำลังโยนลูกบอล นี่ สนุก"), ("my", "လူတစ်ယောက်ဘောလုံးပစ်နေသည်။"),
        ("hi", "एक आदमी गेंद फेंक रहा है।"), ("bn", "একজন লোক বল ছুঁড়ছে।"), ("fa", "مردی می‌دود؛ خوب است؟"),
        ("ar", "رجل يرمي كرة، ثم يضحك."), ("zh", "一个人在跑步，真的？"), ("ja", "男の人が走っている、本当？"),
    ],
)  # fmt: skip
def test_other_scripts_keep_their_signs_and_spaces(language: str, text: str) -> None:
    assert detokenize(tokenize(text, language), language) == text


@pytest.mark.parametrize(("texts", "language"), [(GERMAN, "de"), (ENGLISH, "en")])
def test_bpe_there_and_back(bpe: JointBPE, texts: list[str], language: str) -> None:
    for text, numbers in zip(texts, bpe.encode_all(texts, language), strict=True):
        assert bpe.decode(numbers, language) == text.lower()
        assert bpe.decode_tokens(numbers) == tokenize(text, language)
        assert not {PADDING, BEGIN, END, UNKNOWN} & set(numbers)


def test_bpe_learns_sub_words_of_both_languages(bpe: JointBPE) -> None:
    assert len(bpe) == 150
    (numbers,) = bpe.encode_all(["eine Mütze outside"], "de")
    assert 3 < len(numbers) < len("eine Mütze outside")
    (unseen,) = bpe.encode_all(["Hundeball"], "de")  # never seen whole, spelt from parts
    assert bpe.decode(unseen, "de") == "hundeball"


def test_a_character_never_seen_is_unknown_and_the_rest_survives(bpe: JointBPE) -> None:
    (numbers,) = bpe.encode_all(["ein 犬 hund"], "de")
    assert UNKNOWN in numbers
    assert bpe.decode(numbers, "de").split()[0] == "ein"
    assert bpe.decode(numbers, "de").split()[-1] == "hund"


def test_text_that_looks_like_a_special_token_is_only_text(bpe: JointBPE) -> None:
    (numbers,) = bpe.encode_all(["</s> a <pad> b <s>"], "en")
    assert not {PADDING, BEGIN, END} & set(numbers)


def test_bpe_cuts_long_sentences_and_keeps_empty_ones(bpe: JointBPE) -> None:
    texts = ["hund " * (2 * MAX_TOKENS), "", "  "]
    long, empty, blank = bpe.encode_all(texts, "de")
    assert len(long) == MAX_TOKENS == 100
    assert empty == blank == [UNKNOWN]


def test_bpe_training_twice_gives_the_same_and_order_does_not_matter(bpe: JointBPE, tmp_path) -> None:
    again = JointBPE.train(both(), 150)
    again.save(tmp_path / "again.json")
    bpe.save(tmp_path / "once.json")
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "once.json").read_bytes()
    shuffled = both()
    random.Random(0).shuffle(shuffled)
    JointBPE.train(shuffled, 150).save(tmp_path / "shuffled.json")
    assert (tmp_path / "shuffled.json").read_bytes() == (tmp_path / "once.json").read_bytes()


def test_bpe_is_saved_and_loaded(bpe: JointBPE, tmp_path) -> None:
    path = tmp_path / "bpe.json"
    bpe.save(path)
    loaded = JointBPE.load(path)
    assert len(loaded) == len(bpe)
    assert loaded.encode_all(GERMAN, "de") == bpe.encode_all(GERMAN, "de")
    assert loaded.decode(loaded.encode_all(GERMAN, "de")[1], "de") == GERMAN[1].lower()


def test_bpe_names_the_file_that_is_missing_or_damaged(bpe: JointBPE, tmp_path) -> None:
    path = tmp_path / "bpe.json"
    with pytest.raises(DataError, match=r"bpe\.json: no such file; the stage mmt writes it"):
        JointBPE.load(path)
    bpe.save(path)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DataError, match=r"bpe\.json: not a BPE vocabulary"):
        JointBPE.load(path)
    bpe.save(path)
    path.write_text(path.read_text().replace("</s>", "<end>"))
    with pytest.raises(DataError, match=r"bpe\.json: its first entries are not <pad>"):
        JointBPE.load(path)


def words(shared: bool = True, min_count: int = 4) -> WordVocabulary:
    texts = ["Hand hand HAND hand.", "rare rare rare", "Hand Hand", "hand mann mann mann mann"]
    return WordVocabulary.build(texts, ["en", "en", "de", "de"], min_count, shared)


def test_words_seen_fewer_than_four_times_are_unknown() -> None:
    vocabulary = words()
    assert vocabulary.words == ["<pad>", "<unk>", "hand", "mann"]
    assert vocabulary.encode("Mann rare Hand never", "de") == [3, 1, 2, 1]
    assert words(min_count=3).words == ["<pad>", "<unk>", "hand", "mann", "rare"]
    assert len(vocabulary) == 4


def test_words_are_shared_by_languages_or_not() -> None:
    assert words().encode("hand", "de") == words().encode("hand", "en") == [2]
    apart = words(shared=False)  # de:hand is seen three times only
    assert apart.words == ["<pad>", "<unk>", "de:mann", "en:hand"]
    assert apart.encode("hand mann", "de") == [1, 2]
    assert apart.encode("hand mann", "en") == [3, 1]


def test_words_do_not_depend_on_the_order_of_sentences() -> None:
    texts = both() * 4
    shuffled = random.Random(0).sample(texts, len(texts))
    languages = ["de"] * len(texts)
    assert WordVocabulary.build(texts, languages).words == WordVocabulary.build(shuffled, languages).words


def test_words_cut_long_sentences_and_keep_empty_ones() -> None:
    assert words().encode("hand " * (2 * MAX_TOKENS), "en") == [2] * MAX_TOKENS
    assert words().encode("", "en") == words().encode(" \n", "de") == [1]


@pytest.mark.parametrize("shared", [True, False])
def test_words_are_saved_and_loaded(shared: bool, tmp_path) -> None:
    vocabulary = WordVocabulary.build([*GERMAN, *ENGLISH], ["de"] * 4 + ["en"] * 4, 1, shared)
    vocabulary.save(tmp_path / "words.json")
    loaded = WordVocabulary.load(tmp_path / "words.json")
    assert loaded.words == vocabulary.words
    assert loaded.shared is shared
    assert loaded.encode(GERMAN[1], "de") == vocabulary.encode(GERMAN[1], "de")
    assert 1 not in loaded.encode(GERMAN[1], "de")


@pytest.mark.parametrize(
    "content",
    [
        "",
        '{"words": [',
        "[]",
        '{"shared": true}',
        '{"shared": true, "words": 3}',
        '{"shared": true, "words": ["hund"]}',
    ],
)
def test_words_name_the_file_that_is_damaged(content: str, tmp_path) -> None:
    path = tmp_path / "words.json"
    path.write_text(content)
    with pytest.raises(DataError, match=r"words\.json: not a word vocabulary"):
        WordVocabulary.load(path)
    with pytest.raises(DataError, match=r"none\.json: not a word vocabulary"):
        WordVocabulary.load(tmp_path / "none.json")


def test_saved_words_are_readable(tmp_path) -> None:
    vocabulary = WordVocabulary([*SPECIALS[:1], SPECIALS[UNKNOWN], "männer"])
    vocabulary.save(tmp_path / "words.json")
    assert json.loads((tmp_path / "words.json").read_text(encoding="utf-8"))["words"][2] == "männer"
    assert "männer" in (tmp_path / "words.json").read_text(encoding="utf-8")


def test_accents_are_read_alike_however_they_are_written(bpe: JointBPE) -> None:
    text = "Zwei Männer hören Musik über Kopfhörer."
    apart = unicodedata.normalize("NFD", text)
    assert apart != text
    assert tokenize(apart, "de") == tokenize(text, "de") == "zwei männer hören musik über kopfhörer ."
    assert bpe.encode_all([apart], "de") == bpe.encode_all([text], "de")


@pytest.mark.parametrize(
    ("tokens", "text"),
    [
        ("4 muži a 5 psů stojí u čísla 7 .", "4 muži a 5 psů stojí u čísla 7."),
        ("hráč má dres číslo 28 .", "hráč má dres číslo 28."),
        ("napiš e' - mail .", "napiš e' - mail."),
    ],
)
def test_czech_numbers_stay_apart_from_the_word_before_them(tokens: str, text: str) -> None:
    assert detokenize(tokens, "cs") == text


@pytest.mark.parametrize("text", ["The sign says 'Maritimo.'", "He calls it ` a motorcycle .`", "'No.'"])
def test_tokens_have_one_space_between_them(text: str) -> None:
    assert tokenize(text, "en") == " ".join(tokenize(text, "en").split())


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("istanbul'da bir kedi var.", "tr"), ("istanbul'da 'dur' yazıyor.", "tr"), ("levhada 'dur' yazıyor.", "tr"),
        ("м'яч лежить.", "uk"), ("напис 'стоп' тут.", "uk"), ("м'яч і п'ять 'слів'.", "uk"),
        ("l'home és a l'esquerra.", "ca"), ("diu 'stop' i prou.", "ca"),
        ("גבר בג'ינס וג'קט.", "he"), ("שלט 'עצור' כאן.", "he"), ('חייל צה"ל ליד צ׳יפס וצה״ל.', "he"),
        ('הוא "טוב".', "he"),
        ("ng'ombe na ng'ombe.", "sw"), ("d'kand an d'mamm.", "lb"), ("s'ka qen, 'po'.", "sq"), ("m'ap kouri.", "ht"),
        ("foto's van baby's en zo'n hond.", "nl"), ("'s avonds een 'rood' licht.", "nl"), ("d'fhear an t-uisce.", "ga"),
        ("'n man en 'n hond se foto's.", "af"), ("'n bord met 'stop' daarop.", "af"), ("མི་ཞིག་རྒྱུག་གོ།", "bo"),
        ("یہ سرخ ہے۔", "ur"), ("ቀይ ነው።", "am"),
    ],
)  # fmt: skip
def test_apostrophes_inside_words_and_full_stops_are_joined_again(text: str, language: str) -> None:
    assert detokenize(tokenize(text, language), language) == text


def test_where_a_line_of_thai_may_end_is_no_space() -> None:
    assert tokenize("วงกลม\u200bสีแดง", "th") == tokenize("วงกลมสีแดง", "th")


def test_words_are_characters_where_no_spaces_are_written() -> None:
    assert words_of("两只狗看 TV!", "zh") == "两 只 狗 看 tv !"
    assert words_of("Zwei Hunde, im Park", "de") == tokenize("Zwei Hunde, im Park", "de")


@pytest.mark.parametrize(("language", "text", "other"), [
    ("zh", "一个男人在街上骑自行车。", "一个女人骑车。"), ("ja", "犬が草の上を走っている。", "犬が走る。"),
    ("th", "สุนัขวิ่งบนหญ้า", "สุนัขวิ่ง"),
])  # fmt: skip
def test_languages_without_spaces_are_read_by_character(language: str, text: str, other: str) -> None:
    vocabulary = WordVocabulary.build([text], [language], min_count=1)
    known = vocabulary.encode(other, language)
    assert len(known) >= 5
    assert sum(number != vocabulary.UNKNOWN for number in known) > len(known) / 2
    assert len(vocabulary.encode("USB 2000", language)) == 2


def test_plain_words_are_those_of_surface_text_and_of_moses_tokens_without_signs() -> None:
    for text in ("A man's T-Shirt, don't you \"see\"?", "Ein  Mann (grün)."):
        assert plain_words(text, "en") == plain_words(tokenize(text, "en"), "en")
    assert plain_words("Ein  Mann (grün).", "de") == ["ein", "mann", "grün"]
    assert plain_words("一只狗，在跑。", "zh") == list("一只狗在跑")
    assert plain_words("…", "en") == []


def test_sub_words_are_put_together_with_the_mean_of_their_weights() -> None:
    (first, one), (second, other) = mean_by_word(["▁ein", "▁hu", "nd"], [[1, 0, 0], [0, 1, 0], [0, 0, 1]])
    assert (first, second) == ("ein", "hund")
    assert one.tolist() == [1, 0, 0]
    assert other.tolist() == pytest.approx([0, 0.5, 0.5])
