"""Two models that are hard to fit, as a newcomer would write them.

One has two optimizers that learn in phases, the other an encoder per language and a loss between captions.

Each is one class and a name; all else is the plain way. This file is also the script of the two processes that train
both of them together.
"""

from pathlib import Path
from typing import Any

import pytest
import torch
from pytorch_lightning.callbacks import ModelCheckpoint
from torch import Tensor, nn
from torch.nn import functional as F

from data.batches.slots import parse_group
from modules.errors import ModelError
from modules.layers.encoders import CaptionEncoder
from modules.losses.pairs import Pairs
from modules.metrics.retrieval import retrieval_scores
from modules.retrieval_models import RetrievalModel, build_model, model_class, option_names, register
from modules.retrieval_models.base import Encoding, one_vector
from modules.training.retrieval import Retrieval
from tests.modules.small import Corpus, Diary, OneLanguageARank, make_trainer
from tests.modules.two import both, two_processes

pytestmark = pytest.mark.whole


class Adversarial(Retrieval):
    """Two phases: in the first epoch only the encoders learn, to match images and captions; after it a critic learns to
    tell images from captions too, and the encoders to fool it.
    """

    automatic_optimization = False

    def training_step(self, batch: dict[str, Tensor], batch_idx: int) -> None:
        main, critic = self.optimizers()
        images, captions = self.encode(batch)
        losses = {"ranking": self.ranking_loss(self.gather(batch, images, captions))}
        adversarial = self.current_epoch > 0
        if adversarial:
            self.model.critic.requires_grad_(False)
            losses["fooled"] = -0.01 * self.model.critic_loss(images, captions)
        main.zero_grad()
        self.manual_backward(total := sum(losses.values()))
        main.step()
        if adversarial:
            self.model.critic.requires_grad_(True)
            apart = (images[0].detach(), images[1]), (captions[0].detach(), captions[1])
            losses["critic"] = self.model.critic_loss(*apart)
            critic.zero_grad()
            self.manual_backward(losses["critic"])
            critic.step()
        if self.trainer.is_last_batch:
            for schedule in self.lr_schedulers():
                schedule.step()
        self.log_losses(total, losses, batch)

    def configure_optimizers(self) -> tuple[list, list]:
        critic = list(self.model.critic.parameters())
        others = [parameter for name, parameter in self.named_parameters() if not name.startswith("model.critic.")]
        optimizers = [torch.optim.Adam(own, lr=self.hparams["learning_rate"]) for own in (others, critic)]
        milestones = [self.hparams["decay_epoch"]]
        return optimizers, [torch.optim.lr_scheduler.MultiStepLR(one, milestones, 0.1) for one in optimizers]


@register("test-two-optimizers")
class TwoOptimizers(RetrievalModel):
    """Means of regions and words, one unit vector each, and a critic.

    Args:
        critic_dim: hidden numbers of the critic.
        common: see `RetrievalModel`.
    """

    @classmethod
    def module(cls) -> type:
        return Adversarial

    def __init__(self, critic_dim: int = 4, **common: Any) -> None:
        super().__init__(**common)
        self.regions = nn.Linear(self.region_dim, self.dim)
        self.words = nn.EmbeddingBag(self.vocabulary_size, self.dim, mode="sum", padding_idx=0)
        self.critic = nn.Sequential(nn.Linear(self.dim, critic_dim), nn.ReLU(), nn.Linear(critic_dim, 1))

    def encode_images(self, regions: Tensor, mask: Tensor) -> Encoding:
        return one_vector(F.normalize(self.regions(regions).mean(1), dim=-1))

    def encode_captions(self, tokens: Tensor, lengths: Tensor, languages: Tensor) -> Encoding:
        return one_vector(F.normalize(self.words(tokens), dim=-1))

    def critic_loss(self, images: Encoding, captions: Encoding) -> Tensor:
        guesses = self.critic(torch.cat([images[0], captions[0]]))[:, 0, 0]
        truth = (torch.arange(len(guesses), device=guesses.device) < len(images[0])).float()
        return F.binary_cross_entropy_with_logits(guesses, truth)


