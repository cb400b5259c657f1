"""No test: times the recipe `multi30k` at its true scale, through the pipeline's own jobs, for whoever has a GPU.

    python -m tests.benchmarks.full MULTI30K_FOLDER [--images N] [--steps N] [--precision P]

The folder holds Multi30K's text in its official layout. Regions of full size are made up, so no score means anything;
with all 31,014 images they take 10 GB of the temporary folder for a while. Each kind of job is performed once, with so
many steps, and its whole time is computed from its pace. `--images 200 --steps 5` tries it on a CPU.
"""

import argparse
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import chdir, suppress
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import torch

from data.corpora.multi30k_files import official_images
from data.text.tokenisation import BEGIN, END, PADDING
from modules.precision import tensor_float
from pipeline.engine.job import Job
from pipeline.engine.machine import duration
from pipeline.engine.perform import perform
from pipeline.engine.workspace import Workspace
from pipeline.errors import RecipeError
from pipeline.graph import Graph
from pipeline.recipes.loading import load_recipe
from pipeline.recipes.settings import Recipe
from pipeline.recipes.translator_settings import MmtSettings
from pipeline.translation.translating import translate_all
from tests.benchmarks.learners import FORMS, HEADS, LAYERS, Learner, Marian, marian, on_device
from tests.benchmarks.timing import REGION_DIM, REGIONS
from tests.benchmarks.watch import HAS_GPU, MORE, Watch, do, now

SPLITS = {"train": 0.8, "val": 0.1, "test": 0.1}  # of fewer images
NMT_STEPS, ENGLISH = 20_000, 145_000  # steps of pre-training and training captions that the whole time is computed for
SEARCHED = 2000  # captions
_LONGER = 4  # times as many steps of SAN, which are short
_NOISES = 64  # that regions are made of
LIKE_MARIAN = f"{{layers: {LAYERS}, heads: {HEADS}}}"


def make_corpus(text: Path, root: Path, count: int | None) -> None:
    """A data root: the text, lists of so many images, and regions of full size, noise around a mean of each image."""
    (root / "multi30k").symlink_to(text.absolute(), target_is_directory=True)
    (root / "lists").mkdir()
    official, ids = official_images(text, "task2"), list[str]()
    for split, part in SPLITS.items():
        chosen = official[split][: None if count is None else max(2, int(part * count))]
        (root / "lists" / f"{split}.txt").write_text("\n".join(chosen) + "\n", encoding="utf-8")
        ids += chosen
    folder, generator = root / "flickr30k_regions", torch.Generator().manual_seed(0)
    folder.mkdir()
    store = np.lib.format.open_memmap(folder / "regions.npy", "w+", np.float16, (len(ids), REGIONS, REGION_DIM))
    noise = torch.randn(_NOISES, REGIONS, REGION_DIM, generator=generator).half()
    for start in range(0, len(ids), _NOISES):
        means = torch.randn(len(ids[start : start + _NOISES]), 1, REGION_DIM, generator=generator).half()
        store[start : start + _NOISES] = (means + noise[: len(means)]).numpy()
    store.flush()
    np.save(folder / "boxes.npy", np.tile(np.array([0, 0, 1, 1], np.float32), (len(ids), REGIONS, 1)))
    (folder / "ids.txt").write_text("\n".join(ids) + "\n", encoding="utf-8")


def recipe_for(root: Path, steps: int, *more: str) -> Recipe:
    """`multi30k` with few steps."""
    steps += MORE
    phases = [f"--mmt.{phase}.{what}={steps}" for phase in ("pretrain", "finetune") for what in ("steps", "eval_every")]
    own = [f"--corpus.root={root}", "--corpus.parallel=null", "--corpus.splits=lists", "--trainer.progress=false"]
    vse = ["--vse.only=[none]", "--vse.seeds=[1]", "--vse.epochs=1", f"--vse.steps={steps}"]
    return load_recipe("multi30k", [*own, *phases, *vse, *more])


def search(job: Job, workspace: Workspace) -> float:
    """Captions a second of a job that translates, from some of its captions."""
    spent = [0.0, 0.0]

    def some(network: Any, bpe: Any, source: list[Any], images: list[Any], *rest: Any, **more: Any) -> list[Any]:
        """Translate the first ones alone."""
        began = now()
        found = translate_all(network, bpe, source[:SEARCHED], images[:SEARCHED], *rest, **more)
        spent[:] = len(found), now() - began
        return found + [[] for _ in source[SEARCHED:]]

    with patch("pipeline.translation.augment.translate_all", some), suppress(RecipeError):  # all may be empty
        perform(job, workspace)
    return spent[0] / spent[1]


class Peer(Marian):
    """MarianMT with the sizes of a recipe."""

    def __init__(self, mmt: MmtSettings, vocabulary: int) -> None:
        network = marian(vocabulary, mmt.embedding_dim, mmt.hidden_dim, mmt.dropout, PADDING, BEGIN, END)
        Learner.__init__(self, network, mmt.pretrain.learning_rate, 1)

    def words_a_second(self, batches: Iterator[Any], steps: int) -> float:
        """Of both sides, in the faster of its default forms, on batches that both read."""
        read, rates = [on_device(next(batches)) for _ in range(steps)], []
        for form in (form for form in FORMS if form[0] == "sdpa"):
            self.take(form)
            with tensor_float("cuda" if HAS_GPU else "cpu"):
                self.step(read[0])
                began = now()
                for batch in read:
                    self.step(batch)
            words = sum(int(batch["source_lengths"].sum() + batch["target_lengths"].sum()) for batch in read)
            rates.append(words / (now() - began))
        return max(rates)


