"""CIDEr-D against a plain form and against pycocoevalcap, with words or numbers, and with an end token."""

import doctest

import numpy as np
import pytest
import torch

from modules.errors import ModelError
from modules.metrics import cider
from modules.metrics.cider import CiderD, document_frequencies
from tests.modules.metrics.slow_cider import cider_d, made_up

DOG, CAT = ["a", "dog", "runs"], ["a", "cat", "sleeps", "here"]


def test_scores_are_those_of_the_plain_form() -> None:
    for seed in range(12):
        captions, references = made_up(seed, 5)
        found = CiderD(references).score(captions, range(5))
        expected = [cider_d(*pair, references) for pair in zip(captions, references, strict=True)]
        np.testing.assert_allclose(found, expected, atol=1e-9, rtol=0)
        assert found.max() > 0.1
        assert found.dtype == np.float64


def test_scores_are_those_of_pycocoevalcap_on_200_random_sets() -> None:
    official = pytest.importorskip("pycocoevalcap.cider.cider").Cider()
    for seed in range(200):
        captions, references = made_up(seed, 8, words=5 + seed % 40)
        rows = range(len(captions))
        wanted = {row: [" ".join(one) for one in references[row]] for row in rows}
        _, expected = official.compute_score(wanted, {row: [" ".join(captions[row])] for row in rows})
        np.testing.assert_allclose(CiderD(references).score(captions, rows), expected, atol=1e-9, rtol=0)


def test_numbers_score_as_words_do_in_any_order_and_number_of_captions() -> None:
    captions, references = made_up(3, 6)
    numbered = [[[int(word[1:]) for word in one] for one in of_image] for of_image in references]
    rows = [4, 0, 4, 2, 5]
    found = CiderD(numbered).score([[int(word[1:]) for word in captions[row]] for row in rows], np.array(rows))
    np.testing.assert_array_equal(found, CiderD(references).score(captions, range(6))[rows])


def test_frequencies_are_those_of_other_documents() -> None:
    captions, references = made_up(0, 4)
    _, training = made_up(1, 9)
    found = CiderD(references, document_frequencies(training)).score(captions, range(4))
    expected = [cider_d(*pair, training) for pair in zip(captions, references, strict=True)]
    np.testing.assert_allclose(found, expected, atol=1e-9, rtol=0)
    assert np.abs(found - CiderD(references).score(captions, range(4))).max() > 0.1


def test_a_reference_is_left_out_of_the_vectors_and_of_the_mean() -> None:
    references, documents = [[DOG, CAT, ["a"]]], [[DOG], [CAT], [["a"]]]
    metric = CiderD(references, document_frequencies(documents))
    whole, without, other = metric.score([DOG] * 3, [0] * 3, without=[-1, 0, 1])
    assert without == pytest.approx(cider_d(DOG, [CAT, ["a"]], documents))
    assert other == pytest.approx(cider_d(DOG, [DOG, ["a"]], documents))
    assert whole == pytest.approx(cider_d(DOG, references[0], documents))
    assert without < whole < other


def test_an_end_token_is_counted_on_both_sides_and_rewards_a_finished_sentence() -> None:
    captions, references = made_up(5, 4)
    _, training = made_up(6, 9)
    ended = [[[*one, "END"] for one in of_image] for of_image in training]
    metric = CiderD(references, document_frequencies(training, "END"), "END")
    expected = [
        cider_d([*caption, "END"], [[*one, "END"] for one in of_image], ended)
        for caption, of_image in zip(captions, references, strict=True)
    ]
    np.testing.assert_allclose(metric.score(captions, range(4)), expected, atol=1e-9, rtol=0)
    having = [[*caption, "END"] for caption in captions]
    np.testing.assert_array_equal(metric.score(having, range(4)), metric.score(captions, range(4)))
    finished, cut = CiderD([[DOG], [CAT]], end="END").score([DOG, DOG], [0, 0], ended=[True, False])
    assert finished == pytest.approx(10)
    assert cut < 8


def test_an_empty_caption_scores_nothing_and_no_caption_no_score() -> None:
    metric = CiderD([[DOG], [CAT]])
    np.testing.assert_allclose(metric.score([[], CAT], [0, 1]), [0, 10])
    assert CiderD([[DOG], [[]]]).score([[]], [1]).tolist() == [0]
    assert metric.score([], []).shape == (0,)


def test_bad_input_is_one_line() -> None:
    metric = CiderD([[DOG], []])
    for arguments, said in (
        (([DOG], [1]), "image 1 has no references to compare a caption with"),
        (([DOG], [2]), "image row 2 has no references; expected 0 to 1"),
        (([DOG], [-1]), "image row -1"),
        (([DOG], [0], [0]), "image 0 has no reference but the one that is left out"),
        (([DOG], [0, 0]), "CIDEr-D of 1 captions: 2 rows of images"),
        (([torch.tensor([1, 2])], [0]), "CIDEr-D of tensors; expected lists"),
    ):
        with pytest.raises(ModelError, match=said):
            metric.score(*arguments)
    with pytest.raises(ModelError, match="end token 'END', but its document frequencies have None"):
        CiderD([[DOG]], document_frequencies([[DOG]]), end="END")
    with pytest.raises(ModelError, match="no document to count"):
        document_frequencies([])


def test_the_example_in_its_documentation_holds() -> None:
    assert doctest.testmod(cider).failed == 0
