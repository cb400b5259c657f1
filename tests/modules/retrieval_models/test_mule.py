"""MULE and its relatives against their formulas in float64, its losses and its phases."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from data.batches.slots import parse_group
from modules.errors import ModelError
from modules.layers.batch_norm import GlobalBatchNorm
from modules.losses.registry import negative_mask
from modules.losses.triplet import most_violated_loss
from modules.retrieval_models import model_class
from modules.retrieval_models.mule import EmbN, Mule
from modules.search.scores import gram, inner_product
from tests.modules.cases import (
    LANGUAGES,
    LENGTHS,
    C,
    D,
    E,
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

NAMES = ["embn", "parallel-embn", "mule"]
SMALL = {"image_dim": 12, "state_dim": 9}
TOGETHER = [parse_group("en/human + de/human")]


def small(name: str, **options) -> EmbN:
    extra = {"universal_dim": 7} if name == "mule" else {}
    return make(name, **SMALL, **extra, **options).eval()


def image(model: EmbN, regions: Tensor) -> Tensor:
    first, norm, _, second = model.image
    hidden = first.weight @ (sum(regions) / len(regions))
    hidden = (hidden - norm.running_mean) / (norm.running_var + norm.eps).sqrt() * norm.weight + norm.bias
    return second.weight @ hidden.clamp(min=0) + second.bias


def caption(model: EmbN, tokens: Tensor, language: int) -> Tensor:
    words, branch = model.words.weight[tokens], model.captions
    if isinstance(model, Mule):
        layer = model.to_universal.of[("de", "en")[language]]
        words = torch.stack([layer.weight @ word + layer.bias for word in words])
    elif hasattr(branch, "of"):
        branch = branch.of[("de", "en")[language]]
    states = branch.states.lstm if model.cell == "lstm" else branch.states.gru
    return branch.out.weight @ states(words[None])[0][0, -1] + branch.out.bias


def cosine(model: EmbN, v: Tensor, t: Tensor) -> Tensor:
    return v @ t / (v.norm() * t.norm())


@pytest.mark.parametrize("cell", ["lstm", "gru"])
@pytest.mark.parametrize("name", NAMES)
def test_scores_and_gradients_equal_the_formula(name: str, cell: str) -> None:
    model, batch = small(name, cell=cell), make_batch()
    for kind in [module for module in model.modules() if isinstance(module, GlobalBatchNorm)]:
        kind.running_mean.normal_()
    if name == "mule":
        del model.language_of  # it does not score
    check_same(model, plain_scores(model, image, caption, cosine, batch), batch)


@pytest.mark.parametrize("name", NAMES)
def test_order_padding_norm_autocast_and_learning(name: str) -> None:
    check_order_and_padding(small(name))
    check_unit_norm(small(name))
    check_autocast(small(name))
    model = small(name).train()
    if name == "mule":
        del model.language_of
    check_learns(model)


def test_u_is_the_mean_universal_word_whatever_the_padding() -> None:
    model, (_, _, tokens) = small("mule"), make_batch()
    found = model.universal_of(tokens, LENGTHS, LANGUAGES)
    for row, length in enumerate(LENGTHS.tolist()):
        layer = model.to_universal.of[("de", "en")[int(LANGUAGES[row])]]
        words = [layer.weight @ word + layer.bias for word in model.words.weight[tokens[row, :length]]]
        torch.testing.assert_close(found[row], sum(words) / length)
    torch.testing.assert_close(model.universal_of(F.pad(tokens, (0, 3)), LENGTHS, LANGUAGES), found)


def test_cosines_of_captions_with_each_other_and_their_gradient() -> None:
    torch.manual_seed(0)
    vectors = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(5, 5, dtype=torch.float64)
    values = gram(vectors), inner_product(vectors, vectors)
    torch.testing.assert_close(*values)
    torch.testing.assert_close(*(torch.autograd.grad((weight * value).sum(), vectors)[0] for value in values))


def test_a_word_goes_through_its_layer_once() -> None:
    model, (_, _, tokens) = small("mule"), make_batch()
    seen = []
    for layer in model.to_universal.of.values():
        layer.register_forward_hook(lambda layer, inputs, output: seen.append(len(inputs[0])))
    words, lengths = model.universal_words(tokens, LENGTHS, LANGUAGES)
    assert torch.equal(lengths, LENGTHS)
    of_language = [set(tokens[number == LANGUAGES].flatten().tolist()) for number in (0, 1)]
    assert sorted(seen) == sorted(map(len, of_language))
    torch.testing.assert_close(words, model.to_universal(model.words(tokens), LENGTHS, LANGUAGES))


def test_the_classifier_learns_and_its_gradient_on_u_is_reversed() -> None:
    model = small("mule", classifier=0.25)
    u = torch.randn(C, 7, dtype=torch.float64, requires_grad=True)
    plain = F.cross_entropy(model.language_of(u), LANGUAGES)
    ours = F.cross_entropy(model.name_languages(u), LANGUAGES)
    torch.testing.assert_close(ours, plain)
    inputs = (u, model.language_of.weight)
    (to_u, to_layer), (plain_u, plain_layer) = (torch.autograd.grad(loss, inputs) for loss in (ours, plain))
    torch.testing.assert_close(to_u, -0.25 * plain_u)
    torch.testing.assert_close(to_layer, plain_layer)


def test_the_anchor_is_the_distance_of_words_from_their_start() -> None:
    model = small("embn", anchor=0.5)
    model.set_word_vectors(torch.ones(len(model.words.weight), E))
    assert model.auxiliary_losses({}, None)["anchor"] == 0
    model.words.weight.data[3] += 2
    torch.testing.assert_close(model.auxiliary_losses({}, None)["anchor"], torch.tensor(0.5 * 4 * E).double())
    assert "start" not in model.state_dict()
    assert small("embn", anchor=0.0).auxiliary_losses({}, None) == {}


def test_batch_norm_is_torch_s() -> None:
    torch.manual_seed(0)
    ours, theirs = GlobalBatchNorm(4).double(), nn.BatchNorm1d(4).double()
    rows = torch.randn(6, 4, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(6, 4, dtype=torch.float64)
    for _ in range(3):
        values = [layer(rows) for layer in (ours, theirs)]
        torch.testing.assert_close(*values)
        torch.testing.assert_close(*(torch.autograd.grad((value * weight).sum(), rows)[0] for value in values))
    torch.testing.assert_close(ours.state_dict(), theirs.state_dict())
    torch.testing.assert_close(ours.eval()(rows), theirs.eval()(rows))
    assert ours.train()(rows[:1]).isfinite().all()  # of one row, torch refuses to


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Corpus:
    return Corpus(tmp_path_factory.mktemp("corpus"))


def module_of(corpus: Corpus, name: str = "mule", **options):
    torch.manual_seed(0)
    module = corpus.module(name, margin=0.05)
    arguments = module.hparams["arguments"] | SMALL | ({"universal_dim": 7} if name == "mule" else {}) | options
    torch.manual_seed(0)
    return type(module)(**{**module.hparams, "arguments": arguments})


def test_pre_training_moves_the_universal_layers_alone(corpus: Corpus) -> None:
    module, diary = module_of(corpus, pretrain_epochs=2), Diary()
    start = {name: parameter.clone() for name, parameter in module.model.named_parameters()}
    make_trainer(2, diary, limit_val_batches=0).fit(module, corpus.data(groups=TOGETHER))
    moved = {name.split(".")[0] for name, now in module.model.named_parameters() if not torch.equal(now, start[name])}
    assert moved == {"to_universal"}
    assert diary.logged[1]["train/loss"] < diary.logged[0]["train/loss"]
    assert "train/ranking" not in diary.logged[1]
    make_trainer(3, diary, limit_val_batches=0).fit(module, corpus.data(groups=TOGETHER))
    assert {"train/ranking", "train/neighbours_joint", "train/language", "train/anchor", "train/language_accuracy"} <= (
        diary.logged[-1].keys()
    )


def test_no_epoch_of_pre_training_is_chosen(corpus: Corpus) -> None:
    """A model that starts from trained weights may rank best before it has learned anything new."""
    module, diary = module_of(corpus, pretrain_epochs=2), Diary()
    make_trainer(4, diary).fit(module, corpus.data(groups=TOGETHER))
    assert module.selects == "val/selection"
    found = [logged["val/selection"] for logged in diary.logged]
    assert found == [-2, -1, *(logged["val/rsum"] for logged in diary.logged[2:])]
    assert all(logged["val/rsum"] > 0 for logged in diary.logged)
    assert module_of(corpus, pretrain_epochs=0, neighbours=0).selects == "val/rsum"


def neighbours(vectors: Tensor, right: Tensor, wrong: Tensor, count: int = 10, margin: float = 0.05) -> Tensor:
    """Eq. 1 of one layer, slowly: the mean over neighbours of each sentence of its most violated hinges."""
    distances, hinges = 1 - vectors @ vectors.t(), []
    for anchor, positive in right.nonzero().tolist():
        others = distances[anchor, positive] - distances[anchor][wrong[anchor]] + margin
        hinges.append(others.clamp(min=0).sort(descending=True).values[:count].mean())
    return torch.stack(hinges).mean()


@pytest.mark.parametrize(("warmup", "hardest"), [(0, True), (1, False)])
def test_pre_training_takes_the_most_violated_negatives_where_nothing_warms_up(
    corpus: Corpus, warmup: int, hardest: bool
) -> None:
    module = module_of(corpus, pretrain_epochs=2)
    module.loss.warmup_epochs, module.loss.count = warmup, 1
    module.trainer = make_trainer(1)
    batch = next(iter(corpus.data(groups=TOGETHER).train_dataloader()))
    u = F.normalize(module.model.universal_of(batch["tokens"], batch["lengths"], batch["language"]), dim=-1)
    links = torch.searchsorted(batch["image_key"], batch["image_key"][batch["image_index"]])
    wrong = negative_mask(batch["image_key"], links, batch["sentence"], batch["image_sentences"])[1][links]
    right = (links[:, None] == links) & ~torch.eye(len(links)).bool()
    expected = neighbours(u, right, wrong & wrong.t(), 1 if hardest else len(u))
    torch.testing.assert_close(module.losses(batch)["neighbours_universal"], expected)


@pytest.mark.parametrize(
    ("options", "absent"),
    [({"neighbours": 0}, "neighbours"), ({"classifier": 0}, "language"), ({"anchor": 0}, "anchor")],
    ids=str,
)
def test_each_loss_can_be_left_out(corpus: Corpus, options: dict, absent: str) -> None:
    diary = Diary()
    module = module_of(corpus, pretrain_epochs=0, **options)
    make_trainer(1, diary, limit_val_batches=0).fit(module, corpus.data(groups=TOGETHER))
    assert not [name for name in diary.logged[0] if name.startswith(f"train/{absent}")]


def test_the_losses_of_a_batch_are_the_formula(corpus: Corpus) -> None:
    module = module_of(corpus, pretrain_epochs=0, neighbours=0.5, matching=2.0, anchor=0.0)
    module.trainer = make_trainer(1)
    batch = next(iter(corpus.data(groups=TOGETHER).train_dataloader()))
    module.eval()
    losses, model = module.losses(batch), module.model
    inputs = (batch["tokens"], batch["lengths"], batch["language"])
    u = F.normalize(model.universal_of(*inputs), dim=-1)
    s, v = model.encode_captions(*inputs)[0][:, 0], model.encode_images(batch["regions"].float(), batch["region_mask"])
    links = torch.searchsorted(batch["image_key"], batch["image_key"][batch["image_index"]])
    masks = negative_mask(batch["image_key"], links, batch["sentence"], batch["image_sentences"])
    torch.testing.assert_close(losses["ranking"], 2 * most_violated_loss(v[0][:, 0] @ s.t(), *masks, 0.05))
    same_image = links[:, None] == links
    wrong = masks[1][links] & masks[1][links].t()
    right = same_image & ~torch.eye(len(links)).bool()
    for name, vectors in (("universal", u), ("joint", s)):
        torch.testing.assert_close(losses[f"neighbours_{name}"], 0.5 * neighbours(vectors, right, wrong))


def test_it_resumes_in_either_phase(corpus: Corpus, tmp_path: Path) -> None:
    whole = module_of(corpus, pretrain_epochs=2)
    make_trainer(4, limit_val_batches=0).fit(whole, corpus.data(groups=TOGETHER))
    for epochs in (1, 3):
        part = module_of(corpus, pretrain_epochs=2)
        trainer = make_trainer(epochs, limit_val_batches=0)
        trainer.fit(part, corpus.data(groups=TOGETHER))
        trainer.save_checkpoint(tmp_path / "last.ckpt")
        again = module_of(corpus, pretrain_epochs=2)
        make_trainer(4, limit_val_batches=0).fit(again, corpus.data(groups=TOGETHER), ckpt_path=tmp_path / "last.ckpt")
        for name, parameter in whole.state_dict().items():
            assert torch.equal(again.state_dict()[name], parameter), (epochs, name)


@pytest.mark.parametrize("name", NAMES)
def test_dropout_of_the_image_branch_is_of_its_hidden_layer_in_training_alone(name: str) -> None:
    plain, dropping = small(name), small(name, image_dropout=0.5)
    dropping.load_state_dict(plain.state_dict())  # by the same names
    regions = torch.randn(500, D, dtype=torch.float64)
    torch.testing.assert_close(dropping.image(regions), plain.image(regions))
    hidden = plain.image[:3](regions)
    dropping.image[2].train()
    seen = dropping.image[:3](regions)[hidden > 0]
    assert abs((seen > 0).double().mean() - 0.5) < 0.05
    torch.testing.assert_close(seen[seen > 0], 2 * hidden[hidden > 0][seen > 0])


def test_options_that_make_no_sense() -> None:
    with pytest.raises(ModelError, match="neighbours is -1; expected 0 or more"):
        make("mule", neighbours=-1)
    with pytest.raises(ModelError, match="same_language is -1; expected 0 or more"):
        make("mule", same_language=-1)
    with pytest.raises(ModelError, match="cell 'rnn': expected lstm or gru"):
        make("embn", cell="rnn")
    with pytest.raises(ModelError, match="image_dropout is 1; expected 0 or more, and less than 1"):
        make("mule", image_dropout=1.0)
    assert model_class("mule").needs_pairs()
    assert not model_class("mule").needs_pairs(neighbours=0, pretrain_epochs=0)
    for one in ({"neighbours": 0}, {"pretrain_epochs": 0}):
        assert model_class("mule").needs_pairs(**one) == "captions"
    assert not model_class("parallel-embn").needs_pairs()
