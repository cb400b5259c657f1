"""Content words: which words name something, and which of them most sentences have."""

import pytest

from data.text.function_words import FUNCTION_WORDS, frequent_content_words, is_content_word
from data.text.tokenisation import CHARACTERS, WORDS, without_each_word


def test_function_words_and_signs_are_no_content_words() -> None:
    words = ["Ein", "großer", "Ball,", "und", "die", "Fledermaus", "."]
    assert [word for word in words if is_content_word(word, "de")] == ["großer", "Ball,", "Fledermaus"]
    assert not is_content_word("The", "en")
    assert not is_content_word("…", "en")
    assert not is_content_word("3", "en")
    assert is_content_word("the", "pl")  # of this language no function words are known
    assert all(word == word.lower() and word.isalpha() for words in FUNCTION_WORDS.values() for word in words)


def test_words_of_many_sentences_come_first_each_sentence_counting_once() -> None:
    texts = ["a bat, a bat, a bat", "a ball and a box", "The box and the ball"]
    assert frequent_content_words(texts, "en", 9) == ["ball", "box", "bat"]
    assert frequent_content_words(texts, "en", 2) == ["ball", "box"]
    assert frequent_content_words([], "en", 2) == []


def test_a_sentence_without_each_of_its_words() -> None:
    assert without_each_word("a  red Bat.", "en") == (["a", "red", "Bat."], ["red Bat.", "a Bat.", "a red"])
    assert without_each_word("赤い 球", "ja") == (["赤", "い", "球"], ["い球", "赤球", "赤い"])
    assert without_each_word("赤いLED", "ja") == (["赤", "い", "LED"], ["いLED", "赤LED", "赤い"])
    assert without_each_word("bat", "en") == (["bat"], [""])
    assert without_each_word(" ", "en") == ([], [])


def test_words_of_chinese_are_left_out_whole_where_the_model_reads_words() -> None:
    pytest.importorskip("rjieba")
    assert without_each_word("公园里 的自行车", "zh", WORDS)[0] == ["公园", "里", "的", "自行车"]
    assert without_each_word("公园 里", "zh", CHARACTERS)[0] == ["公", "园", "里"]
    assert without_each_word("two dogs", "en", WORDS)[0] == ["two", "dogs"]
