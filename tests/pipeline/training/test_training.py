"""What is said before a long training, and what is refused."""

import shutil
from types import SimpleNamespace

import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Callback, ModelCheckpoint
from pytorch_lightning.demos.boring_classes import BoringModel
from torch import nn

from modules.training.callbacks import AveragedWeights, Best
from pipeline.engine.machine import duration
from pipeline.errors import RecipeError
from pipeline.recipes.trainer_settings import TrainerSettings
from pipeline.retrieval.rows import recall_headline
from pipeline.training import trainer as training
from pipeline.training.checkpoints import disk_for_training
from pipeline.training.model_files import load_best
from pipeline.training.trainer import TimeEstimate, make_trainer
from tests.pipeline.tiny import Tiny


@pytest.mark.parametrize(("seconds", "said"), [(40, "40 s"), (99.4, "99 s"), (720, "12 min"), (12600, "3.5 h")])
def test_duration(seconds, said):
    assert duration(seconds) == said


def estimate_of(
    monkeypatch, pace: float, steps: int, precision: str = "32-true", device: str = "cpu", cost: float = 9.0
) -> list[str]:
    """What `TimeEstimate` says of a training of so many steps at so many seconds a step (the first takes longer)."""
    lines: list[str] = []
    clock = iter([0.0] + [100 + pace * n for n in range(1000)])
    monkeypatch.setattr(training.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(training, "info", lines.append)
    monkeypatch.setattr(training, "debug", lines.append)
    monkeypatch.setattr(training, "bfloat16_cost", lambda: cost)
    callback, module = TimeEstimate("vse-san-none-1", disk=5e7), SimpleNamespace(device=torch.device(device))
    for step in range(1, min(steps, 60) + 1):
        trainer = SimpleNamespace(
            estimated_stepping_batches=steps, fit_loop=SimpleNamespace(total_batch_idx=step - 1), precision=precision
        )
        callback.on_train_batch_end(trainer, module)
    return lines


def test_the_estimate_is_given_once_from_the_median_pace(monkeypatch):
    (line,) = estimate_of(monkeypatch, 0.5, 1461)
    assert all(part in line for part in ("12 min", "1,440 steps", "50 MB"))


def test_a_short_training_goes_unannounced(monkeypatch):
    assert estimate_of(monkeypatch, 0.5, 100) == []
    assert estimate_of(monkeypatch, 60.0, 15) == []  # it is over before there is a pace


def test_bfloat16_is_advised_against_where_it_costs_time(monkeypatch):
    line = estimate_of(monkeypatch, 0.5, 1461, "bf16-mixed", cost=4.2)[1]
    assert "4.2 times" in line
    assert "--trainer.precision=32-true" in line
    assert "no LSTM" in estimate_of(monkeypatch, 0.5, 1461, "bf16-mixed", cost=float("inf"))[1]
    assert len(estimate_of(monkeypatch, 0.5, 1461, "bf16-mixed", cost=0.3)) == 1
    assert len(estimate_of(monkeypatch, 0.5, 1461, "bf16-mixed", "cuda")) == 1
    assert len(estimate_of(monkeypatch, 0.5, 1461, "32-true")) == 1


def test_averaged_weights_are_where_the_training_is() -> None:
    """Lightning moves the module there after this."""
    module = pl.LightningModule()
    module.layer = nn.Linear(2, 3)
    average = AveragedWeights(decay=0.9)
    average.setup(SimpleNamespace(strategy=SimpleNamespace(root_device=torch.device("meta"))), module, "fit")
    assert {parameter.device.type for parameter in average._average_model.parameters()} == {"meta"}
    assert module.layer.weight.device.type == "cpu"


class Looks(Callback):
    """Remembers the weights that it finds while a validation and an epoch of training end."""

    def __init__(self, average: AveragedWeights) -> None:
        self.average, self.validated, self.trained = average, [], []

    def _differ(self, module: pl.LightningModule) -> bool:
        """The weights of the training are not those of the average."""
        kept = self.average._average_model.module
        return not torch.equal(module.layer.weight, kept.layer.weight)

    def on_validation_end(self, trainer, pl_module) -> None:
        self.validated.append(pl_module.layer.weight.clone())

    def on_train_epoch_end(self, trainer, pl_module) -> None:
        assert self._differ(pl_module)
        assert torch.equal(self.validated[-1], self.average._average_model.module.layer.weight)
        self.trained.append(pl_module.layer.weight.clone())


class Validated(BoringModel):
    """Its validation ends with a look at its weights, as that of a model does whose score has weights."""

    def on_validation_epoch_end(self) -> None:
        self.seen = [*getattr(self, "seen", []), self.layer.weight.clone()]


def test_averaged_weights_are_validated_until_all_have_looked() -> None:
    """Rankings of a validation are made when its last batch has been read, and pictures drawn after them."""
    module, average = Validated(), AveragedWeights(decay=0.9)
    looks = Looks(average)
    pl.Trainer(
        max_epochs=2, limit_train_batches=3, limit_val_batches=2, num_sanity_val_steps=0, logger=False,
        accelerator="cpu", enable_model_summary=False, enable_progress_bar=False, enable_checkpointing=False,
        callbacks=[looks, average],
    ).fit(module)  # fmt: skip
    assert len(looks.trained) == len(module.seen) == 2
    for seen, shown, trained in zip(module.seen, looks.validated, looks.trained, strict=True):
        assert torch.equal(seen, shown)
        assert not torch.equal(seen, trained)


class Numbered(BoringModel):
    """It has a frozen layer, and places in a sentence, which are whole numbers that no checkpoint holds."""

    def __init__(self) -> None:
        super().__init__()
        self.frozen = nn.Linear(7, 7).requires_grad_(False)
        self.register_buffer("places", torch.arange(77), persistent=False)


def test_what_is_not_trained_is_not_averaged() -> None:
    module, average = Numbered(), AveragedWeights(decay=0.9)
    frozen, trained = module.frozen.weight.clone(), [module.layer.weight.detach().double()]

    class Follows(Callback):
        """The average, computed again."""

        def on_train_batch_end(self, *_) -> None:
            weights = module.layer.weight.detach().double()
            trained[:] = [weights] if len(trained) == 1 and not self.steps else [trained[0].lerp(weights, 0.1)]
            self.steps += 1

        steps = 0

    pl.Trainer(
        max_epochs=1, limit_train_batches=20, limit_val_batches=0, logger=False, accelerator="cpu",
        enable_model_summary=False, enable_progress_bar=False, enable_checkpointing=False,
        callbacks=[Follows(), average],
    ).fit(module)  # fmt: skip
    assert torch.equal(module.places, torch.arange(77))
    assert torch.equal(module.frozen.weight, frozen)
    torch.testing.assert_close(module.layer.weight.detach().double(), trained[0], atol=1e-6, rtol=0)


def test_too_little_disk_is_told_before_training(monkeypatch, tmp_path):
    network = nn.Linear(1000, 1000)
    wanted = disk_for_training(network, tmp_path)
    assert wanted >= 4 * 1_001_000 * 7  # weights once, and two checkpoints of weights and two moments
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=wanted - 1))
    with pytest.raises(RecipeError, match="training needs 40 MB of disk and 40 MB are free"):
        disk_for_training(network, tmp_path)
    with pytest.raises(RecipeError, match="training needs 52 MB"):  # the averaged weights are kept beside the others
        disk_for_training(network, tmp_path, averaged=True)


