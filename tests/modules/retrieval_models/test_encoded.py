"""Images and captions encoded in batches, in the order that they are given in."""

import numpy as np
import pytest
import torch

from modules.retrieval_models import RetrievalModel, build_model
from modules.retrieval_models.encoded import (
    all_images,
    encoded_captions,
    encoded_images,
    one_vector_each,
    sorted_captions,
)


@pytest.fixture(params=["san", "scan-t2i-avg"])
def model(request) -> RetrievalModel:
    torch.manual_seed(0)
    sizes = {"region_dim": 3, "vocabulary_size": 9, "languages": ["de", "en"], "dim": 6, "word_dim": 5}
    return build_model(request.param, **sizes).eval()


def encode(text: str, language: str) -> list[int]:
    return [int(digit) for digit in text]


def test_captions_in_batches_by_length_are_those_alone_in_their_order(model: RetrievalModel) -> None:
    rng = np.random.default_rng(0)
    texts = ["".join(map(str, rng.integers(1, 9, rng.integers(1, 8)))) for _ in range(300)]  # more than two batches
    sentences = list(zip(texts, rng.choice(["de", "en"], 300).tolist(), strict=True))
    found = sorted_captions(model, encode, sentences)
    assert len(found) == 300
    for place in range(0, 300, 7):
        alone, _ = encoded_captions(model, encode, [sentences[place]])
        torch.testing.assert_close(found.select(torch.tensor([place]))[:][0], alone.detach(), atol=1e-5, rtol=0)


def test_images_in_batches_are_those_at_once(model: RetrievalModel) -> None:
    regions = np.random.default_rng(0).normal(size=(10, 4, 3))
    found, whole = all_images(model, regions.astype(np.float16), batch=4)[:], encoded_images(model, regions)
    torch.testing.assert_close(found[0], whole[0].detach(), atol=2e-3, rtol=0)
    assert torch.equal(found[1], whole[1])


def test_one_vector_of_several_is_the_mean_of_the_real_ones() -> None:
    vectors = torch.tensor([[[1.0, 2], [3, 6]], [[5, 7], [9, 9]]])
    means = one_vector_each((vectors, torch.tensor([[True, True], [True, False]])))
    assert means.tolist() == [[2, 4], [5, 7]]
