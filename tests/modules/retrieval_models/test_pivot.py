"""PIVOT against its formulas item by item in float64: scores, losses of each language, hinges between captions."""

from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from modules.errors import ModelError
from modules.losses.pairs import Pairs
from modules.losses.registry import negative_mask
from modules.retrieval_models import model_class, option_names
from modules.training.retrieval import Retrieval
from tests.modules.cases import (
    LENGTHS,
    C,
    D,
    E,
    H,
    N,
    V,
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
    scores,
)

NAMES = ["pivot-sym", "pivot-asym", "pivot-parallel-sym", "pivot-parallel-asym"]
PARALLEL = NAMES[2:]


def caption(model, tokens, language):
    gru = model.captions.of[("de", "en")[language]].gru
    state = gru(model.words.weight[tokens][None])[0][0, -1]
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
    check_learns(make(name), margin=0.5)


def test_languages_do_not_share_an_encoder() -> None:
    model, (_, _, tokens) = make("pivot-sym"), make_batch()
    german, english = (model.encode_captions(tokens, LENGTHS, torch.full((C,), place))[0] for place in (0, 1))
    assert (german - english).abs().amax(-1).min() > 1e-3


@pytest.mark.parametrize("place", [0, 1])
def test_a_batch_may_lack_a_language(place: int) -> None:
    model, batch = make("pivot-sym"), make_batch()
    languages = torch.full((C,), place)
    alone, _ = model.encode_captions(batch[2], LENGTHS, languages)
    alone.square().sum().backward()
    for number, language in enumerate(("de", "en")):
        gradients = [parameter.grad for parameter in model.captions.of[language].parameters()]
        assert all((gradient is None) == (number != place) for gradient in gradients)


@pytest.mark.parametrize("place", [-1, 2])
def test_a_language_without_encoder_is_an_error_that_says_which_there_are(place: int) -> None:
    model, (_, _, tokens) = make("pivot-sym"), make_batch()
    languages = torch.tensor([0, place, 1, place])
    with pytest.raises(ModelError, match=r"^2 of 4 captions are in a language .*encoders for de, en$"):
        model.encode_captions(tokens, LENGTHS, languages)


IMAGES = torch.tensor([0, 0, 1, 1, 2, 3, 3, 3, 2])
SPOKEN = torch.tensor([0, 1, 0, 1, 1, 0, 1, 1, 0])
SENTENCES = torch.tensor([10, 20, 11, 21, 20, 10, 22, 23, 13])  # images 0 and 2 share 20, 0 and 3 share 10


def pairs_of(model, captions: Tensor, images: Tensor) -> Pairs:
    masks = negative_mask(torch.arange(4), IMAGES, SENTENCES)
    ones = torch.ones(9, 1, dtype=torch.bool)
    return Pairs((images[:, None], ones[:4]), (captions[:, None], ones), IMAGES, *masks, SPOKEN, SPOKEN, SENTENCES)


def unit(count: int) -> Tensor:
    vectors = torch.nn.functional.normalize(torch.randn(count, H, dtype=torch.float64), dim=-1)
    return vectors.abs().requires_grad_()


def hinge(x: Tensor) -> Tensor:
    return x.clamp(min=0)


def owned(image: int) -> set[int]:
    return {sentence for owner, sentence in zip(IMAGES.tolist(), SENTENCES.tolist(), strict=True) if owner == image}