class Worse(BoringModel):
    """Its score falls with each epoch."""

    def on_train_epoch_end(self) -> None:
        self.log("score", -float(self.current_epoch))


def test_epochs_are_told_from_one_and_of_how_many(tmp_path) -> None:
    bar = training._PassingBar(refresh_rate=1)
    best = ModelCheckpoint(tmp_path, "best", "score", mode="max", save_on_train_epoch_end=True)
    last = ModelCheckpoint(tmp_path, "last", save_on_train_epoch_end=True)
    module = Worse()
    pl.Trainer(
        max_epochs=3, limit_train_batches=1, limit_val_batches=0, logger=False, accelerator="cpu",
        enable_model_summary=False, callbacks=[bar, best, last],
    ).fit(module)  # fmt: skip
    assert bar.train_progress_bar.desc == "epoch 3 of 3: "
    assert (load_best(module, tmp_path / "best.ckpt"), load_best(module, tmp_path / "last.ckpt")) == (1, 3)


class Scored(BoringModel):
    """Its scores are given, an epoch each."""

    def __init__(self, *scores: float) -> None:
        super().__init__()
        self.scores = scores

    def on_train_epoch_end(self) -> None:
        self.log("score", self.scores[self.current_epoch])


@pytest.mark.parametrize(("scores", "epoch"), [((1, 3, 3), 3), ((3, 1, 2), 1), ((2, 2, 1), 2), ((1, 2, 3), 3)])
def test_of_equally_good_epochs_the_last_is_kept(scores: tuple[float, ...], epoch: int, tmp_path) -> None:
    best = Best(tmp_path, "best", "score", mode="max", save_on_train_epoch_end=True)
    module = Scored(*scores)
    pl.Trainer(
        max_epochs=3, limit_train_batches=1, limit_val_batches=0, logger=False, accelerator="cpu",
        enable_model_summary=False, enable_progress_bar=False, callbacks=[best],
    ).fit(module)  # fmt: skip
    assert load_best(module, tmp_path / "best.ckpt") == epoch
    assert [path.name for path in tmp_path.glob("*.ckpt")] == ["best.ckpt"]


