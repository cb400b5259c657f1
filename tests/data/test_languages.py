"""Which languages sentences are in."""

from data.languages import languages_in

ENGLISH = ["A dog runs.", "two men on the street", "a red bat and a small ball", "A woman is reading", "Cats",
           "a big yellow tree on the right and a small green bow in the middle"]  # fmt: skip
GERMAN = ["Ein Hund rennt.", "zwei Männer auf der Straße", "ein kleiner Ball liegt auf dem Tisch", "Eine Frau liest"]


def test_one_language_is_found_though_single_sentences_look_like_others() -> None:
    assert languages_in(ENGLISH * 3) == ["en"]
    assert languages_in(GERMAN) == ["de"]
    assert languages_in([]) == languages_in(["12", "!"]) == []


def test_several_languages_are_found_the_most_frequent_first() -> None:
    assert languages_in(ENGLISH * 2 + GERMAN * 2) == ["en", "de"]
    assert languages_in(ENGLISH + GERMAN * 40) == ["de"]  # a few foreign ones are no language of the corpus
    assert languages_in((ENGLISH + GERMAN) * 300) == ["en", "de"]  # of many, some are read
    assert "zh" in languages_in(["一只狗在街上跑", "两个人在说话"])
