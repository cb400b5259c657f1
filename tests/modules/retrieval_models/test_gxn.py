"""GXN against its formulas in float64, and its training: which loss moves which part."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from data.batches.slots import parse_group
from modules.errors import ModelError
from modules.retrieval_models.gxn import Gxn
from modules.training.gxn import GxnTraining
from modules.training.retrieval import Retrieval
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
    plain_scores,
)
from tests.modules.small import Corpus, Diary, make_trainer
from tests.modules.text_models import save

BOTH = ["abstract", "grounded"]
PATHS: dict[str, dict[str, Any]] = {
    "xe": {"generate": ["i2t"]},
    "mix": {"generate": ["i2t"], "reinforce_epoch": 0},
    "others": {"generate": ["i2t"], "reinforce_epoch": 0, "baseline": "others", "samples": 3},
    "t2i": {"generate": ["t2i"], "picture_size": 8, "picture_width": 4},
    "regions": {"generate": ["t2i"], "target": "regions", "picture_width": 2},
    "both": {"generate": ["i2t", "t2i"], "picture_size": 8, "picture_width": 4, "picture_epochs": 1},
}


def unit(vector: Tensor) -> Tensor:
    return (vector / vector.norm()).abs()


def image(model: Gxn, regions: Tensor) -> dict[str, Tensor]:
    mean = sum(regions) / len(regions)
    return {name: unit(layer.weight @ mean + layer.bias) for name, layer in model.images.items()}


def caption(model: Gxn, tokens: Tensor, language: int) -> dict[str, Tensor]:
    words, found = model.words.weight[tokens][None], {}
    if "abstract" in model.branches:
        states = model.states["abstract"].gru(words)[0][0]
        half = states.shape[1] // 2
        last = torch.cat([states[-1, :half], states[0, half:]])
        found["abstract"] = unit(model.captions["abstract"].weight @ last + model.captions["abstract"].bias)
    if "grounded" in model.branches:
        last = model.states["grounded"].gru(words)[0][0, -1]
        found["grounded"] = unit(model.captions["grounded"].weight @ last + model.captions["grounded"].bias)
    return found


def order(v: Tensor, t: Tensor) -> Tensor:
    return -(t - v).clamp(min=0).square().sum()


@pytest.mark.parametrize("branches", [["grounded"], ["abstract"], BOTH], ids=str)
def test_it_is_the_formula_whatever_the_padding_and_it_learns(branches: list[str]) -> None:
    model, batch = make("gxn", branches=branches, mixing=0.3, state_dim=5), make_batch()

    def score(model: Gxn, v: dict[str, Tensor], t: dict[str, Tensor]) -> Tensor:
        """λ s(t_h, v_h) + (1 − λ) s(t_l, v_l), or the score of the one branch."""
        if len(branches) == 1:
            return order(v[branches[0]], t[branches[0]])
        return 0.3 * order(v["abstract"], t["abstract"]) + 0.7 * order(v["grounded"], t["grounded"])

    check_same(model, plain_scores(model, image, caption, score, batch), batch)
    check_order_and_padding(model)
    check_unit_norm(model)
    check_autocast(model)
    check_learns(model, 0.5)


def test_scores_of_branches_add_up_to_the_whole_score() -> None:
    model, (regions, mask, tokens) = make("gxn", branches=BOTH, mixing=0.3), make_batch()
    images, captions = model.encode_images(regions, mask), model.encode_captions(tokens, LENGTHS, LANGUAGES)
    parts = [[model.of_branch(side, branch) for side in (images, captions)] for branch in BOTH]
    whole = model.similarity(images, captions)
    torch.testing.assert_close(whole, model.similarity(*parts[0]) + model.similarity(*parts[1]))
    torch.testing.assert_close(parts[1][0][0][:, 0], 0.7**0.5 * model.grounded_images(regions, mask))
    with pytest.raises(ModelError, match="Gxn has no branch 'other'"):
        model.of_branch(images, "other")
    assert make("gxn", branches=["grounded"]).branches == Gxn.branches_with(branches=["grounded"]) == ("grounded",)


def test_imagined_images_are_of_the_mean_and_the_deviation() -> None:
    model = make("gxn", generate=["t2i"], target="regions").eval()
    captions = torch.rand(3, 8, dtype=torch.float64)
    noise, z = torch.randn(3, 128, dtype=torch.float64), torch.randn(3, 100, dtype=torch.float64)
    found, mean, log_deviation = model.imagine(captions, noise, z)
    both = model.condition.layer(captions * 8**0.5)
    torch.testing.assert_close(torch.cat([mean, log_deviation], 1), both)
    drawn = both[:, :128] + both[:, 128:].exp() * noise
    torch.testing.assert_close(found, model.generator(torch.cat([drawn, z], 1)))


class Pictures:
    """Pictures whose colour is that of the thing's name."""

    def pixels_of(self, image_ids: list[str]) -> np.ndarray:
        return np.stack([np.full((3, 8, 8), sum(map(ord, name)) % 256, np.uint8) for name in image_ids])


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return Corpus(tmp_path_factory.mktemp("gxn"))


