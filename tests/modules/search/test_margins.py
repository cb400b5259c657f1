"""Margins of captions: their own image's score against those of the nearest other images."""

import pytest
import torch

from modules.errors import ModelError
from modules.search.encodings import Encodings
from modules.search.margins import own_image_margins


def encodings(count: int, seed: int, vectors: int = 1) -> Encodings:
    """Random unit vectors, several an item if asked for."""
    drawn = torch.nn.functional.normalize(torch.randn(count, vectors, 8, generator=torch.Generator().manual_seed(seed)))
    return Encodings.of((drawn, torch.ones(count, vectors, dtype=torch.bool)))


def product(images, captions) -> torch.Tensor:
    """The mean score of all vectors of an image and a caption."""
    return images[0].mean(1) @ captions[0].mean(1).t()


@pytest.mark.parametrize("vectors", [1, 3])
@pytest.mark.parametrize("block", [1, 4, 100])
@pytest.mark.parametrize("neighbours", [1, 3, 50])
def test_margins_are_those_of_the_whole_matrix(block: int, neighbours: int, vectors: int):
    images, captions = encodings(9, 1, vectors), encodings(20, 2, vectors)
    own = torch.arange(20) % 9
    scores = product(images[:], captions[:])
    expected = []
    for caption, image in enumerate(own.tolist()):
        others = sorted((scores[row, caption].item() for row in range(9) if row != image), reverse=True)[:neighbours]
        expected.append(scores[image, caption].item() - sum(others) / len(others))
    found = own_image_margins(product, images, captions, own, neighbours, block)
    torch.testing.assert_close(found, torch.tensor(expected))


def test_a_caption_of_another_image_has_the_lowest_margin():
    images = encodings(12, 3)
    own = torch.arange(12)
    own[4] = 7  # the caption of image 4
    margins = own_image_margins(product, images, images, own)
    assert margins.argmin() == 4
    assert margins[own == torch.arange(12)].min() > 0


@pytest.mark.parametrize(("images", "neighbours"), [(1, 10), (5, 0)])
def test_without_another_image_there_is_no_margin(images: int, neighbours: int) -> None:
    with pytest.raises(ModelError, match="expected two images and a neighbour"):
        own_image_margins(product, encodings(images, 1), encodings(3, 2), torch.zeros(3, dtype=torch.long), neighbours)
