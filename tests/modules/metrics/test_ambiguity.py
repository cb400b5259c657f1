"""Ambiguous words found in parallel text, and BLEU's statistics with what is resampled from them."""

import random

import pytest
import sacrebleu
import torch

from modules.metrics.ambiguity import Choice, ambiguous_words, choices, hits
from modules.metrics.translation import bleu_of, bleu_statistics, distinct, paired_gain, pairwise_bleu

DICTIONARY = {"bank": ["sitzbank", "sparkasse"], "big": ["große", "großer"], "river": ["fluss"], "old": ["alt"],
              "city": ["stadt"], "red": ["rot"], "dog": ["hund"], "the": ["das"], "runs": ["läuft"]}  # fmt: skip


def lexicon(**settings):
    """Of 200 sentences of four words each, their translations drawn by lot."""
    draw = random.Random(0)
    source = [draw.sample(sorted(DICTIONARY), 4) for _ in range(200)]
    target = [[draw.choice(DICTIONARY[word]) for word in sentence] for sentence in source]
    return ambiguous_words(source, target, **{"least": 10, "frequent": 0} | settings)


def test_a_word_with_two_translations_is_found_and_one_with_two_forms_is_not():
    found = lexicon()
    assert set(found["bank"]) == {frozenset({"sitzbank"}), frozenset({"sparkasse"})}
    assert "river" not in found
    assert "big" not in found  # große, großer
    assert len(found) == 1
    assert lexicon(least=150) == {}
    assert "bank" not in lexicon(share=0.8)


def test_words_of_another_script_are_no_forms_of_one_another():
    russian = {"sitzbank": "скамья", "sparkasse": "касса"}
    draw = random.Random(0)
    source = [draw.sample(sorted(DICTIONARY), 4) for _ in range(200)]
    target = [[russian.get(said := draw.choice(DICTIONARY[word]), said) for word in line] for line in source]
    found = ambiguous_words(source, target, least=10, frequent=0)
    assert set(found["bank"]) == {frozenset({"скамья"}), frozenset({"касса"})}


def test_shares_are_of_all_alignments_rare_translations_among_them():
    words = ["sitzbank"] * 100 + ["sparkasse"] * 24 + [f"wort{chr(97 + i // 26)}{chr(97 + i % 26)}" for i in range(100)]
    source, target = ([["bank"]] * len(words), [[word] for word in words])
    assert ambiguous_words(source, target, least=10, frequent=0, share=0.15) == {}  # 24 of 224
    assert "bank" in ambiguous_words(source, target, least=10, frequent=0, share=0.10)


def test_the_most_frequent_words_are_left_out():
    assert "bank" not in lexicon(frequent=9)


def test_choices_are_where_the_reference_decides():
    found = lexicon()
    source = ["the", "bank", "in", "the", "city"]
    (choice,) = choices(found, source, ["die", "sparkasse", "in", "der", "stadt"])
    assert choice == Choice("bank", frozenset({"sparkasse"}))
    assert choices(found, source, ["die", "bank", "in", "der", "stadt"]) == []
    assert choices(found, source, ["die", "sparkasse", "an", "der", "sitzbank"]) == []
    assert hits([choice], ["eine", "sparkasse"]) == 1
    assert hits([choice], ["eine", "sitzbank"]) == 0


def test_statistics_add_up_to_sacrebleus_score():
    said = ["a dog runs over the green meadow", "two women sit on a chair in the park", "Nothing alike"]
    human = ["a dog runs across the green meadow today", "two women sit on a bench in the park", "other words here"]
    statistics = bleu_statistics(said, human)
    expected = sacrebleu.corpus_bleu(said, [human], lowercase=True, tokenize="none", force=True).score
    assert float(bleu_of(statistics.sum(0))) == pytest.approx(expected)
    assert bleu_of(bleu_statistics(["x y"], ["a b"]).sum(0)) == 0
    few = (["a b x y z"], ["a b c d e"])  # no 3-gram: smoothed
    expected = sacrebleu.corpus_bleu(few[0], [few[1]], lowercase=True, tokenize="none", force=True).score
    assert float(bleu_of(bleu_statistics(*few).sum(0))) == pytest.approx(expected)


def test_a_paired_gain_holds_what_differs_and_not_what_is_hard():
    torch.manual_seed(0)
    hard = torch.rand(400, 1, dtype=torch.float64) * 100
    rate = lambda sums: sums[..., 0] / sums[..., 1]  # noqa: E731
    count = torch.ones(400, 1, dtype=torch.float64)
    base, better = torch.cat([hard, count], 1), torch.cat([hard + 1 + torch.rand(400, 1), count], 1)
    gain = paired_gain(better, base, rate)
    assert gain.value == pytest.approx(float((better - base)[:, 0].mean()))
    assert gain.low < gain.value < gain.high < gain.low + 0.2  # hard ones differ by 100, the gain by 1
    assert gain.p_value < 0.01
    same = paired_gain(base, base, rate)
    assert (same.value, same.low, same.high, same.p_value) == (0, 0, 0, 1)


def test_distinct_and_pairwise_bleu_by_hand():
    found = distinct(["a b a", "a b"])
    assert found == pytest.approx({"distinct_1": 100 * 2 / 5, "distinct_2": 100 * 2 / 3})
    assert pairwise_bleu([["a b c d e", "a b c d e"], ["x y"]]) == pytest.approx(100)
    assert pairwise_bleu([["x y"]]) == 0
    three = ["a b c d", "a b c e", "f g h i"]
    assert pairwise_bleu([three]) == pytest.approx(pairwise_bleu([three[:2]]) / 3)  # two of six pairs share words