def train(corpus: Corpus, epochs: int, options: dict[str, Any], **settings: Any) -> tuple[GxnTraining, Diary]:
    torch.manual_seed(0)
    arguments = {
        "region_dim": 16, "vocabulary_size": len(corpus.words), "languages": ["de", "en"], "dim": 32, "word_dim": 16,
    } | options  # fmt: skip
    plain = {
        "loss": None, "margin": 0.05, "type_weights": None, "warmup_epochs": 0, "learning_rate": 0.01,
        "decay_epoch": 100, "decay": 0.1, "test_languages": ["de", "en"], "select": ["de", "en"],
    }  # fmt: skip
    module, data, diary = GxnTraining("gxn", arguments, **(plain | settings)), corpus.data(), Diary()
    data._batches["train"].pictures = Pictures()
    make_trainer(epochs, diary, check_val_every_n_epoch=epochs).fit(module, data)
    return module, diary


@pytest.mark.parametrize("path", PATHS)
def test_each_path_trains_beside_the_ranking_loss(corpus: Corpus, path: str) -> None:
    _, diary = train(corpus, 8, PATHS[path])
    first, last = diary.logged[1], diary.logged[-1]
    assert last["train/ranking"] < 0.7 * first["train/ranking"]
    assert last["val/rsum"] > 2 * 6 * 30
    i2t, t2i = ({f"train/{name}" for name in names} for names in (
        ["captioning", "cross_entropy"], ["discriminator", "generator", "smoothness"]))  # fmt: skip
    for names, wanted in ((i2t, "i2t"), (t2i, "t2i")):
        assert names <= set(last) if wanted in PATHS[path]["generate"] else not names & set(last)
    if "i2t" in PATHS[path]["generate"]:
        assert last["train/cross_entropy"] < first["train/cross_entropy"]
    assert ("train/reward" in last) == ("reinforce_epoch" in PATHS[path])


def test_rewards_raise_the_reward(corpus: Corpus) -> None:
    _, diary = train(corpus, 20, PATHS["mix"])
    rewards = [logged["train/reward"] for logged in diary.logged]  # of the last batch of each epoch
    assert sum(rewards[-5:]) > 3 * sum(rewards[:5])


def test_sampled_captions_are_scored_by_the_distribution_they_were_sampled_from(corpus: Corpus) -> None:
    module, _ = train(corpus, 1, PATHS["mix"] | {"dropout": 0.5})
    batch, found = next(iter(corpus.data().train_dataloader())), []
    vectors = torch.randn(len(batch["tokens"]), 32)
    for training in (True, True, False):
        module._draws = 0
        found.append(module.train(training)._policy_losses(batch, vectors))
    assert found[0].abs().sum() > 0
    for other in found[1:]:
        torch.testing.assert_close(other, found[0])


def test_without_a_path_it_is_plain_training(corpus: Corpus) -> None:
    module, diary = train(corpus, 2, {})
    torch.manual_seed(0)
    arguments = module.hparams["arguments"]
    keep = {key: value for key, value in module.hparams.items() if key not in ("model", "arguments")}
    other, theirs = Retrieval("gxn", arguments, **keep), Diary()
    make_trainer(2, theirs, check_val_every_n_epoch=2).fit(other, corpus.data())
    assert diary.logged[-1]["train/loss"] == theirs.logged[-1]["train/loss"]


