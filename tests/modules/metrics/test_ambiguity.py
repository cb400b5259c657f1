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


def senses_of(translations, fillers=(), **settings):
    """Of sentences of one word, so that each translation has its share of the word's alignments."""
    pairs = [("bank", word) for word, times in translations.items() for _ in range(times)]
    pairs += [pair for *pair, times in fillers for _ in range(times)]
    source, target = zip(*(([one], [other]) for one, other in pairs), strict=True)
    return ambiguous_words(source, target, **{"least": 10, "frequent": 0} | settings).get("bank")


def test_groups_come_by_their_share_with_all_forms_that_are_not_rare():
    sitting, saving = {"sitzbank", "sitzbänke"}, {"sparkasse"}
    assert senses_of({"sitzbank": 20, "sparkasse": 30}) == (saving, {"sitzbank"})
    assert senses_of({"sitzbank": 8, "sitzbänke": 8, "sparkasse": 84}) == (saving, sitting)  # 16 of 100, 15 needed
    assert senses_of({"sparkasse": 85, "sitzbank": 15}) == (saving, {"sitzbank"})
    assert senses_of({"sparkasse": 86, "sitzbank": 14}) is None
    assert senses_of({"sitzbank": 116, "sparkasse": 80, "sitzbänke": 4}) == (sitting, saving)  # 2 % of 200
    assert senses_of({"sitzbank": 117, "sparkasse": 80, "sitzbänke": 3}) == ({"sitzbank"}, saving)
    assert senses_of({"bank": 25, "sitzbank": 40, "bankhaus": 35}) == (
        {"sitzbank", "bank"},
        {"bankhaus"},
    )  # the most first
    chain = {"sitzbank": 40, "bank": 30, "sitzplatz": 20, "sparkasse": 50}  # a form of one of the group is enough
    assert senses_of(chain) == ({"sitzbank", "bank", "sitzplatz"}, saving)


def test_words_need_occurrences_letters_and_not_to_be_frequent():
    both = {"sitzbank": 10, "sparkasse": 10}
    assert senses_of(both, least=20)
    assert senses_of(both, least=21) is None
    assert senses_of({"sitzbank": 10, ",": 10, "ab": 10}) is None
    assert "ok" not in ambiguous_words([["ok"]] * 40, [["sitzbank"], ["sparkasse"]] * 20, frequent=0)
    others = [(f"fill{chr(97 + n // 26)}{chr(97 + n % 26)}", f"wort{n}", 30) for n in range(50)]
    for times, found in ((10, 1), (9, 0)):  # by default 20 are needed
        assert len(ambiguous_words([["bank"]] * 2 * times, [["sitzbank"], ["sparkasse"]] * times, frequent=0)) == found
    assert ambiguous_words([["bank"]] * 20, [["sitzbank"], ["sparkasse"]] * 10) == {}  # among the first 50
    assert senses_of(both, others, frequent=50)
    assert senses_of(both, others, frequent=51) is None
    many = [(f"{letter}", "anderes", 15) for letter in ("eins", "zwei")]
    assert senses_of(both, many, frequent=1) is None  # the most frequent source word, not its translations
    assert senses_of(both | {"sitzbank": 12}, [("other", f"anderes{n}", 9) for n in range(5)], frequent=1) is None


def test_nothing_aligned_and_words_that_translate_nothing():
    assert ambiguous_words([], []) == {}
    assert ambiguous_words([["bank"]], [[]]) == {}
    draw = random.Random(0)
    source = [draw.sample(sorted(DICTIONARY), 2) for _ in range(400)]
    target = [[*(DICTIONARY[word][0] for word in words), "nun"] for words in source]
    assert ambiguous_words(source, target, frequent=0, iterations=20) == {}


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
    assert pairwise_bleu([["a b c d!", "a b c d !"]]) < 100  # words as they are
    three = ["a b c d", "a b c e", "f g h i"]
    assert pairwise_bleu([three]) == pytest.approx(pairwise_bleu([three[:2]]) / 3)  # two of six pairs share words
