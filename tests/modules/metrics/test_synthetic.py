"""Diversity of synthetic captions, and gains of own images, by hand."""

import pytest
import sacrebleu
import torch

from modules.metrics.ambiguity import Choice
from modules.metrics.incongruent_images import gains_of_own_images
from modules.metrics.synthetic import lexical_diversity


def test_words_and_copies_of_synthetic_captions_are_counted() -> None:
    human = {"1.jpg#0": ("en", "a dog"), "2.jpg#0": ("en", "a cat"), "1.jpg#1": ("de", "ein tier")}
    synthetic = {
        "1.jpg#0|mt:en-de": ("de", "ein hund"), "1.jpg#0|mt:en-de#2": ("de", "ein hund da"),
        "2.jpg#0|mt:en-de": ("de", "eine katze"), "2.jpg#0|mt:en-de-en": ("en", "a cat"),
    }  # fmt: skip
    images, parents = ["1.jpg", "1.jpg", "2.jpg", "2.jpg"], ["1.jpg#0", "1.jpg#0", "2.jpg#0", "2.jpg#0"]
    scores = lexical_diversity(human, synthetic, images, parents, "en")
    pairs = [("ein hund", "ein hund da"), ("eine katze", "a cat")]
    one_another = [
        sacrebleu.sentence_bleu(said, [wanted], tokenize="none").score
        for pair in pairs
        for said, wanted in (pair, pair[::-1])
    ]
    assert scores.pop("unique_by_language") == {"en": 3, "de": 5}
    assert scores == pytest.approx({
        "captions": 4, "unique_source": 3, "unique_synthetic": 7, "unique_with_synthetic": 8,
        "copies_of_parent": 1, "copies_of_human": 1,
        "distinct_1": 100, "distinct_2": 100, "pairwise_bleu": sum(one_another) / 4,
    })  # fmt: skip


def test_gains_of_own_images_are_of_all_sentences() -> None:
    ball = [Choice("ball", frozenset({"ball"})), Choice("a", frozenset({"ein"}))]
    to_choose = [[Choice("dog", frozenset({"hund"}))], ball]
    own = (["ein hund", "der ball"], torch.tensor([[-1.0, 2], [-2.0, 2]]))  # log-probability, tokens
    other = (["ein tier", "der platz"], torch.tensor([[-4.0, 2], [-2.0, 4]]))
    scores = gains_of_own_images({"own": own, "other": other}, ["ein hund", "ein ball"], to_choose, ["1.jpg", "2.jpg"])
    assert scores["own_ambiguous"] == pytest.approx(100 * 2 / 3)
    assert (scores["other_ambiguous"], scores["own-other_ambiguous"]) == pytest.approx((0, 100 * 2 / 3))
    assert [scores[f"{name}_loglik"] for name in ("own", "other", "own-other")] == pytest.approx([-0.75, -1, 0.25])


def test_sentences_of_an_image_are_resampled_together() -> None:
    """Each sentence twice, of the same image: figures and intervals are those of each once."""
    wanted = [f"ein hund rennt über wiese {number}" for number in range(12)]
    other = [text if number % 3 else "ein tier" for number, text in enumerate(wanted)]
    images, to_choose = [f"{number}.jpg" for number in range(12)], [[]] * 12

    def scores(times: int) -> dict[str, float]:
        """Of each sentence so many times, one behind the other."""
        likelihoods = torch.stack([-torch.arange(12.0), torch.full((12,), 5.0)], 1)
        own = wanted * times, (likelihoods + torch.tensor([1.0, 0.0])).repeat(times, 1)
        kinds = {"own": own, "other": (other * times, likelihoods.repeat(times, 1))}
        return gains_of_own_images(kinds, wanted * times, to_choose * times, images * times)

    assert scores(3) == pytest.approx(scores(1))
    assert scores(1)["own-other_bleu_low"] < scores(1)["own-other_bleu"] - 5
