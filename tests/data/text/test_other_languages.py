"""Captions in a language that is not the one they are said to be in."""

import pytest

from data.captions.table import Caption
from data.corpora import Corpus
from data.errors import DataError
from data.findings import checks as findings
from data.findings.checks import find
from data.text.languages import detect_languages, foreign_language, language_evidence, language_of

ARABIC = ["كلب أحمر يركض على الشاطئ", "رجلان يلعبان كرة القدم في الحديقة", "امرأة ترتدي فستانا أحمر تمشي في الشارع"]
ENGLISH = ["a red dog runs on the beach", "two men play football in the park", "a woman in a red dress walks home"]


def told(texts: list[str], language: str) -> list[tuple[str, str, str, int]]:
    """Findings about the language of some captions."""
    captions = [Caption(str(k), f"{k}#0", language, f"{text} {k}", "train") for k, text in enumerate(texts)]
    found = [one for one in find(Corpus(captions, [], {}, None, "task", "label"), None) if "seem to be in" in one.what]
    return [(one.level, one.what, one.where, one.count) for one in found]


@pytest.mark.parametrize(
    ("texts", "language", "seems"),
    [(ARABIC, "en", "ar"), (ENGLISH, "it", "en"), (ENGLISH, "ja", "en"), (ARABIC, "de", "ar")],
)
def test_captions_wholly_in_another_language_are_an_error(texts: list[str], language: str, seems: str) -> None:
    assert told(texts * 20, language) == [
        ("error", f"sentences that seem to be in {seems!r}", f"train, {language}", 60)
    ]
    assert told(ENGLISH * 20, "en") == told(ARABIC * 20, "ar") == []


def test_a_language_that_cannot_be_told_is_left_alone() -> None:
    assert told(ENGLISH, "xx") == told(["en hund løper på stranden"], "nb") == []
    assert foreign_language("en hund løper på stranden", ["nb"], doubtful=False) is None


def test_one_caption_is_a_warning_and_short_ones_are_left_alone() -> None:
    assert told([*ENGLISH * 67, ARABIC[0]], "en") == [("warning", "sentences that seem to be in 'ar'", "train, en", 1)]
    assert told(["red truck", "ein Hund", "taxi", "hot dog"], "en") == []


def test_short_captions_are_told_where_most_are_in_another_language() -> None:
    short = ["ein Hund am Strand", "eine Frau mit Hut", "zwei Kinder im Gras", "der Mann liest"]
    assert told(short * 10, "en") == [("error", "sentences that seem to be in 'de'", "train, en", 30)]
    assert told([*ENGLISH * 10, short[0], short[2]], "en") == []


def test_of_many_captions_some_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(findings, "_READ", 20)
    assert told(ARABIC * 20, "en") == [("error", "sentences that seem to be in 'ar'", "train, en, 20 of 60", 20)]


NORWEGIAN = ["en hund løper på stranden", "to menn spiller fotball i parken", "en kvinne i rød kjole sitter på en benk"]
DANISH = ["en hund løber på stranden", "to mænd spiller fodbold i parken", "en kvinde i rød kjole sidder på en bænk"]


def test_norwegian_is_told_from_danish_by_either_of_its_codes() -> None:
    assert detect_languages(NORWEGIAN).languages == ["no"]
    assert detect_languages(DANISH).languages == ["da"]
    for code in ("nb", "no"):
        for languages in (["en", code], [code, "en"], ["de", "en", code]):
            assert {language_of(text, languages) for text in NORWEGIAN} == {code}
            assert {language_of(text, languages) for text in ENGLISH} == {"en"}
        assert language_evidence(NORWEGIAN[0], code) > 0 > language_evidence(DANISH[1], code)


def test_a_sentence_is_in_the_one_language_that_can_be_told_where_another_cannot() -> None:
    assert language_of("a dog runs on the beach", ["gsw", "en"]) == "en"
    assert language_of("a dog", ["gsw", "xx"]) == "gsw"
    with pytest.raises(DataError, match=r"Maori \(mi\) cannot be told from other languages"):
        language_evidence("he kuri", "mi")