@pytest.mark.parametrize("margin", [0.1, 0.5])
@pytest.mark.parametrize("name", PARALLEL)
def test_hinges_between_captions_are_the_loop(name: str, margin: float) -> None:
    """For the order violation too, by the mean of both its directions."""
    torch.manual_seed(0)
    model, start = make(name, caption_margin=margin), unit(9)
    t = start / start.norm(dim=-1, keepdim=True)  # gradients along a unit vector are none of the loss's

    def near(a: Tensor, b: Tensor) -> Tensor:
        if name.endswith("asym"):
            return -((a - b).clamp(min=0).square().sum() + (b - a).clamp(min=0).square().sum()) / 2
        return a @ b

    slow = 0 * t.sum()
    german, english = ((place == SPOKEN).nonzero()[:, 0].tolist() for place in (0, 1))
    negatives = 0
    for a in german:
        for b in english:
            if IMAGES[a] != IMAGES[b]:
                continue
            for anchors, others in ((a, english), (b, german)):
                for other in others:
                    shared = int(SENTENCES[other]) in owned(int(IMAGES[anchors]))
                    shared |= int(SENTENCES[anchors]) in owned(int(IMAGES[other]))
                    if IMAGES[other] != IMAGES[anchors] and not shared:
                        slow = slow + hinge(margin - near(t[a], t[b]) + near(t[anchors], t[other]))
                        negatives += 1
    assert negatives == 22  # of 33: images 0 and 2 share an English sentence, 0 and 3 a German one
    fast = model.auxiliary_losses({}, pairs_of(model, t, unit(4)))
    assert list(fast) == ["parallel"]
    assert slow > 0.1
    with torch.autocast("cpu", torch.bfloat16):  # products of captions stay exact
        rough = model.auxiliary_losses({}, pairs_of(model, t.float(), unit(4).float()))["parallel"]
    torch.testing.assert_close(rough, slow.float(), rtol=1e-5, atol=0.0)
    torch.testing.assert_close(fast["parallel"], slow)
    torch.testing.assert_close(
        *(torch.autograd.grad(loss, start, retain_graph=True)[0] for loss in (fast["parallel"], slow))
    )


@pytest.mark.parametrize("name", PARALLEL)
def test_captions_of_one_language_have_no_hinges_between_them(name: str) -> None:
    model, t = make(name), unit(9)
    pairs = pairs_of(model, t, unit(4))
    pairs = Pairs(**(vars(pairs) | {"languages": torch.zeros_like(SPOKEN)}))
    loss = model.auxiliary_losses({}, pairs)["parallel"]
    loss.backward()
    assert loss == 0
    assert not t.grad.any()
    assert make("pivot-sym").auxiliary_losses({}, pairs) == {}


@pytest.mark.parametrize("name", NAMES)
def test_images_are_compared_with_one_language_at_a_time(name: str) -> None:
    torch.manual_seed(0)
    arguments = {"region_dim": D, "vocabulary_size": V, "languages": ["de", "en"], "dim": H, "word_dim": E}
    module = Retrieval(name, arguments, None, 0.3, None, 0, 0.01, 9, 0.1, ["en"], ["en"]).double()
    module._trainer = SimpleNamespace(current_epoch=0)
    v, t = unit(4), unit(9)
    pairs = pairs_of(module.model, t, v)
    s = torch.stack([torch.stack([one_vector_score(module.model, v[i], t[c]) for c in range(9)]) for i in range(4)])
    slow = 0 * s.sum()
    for i, c in pairs.positives.nonzero().tolist():
        for other in range(9):
            if pairs.negatives[i, other] and SPOKEN[other] == SPOKEN[c]:
                slow = slow + hinge(0.3 - s[i, c] + s[i, other])
        for other in range(4):
            if pairs.negatives[other, c]:
                slow = slow + hinge(0.3 - s[i, c] + s[other, c])
    torch.testing.assert_close(module.ranking_loss(pairs), slow)
    together = module.loss(
        module.model.similarity(pairs.images, pairs.captions), pairs.positives, pairs.negatives, SPOKEN
    )
    assert together > slow + 0.1


def test_names_options_scores_and_losses() -> None:
    kinds = [model_class(name) for name in NAMES]
    assert [kind.score for kind in kinds] == ["inner product", "vectors"] * 2
    assert all(kind.loss == "sum" and kind.languages_apart for kind in kinds)
    assert [option_names(kind) for kind in kinds] == [set()] * 2 + [{"caption_margin"}] * 2
    for name in NAMES:
        model = make(name)
        vectors = torch.randn(V, E, dtype=torch.float64)
        before = scores(model, *make_batch())
        model.set_word_vectors(vectors)
        assert torch.equal(model.words.weight, vectors)
        assert before.shape == (N, C)
        assert (scores(model, *make_batch()) - before).abs().max() > 1e-4
