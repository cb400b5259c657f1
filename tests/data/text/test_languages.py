"""Which languages captions are in: all of them together decide, and what cannot be told is said."""

import pytest

from data.text.language_codes import NLLB
from data.text.languages import detect_languages, in_its_script, language_name, language_of

ENGLISH = ["a dog runs on the beach", "two children are playing in the garden", "a man in a red shirt stands there"]
GERMAN = ["ein Hund rennt am Strand", "zwei Kinder spielen im Garten", "ein Mann im roten Hemd steht dort"]
CZECH = ["pes běží po pláži", "dvě děti si hrají na zahradě", "muž v červené košili tam stojí"]


def several(captions: list[str], times: int) -> list[str]:
    """Captions that differ."""
    return [f"{caption} {number}" for number in range(times) for caption in captions]


@pytest.mark.parametrize(
    ("captions", "languages"),
    [
        (ENGLISH * 3, ["en"]), (GERMAN, ["de"]), (CZECH, ["cs"]),
        (several(ENGLISH, 2) + several(GERMAN, 1), ["en", "de"]),
        (several(ENGLISH, 1) + several(CZECH, 3), ["cs", "en"]),
        (ENGLISH + several(GERMAN, 40), ["de"]),  # a few foreign ones are no language of the corpus
        (several(ENGLISH + GERMAN, 600), ["en", "de"]),  # of many, some are read
        (["一只狗在街上跑", "两个人在说话", "一个女人在厨房里做饭"], ["zh"]),
    ],
)  # fmt: skip
def test_languages_of_captions(captions: list[str], languages: list[str]) -> None:
    found = detect_languages(captions)
    assert found.sure
    assert found.languages == languages


@pytest.mark.parametrize("languages", [["ja", "en"], ["en", "th"], ["th", "zh", "de", "en"]])
def test_a_word_of_another_script_is_read_as_one_of_a_language_with_spaces(languages: list[str]) -> None:
    assert language_of("лев", languages) in ("en", "de")
    assert language_of("лев", ["ja", "th"]) in ("ja", "th")


def test_scripts_of_japanese_count_together() -> None:
    for text in ("走る", "コーヒー", "犬とボール", "人々", "ー", "Tシャツの男"):  # of two or three
        assert in_its_script(text, ["en", "ja"]) == ["ja"]
    assert in_its_script("我の狗在草地上", ["en", "zh"]) == ["zh"]
    assert in_its_script("a犬", ["en", "ja", "ru"]) == ["en", "ja", "ru"]
    assert in_its_script("2 !", ["en", "ja"]) == ["en", "ja"]


@pytest.mark.parametrize("captions", [[], ["12", "!"], ["a photo"] * 24, ["a photo", "image"] * 100, ["IMG", "DSC"]])
def test_what_cannot_be_told_is_taken_as_english(captions: list[str]) -> None:
    assert detect_languages(captions) == (["en"], False)


def test_short_captions_are_in_one_language() -> None:
    """Single ones look Dutch, Turkish or Kurdish."""
    english = [
        f"{colour} {noun}"
        for colour in ("red", "blue", "green", "big", "small", "old", "new", "black", "white", "yellow")
        for noun in ("truck", "car", "dog", "cat", "house", "tree", "ball", "boat", "fish", "bird", "man", "horse")
    ]
    assert detect_languages(english) == (["en"], True)
    german = [
        f"{colour} {noun}"
        for colour in ("roter", "blauer", "kleiner", "großer", "alter")
        for noun in ("Ball", "Hund", "Baum", "Stern", "Fisch", "Hut", "Stein", "Stuhl", "Tisch", "Mann")
    ]
    assert detect_languages(german) == (["de"], True)


def test_each_language_that_may_be_detected_has_a_name() -> None:
    assert [code for code in NLLB if language_name(code) == code] == []