@register("test-encoder-per-language")
class EncoderPerLanguage(RetrievalModel):
    """A Bi-LSTM of its own for each language, and captions of one image drawn together; one projection of regions."""

    def __init__(self, **common: Any) -> None:
        super().__init__(**common)
        self.regions = nn.Linear(self.region_dim, self.dim)
        self.words = self.make_words()
        sizes = (nn.Identity(), self.words.embedding_dim, self.dim, self.dropout)
        self.encoders = nn.ModuleDict({language: CaptionEncoder(*sizes) for language in self.languages})

    def encode_images(self, regions: Tensor, mask: Tensor) -> Encoding:
        return one_vector(F.normalize(self.regions(regions).mean(1), dim=-1))

    def encode_captions(self, tokens: Tensor, lengths: Tensor, languages: Tensor) -> Encoding:
        words, parts, places = self.words(tokens), [], []
        for place, language in enumerate(self.languages):
            rows = (languages == place).nonzero()[:, 0]
            if len(rows):
                parts.append(self.encoders[language](words[rows], lengths[rows.cpu()])[0].sum(1))
                places.append(rows)
        return one_vector(F.normalize(torch.cat(parts)[torch.cat(places).argsort()], dim=-1))

    def auxiliary_losses(self, batch: dict[str, Tensor], pairs: Pairs) -> dict[str, Tensor]:
        vectors, links = pairs.captions[0][:, 0], pairs.caption_image
        alike = (links[:, None] == links) & (pairs.languages[:, None] != pairs.languages)
        away = (1 - vectors @ vectors.T)[alike]
        return {"captions_apart": away.mean() if len(away) else vectors.sum() * 0}


PLUGINS = ["test-two-optimizers", "test-encoder-per-language"]


@pytest.mark.parametrize("model", PLUGINS)
def test_it_trains_validates_and_tests(corpus: Corpus, model: str) -> None:
    module, diary = corpus.module(model), Diary()
    start = {name: parameter.clone() for name, parameter in module.named_parameters()}
    make_trainer(30, diary, check_val_every_n_epoch=29).fit(module, corpus.data())
    trainer = make_trainer(1)
    trainer.test(module, corpus.data(), verbose=False)
    assert diary.logged[-1]["train/loss"] < 0.5 * diary.logged[0]["train/loss"]
    assert diary.logged[-1]["val/rsum"] > 2 * 6 * 80
    for language in ("de", "en"):
        assert retrieval_scores(module.ranks[language])["mean_recall"] > 90
        assert f"test/{language}/t2i_r1" in trainer.callback_metrics
    for name, parameter in module.named_parameters():
        assert not torch.equal(parameter, start[name]), name
    assert set(diary.logged[-1]) >= {"train/loss", "train/captions"}


@pytest.mark.parametrize("model", PLUGINS)
def test_a_corpus_with_more_languages_than_captions(corpus: Corpus, model: str) -> None:
    """Each image has one caption, in one of two languages: both are learned."""
    module, data = corpus.module(model), corpus.data(one_language=True)
    batches = list(data.train_dataloader())
    spoken = {
        (int(batch["image_key"][image]), int(language))
        for batch in batches
        for image, language in zip(batch["image_index"], batch["language"], strict=True)
    }
    assert len({image for image, _ in spoken}) == len(spoken) == 20
    assert {language for _, language in spoken} == {0, 1}
    make_trainer(30).fit(module, data)
    make_trainer(1).test(module, data, verbose=False)
    for language in ("de", "en"):  # of 20 images each language was trained on 10
        assert retrieval_scores(module.ranks[language])["mean_recall"] > 60


def test_both_optimizers_follow_the_schedule(corpus: Corpus) -> None:
    diary = Diary()
    make_trainer(4, diary).fit(corpus.module(PLUGINS[0], decay_epoch=2), corpus.data())
    assert diary.rates == [pytest.approx([rate] * 2) for rate in (0.01, 0.01, 0.001, 0.001)]


def test_each_optimizer_moves_its_own(corpus: Corpus) -> None:
    for frozen, moving in (("critic", "regions"), ("regions", "critic")):
        module = corpus.module(PLUGINS[0])
        own = module.configure_optimizers

        def without(own=own, frozen=frozen):
            optimizers, _ = own()
            optimizers[frozen == "critic"].param_groups[0]["lr"] = 0.0
            return optimizers, [torch.optim.lr_scheduler.ConstantLR(one, 1.0) for one in optimizers]

        module.configure_optimizers = without
        start = {name: parameter.clone() for name, parameter in module.model.named_parameters()}
        make_trainer(2).fit(module, corpus.data())
        for name, parameter in module.model.named_parameters():
            if name.startswith((frozen, moving)):
                assert torch.equal(parameter, start[name]) == name.startswith(frozen), name


