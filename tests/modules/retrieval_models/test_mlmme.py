"""MLMME against its formulas in float64, and its loss pair by pair."""

import pytest
import torch
from torch import Tensor

from data.batches.slots import parse_group
from modules.errors import ModelError
from modules.losses.registry import LOSSES
from modules.losses.triplet import random_hinges_loss
from modules.retrieval_models import model_class
from modules.retrieval_models.mlmme import Mlmme
from tests.modules.cases import (
    check_autocast,
    check_learns,
    check_order_and_padding,
    check_same,
    check_unit_norm,
    make,
    make_batch,
    plain_scores,
)
from tests.modules.losses.test_losses import a_batch
from tests.modules.small import Corpus, Diary, make_trainer


def image(model: Mlmme, regions: Tensor) -> Tensor:
    return model.image.weight @ (sum(regions) / len(regions))


def caption(model: Mlmme, tokens: Tensor, language: int) -> Tensor:
    name = ("de", "en")[language]
    layer = model.maps["shared" if "shared" in model.maps else name]
    return layer.weight @ model.states.of[name].gru(model.words.weight[tokens][None])[0][0, -1] + layer.bias


def cosine(model: Mlmme, v: Tensor, t: Tensor) -> Tensor:
    return v @ t / (v.norm() * t.norm())


@pytest.mark.parametrize("way", ["own", "shared"])
def test_it_is_the_formula_whatever_the_padding_and_it_learns(way: str) -> None:
    model, batch = make("mlmme", map=way), make_batch()
    for parameter in model.parameters():  # the start values are too small to see a difference
        torch.nn.init.normal_(parameter, std=0.5)
    check_same(model, plain_scores(model, image, caption, cosine, batch), batch)
    check_order_and_padding(model)
    check_unit_norm(model)
    check_autocast(model)
    check_learns(model)


def test_start_values_are_the_paper_s() -> None:
    model = make("mlmme", state_dim=50)
    assert float(model.states.of["de"].gru.weight_ih_l0.std()) == pytest.approx(0.01, rel=0.2)
    for gate in model.states.of["en"].gru.weight_hh_l0.chunk(3):
        torch.testing.assert_close(gate @ gate.t(), torch.eye(50, dtype=torch.float64), atol=1e-5, rtol=0)
    assert not model.maps["de"].bias.any()


def drawn(kind: str, positives: Tensor, negatives: Tensor, step: int) -> list[tuple[int, int, int]]:
    """Anchor, right and drawn other one of each hinge, read off the gradient of a loss whose hinges are all active."""
    found = []
    for v, t in positives.nonzero().tolist():
        scores = torch.zeros(positives.shape, dtype=torch.float64, requires_grad=True)
        only = torch.zeros_like(positives)
        only[v, t] = True
        gradient = torch.autograd.grad(random_hinges_loss(scores, only, negatives, 1.0, (step, 1)), scores)[0]
        row, column = (gradient[v] == 1).nonzero()[:, 0], (gradient[:, t] == 1).nonzero()[:, 0]
        found.append((v, t, int(row[0]) if kind == "caption" else int(column[0])))
        assert gradient[v, t] == -2
        assert gradient.abs().sum() == 4
    return found


def test_each_pair_has_one_random_negative_of_either_side_drawn_anew_each_step() -> None:
    _, positives, negatives, _ = a_batch(3, images=6, captions=12)
    assert bool((positives.any(0) & negatives.any(0)).all())
    seen = {kind: [drawn(kind, positives, negatives, step) for step in range(30)] for kind in ("caption", "image")}
    for v, t, other in (one for draw in seen["caption"] for one in draw):
        assert negatives[v, other], t
    for _, t, other in (one for draw in seen["image"] for one in draw):
        assert negatives[other, t]
    assert seen["caption"][0] == drawn("caption", positives, negatives, 0)
    first = positives.nonzero()[0].tolist()
    chosen = {draw[0][2] for draw in seen["caption"]}
    assert len(chosen) > 0.5 * int(negatives[first[0]].sum())  # all of them sooner or later


def test_the_value_is_the_hinges_of_the_drawn_ones() -> None:
    similarity, positives, negatives, _ = a_batch(3, images=6, captions=12)
    sides = (drawn(kind, positives, negatives, 2) for kind in ("caption", "image"))
    expected = similarity.sum() * 0
    for (v, t, c), (_, _, i) in zip(*sides, strict=True):
        for wrong in (similarity[v, c], similarity[i, t]):
            expected = expected + (0.4 - similarity[v, t] + wrong).clamp(min=0)
    torch.testing.assert_close(random_hinges_loss(similarity, positives, negatives, 0.4, (2, 1)), expected)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Corpus:
    return Corpus(tmp_path_factory.mktemp("corpus"))


@pytest.mark.parametrize(("beta", "loss"), [(0.25, loss) for loss in LOSSES] + [(0.0, "sum"), (1.0, "sum")])
def test_beta_weighs_the_losses(corpus: Corpus, beta: float, loss: str) -> None:
    def losses(**options) -> dict[str, Tensor]:
        module = corpus.module("mlmme", loss=loss)
        arguments = module.hparams["arguments"] | options
        torch.manual_seed(0)
        made = type(module)(**{**module.hparams, "arguments": arguments})
        made.trainer = make_trainer(1)
        return made.losses(next(iter(corpus.data(groups=[parse_group("en/human + de/human")]).train_dataloader())))

    half, found = losses(beta=0.5, each_pair=1), losses(beta=beta)
    assert ("ranking" in found) == (beta > 0)
    assert ("between_captions" in found) == (beta < 1)
    for name, value in found.items():
        weight = beta if name == "ranking" else 2 * (1 - beta)
        torch.testing.assert_close(value, 2 * weight * half[name])


def test_it_trains_and_logs(corpus: Corpus) -> None:
    diary, groups = Diary(), [parse_group("en/human + de/human")]
    make_trainer(12, diary).fit(corpus.module("mlmme"), corpus.data(groups=groups))
    assert diary.logged[-1]["train/loss"] < 0.7 * diary.logged[0]["train/loss"]
    assert diary.logged[-1]["val/rsum"] > diary.logged[0]["val/rsum"]


def test_options_that_make_no_sense() -> None:
    for options, words in (
        ({"beta": 1.5}, "beta is 1.5; expected 0 to 1"), ({"map": "none"}, "map 'none': expected own or shared"),
        ({"each_pair": 3}, "each_pair is 3; expected 1 or 2"),
    ):  # fmt: skip
        with pytest.raises(ModelError, match=words):
            make("mlmme", **options)
    assert model_class("mlmme").needs_pairs(beta=0.5)
    assert not model_class("mlmme").needs_pairs()
