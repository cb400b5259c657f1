"""VSE, VSE++ and OE against their formulas item by item in float64."""

from unittest import mock

import pytest
import torch
from torch.nn import functional as F

import modules.search.scores
from modules.retrieval_models import model_class, option_names
from modules.retrieval_models.vse import VSE, OrderEmbeddings, VSEPlusPlus
from modules.search.scores import order_violation
from tests.modules.cases import (
    LANGUAGES,
    LENGTHS,
    check_autocast,
    check_learns,
    check_order_and_padding,
    check_same,
    check_unit_norm,
    make,
    make_batch,
    mean_image,
    one_vector_score,
    plain_scores,
)

NAMES = ["vse", "vse++", "oe"]


def caption(model, tokens, language):
    state = model.caption.gru(model.caption.words.weight[tokens][None])[0][0, -1]
    return state / state.norm()


@pytest.mark.parametrize("name", NAMES)
def test_scores_and_gradients_equal_the_formula(name: str) -> None:
    model, batch = make(name), make_batch()
    check_same(model, plain_scores(model, mean_image, caption, one_vector_score, batch), batch)


@pytest.mark.parametrize("name", NAMES)
def test_order_padding_norm_and_autocast(name: str) -> None:
    check_order_and_padding(make(name))
    check_unit_norm(make(name))
    check_autocast(make(name))


@pytest.mark.parametrize("name", NAMES)
def test_it_learns(name: str) -> None:
    check_learns(make(name))


@pytest.mark.parametrize("part", [1, 100, 2**18])
def test_order_violation_by_blocks_is_the_whole(part: int) -> None:
    torch.manual_seed(0)
    upper, lower = (torch.randn(n, 6, dtype=torch.float64, requires_grad=True) for n in (9, 13))
    with mock.patch.object(modules.search.scores, "ORDER_PART", part):
        ours = order_violation(upper, lower)
        found = torch.autograd.grad(ours.square().sum(), (upper, lower))
    theirs = -(upper[:, None] - lower[None]).clamp(min=0).square().sum(-1)
    torch.testing.assert_close(ours, theirs)
    for mine, other in zip(found, torch.autograd.grad(theirs.square().sum(), (upper, lower)), strict=True):
        torch.testing.assert_close(mine, other)


def test_a_caption_that_says_less_fits_without_loss() -> None:
    image = torch.tensor([[0.5, 0.5, 0.7]])
    captions = torch.tensor([[0.5, 0.0, 0.7], [0.5, 0.5, 0.7], [0.6, 0.5, 0.0]])
    torch.testing.assert_close(order_violation(captions, image)[:, 0], torch.tensor([0.0, 0.0, -0.01]))


def test_order_embeddings_have_no_signs() -> None:
    model, (regions, mask, tokens) = make("oe"), make_batch()
    for vectors, _ in (model.encode_images(regions, mask), model.encode_captions(tokens, LENGTHS, LANGUAGES)):
        assert (vectors >= 0).all()
    plain = make("vse")
    plain.load_state_dict(model.state_dict())
    signed = plain.encode_images(regions, mask)[0]
    assert (signed < 0).any()
    torch.testing.assert_close(signed.abs(), model.encode_images(regions, mask)[0])


def test_names_losses_and_scores() -> None:
    assert [model_class(name) for name in NAMES] == [VSE, VSEPlusPlus, OrderEmbeddings]
    assert [model_class(name).loss for name in NAMES] == ["sum", "hardest", "sum"]
    assert [model_class(name).score for name in NAMES] == ["inner product", "inner product", "vectors"]
    assert all(option_names(model_class(name)) == set() for name in NAMES)
    vectors = F.normalize(torch.rand(5, 8), dim=-1)
    torch.testing.assert_close(order_violation(vectors, vectors).diagonal(), torch.zeros(5))
