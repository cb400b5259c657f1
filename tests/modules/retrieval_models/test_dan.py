"""DAN against its formula, item by item in float64."""

import pytest
import torch

from modules.errors import ModelError
from modules.retrieval_models import model_class, option_names
from modules.retrieval_models.dan import DAN
from tests.modules.cases import (
    LANGUAGES,
    LENGTHS,
    H,
    check_autocast,
    check_learns,
    check_order_and_padding,
    check_same,
    check_unit_norm,
    make,
    make_batch,
    plain_scores,
    plain_states,
)


def attended(attention, vectors, memory):
    w, wm, wh = attention.of_vectors.weight, attention.of_memory.weight, attention.of_hidden.weight[0]
    shares = torch.stack([(wh * torch.tanh(w @ z) * torch.tanh(wm @ memory)).sum().exp() for z in vectors])
    return sum(share / shares.sum() * vector for share, vector in zip(shares, vectors, strict=True))


def image(model, regions):
    """v⁽⁰⁾ … v⁽ᵏ⁾."""
    first = torch.tanh(model.project[0].weight @ (sum(regions) / len(regions)))
    found, memory = [first], first
    for k, attention in enumerate(model.attend_regions, 1):
        found.append(torch.tanh(model.project[k].weight @ attended(attention, regions, memory)))
        memory = memory + found[-1]
    return found


def caption(model, tokens, language):
    """u⁽⁰⁾ … u⁽ᵏ⁾."""
    words = plain_states(model.captions.lstm.lstm, model.captions.words.weight[tokens])
    found = [sum(words) / len(words)]
    memory = found[0]
    for attention in model.attend_words:
        found.append(attended(attention, words, memory))
        memory = memory + found[-1]
    return found


def score(model, v, t):
    """Σ_k v⁽ᵏ⁾·u⁽ᵏ⁾, divided by the lengths of all of v and all of u."""
    total = sum(a @ b for a, b in zip(v, t, strict=True))
    lengths = [sum(x @ x for x in side).sqrt() for side in (v, t)]
    return total / (lengths[0] * lengths[1])


@pytest.mark.parametrize("steps", [0, 1, 2, 3])
def test_scores_and_gradients_equal_the_formula(steps: int) -> None:
    model, batch = make("dan", steps=steps), make_batch()
    check_same(model, plain_scores(model, image, caption, score, batch), batch)


def test_order_padding_norm_and_autocast() -> None:
    check_order_and_padding(make("dan"))
    check_unit_norm(make("dan"))
    check_autocast(make("dan"))


def test_it_learns() -> None:
    check_learns(make("dan"))


def test_each_step_has_its_own_weights_and_its_own_part_of_the_vector() -> None:
    model, (regions, mask, tokens) = make("dan", steps=2), make_batch()
    vectors, real = model.encode_captions(tokens, LENGTHS, LANGUAGES)
    assert vectors.shape == (4, 1, 3 * H)
    assert real.all()
    before = model.encode_images(regions, mask)[0]
    with torch.no_grad():
        model.project[2].weight.mul_(-1)
    after = model.encode_images(regions, mask)[0]
    torch.testing.assert_close(after[..., : 2 * H], before[..., : 2 * H])
    torch.testing.assert_close(after[..., 2 * H :], -before[..., 2 * H :])


def test_name_options_and_score() -> None:
    assert model_class("dan") is DAN
    assert option_names(DAN) == {"steps"}
    with pytest.raises(ModelError, match="steps is -1"):
        DAN(steps=-1, region_dim=4, vocabulary_size=9)
    assert DAN.score == "inner product"
    assert DAN.loss == "hardest"
