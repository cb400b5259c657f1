"""Losses against loops that read like the paper."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from modules.errors import ModelError
from modules.losses.contrastive import contrastive_loss, one_to_k_loss, sigmoid_loss
from modules.losses.registry import LOSSES, RankingLoss, negative_mask
from modules.losses.triplet import (
    hard_negative_loss,
    most_violated_loss,
    random_hinges_loss,
    sum_of_hinges_loss,
)
from tests.modules.losses.slow_losses import (
    slow_contrastive_loss,
    slow_hard_negative_loss,
    slow_most_violated,
    slow_negative_mask,
    slow_one_to_k,
    slow_sigmoid_loss,
    slow_sum_of_hinges,
)


def a_batch(seed: int, images: int = 5, captions: int = 9, types: int = 3, sentences: int = 7):
    """Random scores and links; some images stand twice, some sentences under several images, some types are rare."""
    generator = torch.Generator().manual_seed(seed)

    def draw(high: int, size: int) -> Tensor:
        return torch.randint(high, (size,), generator=generator)

    similarity = torch.rand(images, captions, generator=generator, dtype=torch.float64) * 2 - 1
    masks = negative_mask(draw(images + 1, images), draw(images, captions), draw(sentences, captions))
    return similarity.requires_grad_(), *masks, draw(types, captions)


def same_value_and_gradient(fast: Tensor, slow: Tensor, similarity: Tensor) -> None:
    torch.testing.assert_close(fast, slow)
    for loss in (fast, slow):
        assert loss.requires_grad
    torch.testing.assert_close(*(torch.autograd.grad(loss, similarity)[0] for loss in (fast, slow)))


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10_000), images=st.integers(1, 6), captions=st.integers(1, 8), hardest=st.booleans(),
    weights=st.sampled_from([None, [1.0, 2.0, 0.5], [0.0, 1.0, 3.0], [0.0, 0.0, 1.0]]),
    margin=st.sampled_from([0.0, 0.2, 1.0]),
)  # fmt: skip
def test_hard_negative_loss_is_the_loop(seed, images, captions, hardest, weights, margin) -> None:
    similarity, positives, negatives, types = a_batch(seed, images, captions)
    beta = None if weights is None else torch.tensor(weights, dtype=torch.float64)
    fast = hard_negative_loss(similarity, positives, negatives, types, margin, beta, hardest)
    slow = slow_hard_negative_loss(similarity, positives, negatives, types, margin, beta, hardest)
    same_value_and_gradient(fast, slow, similarity)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000), images=st.integers(1, 6), captions=st.integers(1, 8))
def test_sum_of_hinges_is_the_loop(seed, images, captions) -> None:
    similarity, positives, negatives, _ = a_batch(seed, images, captions)
    fast = sum_of_hinges_loss(similarity, positives, negatives)
    same_value_and_gradient(fast, slow_sum_of_hinges(similarity, positives, negatives), similarity)


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    images=st.integers(1, 6),
    captions=st.integers(1, 8),
    numbers=st.sampled_from([(1.0, 0.0), (14.3, -10.0), (0.1, 2.0)]),
)
def test_infonce_and_sigmoid_are_the_loop(seed, images, captions, numbers) -> None:
    similarity, positives, negatives, _ = a_batch(seed, images, captions)
    scale, bias = (torch.tensor(number, dtype=torch.float64, requires_grad=True) for number in numbers)
    masks = (positives, negatives)
    for fast_form, slow_form, learned in (
        (contrastive_loss, slow_contrastive_loss, (scale,)),
        (sigmoid_loss, slow_sigmoid_loss, (scale, bias)),
    ):
        fast, slow = (form(similarity, *masks, *learned) for form in (fast_form, slow_form))
        torch.testing.assert_close(fast, slow)
        inputs = (similarity, *learned)
        for ours, theirs in zip(*(torch.autograd.grad(loss, inputs) for loss in (fast, slow)), strict=True):
            torch.testing.assert_close(ours, theirs)


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 10_000), images=st.integers(1, 6), captions=st.integers(1, 8),
    count=st.sampled_from([1, 2, 10]), scale=st.sampled_from([1.0, 14.3]),
)  # fmt: skip
def test_the_losses_of_many_languages_are_the_loop(seed, images, captions, count, scale) -> None:
    similarity, positives, negatives, _ = a_batch(seed, images, captions)
    fast = most_violated_loss(similarity, positives, negatives, 0.3, count)
    same_value_and_gradient(fast, slow_most_violated(similarity, positives, negatives, 0.3, count), similarity)
    fast = one_to_k_loss(similarity, positives, negatives, torch.tensor(scale))
    same_value_and_gradient(fast, slow_one_to_k(similarity, positives, negatives, scale), similarity)


def test_one_most_violated_is_the_hardest_negative() -> None:
    similarity, positives, negatives, types = a_batch(5, types=1)
    hardest = hard_negative_loss(similarity, positives, negatives, types, 0.3)
    found = most_violated_loss(similarity, positives, negatives, 0.3, count=1)
    torch.testing.assert_close(found * positives.sum(), hardest)


def test_at_its_optimum_the_captions_of_an_image_share_its_probability() -> None:
    positives, negatives = negative_mask(torch.arange(2), torch.tensor([0, 0, 1, 1]), torch.arange(4))
    scores = torch.where(positives, 100.0, 0.0).double().requires_grad_()
    loss = one_to_k_loss(scores, positives, negatives, torch.tensor(1.0))
    assert loss.item() == pytest.approx(math.log(2) / 2)  # of the images; a caption has one image
    assert torch.autograd.grad(loss, scores)[0].abs().max() < 1e-6


def test_a_euclidean_loss_compares_distances_of_unit_vectors() -> None:
    torch.manual_seed(0)
    sides = [F.normalize(torch.randn(n, 4, dtype=torch.float64), dim=-1) for n in (5, 9)]
    _, *masks, types = a_batch(6)
    distances = -torch.cdist(*sides)
    for kind in ("hardest", "hardest-k", "sum"):
        found = RankingLoss(kind, 0.3, distance="euclidean")(sides[0] @ sides[1].t(), *masks, types)
        torch.testing.assert_close(found, RankingLoss(kind, 0.3)(distances, *masks, types))
    equal = torch.ones(5, 9, requires_grad=True)
    RankingLoss("hardest-k", 0.3, distance="euclidean")(equal, *masks, types).backward()
    assert equal.grad.isfinite().all()


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), images=st.integers(1, 6), captions=st.integers(0, 8), known=st.integers(0, 8))
def test_masks_are_the_loop(seed, images, captions, known) -> None:
    generator = torch.Generator().manual_seed(seed)
    keys, links, hashes = (
        torch.randint(high, (size,), generator=generator)
        for high, size in ((images, images), (images, captions), (5, captions))
    )
    owned = torch.stack([torch.randint(high, (known,), generator=generator) - low for high, low in ((6, 0), (6, 2))], 1)
    positives, negatives = negative_mask(keys, links, hashes - 2, owned)  # hashes may be negative
    slow_positives, slow_negatives = slow_negative_mask(keys, links, hashes - 2, owned)
    assert torch.equal(positives, slow_positives)
    assert torch.equal(negatives, slow_negatives)
    assert not (positives & negatives).any()


@pytest.mark.parametrize("hardest", [True, False])
def test_gradients_are_right(hardest: bool) -> None:
    similarity, *masks, types = a_batch(3)
    assert torch.autograd.gradcheck(lambda s: hard_negative_loss(s, *masks, types, hardest=hardest), similarity)
    assert torch.autograd.gradcheck(lambda s: sum_of_hinges_loss(s, *masks), similarity)


def test_a_known_value() -> None:
    similarity = torch.tensor([[0.5, 0.6], [0.1, 0.9]])
    masks = negative_mask(torch.arange(2), torch.arange(2), torch.arange(2))
    # v0: 0.2-0.5+0.6 and 0.2-0.5+0.1 -> 0; v1: 0.2-0.9+0.1 -> 0 and 0.2-0.9+0.6 -> 0
    assert hard_negative_loss(similarity, *masks, torch.zeros(2, dtype=torch.long)).item() == pytest.approx(0.3)


def test_weights_are_renormalised_over_the_types_an_image_has_negatives_of() -> None:
    similarity = torch.tensor([[0.5, 0.4, 0.8], [0.0, 0.9, 0.9]], dtype=torch.float64)
    positives, negatives = negative_mask(torch.arange(2), torch.tensor([0, 1, 1]), torch.arange(3))
    types, weights = torch.tensor([0, 0, 1]), torch.tensor([3.0, 1.0])
    # image 0 has negatives of both types: 3/4 * 0.4 + 1/4 * 0.8 = 0.5; image 1 of type 0 only
    by_image, by_caption = 0.2 - 0.5 + 0.5, 0.0 + 0.0 + (0.2 - 0.9 + 0.8)
    loss = hard_negative_loss(similarity, positives, negatives, types, weights=weights)
    assert loss.item() == pytest.approx(by_image + by_caption)


@pytest.mark.parametrize("hardest", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_without_negatives_the_loss_and_its_gradient_are_zero(hardest: bool, dtype: torch.dtype) -> None:
    similarity = torch.randn(3, 4, dtype=dtype, requires_grad=True)
    masks = negative_mask(torch.arange(3), torch.tensor([0, 0, 1, 2]), torch.zeros(4, dtype=torch.long))
    assert not masks[1].any()
    loss = hard_negative_loss(similarity, *masks, torch.tensor([0, 1, 0, 1]), hardest=hardest)
    loss = loss + sum_of_hinges_loss(similarity, *masks)
    loss.backward()
    assert loss.item() == 0
    assert torch.equal(similarity.grad, torch.zeros_like(similarity))


def test_an_image_that_stands_twice_is_no_negative_of_itself() -> None:
    positives, negatives = negative_mask(torch.tensor([7, 8, 7]), torch.tensor([0, 1, 2]), torch.arange(3))
    assert positives.tolist() == [[True, False, True], [False, True, False], [True, False, True]]
    assert torch.equal(negatives, ~positives)


def test_the_same_sentence_elsewhere_is_no_negative() -> None:
    _, negatives = negative_mask(torch.arange(3), torch.tensor([0, 1, 2, 0]), torch.tensor([5, 5, 6, 6]))
    assert negatives.tolist() == [[False, False, False, False], [False, False, True, True], [True, True, False, False]]


def test_a_sentence_that_an_image_has_outside_the_batch_is_no_negative() -> None:
    keys, links, hashes = torch.tensor([7, 8]), torch.tensor([0, 1]), torch.tensor([5, 6])
    _, negatives = negative_mask(keys, links, hashes, torch.tensor([[7, 6], [9, 5]]))  # 9 is not in the batch
    assert negatives.tolist() == [[False, False], [True, False]]


@pytest.mark.parametrize("hardest", [True, False])
def test_half_precision_is_computed_in_float32(hardest: bool) -> None:
    similarity, *masks, types = a_batch(5)
    half = similarity.detach().bfloat16().requires_grad_()
    loss = hard_negative_loss(half, *masks, types, hardest=hardest)
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, hard_negative_loss(half.detach().float(), *masks, types, hardest=hardest))
    loss.backward()
    assert half.grad is not None
    assert half.grad.isfinite().all()


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_the_order_of_the_batch_does_not_matter(seed: int) -> None:
    similarity, positives, negatives, types = a_batch(seed)
    rows, columns = torch.randperm(len(similarity)), torch.randperm(len(types))
    shuffled = [matrix[rows][:, columns] for matrix in (similarity, positives, negatives)]
    loss = hard_negative_loss(similarity, positives, negatives, types)
    torch.testing.assert_close(hard_negative_loss(*shuffled, types[columns]), loss)


def test_a_score_that_is_not_a_number_is_not_hidden() -> None:
    similarity, *masks, types = a_batch(1)
    assert hard_negative_loss(similarity.detach() * torch.nan, *masks, types).isnan()


def test_without_types_all_captions_weigh_the_same() -> None:
    scores, right = torch.rand(5, 5, generator=torch.Generator().manual_seed(0)), torch.eye(5, dtype=torch.bool)
    expected = RankingLoss("hardest", 0.2)(scores, right, ~right, torch.zeros(5, dtype=torch.long))
    assert expected > 0
    for weights in (None, [0.0, 1.0], [0.2, 0.8]):
        assert RankingLoss("hardest", 0.2, weights)(scores, right, ~right, None) == expected


def test_a_type_without_weight_is_an_error() -> None:
    similarity, *masks, _ = a_batch(1)
    with pytest.raises(ModelError, match="2 weights"):
        hard_negative_loss(similarity, *masks, torch.full((9,), 2), weights=torch.ones(2))


def test_known_values_of_infonce_and_sigmoid() -> None:
    similarity = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    masks = negative_mask(torch.arange(2), torch.arange(2), torch.arange(2))
    one, bias = torch.tensor(1.0), torch.tensor(-0.5)
    assert contrastive_loss(similarity, *masks, one).item() == pytest.approx(math.log(1 + math.exp(-1)))
    assert sigmoid_loss(similarity, *masks, one, bias).item() == pytest.approx(2 * math.log(1 + math.exp(-0.5)))


@pytest.mark.parametrize("kind", LOSSES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_every_loss_is_finite_without_negatives_and_without_captions(kind: str, dtype: torch.dtype) -> None:
    loss_of = RankingLoss(kind, 0.2)
    for captions in (4, 0):
        similarity = torch.randn(3, captions, dtype=dtype, requires_grad=True)
        masks = negative_mask(torch.arange(3), torch.arange(captions) % 3, torch.zeros(captions, dtype=torch.long))
        assert not masks[1].any()
        loss = loss_of(similarity, *masks, torch.zeros(captions, dtype=torch.long))
        loss_of.zero_grad()
        loss.backward()
        assert loss.dtype == torch.float32
        assert similarity.grad.isfinite().all()
        assert all(parameter.grad.isfinite().all() for parameter in loss_of.parameters())
        if kind not in ("sigmoid", "one-to-k"):  # whose positive pairs teach by themselves
            assert loss.item() == 0
            assert not similarity.grad.any()


@pytest.mark.parametrize("kind", ["infonce", "one-to-k", "sigmoid"])
def test_pairs_that_are_neither_get_no_gradient(kind: str) -> None:
    similarity, positives, negatives, types = a_batch(2)
    RankingLoss(kind, 0.2)(similarity, positives, negatives, types).backward()
    neither = ~(positives | negatives)
    assert neither.any()
    assert not similarity.grad[neither].any()
    if kind != "one-to-k":  # where the captions of an image share its probability
        assert (similarity.grad[positives] < 0).all()
    assert (similarity.grad[negatives] > 0).all()


@pytest.mark.parametrize("kind", ["infonce", "one-to-k", "sigmoid"])
def test_great_scores_do_not_overflow(kind: str) -> None:
    similarity, *masks, types = a_batch(4)
    great = (1e4 * similarity.detach().float()).requires_grad_()
    loss = RankingLoss(kind, 0.2)(great, *masks, types)
    loss.backward()
    assert loss.isfinite()
    assert great.grad.isfinite().all()


def test_each_ranking_loss_is_its_function_and_learns_what_it_should() -> None:
    similarity, *masks, types = a_batch(6)
    scale, bias = torch.tensor(1 / 0.07), torch.tensor(-10.0)
    expected = {
        "hardest": hard_negative_loss(similarity, *masks, types, 0.3),
        "hardest-k": most_violated_loss(similarity, *masks, 0.3),
        "sum": sum_of_hinges_loss(similarity, *masks, 0.3),
        "random": random_hinges_loss(similarity, *masks, 0.3),
        "infonce": contrastive_loss(similarity, *masks, scale),
        "one-to-k": one_to_k_loss(similarity, *masks, scale),
        "sigmoid": sigmoid_loss(similarity, *masks, torch.tensor(10.0), bias),
    }
    assert set(expected) == set(LOSSES)
    learned = {"infonce": ["log_scale"], "one-to-k": ["log_scale"], "sigmoid": ["log_scale", "bias"]}
    for kind, value in expected.items():
        loss_of = RankingLoss(kind, 0.3)
        torch.testing.assert_close(loss_of(similarity, *masks, types), value)
        assert [name for name, _ in loss_of.named_parameters()] == learned.get(kind, [])


def test_weights_and_warm_up_reach_the_hardest() -> None:
    similarity, *masks, types = a_batch(7)
    weights = [1.0, 2.0, 0.5]
    loss_of = RankingLoss("hardest", 0.3, weights, warmup_epochs=2)
    for epoch in range(4):
        expected = hard_negative_loss(similarity, *masks, types, 0.3, torch.tensor(weights), hardest=epoch >= 2)
        torch.testing.assert_close(loss_of(similarity, *masks, types, epoch), expected)
    assert loss_of(similarity, *masks, types, 1) != loss_of(similarity, *masks, types, 2)


def test_warm_up_of_the_most_violated_takes_all_negatives() -> None:
    similarity, *masks, types = a_batch(7, images=3)  # fewer images than negative captions
    loss_of = RankingLoss("hardest-k", 0.3, warmup_epochs=1, count=2)
    torch.testing.assert_close(loss_of(similarity, *masks, types, 0), most_violated_loss(similarity, *masks, 0.3, 1000))
    torch.testing.assert_close(loss_of(similarity, *masks, types, 1), most_violated_loss(similarity, *masks, 0.3, 2))
    assert loss_of(similarity, *masks, types, 0) < loss_of(similarity, *masks, types, 1)


def test_an_unknown_loss_is_an_error_that_names_those_there_are() -> None:
    with pytest.raises(
        ModelError,
        match=r"^loss 'triplet': expected one of hardest, hardest-k, sum, random, infonce, one-to-k, sigmoid$",
    ):
        RankingLoss("triplet", 0.2)
