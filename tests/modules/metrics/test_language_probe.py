"""The probe finds a language where vectors tell of it, and does not where they do not."""

import numpy as np
import pytest
import torch

from modules.metrics.language_probe import probe, universal_vectors
from tests.modules.cases import LENGTHS, make, make_batch


def vectors(count: int, shift: float, seed: int) -> np.ndarray:
    found = np.random.default_rng(seed).normal(size=(count, 6)).astype(np.float32)
    found[:, 2] += shift
    return found


@pytest.mark.parametrize(("shift", "low", "high"), [(0.0, 40, 60), (2.0, 81, 87), (6.0, 98, 100)])
def test_it_finds_a_language_that_is_there_whatever_the_numbers(shift: float, low: float, high: float) -> None:
    training = {"en": vectors(900, 0.0, 1), "fr": vectors(90, shift, 2)}
    test = {"en": vectors(500, 0.0, 3), "fr": vectors(300, shift, 4)}
    assert low <= probe(training, test) <= high


def test_universal_vectors_are_the_model_s_and_others_have_none() -> None:
    _, _, tokens = make_batch()
    model = make("mule").eval()
    sentences = [row[:length].tolist() for row, length in zip(tokens, LENGTHS.tolist(), strict=True)]
    found = universal_vectors(model, sentences * 40, "en")  # several blocks
    expected = model.universal_of(tokens, LENGTHS, torch.ones(len(LENGTHS), dtype=torch.long))
    np.testing.assert_allclose(found[-len(LENGTHS) :], expected.detach().numpy(), atol=1e-6)
    assert universal_vectors(make("san"), sentences, "en") is None
