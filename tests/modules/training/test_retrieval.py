"""The retrieval LightningModule: its schedule, what it logs, whom it ranks, that it learns and goes on where it was."""

from unittest import mock

import numpy as np
import pytest
import torch
from pytorch_lightning.callbacks import Callback, ModelCheckpoint

import modules.losses.registry
from data.batches.retrieval import RetrievalData
from data.batches.slots import parse_group
from data.captions.table import Caption, read_captions, write_captions
from data.pictures.regions import RegionStore, write_regions
from data.text.text_inputs import WordVocabulary
from modules.losses.triplet import hard_negative_loss
from modules.metrics.retrieval import retrieval_ranks, retrieval_scores
from modules.training.retrieval import Retrieval
from tests.modules.small import Diary, make_trainer

SETTINGS = {
    "loss": None, "margin": 0.2, "type_weights": None, "warmup_epochs": 0, "learning_rate": 0.01,
    "decay_epoch": 100, "decay": 0.1, "test_languages": ["de", "en"], "select": ["de", "en"],
}  # fmt: skip
COLOURS, THINGS = ("red", "blue", "green", "white", "black"), ("dog", "house", "car", "tree")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Twenty pictures, named by colour and thing in English and German; the same ones to train, validate and test."""
    folder = tmp_path_factory.mktemp("corpus")
    names = [f"{colour} {thing}" for colour in COLOURS for thing in THINGS]
    captions = [
        Caption(name, f"{name}-{language}-{split}", language, text, split)
        for split in ("train", "val", "test")
        for name in names
        for language, text in (("en", f"a {name}"), ("de", f"ein{name[::-1]}".replace(" ", " x")))
    ]
    write_captions(captions, folder / "captions.parquet")
    regions = np.random.default_rng(0).normal(size=(len(names), 3, 8))
    write_regions(folder, names, ((region, np.zeros((3, 4))) for region in regions))
    table = read_captions(folder / "captions.parquet")
    return table, RegionStore(folder), WordVocabulary.build(table["text"][:], table["language"][:], 1)


def make_data(corpus, held_out=("de", "en"), batch_size: int = 16, **settings) -> RetrievalData:
    table, store, words = corpus
    groups = [parse_group("en/human"), parse_group("de/human")]
    splits = {"val": held_out, "test": held_out}
    return RetrievalData(table, store, words, groups, ["de", "en"], splits, batch_size, **settings)


def make_module(corpus, model: str = "san", **settings) -> Retrieval:
    arguments = {
        "region_dim": 8, "vocabulary_size": len(corpus[2]), "languages": ["de", "en"], "dim": 16, "word_dim": 8,
    }  # fmt: skip
    torch.manual_seed(0)
    return Retrieval(model, arguments, **(SETTINGS | settings))


def test_it_learns_twenty_images_in_two_languages(corpus) -> None:
    module, diary = make_module(corpus), Diary()
    make_trainer(60, diary, check_val_every_n_epoch=20).fit(module, make_data(corpus))
    make_trainer(1).test(module, make_data(corpus), verbose=False)
    for language in ("de", "en"):
        assert retrieval_scores(module.ranks[language])["mean_recall"] > 95
    assert diary.logged[-1]["train/loss"] < 0.5 * diary.logged[0]["train/loss"]


def test_warm_up_ends_and_the_rate_drops_at_their_epochs(corpus) -> None:
    diary, hardest = Diary(), []

    def watched(*args, **kwargs):
        hardest.append(kwargs["hardest"])
        return hard_negative_loss(*args, **kwargs)

    module = make_module(corpus, warmup_epochs=2, decay_epoch=3, decay=0.1)
    with mock.patch.object(modules.losses.registry, "hard_negative_loss", watched):
        make_trainer(5, diary, limit_val_batches=0).fit(module, make_data(corpus, steps=2))
    assert hardest == [False] * 4 + [True] * 12  # twice a step after warm-up: of the scores, and of equal ones
    assert [rate for (rate,) in diary.rates] == pytest.approx([0.01] * 3 + [0.001] * 2)


def test_epochs_of_pre_training_do_not_count_for_the_drop_of_the_rate(corpus) -> None:
    module, diary = make_module(corpus, "mule", decay_epoch=2, decay=0.1), Diary()
    module.model.pretrain_epochs = 2
    make_trainer(5, diary, limit_val_batches=0).fit(module, make_data(corpus, steps=1))
    assert [rates[0] for rates in diary.rates] == pytest.approx([0.01] * 4 + [0.001])


@pytest.mark.parametrize("steps", [0, 1, 4])
def test_the_learning_rate_rises_step_by_step_and_drops_as_without_a_warm_up(corpus, steps: int) -> None:
    class Rates(Callback):
        found: list[float] = []

        def on_before_optimizer_step(self, trainer, pl_module, optimizer) -> None:
            self.found.append(optimizer.param_groups[0]["lr"])

    rates = Rates()
    rates.found = []
    module = make_module(corpus, warmup_steps=steps, decay_epoch=2, decay=0.1)
    make_trainer(3, rates, limit_val_batches=0).fit(module, make_data(corpus, steps=3))
    rising = [0.01 * (step + 1) / steps for step in range(steps)]
    assert rates.found == pytest.approx(rising + [0.01] * (6 - steps) + [0.001] * 3)


def test_weights_of_types_reach_the_loss(corpus) -> None:
    data = make_data(corpus)
    batch = next(iter(data.train_dataloader()))
    assert set(batch["type"].tolist()) == {0, 1}
    found = []
    for weights in (None, [0.5, 0.5], [1.0, 0.0]):
        module = make_module(corpus, type_weights=weights)
        module._trainer = mock.Mock(world_size=1, current_epoch=0)
        found.append(module.losses(batch)["ranking"].item())
    assert found[0] == pytest.approx(found[1])
    assert abs(found[0] - found[2]) > 1e-3


@pytest.mark.parametrize(("model", "changes"), [("san", True), ("oe", False), ("scan-i2t-lse", False)])
def test_distances_are_of_inner_products_alone(corpus, model: str, changes: bool) -> None:
    """A model of another score may have the setting from the section of one that reads it."""
    batch, found = next(iter(make_data(corpus).train_dataloader())), []
    for distance in ("cosine", "euclidean"):
        module = make_module(corpus, model, distance=distance)
        module._trainer = mock.Mock(world_size=1, current_epoch=0)
        found.append(module.losses(batch)["ranking"].item())
    assert (found[0] != found[1]) == changes


def test_scores_of_each_language_are_logged_and_their_sum_selects(corpus) -> None:
    diary = Diary()
    make_trainer(1, diary).fit(make_module(corpus, select=["de"]), make_data(corpus))
    logged = diary.logged[0]
    for language in ("de", "en"):
        names = {name.split("/")[2] for name in logged if name.startswith(f"val/{language}/")}
        assert {"t2i_r1", "t2i_r5", "t2i_r10", "i2t_r1", "i2t_r5", "i2t_r10", "rsum", "mean_recall"} <= names
        recall = sum(logged[f"val/{language}/{way}_r{k}"] for way in ("t2i", "i2t") for k in (1, 5, 10))
        assert logged[f"val/{language}/rsum"] == pytest.approx(recall, abs=1e-3)
    assert logged["val/rsum"] == pytest.approx(logged["val/de/rsum"], abs=1e-3)
    assert logged["train/captions"] == 16  # of the last step
    make_trainer(1, diary).fit(make_module(corpus), make_data(corpus))
    both = diary.logged[1]
    assert both["val/rsum"] == pytest.approx(both["val/de/rsum"] + both["val/en/rsum"], abs=1e-3)
    assert both["val/de/rsum"] != both["val/en/rsum"]


def whole_ranks(module: Retrieval, data: RetrievalData, language: str):
    """By one matrix of all test images and the language's captions."""
    table = data._tables["test"]
    numbers = [number for number, spoken in enumerate(table["language"][:]) if spoken == language]
    batch = data._batches["test"][[(number,) for number in range(len(table))]]
    module.eval()
    with torch.no_grad():
        scores = module.model.similarity(*module.encode(batch))[:, numbers]
    return retrieval_ranks(scores, batch["image_index"][numbers])