def test_a_trained_model_says_which_epoch_was_chosen(tiny: Tiny) -> None:
    metrics = tiny.metrics("vse-san-human-1")
    assert 1 <= metrics["epoch"] <= metrics["epochs"] == tiny.recipe().vse.epochs
    assert recall_headline(metrics).endswith(f", epoch {metrics['epoch']} of {metrics['epochs']}")
    assert "epoch" not in recall_headline({"test": metrics["test"]})  # nothing was trained


def test_settings_of_lightning_in_the_environment_are_refused(monkeypatch) -> None:
    """Lightning takes them for what a program does not set: it would train for two batches an epoch."""
    settings = TrainerSettings(accelerator="cpu", progress=False)
    monkeypatch.setenv("PL_TRAINER_LIMIT_TRAIN_BATCHES", "2")
    with pytest.raises(RecipeError, match=r"the environment has PL_TRAINER_LIMIT_TRAIN_BATCHES, by which .*; unset it"):
        make_trainer(settings)
    monkeypatch.setenv("PL_TRAINER_LIMIT_TRAIN_BATCHES", "")  # as Lightning sees it: not set
    assert make_trainer(settings).limit_train_batches == 1.0


def test_processes_of_one_machine_do_not_look_for_those_of_another_run(monkeypatch) -> None:
    """`MASTER_ADDR` of a run before would let them wait for half an hour for another machine."""
    settings = TrainerSettings(accelerator="cpu", devices=2, progress=False)
    for name, value in (("MASTER_ADDR", "10.255.255.1"), ("MASTER_PORT", "none"), ("NODE_RANK", "1")):
        monkeypatch.setenv(name, value)
    for name in ("LOCAL_RANK", "GROUP_RANK"):
        monkeypatch.delenv(name, raising=False)
    trainer = make_trainer(settings)
    place = trainer.strategy.cluster_environment
    assert (place.main_address, trainer.global_rank) == ("127.0.0.1", 0)
    assert place.main_port > 0
    for name, value in (("LOCAL_RANK", "0"), ("MASTER_ADDR", "10.255.255.1")):  # a launcher has started it
        monkeypatch.setenv(name, value)
    assert make_trainer(settings).strategy.cluster_environment.main_address == "10.255.255.1"
