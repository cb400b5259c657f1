"""What a training costs beside its model: seconds before the first step, milliseconds of each step, at full size."""

import statistics
import time
from pathlib import Path

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Callback
from torch import Tensor
from torch.utils.data import DataLoader

from data.batches.retrieval import RetrievalData
from data.batches.slots import parse_group
from data.captions.table import Caption, read_captions, write_captions
from data.pictures.regions import RegionStore
from data.text.text_inputs import WordVocabulary, tokens_of
from modules.retrieval_models.base import Batch
from modules.training.retrieval import Retrieval
from pipeline.recipes.trainer_settings import TrainerSettings
from pipeline.training.trainer import fit, make_trainer
from tests.benchmarks.timing import BATCH, REGIONS

pytestmark = pytest.mark.benchmark
IMAGES, EACH, STEPS = 29_000, 5, 300


class Nothing(Retrieval):
    """Trains one number and encodes nothing: what is left is the loop around a model."""

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        return {"ranking": self.number * 2}

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        pass

    def on_validation_epoch_end(self) -> None:
        self.log("val/rsum", 1.0)


class Bare(pl.LightningModule):
    """The same by Lightning alone."""

    def __init__(self) -> None:
        super().__init__()
        self.number = torch.nn.Parameter(torch.zeros(()))

    def training_step(self, batch: int, batch_idx: int) -> Tensor:
        return self.number * 2

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), fused=True)


class Steps(Callback):
    """When the first step began, and the seconds from step to step."""

    def __init__(self) -> None:
        self.began: list[float] = []

    def on_train_batch_start(self, *_) -> None:
        self.began.append(time.perf_counter())


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    """Captions as many as Multi30K's, of made-up words as frequent as real ones, and small regions."""
    folder, rng = tmp_path_factory.mktemp("corpus"), np.random.default_rng(0)
    ids = [f"{number}.jpg" for number in range(IMAGES)]
    words = np.array(["".join(chr(97 + int(digit)) for digit in str(number)) for number in range(20_000)])
    shares = 1 / np.arange(1, 20_001)
    drawn = words[rng.choice(20_000, (IMAGES * EACH, 12), p=shares / shares.sum())]
    captions = [
        Caption(ids[number // EACH], str(number), "en", " ".join(row) + " .", "train")
        for number, row in enumerate(drawn.tolist())
    ]
    captions += [Caption(ids[number], f"val-{number}", "en", "a b", "val") for number in range(10)]
    write_captions(captions, folder / "captions.parquet")
    np.save(folder / "regions.npy", rng.standard_normal((IMAGES, REGIONS, 8)).astype(np.float16))
    np.save(folder / "boxes.npy", np.zeros((IMAGES, REGIONS, 4), np.float32))
    (folder / "ids.txt").write_text("\n".join(ids) + "\n")
    return folder


def test_the_host_s_part_of_a_training(corpus: Path, tmp_path: Path, capsys) -> None:
    start = time.perf_counter()
    captions, store = read_captions(corpus / "captions.parquet", tokens=True), RegionStore(corpus)
    words = WordVocabulary.count(tokens_of(captions), captions["language"][:])
    groups = [parse_group("en/human")]
    data = RetrievalData(
        captions, store, words, groups, ["en"], {"val": ["en"]}, BATCH, 0, STEPS, place="device"
    )  # fmt: skip
    arguments = {"region_dim": 8, "vocabulary_size": len(words), "languages": ["en"], "dim": 8, "word_dim": 8}
    module = Nothing("san", arguments, None, 0.2, None, 0, 5e-4, 15, 0.1, ["en"], ["en"]).requires_grad_(False)
    module.number = torch.nn.Parameter(torch.zeros(()))
    steps, bare = Steps(), Steps()
    settings = TrainerSettings(accelerator="cpu", precision="32-true", progress=False)
    fit(module, data, settings, tmp_path, tmp_path / "logs", 1, "val/rsum", 0, 2.0, [steps])
    make_trainer(settings, max_epochs=1, callbacks=[bare], enable_checkpointing=False).fit(
        Bare(), DataLoader(range(STEPS), batch_size=None)
    )
    ours, lightning = (statistics.median(np.diff(each.began)) * 1000 for each in (steps, bare))
    first = steps.began[0] - start
    with capsys.disabled():
        print(f"\n{IMAGES * EACH:,} captions: {first:.2f} s to the first step; a step of {BATCH} pairs without its "
              f"model {ours:.2f} ms, {ours / lightning:.1f} times one of Lightning alone")  # fmt: skip
    assert ours < 6 * lightning
