"""Capital letters of translations, learned from captions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.translators.casing import Casing

CAPTIONS = ["Ein Hund fängt einen Ball.", "Zwei Hunde, ein Ball und ein T-Shirt", "Der Ball rollt", "EIN BALL", ""]


@pytest.mark.parametrize(
    ("text", "source", "expected"),
    [
        ("ein ball", "a ball", "ein Ball"),
        ("ein ball .", "A ball.", "Ein Ball ."),
        ("ball", "ball", "Ball"),
        ('" ein t-shirt "', "“A t-shirt”", '" Ein T-Shirt "'),
        ("ein hunde-ball", "a dog ball", "ein Hunde-Ball"),
        ("ein kran", "a crane", "ein kran"),
        ("ein kran in berlin", "a crane in Berlin", "ein kran in Berlin"),
        ("Ein kran", "a crane", "Ein kran"),  # written with capitals by a pretrained translator
        ("", "A ball", ""),
        ("…", "A ball", "…"),
        ("ein ball", "…", "ein Ball"),
        ("ßa", "A", "ßa"),  # its capital is two letters
        ("ein t恤的男人", "A man", "Ein t恤的男人"),
    ],
)
def test_words_are_written_as_in_the_captions(text: str, source: str, expected: str) -> None:
    assert Casing.learn(CAPTIONS).apply(text, source) == expected


def test_names_keep_their_capital_in_turkish() -> None:
    casing = Casing.learn(["Bir Irmak ve İzmir", "bir kız ile"], "tr")
    assert casing.apply("bir kız ingrid ile", "A girl with Ingrid") == "Bir kız Ingrid ile"
    assert casing.apply("ırmak ve izmir", "x") == "Irmak ve İzmir"


def test_georgian_sentences_begin_with_a_small_letter() -> None:
    assert Casing.learn(["ორი ძაღლი"], "ka").apply("ორი ძაღლი", "Two dogs") == "ორი ძაღლი"


def test_first_words_and_captions_in_capitals_teach_nothing() -> None:
    assert Casing.learn(CAPTIONS).forms == ["Ball", "Hund", "Hunde", "T-Shirt", "ein", "einen", "fängt", "rollt", "und"]
    assert Casing.learn(["ein Ball", "ein ball", "ein ball"]).forms == ["ball"]


def test_what_is_learned_is_kept_by_its_forms() -> None:
    casing = Casing.learn(CAPTIONS)
    assert Casing(casing.forms).forms == casing.forms
    assert Casing().apply("ein ball", "A ball") == "Ein ball"


@given(st.lists(st.text(max_size=12), max_size=6), st.text(max_size=20), st.text(max_size=20))
def test_casing_changes_no_more_than_the_case(captions: list[str], text: str, source: str) -> None:
    lower = text.lower()
    assert Casing.learn([*captions, f"x {text}", f"x {text.upper()}"]).apply(lower, source).lower() == lower.lower()