@pytest.mark.parametrize("batch_size", [4, 64])
def test_ranks_are_those_of_the_whole_matrix_whatever_the_batches(corpus, batch_size: int) -> None:
    module, data = make_module(corpus), make_data(corpus, batch_size=batch_size)
    trainer = make_trainer(1)
    trainer.validate(module, data, verbose=False)
    validated = module.ranks
    for language in ("de", "en"):
        rsum = float(trainer.callback_metrics[f"val/{language}/rsum"])
        assert rsum == pytest.approx(retrieval_scores(validated[language])["rsum"], abs=1e-3)
    trainer.test(module, data, verbose=False)
    for language in ("de", "en"):
        expected = whole_ranks(module, data, language)
        assert len(expected.text_to_image) == 20
        for name in ("text_to_image", "image_to_text", "caption_image"):
            assert torch.equal(getattr(module.ranks[language], name), getattr(expected, name))
        logged = trainer.callback_metrics[f"test/{language}/rsum"]
        assert float(logged) == pytest.approx(retrieval_scores(expected)["rsum"], abs=1e-3)


def test_the_test_is_encoded_in_float32_as_a_model_is_used_later(corpus) -> None:
    module, data, found = make_module(corpus), make_data(corpus), []
    encode = module.encode
    module.encode = lambda batch: found.append(encode(batch)) or found[-1]
    for precision in ("32-true", "bf16-mixed"):
        trainer = make_trainer(1, precision=precision)
        trainer.test(module, data, verbose=False)
    for one, other in zip(found[: len(found) // 2], found[len(found) // 2 :], strict=True):
        assert all(torch.equal(a, b) for a, b in zip((*one[0], *one[1]), (*other[0], *other[1]), strict=True))
    before = len(found)
    trainer.validate(module, data, verbose=False)
    with torch.autocast("cpu", torch.bfloat16):
        low = module.encode(next(iter(data.val_dataloader())))
    assert torch.equal(found[before][0][0], low[0][0])  # validation stays as training is


def test_a_language_without_held_out_captions_is_left_out_and_old_ranks_are_not_shown(corpus) -> None:
    module, trainer = make_module(corpus, select=["en"]), make_trainer(1)
    trainer.test(module, make_data(corpus), verbose=False)
    assert set(module.ranks) == {"de", "en"}
    trainer.test(module, make_data(corpus, held_out=("en",)), verbose=False)
    assert set(module.ranks) == {"en"}
    trainer.validate(module, make_data(corpus, held_out=("en",)), verbose=False)
    assert "val/en/rsum" in trainer.callback_metrics
    assert "val/de/rsum" not in trainer.callback_metrics


@pytest.mark.parametrize("batch_size", [1, 3, 20])
def test_an_image_without_a_caption_in_a_language_is_in_its_gallery_whatever_the_batches(
    corpus, batch_size: int
) -> None:
    table, store, words = corpus
    kept = [
        number for number, row in enumerate(table.to_list()) if row["language"] == "en" or row["image_id"] < "blue d"
    ]
    data = make_data((table.select(kept), store, words), batch_size=4)
    data.batch_size = batch_size
    module = make_module(corpus)
    make_trainer(1).test(module, data, verbose=False)
    expected = whole_ranks(module, data, "de")
    assert len(expected.text_to_image) == sum(name.startswith(("black", "blue car")) for name in store.ids)
    assert torch.equal(module.ranks["de"].text_to_image, expected.text_to_image)
    assert torch.equal(module.ranks["de"].image_to_text, expected.image_to_text)
    assert len(module.ranks["de"].image_to_text) == 20


def test_image_keys_of_the_test_follow_the_table(corpus) -> None:
    table, store, words = corpus
    order = np.random.default_rng(0).permutation(len(table)).tolist()
    shuffled = (table.select(order), store, words)
    data = make_data(shuffled)
    data.setup("test")
    keys = data.image_keys("test")
    names = [row["image_id"] for row in shuffled[0].to_list() if row["split"] == "test"]
    assert [store.ids[key] for key in keys] == list(dict.fromkeys(names))
    assert keys != sorted(keys)


def test_image_keys_of_a_language_are_those_it_has_captions_of(corpus) -> None:
    table, store, words = corpus
    kept = [number for number, row in enumerate(table.to_list()) if row["language"] == "en" or "red" in row["image_id"]]
    data = make_data((table.select(kept), store, words))
    assert len(data.image_keys("test")) == len(data.image_keys("test", "en")) == 20
    assert [store.ids[key] for key in data.image_keys("test", "de")] == [f"red {thing}" for thing in THINGS]


def test_a_test_leaves_nothing_behind_for_the_next(corpus) -> None:
    module, trainer = make_module(corpus), make_trainer(1)
    trainer.test(module, make_data(corpus), verbose=False)
    first = module.ranks["en"].text_to_image
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(torch.randn_like(parameter))
    trainer.test(module, make_data(corpus), verbose=False)
    assert not torch.equal(module.ranks["en"].text_to_image, first)
    assert torch.equal(module.ranks["en"].text_to_image, whole_ranks(module, make_data(corpus), "en").text_to_image)


def test_stopped_and_resumed_ends_with_the_same_weights(corpus, tmp_path) -> None:
    def keep(folder: str) -> ModelCheckpoint:
        return ModelCheckpoint(tmp_path / folder, filename="last", enable_version_counter=False)

    settings = {"enable_checkpointing": True, "gradient_clip_val": 0.5}
    whole = make_module(corpus, decay_epoch=3, warmup_epochs=1)
    make_trainer(4, keep("whole"), **settings).fit(whole, make_data(corpus))
    half = make_module(corpus, decay_epoch=3, warmup_epochs=1)
    make_trainer(2, keep("parts"), **settings).fit(half, make_data(corpus))
    resumed = make_module(corpus, decay_epoch=3, warmup_epochs=1)
    last = str(tmp_path / "parts" / "last.ckpt")
    make_trainer(4, keep("parts"), **settings).fit(resumed, make_data(corpus), ckpt_path=last, weights_only=True)
    for ours, theirs, before in zip(resumed.parameters(), whole.parameters(), half.parameters(), strict=True):
        assert torch.equal(ours, theirs)
        assert not torch.equal(ours, before)
    loaded = Retrieval.load_from_checkpoint(tmp_path / "parts" / "last.ckpt", weights_only=True)
    assert loaded.hparams["margin"] == 0.2
    assert all(torch.equal(a, b) for a, b in zip(loaded.parameters(), whole.parameters(), strict=True))


def test_gradients_are_clipped(corpus) -> None:
    class Norms(Callback):
        found: list[float] = []

        def on_before_zero_grad(self, trainer, pl_module, optimizer) -> None:
            gradients = [p.grad for p in pl_module.parameters() if p.grad is not None]
            if gradients:
                self.found.append(float(torch.cat([g.flatten() for g in gradients]).norm()))

    make_trainer(2, Norms(), gradient_clip_val=0.01, limit_val_batches=0).fit(make_module(corpus), make_data(corpus))
    assert Norms.found
    assert max(Norms.found) <= 0.01 + 1e-6