def test_the_wrong_caption_of_an_image_is_never_its_own(corpus: Corpus) -> None:
    seen: list[Tensor] = []

    class Watched(GxnTraining):
        """Keeps, for each caption, the image of the one that counts as wrong."""

        def _captions_of_others(self, batch: dict[str, Tensor], conditions: Tensor) -> tuple[Tensor, Tensor]:
            rows = torch.arange(len(conditions), dtype=conditions.dtype)[:, None].expand_as(conditions)
            chosen, found = super()._captions_of_others(batch, rows)
            wrong = chosen[:, 0].long()
            seen.append(torch.stack([batch["image_index"], batch["image_index"][wrong], found.long()], 1))
            return super()._captions_of_others(batch, conditions)

    torch.manual_seed(0)
    sizes = {"region_dim": 16, "vocabulary_size": len(corpus.words), "languages": ["de", "en"], "dim": 8, "word_dim": 4}
    options = {"generate": ["t2i"], "target": "regions", "picture_width": 2}
    module = Watched("gxn", sizes | options, None, 0.05, None, 0, 0.01, 9, 0.1, ["de", "en"], ["de", "en"])
    groups = [parse_group("en/human + de/human")]
    make_trainer(1, limit_val_batches=0).fit(module, corpus.data(groups=groups))
    own, wrong, found = torch.cat(seen).unbind(1)
    assert bool((own != wrong).all())
    assert bool(found.all())
    batch = next(iter(corpus.data(groups=groups).train_dataloader()))
    some = batch["image_index"] == 0
    one = {name: value[some] for name, value in batch.items() if len(value) == len(some)}
    one |= {"image_key": batch["image_key"][:1], "image_sentences": batch["image_sentences"]}
    assert not module._captions_of_others(one, torch.zeros(int(some.sum()), 3))[1].any()


def test_a_text_model_has_its_own_learning_rate_for_each_loss(corpus: Corpus, tmp_path: Path) -> None:
    sizes = {"region_dim": 16, "vocabulary_size": 12, "languages": ["de", "en"], "dim": 8, "word_dim": 4}
    options = {"generate": ["t2i"], "target": "regions", "picture_width": 2, "pretrained": str(save("bert", tmp_path))}
    plain = (None, 0.05, None, 0, 0.01, 9, 0.1, ["de", "en"], ["de", "en"])
    module = GxnTraining("gxn", sizes | options, *plain, pretrained_rate=0.1)
    module._trainer = SimpleNamespace(max_epochs=3)
    found = dict(zip(module._names(), module.configure_optimizers()[0], strict=True))
    text = {id(parameter) for parameter in module.model.words.parameters()}
    for name in ("ranking", "generator"):
        rates = {group["lr"] for group in found[name].param_groups if {id(one) for one in group["params"]} & text}
        assert [*rates] == [pytest.approx(0.001)]


@pytest.mark.parametrize("path", ["xe", "t2i"])
def test_at_a_generation_rate_of_zero_generating_changes_nothing_in_retrieval(corpus: Corpus, path: str) -> None:
    plain, _ = train(corpus, 3, {})
    weights = plain.model.state_dict()
    slow, _ = train(corpus, 3, PATHS[path] | {"generation_rate": 0})
    usual, _ = train(corpus, 3, PATHS[path])
    for module, equal in ((slow, True), (usual, False)):
        found = module.model.state_dict()
        assert found.keys() > weights.keys()
        assert all(torch.equal(found[name], weights[name]) for name in weights) is equal


def test_the_generation_rate_is_of_what_the_ranking_loss_trains_too(corpus: Corpus) -> None:
    module, _ = train(corpus, 1, {**PATHS["xe"], "generation_rate": 0.1})
    found = dict(zip(module._names(), module.configure_optimizers()[0], strict=True))
    rates = {id(one): group["lr"] for group in found["captioning"].param_groups for one in group["params"]}
    model = module.model
    for part, rate in ((model.words, 0.001), (model.images["grounded"], 0.001), (model.decoder, 0.01)):
        assert [*{rates[id(parameter)] for parameter in part.parameters()}] == [pytest.approx(rate)]
    assert {group["lr"] for group in found["ranking"].param_groups} == {0.01}


def test_the_picture_rate_is_of_what_draws_alone(corpus: Corpus) -> None:
    module, _ = train(corpus, 1, {**PATHS["both"], "picture_rate": 0.2, "generation_rate": 0.1})
    found = dict(zip(module._names(), module.configure_optimizers()[0], strict=True))
    rates = {(name, id(one)): group["lr"] for name, optimizer in found.items()
             for group in optimizer.param_groups for one in group["params"]}  # fmt: skip
    model = module.model
    for name, part, rate in (
        ("generator", model.generator, 0.002), ("generator", model.condition, 0.002),
        ("discriminator", model.discriminator, 0.002), ("generator", model.words, 0.001),
        ("captioning", model.decoder, 0.01), ("ranking", model.words, 0.01),
    ):  # fmt: skip
        assert [*{rates[name, id(parameter)] for parameter in part.parameters()}] == [pytest.approx(rate)]


