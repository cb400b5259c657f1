"""The tiny recipe that tests of stages share: a folder with its artifacts, and a process that works on them."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import torch

from data.captions.table import Caption, read_captions, write_captions
from modules.search.encoded_test import EncodedTest
from pipeline.cli import main
from pipeline.engine.artifacts import read_manifest, write_manifest
from pipeline.engine.job import Job
from pipeline.engine.runner import Runner
from pipeline.engine.workspace import Workspace
from pipeline.recipes.loading import load_recipe
from pipeline.recipes.settings import Recipe
from pipeline.retrieval.ranks import encode_split, open_test

ROOT = Path(__file__).parents[2]
TINY = """
base: scenes
seed: 3
trainer: {accelerator: cpu, threads: 1, progress: false}
corpus: {train: 24, retrieval: 12, validation: 4, test: 4, twins: 2, captions: 1, short: 0, text_pairs: 40}
regions: {regions: 3, size: 64}
mmt:
  network: bilstm
  vocabulary: 120
  embedding_dim: 16
  hidden_dim: 16
  batch_tokens: 160
  pretrain: {steps: 4, eval_every: 2, learning_rate: 1.0e-2, warmup: 1}
  finetune: {steps: 8, eval_every: 2, learning_rate: 1.0e-2, warmup: 1, average: 0.7}
  beam_size: 2
augment: {beam_size: 2, paths: ["mmt:en-de-en", "mt:en-de"]}
vse:
  dim: 16
  word_dim: 16
  min_count: 1
  batch_size: 4
  epochs: 4
  loss: null
  learning_rate: 1.0e-3
  warmup_epochs: 1
  decay_epoch: 2
  steps: null
  rows: {human: [en/human], mmt-fb: [en/human, "en/mmt:en-de-en"]}
  only: [human, mmt-fb]
  seeds: [1]
  dropout: 0.2
  retrieved_captions: false
  reranker: {steps: null}
"""

GXN_OPTIONS = "{generate: [i2t, t2i], picture_size: 8, picture_width: 2, reinforce_epoch: 1, longest: 6}"
"""Of a tiny `gxn` that writes and draws."""
_STARTS = "[{options: {generate: [i2t]}, epochs: 1}, {options: {generate: [t2i]}, epochs: 1}]"
GXN = [
    "--vse.model=gxn", f"--vse.options={GXN_OPTIONS}", f"--vse.start={_STARTS}",
    "--vse.rows.both=[en/human + de/human]", "--vse.only=[both]", "--vse.epochs=2", "--vse.warmup_epochs=0",
    "--vse.reranker.model=null",
]  # fmt: skip
"""It, in English and German, started from its parts."""

RERANK_SYSTEMS = "--mmt.systems=[mt,mmt,mt+short,mt+picture,mt+channel]"
RERANK = (
    "--mmt.rerank.systems={short: [logp, length, channel], picture: [logp, channel, image, source]}",
    "--mmt.rerank.retrieval={row: both}", "--mmt.rerank.list_size=6", "--mmt.rerank.passes=3",
    "--mmt.rerank.seeds=[1,2]", "--vse.rows={both: [en/human, de/human]}", "--vse.only=[both]",
    "--report.resamples=100",
)  # fmt: skip
RERANKED = (RERANK_SYSTEMS, *RERANK, "--mmt.directions=[en-de,de-en]")
"""Two systems with tuned weights and one with a channel, in both directions."""


@contextlib.contextmanager
def at(folder: Path) -> Iterator[None]:
    """Work in a folder, with its own artifacts and as one CPU thread, then put everything back."""
    before, threads = dict(os.environ), torch.get_num_threads()
    os.environ["BILDWORT_ARTIFACTS"] = str(folder / "artifacts")
    os.environ.pop("BILDWORT_DATA", None)
    try:
        with contextlib.chdir(folder):
            yield
    finally:
        os.environ.clear()
        os.environ.update(before)
        torch.set_num_threads(threads)


class Tiny:
    """A folder with the tiny recipe and its artifacts."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.yaml = folder, folder / "tiny.yaml"
        folder.mkdir(parents=True, exist_ok=True)
        self.yaml.write_text(TINY)
        self.workspace = Workspace(folder / "artifacts")

    def recipe(self, *overrides: str) -> Recipe:
        return load_recipe(str(self.yaml), overrides)

    def main(self, stage: str, *arguments: str) -> int:
        with at(self.folder):
            return main([stage, "--recipe", str(self.yaml), *arguments])

    def job(self, name: str) -> Path:
        """The one finished folder of a job."""
        (manifest,) = (self.workspace.root / "jobs" / name).glob("*/manifest.json")
        return manifest.parent

    def metrics(self, name: str) -> dict:
        return json.loads((self.job(name) / "manifest.json").read_text())["metrics"]

    def captions(self, name: str) -> list[dict]:
        return read_captions(self.job(name) / "captions.parquet").to_list()

    def start(self, stage: str, *arguments: str) -> subprocess.Popen:
        """`python -m pipeline` in a process of its own."""
        environment = os.environ | {
            "BILDWORT_ARTIFACTS": str(self.workspace.root), "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1",
        }  # fmt: skip
        words = [stage, "--recipe", str(self.yaml), *arguments]
        return subprocess.Popen(
            [sys.executable, "-m", "pipeline", *words],
            cwd=self.folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            start_new_session=True,
        )  # fmt: skip

    def without(self, folder: Path, pattern: str) -> "Tiny":
        """A copy whose jobs of this name have never been run."""
        other = Tiny(folder)
        shutil.copytree(self.workspace.root / "jobs", other.workspace.root / "jobs")
        for path in (other.workspace.root / "jobs").glob(pattern):
            shutil.rmtree(path)
        return other


def ran(workspace: Workspace, job: Job, force: bool = False) -> Path:
    """The folder of a job that is run, if it has not been."""
    Runner(workspace).run([job], force)
    return workspace.folder(job)


def relisted(folder: Path) -> None:
    """Give the manifest of a job whose files were changed their sizes as they are now."""
    write_manifest(folder, read_manifest(folder))


def encoded(made: Tiny, job: str, split: str = "test") -> dict[str, EncodedTest]:
    """What a trained model encodes of a split, by language."""
    settings, inputs = made.recipe().vse, {"corpus": made.job("corpus"), "model": made.job(job)}
    with at(made.folder):
        return encode_split(open_test(inputs, settings.test, settings), split)[1]


def without_english(corpus: Path, folder: Path) -> Path:
    """A copy of a corpus job's folder in which one image of `val` and one of `test` have captions in German alone."""
    shutil.copytree(corpus, folder)
    captions = [Caption(**row) for row in read_captions(corpus / "captions.parquet").to_list()]
    of_split = {caption.split: caption.image_id for caption in captions}
    write_captions(
        (one for one in captions
         if one.language != "en" or one.split == "train" or one.image_id != of_split[one.split]),
        folder / "captions.parquet",
    )  # fmt: skip
    return folder
