"""Stages run where the GPU would be, on a device that stands in for it, and find what they find on the CPU."""

import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import pytorch_lightning as pl
import torch

from pipeline.training import model_files, trainer
from tests.pipeline.tiny import Tiny
from tests.stand_in import DEVICE, on_stand_in, stand_in


@pytest.fixture
def trainers(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[pl.Trainer]]:
    """Models are used and trained on the stand-in; the trainers that were made."""
    made, chosen = [], model_files.device_of

    def trainer_of(**settings: Any) -> pl.Trainer:
        made.append(pl.Trainer(**settings | on_stand_in()))
        return made[-1]

    for module in [module for name, module in sys.modules.items() if name.startswith("pipeline.")]:
        if getattr(module, "device_of", None) is chosen:
            monkeypatch.setattr(module, "device_of", lambda settings: torch.device(DEVICE))
    monkeypatch.setattr(trainer, "pl", SimpleNamespace(**vars(pl) | {"Trainer": trainer_of}))
    with stand_in():
        yield made


def test_stages_find_on_a_gpu_what_they_find_on_the_cpu(tiny: Tiny, trainers: list[pl.Trainer], tmp_path):
    made = tiny.without(tmp_path, "[sv]*")

    assert made.main("augment", "--augment.paths=[mt:en-de]") == 0
    assert made.main("vse", "--vse.only=[human]") == 0

    assert len(trainers) >= 2
    assert made.captions("synthetic-mt-en-de") == tiny.captions("synthetic-mt-en-de")
    assert made.metrics("vse-san-human-1") == tiny.metrics("vse-san-human-1")


def test_a_translator_is_trained_and_tested_on_a_gpu(tiny: Tiny, trainers: list[pl.Trainer], tmp_path):
    made = tiny.without(tmp_path, "m*")

    own = ("--mmt.directions=[en-de]", "--mmt.systems=[mmt]", "--augment.paths=[mmt:en-de]", "--vse.only=[human]")
    assert made.main("mmt", *own) == 0

    assert trainers
    assert made.metrics("mmt-en-de")["steps"] == tiny.metrics("mmt-en-de")["steps"]  # dropout draws otherwise there
    assert (made.job("mmt-en-de") / "test.parquet").exists()