def moved(module: GxnTraining, name: str, losses: dict[str, Tensor]) -> set[str]:
    """The parts whose parameters an update changes."""
    before = {key: parameter.detach().clone() for key, parameter in module.model.named_parameters()}
    module._update(name, losses)
    changed = [key for key, one in module.model.named_parameters() if not torch.equal(one, before[key])]
    return {".".join(key.split(".")[: 2 if key.startswith(("images", "states", "captions")) else 1]) for key in changed}


def test_each_update_moves_its_own_parts_alone(corpus: Corpus) -> None:
    found: dict[str, set[str]] = {}

    class Watched(GxnTraining):
        """Notes which parts each update moves."""

        def _update(self, name: str, losses: dict[str, Tensor]) -> None:
            if name not in found:
                found[name] = set()
                found[name] = moved(self, name, losses)
            else:
                super()._update(name, losses)

    torch.manual_seed(0)
    sizes = {"region_dim": 16, "vocabulary_size": len(corpus.words), "languages": ["de", "en"], "dim": 8, "word_dim": 4}
    options = {"generate": ["i2t", "t2i"], "picture_size": 8, "picture_width": 2}
    module = Watched("gxn", sizes | options, None, 0.05, None, 0, 0.01, 9, 0.1, ["de", "en"], ["de", "en"])
    data = corpus.data()
    data._batches["train"].pictures = Pictures()
    make_trainer(1, limit_train_batches=1, limit_val_batches=0).fit(module, data)
    assert found["captioning"] == {"words", "images.grounded", "decoder"}
    assert found["discriminator"] == {"discriminator"}
    assert found["generator"] == {"words", "states.grounded", "captions.grounded", "condition", "generator"}
    branches = {f"{part}.{name}" for part in ("images", "states", "captions") for name in BOTH}
    assert found["ranking"] == {"words"} | branches


@pytest.mark.parametrize(("options", "says"), [
    ({"branches": []}, r"branches \[\]: expected abstract, grounded or both"),
    ({"branches": ["grounded", "grounded"]}, "expected abstract, grounded or both"),
    ({"branches": ["ground"]}, "expected abstract, grounded or both"),
    ({"mixing": 1.0}, "mixing is 1.0; expected more than 0 and less than 1"),
    ({"generate": ["t2t"]}, r"generate \['t2t'\]: expected a list of i2t"),
    ({"generate": ["i2t"], "branches": ["abstract"]}, "what generates is the grounded branch"),
    ({"generate": "i2t"}, "generate 'i2t': expected a list of i2t"),
    ({"longest": 0}, "longest is 0, picture_width 32; expected 1 or more"),
    ({"gamma": [0.5]}, r"gamma is \[0.5\]; expected two shares from 0 to 1"),
    ({"gamma": [0.5, 7]}, r"gamma is \[0.5, 7\]; expected two shares"),
    ({"generation_rate": -1}, "generation_rate is -1; expected 0 or more"),
    ({"picture_rate": 0}, "picture_rate is 0; expected more than 0"),
    ({"picture_rate": float("inf")}, "picture_rate is inf; expected"),
    ({"fake_weight": -1}, "fake_weight is -1; expected 0 or more"),
    ({"scheduled_sampling": 5}, "scheduled_sampling is 5; expected a share from 0 to 1"),
    ({"picture_epochs": -1}, "picture_epochs is -1, reinforce_epoch None; expected 0 or more"),
    ({"target": "voxels"}, "target 'voxels': expected pixels or regions"),
    ({"baseline": "mean"}, "baseline 'mean' with 1 samples: expected greedy with 1 or more"),
    ({"baseline": "others", "samples": 1}, "or others with 2 or more"),
    ({"generate": ["t2i"], "picture_size": 50}, "picture_size is 50; expected 8, 16, 32, 64"),
])  # fmt: skip
def test_options_that_do_not_fit_are_one_line(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ModelError, match=says):
        make("gxn", **options)


def test_pictures_are_learned_and_trained_first_only_where_they_are_drawn() -> None:
    for options, pixels, epochs in (({"generate": ["t2i"]}, 16, 3), ({"generate": ["i2t"]}, None, 0),
                                    ({"generate": ["t2i"], "target": "regions"}, None, 3)):  # fmt: skip
        assert Gxn.pixels_with(picture_size=16, **options) == pixels
        assert make("gxn", picture_epochs=3, picture_size=16, **options).pretrain_epochs == epochs
