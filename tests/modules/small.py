"""A small corpus that tests of models train on, and how they train."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Callback

from data.batches.retrieval import RetrievalData
from data.batches.slots import Slot, parse_group
from data.captions.table import Caption, read_captions, write_captions
from data.pictures.regions import RegionStore, write_regions
from data.text.text_inputs import WordVocabulary
from modules.retrieval_models import model_class
from modules.training.retrieval import Retrieval

COLOURS, THINGS = ("red", "blue", "green", "white", "black"), ("dog", "house", "car", "tree")

ALONE = (parse_group("en/human"), parse_group("de/human"))


class Corpus:
    """Twenty pictures with an English and a German name; the same ones to train, validate and test."""

    def __init__(self, folder: Path) -> None:
        names = [f"{colour} {thing}" for colour in COLOURS for thing in THINGS]
        captions = [
            Caption(name, f"{name}-{language}-{split}", language, text, split)
            for split in ("train", "val", "test")
            for name in names
            for language, text in (("en", f"a {name}"), ("de", f"ein{name[::-1]}".replace(" ", " x")))
        ]
        folder.mkdir(exist_ok=True)
        write_captions(captions, folder / "captions.parquet")
        regions = np.random.default_rng(0).normal(size=(len(names), 3, 16))
        write_regions(folder, names, ((region, np.zeros((3, 4))) for region in regions))
        self.captions, self.store = read_captions(folder / "captions.parquet"), RegionStore(folder)
        self.words = WordVocabulary.build(self.captions["text"][:], self.captions["language"][:], 1)

    def data(
        self, german: int = 20, groups: Sequence[tuple[Slot, ...]] = ALONE, one_language: bool = False
    ) -> RetrievalData:
        """`german` of the test images have German captions; batches are of one language, or of these groups.

        With `one_language` every training image has one caption only, in the one language or the other.
        """
        kept, left = [], german
        for number, row in enumerate(self.captions.to_list()):
            counted = row["language"] == "de" and row["split"] == "test"
            left -= counted
            absent = one_language and row["split"] == "train" and (row["language"] == "de") == (number // 2 % 2)
            if not absent and (not counted or left >= 0):
                kept.append(number)
        captions = self.captions.select(kept)
        held_out = {"val": ["de", "en"], "test": ["de", "en"]}
        return RetrievalData(captions, self.store, self.words, list(groups), ["de", "en"], held_out, 16)

    def module(
        self, model: str, pretrained: str | None = None, options: Mapping[str, Any] | None = None, **settings: Any
    ) -> Retrieval:
        """As `pipeline.retrieval.vse` makes it."""
        arguments = {
            "region_dim": 16, "vocabulary_size": len(self.words), "languages": ["de", "en"], "dim": 32, "word_dim": 16,
            "pretrained": pretrained, **(options or {}),
        }  # fmt: skip
        torch.manual_seed(0)
        plain = {
            "loss": None, "margin": 0.2, "type_weights": None, "warmup_epochs": 0, "learning_rate": 0.01,
            "decay_epoch": 100, "decay": 0.1, "test_languages": ["de", "en"], "select": ["de", "en"],
        }  # fmt: skip
        return (model_class(model).module() or Retrieval)(model, arguments, **(plain | settings))


def make_trainer(epochs: int, *callbacks: Callback, **settings: Any) -> pl.Trainer:
    return pl.Trainer(
        max_epochs=epochs, callbacks=list(callbacks), logger=False, num_sanity_val_steps=0,
        enable_progress_bar=False, enable_model_summary=False, use_distributed_sampler=False,
        **({"accelerator": "cpu", "enable_checkpointing": False, "devices": 1} | settings),
    )  # fmt: skip


class Diary(Callback):
    """What was logged, epoch by epoch."""

    def __init__(self) -> None:
        self.logged: list[dict[str, float]] = []
        self.rates: list[list[float]] = []

    def on_train_epoch_start(self, trainer, pl_module) -> None:
        self.rates.append([optimizer.param_groups[0]["lr"] for optimizer in trainer.optimizers])

    def on_train_epoch_end(self, trainer, pl_module) -> None:
        self.logged.append({name: float(value) for name, value in trainer.callback_metrics.items()})


class OneLanguageARank:
    """Training batches of which each rank has one language only."""

    def __init__(self, batches: Any, rank: int) -> None:
        self.batches, self.rank = batches, rank

    def __iter__(self):
        for batch in self.batches:
            rows = (batch["language"] == self.rank).nonzero()[:, 0]
            captions = ("tokens", "lengths", "image_index", "caption_key", "language", "type", "sentence")
            yield batch | {name: batch[name][rows] for name in captions}

    def __len__(self) -> int:
        return len(self.batches)
