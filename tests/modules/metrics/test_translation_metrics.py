"""BLEU and the ambiguity scores, against sacreBLEU itself and by hand."""

import pytest
import sacrebleu

from modules.errors import ModelError
from modules.metrics.translation import ambiguity_scores, translation_scores

REFERENCES = ["Ein Hund läuft über die grüne Wiese.", "Zwei Frauen sitzen auf einer Bank im Park."]
HYPOTHESES = ["Ein Hund rennt über die grüne Wiese.", "Zwei Frauen sitzen auf einem Stuhl im Park."]
TOKENS = ["ein hund läuft über die grüne wiese .", "zwei frauen sitzen auf einer bank im park ."]
SAID = ["ein hund rennt über die grüne wiese .", "zwei frauen sitzen auf einem stuhl im park ."]


def test_bleu_is_sacrebleus_lower_cased() -> None:
    scores = translation_scores(HYPOTHESES, REFERENCES, SAID, TOKENS)
    assert scores.sacre == pytest.approx(sacrebleu.corpus_bleu(HYPOTHESES, [REFERENCES], lowercase=True).score)
    # 1- to 4-grams found, counted by hand over both sentences; equal lengths, so no brevity penalty
    assert scores.sacre == pytest.approx(100 * (14 / 17 * 10 / 15 * 6 / 13 * 3 / 11) ** 0.25)
    assert "case:lc" in scores.signature
    assert "tok:13a" in scores.signature


def test_tokenised_bleu_takes_the_tokens_as_they_are() -> None:
    said = [f"{line} !?" for line in SAID]  # 13a would cut these apart
    scores = translation_scores(HYPOTHESES, REFERENCES, said, TOKENS)
    expected = sacrebleu.corpus_bleu(said, [TOKENS], tokenize="none", force=True)
    assert scores.tokenised == pytest.approx(expected.score)
    assert scores.tokenised != pytest.approx(sacrebleu.corpus_bleu(said, [TOKENS], force=True).score)


def test_bleu_counts_over_the_corpus_not_as_a_mean_of_sentences() -> None:
    said = ["ein hund", TOKENS[1]]
    scores = translation_scores(said, TOKENS, said, TOKENS)
    single = [sacrebleu.sentence_bleu(one, [other]).score for one, other in zip(said, TOKENS, strict=True)]
    assert scores.sacre != pytest.approx(sum(single) / 2)


def test_bleu_is_full_marks_for_the_reference_in_any_case_and_none_for_other_words() -> None:
    upper = [line.upper() for line in REFERENCES]
    assert translation_scores(upper, REFERENCES, [line.upper() for line in TOKENS], TOKENS).sacre == pytest.approx(100)
    assert translation_scores(
        REFERENCES, REFERENCES, [line.upper() for line in TOKENS], TOKENS
    ).tokenised == pytest.approx(100)
    assert translation_scores(["x y z"] * 2, REFERENCES, ["x y z"] * 2, TOKENS).sacre == 0


def test_chrf_and_ter_are_sacrebleus_lower_cased() -> None:
    scores = translation_scores([line.upper() for line in HYPOTHESES], REFERENCES, SAID, TOKENS)
    chrf = sacrebleu.CHRF(lowercase=True).corpus_score(HYPOTHESES, [REFERENCES]).score
    assert scores.chrf == pytest.approx(chrf)
    # "rennt" for "läuft", "einem Stuhl" for "einer Bank": 3 edits of 8 + 9 words, the full stops counted
    assert scores.ter == pytest.approx(100 * 3 / 17)


def test_a_language_without_spaces_is_scored_by_character() -> None:
    references, said = ["一个男人在街上骑车。", "两只狗在草地上跑。"], ["一个女人在街上骑车。", "两只狗在草地上玩。"]
    spaced = [" ".join(line) for line in said], [" ".join(line) for line in references]
    scores = translation_scores(said, references, *spaced, characters=True)
    assert scores.sacre == pytest.approx(sacrebleu.corpus_bleu(said, [references], tokenize="char").score)
    assert 50 < scores.sacre == pytest.approx(scores.tokenised)
    assert "tok:char" in scores.signature
    assert scores.ter == pytest.approx(100 * 2 / 19)  # a character of each; as words both lines are wrong
    assert translation_scores(said, references, *spaced).sacre < 5


def test_ambiguity_by_hand() -> None:
    # Two twins of "bank" (seat, money) and one of "bat": three of the four are right about the ambiguous word.
    references = ["eine rote bank links", "eine rote sparkasse links", "ein schläger oben", "ein tier oben"]
    twins = [references[1], references[0], references[3], references[2]]
    hypotheses = ["eine rote bank links", "eine rote bank links", "ein schläger unten", "ein tier tier oben"]
    words, expected = ["bank", "bank", "bat", "bat"], ["Bank", "Sparkasse", "Schläger", "Tier"]
    scores = ambiguity_scores(hypotheses, references, twins, words, expected)
    # Both references agree on eine rote links (3), again (3), ein oben (2), again (2); only "oben" is missed once.
    assert scores == pytest.approx(
        {"ambiguous": 75.0, "ambiguous:bank": 50.0, "ambiguous:bat": 100.0, "other_words": 90.0}
    )


def test_a_word_said_once_is_not_found_twice_and_parts_of_words_do_not_count() -> None:
    scores = ambiguity_scores(["die bankreihe"], ["die die bank"], ["die die sparkasse"], ["bank"], ["Bank"])
    assert scores["ambiguous"] == 0
    assert scores["other_words"] == 50


def test_the_mean_is_over_sentences_not_over_words() -> None:
    scores = ambiguity_scores(["a", "a", "a", "x"], ["a b"] * 4, ["b"] * 4, ["one", "one", "one", "two"], ["a"] * 4)
    assert scores["ambiguous"] == 75
    assert scores["ambiguous:two"] == 0


def test_lists_of_different_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="zip"):
        ambiguity_scores(["a"], ["a", "b"], ["a"], ["a"], ["a"])


def test_a_missing_reference_is_refused():
    with pytest.raises(ModelError, match="2 translations against 1 references"):
        translation_scores(["a", "b"], ["a"], ["a", "b"], ["a"])