def test_phases_follow_one_another(corpus: Corpus) -> None:
    diary = Diary()
    make_trainer(2, diary).fit(corpus.module(PLUGINS[0]), corpus.data())
    assert ["train/critic" in logged for logged in diary.logged] == [False, True]


def test_a_loss_between_captions_draws_those_of_one_image_together(corpus: Corpus) -> None:
    diary, groups = Diary(), [parse_group("en/human + de/human")]
    make_trainer(20, diary).fit(corpus.module(PLUGINS[1]), corpus.data(groups=groups))
    assert diary.logged[-1]["train/loss"] == pytest.approx(
        diary.logged[-1]["train/ranking"] + diary.logged[-1]["train/captions_apart"], rel=1e-4
    )
    assert diary.logged[-1]["train/captions_apart"] < 0.5 * diary.logged[0]["train/captions_apart"]


@pytest.mark.parametrize("model", PLUGINS)
def test_stopped_and_resumed_ends_with_the_same_weights(corpus: Corpus, model: str, tmp_path) -> None:
    def fit(epochs: int, folder: str, resume: str | None = None) -> Retrieval:
        keep = ModelCheckpoint(tmp_path / folder, filename="last")
        module = corpus.module(model, decay_epoch=3)
        trainer = make_trainer(epochs, keep, enable_checkpointing=True)
        trainer.fit(module, corpus.data(), ckpt_path=resume, weights_only=True)
        assert trainer.current_epoch == epochs
        return module

    whole, half = fit(4, "whole"), fit(2, "parts")
    resumed = fit(4, "more", str(tmp_path / "parts" / "last.ckpt"))
    for ours, theirs, before in zip(resumed.parameters(), whole.parameters(), half.parameters(), strict=True):
        assert torch.equal(ours, theirs)
        assert not torch.equal(ours, before)
    loaded = type(whole).load_from_checkpoint(tmp_path / "whole" / "last.ckpt", weights_only=True)
    assert loaded.hparams["model"] == model
    assert all(torch.equal(a, b) for a, b in zip(loaded.parameters(), whole.parameters(), strict=True))


def test_languages_do_not_share_an_encoder_and_keep_their_order(corpus: Corpus) -> None:
    model = corpus.module(PLUGINS[1]).model
    tokens, lengths = torch.tensor([[3, 4], [3, 4], [5, 0]]), torch.tensor([2, 2, 1])
    mixed, mask = model.encode_captions(tokens, lengths, torch.tensor([1, 0, 1]))
    assert mask.shape == (3, 1)
    assert (mixed[0] - mixed[1]).abs().max() > 1e-3
    for row, place in enumerate((1, 0, 1)):
        alone, _ = model.encode_captions(tokens[row : row + 1], lengths[row : row + 1], torch.tensor([place]))
        torch.testing.assert_close(alone[0], mixed[row])


def test_names_and_options() -> None:
    assert model_class(PLUGINS[0]) is TwoOptimizers
    assert model_class(PLUGINS[0]).module() is Adversarial
    assert model_class(PLUGINS[1]).module() is None
    assert option_names(TwoOptimizers) == {"critic_dim"}
    assert option_names(EncoderPerLanguage) == set()
    common = {"region_dim": 2, "vocabulary_size": 3, "languages": ["en"], "dim": 4}
    assert build_model(PLUGINS[0], critic_dim=7, **common).critic[0].out_features == 7
    with pytest.raises(ModelError, match=r"'test-two-optimisers': no such retrieval model; nearest are test-two-opt"):
        model_class("test-two-optimisers")
    with pytest.raises(ModelError, match=r"has no table of word vectors; set vse\.words=random"):
        build_model(PLUGINS[0], **common).set_word_vectors(torch.zeros(3, 300))


