"""How long the trainer waits for its batches."""

import time
from pathlib import Path

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Callback

from data.batches.retrieval import RetrievalData
from data.batches.slots import parse_group
from data.captions.table import Caption, read_captions, write_captions
from data.pictures.regions import RegionStore, write_regions
from data.text.text_inputs import WordVocabulary
from modules.training.retrieval import Retrieval
from pipeline.recipes.trainer_settings import TrainerSettings
from pipeline.training.trainer import make_trainer
from tests.benchmarks.timing import BATCH, REGION_DIM, REGIONS

pytestmark = pytest.mark.benchmark
IMAGES, EACH, WORDS, STEPS, EPOCHS = 2000, 5, 12, 20, 2


class Waiting(Callback):
    """Seconds spent between steps and in all, from the end of the first step on."""

    def __init__(self) -> None:
        self.began = self.ended = self.waited = 0.0

    def on_train_batch_start(self, trainer: pl.Trainer, *_) -> None:
        if self.began:
            self.waited += time.perf_counter() - self.ended

    def on_train_batch_end(self, *_) -> None:
        self.ended = time.perf_counter()
        self.began = self.began or self.ended

    @property
    def share(self) -> float:
        return self.waited / (self.ended - self.began)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    """A region store and captions of the sizes that real ones have."""
    folder, rng = tmp_path_factory.mktemp("corpus"), np.random.default_rng(0)
    ids, words = [f"{number}.jpg" for number in range(IMAGES)], [f"word{number}" for number in range(5000)]
    box = np.zeros((REGIONS, 4))
    write_regions(folder, ids, ((rng.standard_normal((REGIONS, REGION_DIM), np.float32), box) for _ in ids))
    captions = (
        Caption(name, f"{name}#{number}", "en", " ".join(rng.choice(words, WORDS)), "train")
        for name in ids for number in range(EACH)
    )  # fmt: skip
    write_captions(captions, folder / "captions.parquet")
    return folder


def waiting(folder: Path, workers: int) -> tuple[float, float]:
    """The share of the time that SAN's trainer waits, and the seconds of a step with its wait."""
    captions, store = read_captions(folder / "captions.parquet"), RegionStore(folder)
    words = WordVocabulary.build(captions["text"][:], captions["language"][:], 1)
    groups = [parse_group("en/human")]
    data = RetrievalData(captions, store, words, groups, ["en"], {}, BATCH, 0, STEPS, workers)
    arguments = {"region_dim": store.dim, "vocabulary_size": len(words), "languages": ["en"]}
    torch.manual_seed(0)
    module = Retrieval("san", arguments, None, 0.2, None, 0, 5e-4, 15, 0.1, ["en"], ["en"])
    found, settings = Waiting(), TrainerSettings(accelerator="cpu", precision="bf16-mixed", progress=False)
    trainer = make_trainer(
        settings, max_epochs=EPOCHS, limit_val_batches=0, callbacks=[found], gradient_clip_val=2.0,
        enable_checkpointing=False,
    )  # fmt: skip
    trainer.fit(module, data)
    assert trainer.global_step == STEPS * EPOCHS
    return found.share, (found.ended - found.began) / (STEPS * EPOCHS - 1)


def test_the_trainer_hardly_waits_for_data(corpus: Path, capsys) -> None:
    found = {workers: waiting(corpus, workers) for workers in (0, 2)}
    for workers, (share, step) in found.items():
        with capsys.disabled():
            print(f"\nSAN, {BATCH} of {IMAGES} images x {REGIONS} x {REGION_DIM} (float16, mapped, in the page cache), "
                  f"{EPOCHS} epochs of {STEPS} steps, {workers} workers: {100 * share:.1f} % of the time waiting for "
                  f"data, {step:.2f} s a step")  # fmt: skip
    assert min(share for share, _ in found.values()) < 0.1
