"""The diversity loss against a loop that reads like Eq. 5-6, and which items are one instance."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from modules.errors import ModelError
from modules.losses.diversity import diversity, instances

READINGS = {
    "apart": lambda s, margin: s - margin,
    "printed": lambda s, margin: margin - s,
    "distance": lambda s, margin: margin - (1 - s),
}


def between(one: Tensor, other: Tensor, margin: float, reading: str) -> list[Tensor]:
    """The terms of Eq. 5 of one instance: heads (K, H) of two modalities, or of one twice."""
    return [
        READINGS[reading](one[k] @ other[r] / (one[k].norm() * other[r].norm()), margin).clamp(min=0)
        for k in range(len(one))
        for r in range(len(other))
        if r != k
    ]


def slow_diversity(heads: Tensor, present: Tensor, margin: float, reading: str) -> tuple[Tensor, float]:
    """Eq. 6: each modality with itself, then each two of them; the loss, and the share of terms above 0."""
    terms = [0 * heads.sum()]
    for instance, there in zip(heads, present, strict=True):
        known = [modality for modality, real in zip(instance, there, strict=True) if real]
        for place, one in enumerate(known):
            terms += between(one, one, margin, reading)
            for other in known[place + 1 :]:
                terms += between(one, other, margin, reading)
    return sum(terms), sum(term.item() > 0 for term in terms) / max(len(terms) - 1, 1)


def some_heads(modalities: int, count: int) -> tuple[Tensor, Tensor]:
    torch.manual_seed(0)
    shared = torch.arange(4)[:, None, None, None] * torch.randn(4, 1, 1, 6, dtype=torch.float64)  # some heads are alike
    heads = (shared + torch.randn(4, modalities, count, 6, dtype=torch.float64)).requires_grad_()
    present = torch.rand(4, modalities) < 0.7
    present[:, 0] = True
    return heads, present


@pytest.mark.parametrize("reading", READINGS)
@pytest.mark.parametrize(("modalities", "count"), [(3, 3), (2, 2), (5, 3), (1, 4), (3, 1)])
@pytest.mark.parametrize("margin", [0.1, 0.6])
def test_value_gradient_and_share_are_those_of_the_loop(reading, modalities, count, margin) -> None:
    heads, present = some_heads(modalities, count)
    slow, share = slow_diversity(heads, present, margin, reading)
    found = diversity(heads, present, margin, reading)
    assert (slow.item() > 0) == (count > 1)
    torch.testing.assert_close(found.loss, slow)
    assert float(found.active) == pytest.approx(share)
    gradients = [torch.autograd.grad(loss, heads)[0] for loss in (found.loss, slow)]
    torch.testing.assert_close(*gradients)
    assert not gradients[0][~present].any()


def test_readings_push_apart_or_pull_together() -> None:
    for reading, sign in (("apart", -1), ("printed", 1), ("distance", -1)):
        heads, present = some_heads(3, 3)
        before = diversity(heads, present, 0.9, reading)
        (gradient,) = torch.autograd.grad(before.loss, heads)
        after = diversity(heads - 1e-3 * gradient, present, 0.9, reading)
        assert sign * float(after.cosine - before.cosine) > 0


def test_a_known_value() -> None:
    """Two heads of an image at a cosine of 0.5, and two of a caption at right angles, the first along the image's."""
    heads = torch.tensor([[[1.0, 0], [0.5, 0.75**0.5]], [[1, 0], [0, 1]]])[None]
    found = diversity(heads, torch.ones(1, 2).bool(), 0.1)
    # v¹v² and v²v¹ are 0.5, e¹e² and e²e¹ 0, v¹e² is 0, v²e¹ is 0.5; the same head of both, v¹e¹, is no pair
    assert float(found.loss) == pytest.approx(3 * 0.4)
    assert float(found.cosine) == pytest.approx(3 * 0.5 / 6)
    assert float(found.active) == pytest.approx(3 / 6)


def test_lengths_and_bfloat16_do_not_matter() -> None:
    heads, present = some_heads(3, 3)
    scale = 1 + torch.rand(4, 3, 3, 1)
    torch.testing.assert_close(diversity(heads * scale, present).loss, diversity(heads, present).loss)
    with torch.autocast("cpu", torch.bfloat16):
        rough = diversity(heads.detach().float(), present).loss
    torch.testing.assert_close(rough, diversity(heads.detach().float(), present).loss)


def test_an_unknown_reading_is_an_error() -> None:
    with pytest.raises(ModelError, match="'far': expected one of apart, printed, distance"):
        diversity(*some_heads(2, 2), reading="far")


IMAGE, LANGUAGE = torch.tensor([0, 0, 1, 1, 1, 2, 0]), torch.tensor([3, 5, 5, 5, 3, 5, 3])
SENTENCES = torch.tensor([9, 4, 8, -7, 2, 1, 6])


def joined(order: Tensor, images: Tensor, captions: Tensor) -> tuple[Tensor, Tensor]:
    return instances(images, captions[order], IMAGE[order], LANGUAGE[order], SENTENCES[order], 3)


def test_an_instance_is_an_image_with_a_caption_of_each_language() -> None:
    images, captions = torch.randn(3, 2, 4), torch.randn(7, 2, 4, requires_grad=True)
    heads, present = joined(torch.arange(7), images, captions)
    # image, then the caption of language 3 and of 5, in the order of their hashes
    expected = [(0, 6, 1), (0, 0, None), (1, 4, 3), (1, None, 2), (2, None, 5)]
    found = {}
    for row in range(5):
        key = next(i for i in range(3) if torch.equal(heads[row, 0], images[i]))
        said = [next((c for c in range(7) if torch.equal(heads[row, m], captions[c])), None) for m in (1, 2)]
        found[(key, *said)] = present[row].tolist()
    assert found == {one: [part is not None for part in one] for one in expected}
    assert (heads[~present] == 0).all()
    (gradient,) = torch.autograd.grad(heads.sum(), captions)
    assert torch.equal(gradient, torch.ones_like(captions))  # each caption once


def test_the_order_of_the_batch_does_not_matter() -> None:
    images, captions = torch.randn(3, 2, 4, dtype=torch.float64), torch.randn(7, 2, 4, dtype=torch.float64)
    losses = [diversity(*joined(torch.randperm(7), images, captions)).loss for _ in range(5)]
    torch.testing.assert_close(torch.stack(losses), losses[0].expand(5))


def test_all_languages_take_part_and_one_more_is_a_term_more() -> None:
    images, captions = F.normalize(torch.randn(2, 3, 4), dim=-1), torch.randn(6, 3, 4)
    links, spoken, sentences = torch.tensor([0, 0, 0, 1, 1, 1]), torch.tensor([0, 1, 2] * 2), torch.arange(6)
    heads, present = instances(images, captions, links, spoken, sentences, 3)
    assert heads.shape == (2, 4, 3, 4)
    assert present.all()
    german_free = spoken != 0
    less, _ = instances(
        images, captions[german_free], links[german_free], spoken[german_free], sentences[german_free], 3
    )
    assert torch.equal(less, heads[:, [0, 2, 3]])