class Line(NamedTuple):
    """A line of the table: what it is, its speed, how often the recipe does it and the seconds that this takes."""

    what: str
    speed: str
    watch: Watch | None = None
    amount: str = "-"
    seconds: float = 0.0

    def __str__(self) -> str:
        waited, share = ("-", "-") if self.watch is None else (f"{self.watch.waited:.1f} s", self.watch.share)
        time_taken = duration(self.seconds) if self.seconds else "-"
        return f"| {self.what} | {self.speed} | {waited} | {share} | {self.amount} | {time_taken} |"


def lines(root: Path, steps: int, *more: str) -> Iterator[Line]:
    """All that is measured, in the order of the stages."""
    graph, workspace = (
        Graph(recipe_for(root, steps, *more), Workspace(root / "artifacts")),
        Workspace(root / "artifacts"),
    )
    whole, began = load_recipe("multi30k"), now()
    perform(graph.corpus, workspace)
    perform(graph.translators["nmt-en-de"].inputs["text"], workspace)
    yield Line("corpus and vocabulary", "-", amount="once", seconds=now() - began)
    directions, mmt = len(whole.mmt.directions), whole.mmt
    for system, phase, count in (("nmt", mmt.pretrain, NMT_STEPS), ("mt", mmt.finetune, mmt.finetune.steps),
                                 ("mmt", mmt.finetune, mmt.finetune.steps)):  # fmt: skip
        watch = do(graph.translators[f"{system}-en-de"], workspace, steps)
        seconds = directions * watch.whole(count, count // phase.eval_every)
        amount = f"{directions} × {count:,} steps"
        yield Line(f"{system.upper()}, Bi-LSTM", watch.words_a_second, watch, amount, seconds)
    yield from beside_marian(graph, workspace, root, steps, *more)
    plain = Graph(
        recipe_for(root, steps, *more, "--trainer.graph=never", "--mmt.dropout=0.29"), workspace
    )  # another key
    watch = do(plain.translators["nmt-en-de"], workspace, steps)
    yield Line("NMT, Bi-LSTM, without CUDA graphs", watch.words_a_second, watch)
    for path in ("mt:en-de", "mmt:en-de"):
        rate, times = search(graph.synthesis[path], workspace), sum(p.startswith(path) for p in whole.augment.paths)
        what, amount = f"{path}, beam {whole.augment.beam_size}", f"{times} × {ENGLISH:,} captions"
        yield Line(what, f"{rate:,.1f} captions/s", None, amount, times * ENGLISH / rate)
    vse, (row,) = whole.vse, Graph(recipe_for(root, _LONGER * steps, *more), workspace).rows
    watch = do(row.job, workspace, _LONGER * steps)
    each = [len(groups) * -(-ENGLISH // vse.batch_size) * vse.epochs for groups in vse.rows.values()]
    seconds = len(vse.seeds) * sum(watch.whole(count, vse.epochs) for count in each)
    amount = f"{len(vse.seeds)} × {len(each)} trainings, {len(vse.seeds) * sum(each):,} steps"
    yield Line(f"SAN, {vse.batch_size} pairs", f"{1 / watch.pace:,.2f} steps/s", watch, amount, seconds)
    (row,) = Graph(recipe_for(root, steps, *more, "--trainer.graph=never", "--vse.seeds=[2]"), workspace).rows
    watch = do(row.job, workspace, steps)
    yield Line("SAN, without CUDA graphs", f"{1 / watch.pace:,.2f} steps/s", watch)


def beside_marian(graph: Graph, workspace: Workspace, root: Path, steps: int, *more: str) -> Iterator[Line]:
    """Our Transformer and MarianMT of its size, on the batches of our NMT."""
    recipe = recipe_for(root, steps, *more, "--mmt.network=transformer", f"--mmt.network_options={LIKE_MARIAN}")
    watch = do(Graph(recipe, workspace).translators["nmt-en-de"], workspace, steps)
    yield Line("NMT, Transformer", watch.words_a_second, watch)
    text = graph.translators["nmt-en-de"].inputs["text"]
    peer = Peer(recipe.mmt, workspace.manifest(text)["metrics"]["vocabulary"])
    assert abs(peer.weights / watch.weights - 1) < 0.02
    batches = watch.data.train_dataloader()
    batches.dataset.few_shapes = False
    rate = peer.words_a_second(iter(batches), steps)
    yield Line(f"MarianMT of its size ({peer.weights:.1f} M weights)", f"{rate:,.0f} words/s")


def arguments_of(words: Sequence[str] | None = None) -> argparse.Namespace:
    """The words of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path, metavar="MULTI30K_FOLDER", help="its text in the official layout")
    parser.add_argument("--images", type=int, help="fewer than all 31,014")
    parser.add_argument("--steps", type=int, default=300, help="of each training")
    parser.add_argument("--precision", default="auto", help="trainer.precision")
    return parser.parse_args(words)


def main() -> None:
    """Time everything, and print the table."""
    given = arguments_of()
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "a CPU"
    with tempfile.TemporaryDirectory() as folder:
        make_corpus(given.text, Path(folder), given.images)
        with chdir(folder):  # for TensorBoard's files
            measured = list(lines(Path(folder), given.steps, f"--trainer.precision={given.precision}"))
    print(f"\nOn {device}, {given.images or 'all'} images, {given.steps} steps of each training:\n")
    print("| | speed | before the first step | GPU busy | the whole recipe | its time |\n|---|---|---|---|---|---|")
    print(*measured, Line("in all", "-", seconds=sum(line.seconds for line in measured)), sep="\n")


if __name__ == "__main__":
    main()
