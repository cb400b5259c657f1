"""A training whose scores are all equal is named, whatever the model and the loss; one that learns is not."""

import logging
import re

import pytest
import torch

from modules.losses.registry import CONTRASTIVE, LOSSES
from modules.training.collapse import LEAST, CollapseWatch, separation
from tests.modules.small import Corpus, make_trainer

STEPS = 3  # an epoch
ADVICE = ("more vse.warmup_epochs", "lower vse.learning_rate", "larger vse.batch_size", "vse.margin", "infonce")


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "modules.training.retrieval"]


def zeroed(corpus: Corpus, model: str, **settings):
    module = corpus.module(model, **settings)
    with torch.no_grad():
        for parameter in module.model.parameters():
            parameter.zero_()
    return module


@pytest.mark.parametrize("model", ["san", "scan-t2i-avg", "oe", "diverse-attention"])
def test_weights_of_zero_are_named_once(corpus: Corpus, caplog, model: str) -> None:
    make_trainer(2 * (LEAST // STEPS + 1), limit_val_batches=0).fit(
        zeroed(corpus, model, loss="hardest"), corpus.data()
    )
    (line,) = warnings_of(caplog)
    assert re.match(rf"{model} has collapsed: over epoch \d+ of {2 * (LEAST // STEPS + 1)} its ranking loss", line)
    assert "\n" not in line
    assert all(part in line for part in ADVICE)


@pytest.mark.parametrize("options", [{"generate": ["i2t"]}, {"generate": ["t2i"], "target": "regions"}])
def test_so_are_those_of_a_model_with_an_update_for_each_loss(corpus: Corpus, caplog, options: dict) -> None:
    module = zeroed(corpus, "gxn", loss="hardest", options={**options, "generation_rate": 0.0})
    make_trainer(LEAST // STEPS + 1, limit_val_batches=0).fit(module, corpus.data())
    (line,) = warnings_of(caplog)
    assert line.startswith("gxn has collapsed")


@pytest.mark.parametrize("kind", LOSSES)
@pytest.mark.parametrize("warmup", [0, 100])
def test_the_value_for_equal_scores_is_derived_for_every_loss(corpus: Corpus, caplog, kind: str, warmup: int) -> None:
    module = zeroed(corpus, "san", loss=kind, warmup_epochs=warmup)
    judgements = 2 if kind in CONTRASTIVE else 1
    make_trainer(judgements * (LEAST // STEPS + 1), limit_val_batches=0).fit(module, corpus.data())
    lines = warnings_of(caplog)
    assert len(lines) == (not module.loss.warms_up(0))  # a mean of hinges stays near it at first
    assert all(("vse.margin" in line) == (kind not in CONTRASTIVE) for line in lines)


def scored() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Scores of four images and their captions that tell captions apart, but not matching ones; which ones match."""
    positives = torch.eye(4, dtype=torch.bool)
    return torch.tensor([0.31, 0.29, 0.31, 0.29]).repeat(4, 1), positives, ~positives


def test_a_contrastive_loss_that_learns_slowly_at_first_is_not_named() -> None:
    watch = CollapseWatch(2)
    for loss, expected in ((10.0, None), (9.0, None), (10.0, None), (10.0, 10.0)):
        for _ in range(LEAST):
            watch.add(CollapseWatch.seen(torch.tensor(loss), torch.tensor(10.0), *scored()))
        assert watch.stays_at() == expected


def test_it_is_twice_the_margin_a_pair_with_hardest_negatives(corpus: Corpus, caplog) -> None:
    make_trainer(LEAST // STEPS + 1, limit_val_batches=0).fit(zeroed(corpus, "san", margin=0.25), corpus.data())
    (line,) = warnings_of(caplog)
    assert f"stayed at {2 * 0.25 * 16:.4g}," in line  # a batch has 16 captions


@pytest.mark.parametrize("model", ["san", "scan-t2i-avg", "oe", "diverse-attention"])
def test_a_training_that_learns_is_not(corpus: Corpus, caplog, model: str) -> None:
    caplog.set_level(logging.WARNING)
    make_trainer(LEAST // STEPS + 1, limit_val_batches=0).fit(corpus.module(model), corpus.data())
    assert not warnings_of(caplog)


def watched(losses: list[float], equal: float = 10.0, apart: float = 0.01) -> float | None:
    """Judge losses of steps whose positives are `apart` standard deviations from their negatives."""
    watch, positives = CollapseWatch(), torch.tensor([True, True, False, False])
    scores = torch.tensor([1 + apart, -1 + apart, 1 - apart, -1 - apart]) / 2
    for loss in losses:
        watch.add(CollapseWatch.seen(torch.tensor(loss), torch.tensor(equal), scores, positives, ~positives))
    return watch.stays_at()


@pytest.mark.parametrize("scale", [1.0, 1e-3])
@pytest.mark.parametrize("centre", [0.0, 0.7])
def test_the_separation_is_in_standard_deviations(scale: float, centre: float) -> None:
    generator = torch.Generator().manual_seed(1)
    positives = torch.eye(64, dtype=torch.bool)
    noise = torch.randn(64, 64, generator=generator)
    for gap in (0.0, 0.5, 2.0):
        found = separation(centre + scale * (noise + gap * positives), positives, ~positives)
        assert found == pytest.approx(gap, abs=0.2)


@pytest.mark.parametrize("value", [0.0, 0.1, -0.7, 1.0, 33.3])
def test_equal_scores_are_not_apart(value: float) -> None:
    positives = torch.eye(57, dtype=torch.bool)
    assert abs(separation(torch.full((57, 57), value), positives, ~positives)) < 0.05


def test_a_loss_that_passes_the_value_does_not_stay_there() -> None:
    assert watched([10.0] * LEAST) == 10
    assert watched([10.1, 9.9] * LEAST) == 10
    assert watched([10.0] * (LEAST - 1)) is None
    assert watched([15 - 10 * step / 99 for step in range(100)]) is None  # their mean is 10
    assert watched([9.7] * LEAST) is None
    assert watched([10.0] * LEAST, apart=0.2) is None  # it has begun to learn, or its negatives are hard
    assert watched([0.0] * LEAST, equal=0.0) is None  # no negatives, no loss
    assert watched([float("nan")] * LEAST) is None


def test_short_epochs_are_judged_together_and_each_step_once() -> None:
    watch = CollapseWatch()
    for step in range(2 * LEAST):
        watch.add(CollapseWatch.seen(torch.tensor(10.0), torch.tensor(10.0), *scored()))
        assert (watch.stays_at() is not None) == ((step + 1) % LEAST == 0)
