"""Scores of captions against sacreBLEU's own BLEU-n and CIDEr-D; what is left out; baselines."""

import numpy as np
import pytest
import torch
from sacrebleu.metrics.bleu import BLEU

from modules.errors import ModelError
from modules.metrics.captions import caption_scores, most_frequent_caption, nearest_images
from modules.metrics.cider import CiderD, document_frequencies
from modules.metrics.intervals import mean_interval
from tests.modules.metrics.slow_cider import made_up

CAPTIONS, REFERENCES = made_up(2, 30, words=6)
METRIC = CiderD(REFERENCES, document_frequencies(made_up(3, 20, words=6)[1]))


def bleu(captions: list[list[str]], references: list[list[list[str]]], n: int) -> float:
    """sacreBLEU of this order, each caption with references of its own."""
    most = max(map(len, references))
    streams = [[" ".join(one[k]) if k < len(one) else None for one in references] for k in range(most)]
    metric = BLEU(max_ngram_order=n, tokenize="none", force=True)
    return metric.corpus_score([" ".join(one) for one in captions], streams).score


def test_bleu_is_of_all_captions_together_and_cider_of_each() -> None:
    found = caption_scores(CAPTIONS, METRIC, range(30))
    assert found.bleu == pytest.approx([bleu(CAPTIONS, REFERENCES, n) for n in (1, 2, 3, 4)])
    assert found.bleu[0] > found.bleu[3] > 5
    np.testing.assert_allclose(found.cider, 100 * METRIC.score(CAPTIONS, range(30)))
    figures = found.figures()
    assert list(figures) == ["bleu1", "bleu2", "bleu3", "bleu4", "cider"]
    assert figures["cider"] == pytest.approx(found.cider.mean())


def test_a_caption_of_the_image_is_not_compared_with_itself() -> None:
    several = [row for row, of_image in enumerate(REFERENCES) if len(of_image) > 2]
    own = [REFERENCES[row][1] for row in several]
    others = [[REFERENCES[row][0], *REFERENCES[row][2:]] for row in several]
    found = caption_scores(own, METRIC, several, [1] * len(several))
    assert found.bleu == pytest.approx([bleu(own, others, n) for n in (1, 2, 3, 4)])
    expected = CiderD(others, METRIC.frequencies).score(own, range(len(several)))
    np.testing.assert_allclose(found.cider, 100 * expected)
    assert caption_scores(own, METRIC, several).bleu == pytest.approx([100] * 4)


def test_an_empty_generated_caption_scores_nothing_and_breaks_nothing() -> None:
    found = caption_scores([[], *CAPTIONS[1:]], METRIC, range(30))
    assert found.cider[0] == 0
    np.testing.assert_array_equal(found.cider[1:], caption_scores(CAPTIONS, METRIC, range(30)).cider[1:])
    assert caption_scores([[]], METRIC, [0]).figures() == dict.fromkeys(
        ("bleu1", "bleu2", "bleu3", "bleu4", "cider"), 0
    )


def test_the_most_frequent_caption_is_the_first_of_several() -> None:
    assert most_frequent_caption([["a"], ["b", "c"], ["b", "c"], ["a"], ["d"]]) == ["a"]


def test_the_nearest_image_has_the_highest_cosine() -> None:
    torch.manual_seed(0)
    images, training = torch.randn(9, 5), torch.randn(40, 5) * torch.rand(40, 1) * 9
    cosines = torch.nn.functional.cosine_similarity(images[:, None], training[None], dim=2)
    assert torch.equal(nearest_images(images.half(), training), cosines.argmax(dim=1))


def test_bad_input_is_one_line() -> None:
    with pytest.raises(ModelError, match="no caption to score"):
        caption_scores([], METRIC, [])
    with pytest.raises(ModelError, match="no reference but the one that is left out"):
        caption_scores([["a"]], CiderD([[["a"]]]), [0], [0])
    with pytest.raises(ModelError, match="no caption to count"):
        most_frequent_caption([])
    with pytest.raises(ModelError, match="no training image"):
        nearest_images(torch.ones(1, 2), torch.ones(0, 2))


def test_the_interval_of_a_mean_is_that_of_its_standard_error_and_wider_where_seeds_differ() -> None:
    torch.manual_seed(0)
    values = torch.randn(400, dtype=torch.float64) * 30 + 60
    one = mean_interval([values], resamples=4000)
    error = 1.96 * float(values.std()) / 20
    assert one.value == pytest.approx(float(values.mean()))
    assert (one.low, one.high) == pytest.approx((one.value - error, one.value + error), abs=0.3)
    assert mean_interval([values, values], resamples=4000) == pytest.approx(one)
    apart = mean_interval([values - 2, values + 2, values], resamples=4000)
    assert apart.value == pytest.approx(one.value)
    assert apart.high - apart.low > 1.5 * (one.high - one.low)
    with pytest.raises(ModelError, match=r"values of \[2, 3\] images; expected the same images"):
        mean_interval([values[:2], values[:3]])
    with pytest.raises(ModelError, match=r"values of \[0\] images; expected the same images, one or more"):
        mean_interval([values[:0]])