def test_a_name_is_given_once_and_again_to_the_same_class_read_anew() -> None:
    anew = type("TwoOptimizers", (TwoOptimizers,), {"__module__": TwoOptimizers.__module__})
    try:
        assert register(PLUGINS[0])(anew) is anew
        assert model_class(PLUGINS[0]) is anew
    finally:
        register(PLUGINS[0])(TwoOptimizers)
    with pytest.raises(ModelError, match=r"twice: \S*test_plugins\.TwoOptimizers and \S*\.EncoderPerLanguage"):
        register(PLUGINS[0])(EncoderPerLanguage)
    assert model_class(PLUGINS[0]) is TwoOptimizers


def work(rank: int, folder: Path) -> None:
    """What each of two processes does."""
    torch.set_num_threads(1)
    corpus = Corpus(folder / f"corpus-{rank}")
    found: dict[str, Any] = {}
    for model, strategy in zip(PLUGINS, ("ddp_find_unused_parameters_true", "ddp"), strict=True):
        module, diary = corpus.module(model), Diary()
        trainer = make_trainer(3, diary, devices=2, strategy=strategy)
        trainer.fit(module, corpus.data())
        trainer.test(module, corpus.data(), verbose=False)
        ranks = {language: of.text_to_image for language, of in module.ranks.items()}
        found[model] = dict(module.model.state_dict()), ranks, [logged["val/rsum"] for logged in diary.logged]
    data, module = corpus.data(), corpus.module(PLUGINS[1])
    whole = data.train_dataloader
    data.train_dataloader = lambda: OneLanguageARank(whole(), rank)
    trainer = make_trainer(1, devices=2, strategy="ddp_find_unused_parameters_true")
    trainer.fit(module, data)
    found["one language a rank"] = dict(module.model.state_dict())
    trainer.test(module, corpus.data(german=1), verbose=False)
    found["one German caption"] = {language: of.text_to_image for language, of in module.ranks.items()}
    torch.save(found, folder / f"{rank}.pt")


@pytest.fixture(scope="module")
def found(tmp_path_factory) -> list[dict]:
    folder = tmp_path_factory.mktemp("ranks")
    return two_processes(__file__, folder)


@pytest.mark.slow
@pytest.mark.parametrize("model", PLUGINS)
def test_two_processes_train_and_test_as_one_does(corpus: Corpus, found: list[dict], model: str) -> None:
    module, diary = corpus.module(model), Diary()
    make_trainer(3, diary).fit(module, corpus.data())
    make_trainer(1).test(module, corpus.data(), verbose=False)
    exact = model == PLUGINS[1]  # the critic sees each rank's part apart, and its mean: nearly the same
    for weights, ranks, sums in (one[model] for one in found):
        for name, weight in module.model.state_dict().items():
            torch.testing.assert_close(weights[name], weight, atol=1e-4 if exact else 5e-2, rtol=0)
            assert torch.equal(weights[name], found[0][model][0][name])  # ranks do not drift apart
        assert ranks["de"].shape == (20,)
        assert torch.equal(ranks["de"], found[0][model][1]["de"])
        assert sums[-1] > sums[0]
        if exact:
            assert sums == pytest.approx([logged["val/rsum"] for logged in diary.logged], abs=6)


@pytest.mark.slow  # tests/modules/training/test_distributed.py has a rank without a language
def test_a_language_that_a_rank_lacks_hangs_nothing(corpus: Corpus, found: list[dict]) -> None:
    start = corpus.module(PLUGINS[1]).model.state_dict()
    ours, theirs = (one["one language a rank"] for one in found)
    for name, weight in ours.items():
        assert torch.equal(weight, theirs[name])
        assert not torch.equal(weight, start[name])  # both languages have learned, on both ranks


@pytest.mark.slow
def test_a_language_that_only_one_rank_can_test_hangs_nothing(corpus: Corpus, found: list[dict]) -> None:
    module = corpus.module(PLUGINS[1])
    module.model.load_state_dict(found[0]["one language a rank"])
    make_trainer(1).test(module, corpus.data(german=1), verbose=False)
    for ranks in (one["one German caption"] for one in found):
        assert ranks["de"].shape == (1,)
        for language in ("de", "en"):
            assert torch.equal(ranks[language], module.ranks[language].text_to_image)


if __name__ == "__main__":
    both(work)
