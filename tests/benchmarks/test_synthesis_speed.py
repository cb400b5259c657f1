"""Translating many sentences as augmentation does it: sentences a second, where the time goes, what memory it takes.

The translator has learned a small corpus for some steps; on one thread, beam 5, bfloat16. Where that of the overlap is
at hand (`make stage-mmt RECIPE=multi30k-flickr8k`), all of the overlap's training captions are translated too.
"""

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import data.text.tokenisation
import modules.training.translation
import modules.translators.beam
from data.batches.translation import SentenceBatches
from data.captions.table import read_captions
from data.text.tokenisation import JointBPE
from modules.translators.beam import BeamSettings
from modules.translators.transformer import TransformerTranslator
from pipeline.engine.workspace import Workspace
from pipeline.graph import Graph
from pipeline.recipes.loading import load_recipe
from pipeline.recipes.trainer_settings import TrainerSettings
from pipeline.training.model_files import save_weights
from pipeline.translation.translating import translate_all
from pipeline.translation.translator_files import load_translator, save_network
from tests.benchmarks.learners import BEAM, Corpus, Ours
from tests.benchmarks.timing import BF16

pytestmark = pytest.mark.benchmark
STEPS, BATCH_TOKENS, COUNT, FEW, MANY, MIB = 120, 1600, 2000, 1000, 4000, 2**20
ROOT = Path(__file__).parents[2]
SETTINGS = TrainerSettings(accelerator="cpu", precision="bf16-mixed" if BF16 else "32-true", threads=1, progress=False)
TRANSLATING = """
import json, resource, sys
from pathlib import Path
from tests.benchmarks.test_synthesis_speed import translated

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

folder, count = Path(sys.argv[1]), int(sys.argv[2])
source = json.loads((folder / "source.json").read_text())
source = [source[number % len(source)] for number in range(count)]
translated(folder, source[:100])  # what is allocated once
before = peak()
found = translated(folder, source)
print(peak() - before, sum(len(one[0].text) + len(one[0].tokens) for one in found))
"""


def translated(folder: Path, source: list[list[int]]) -> list[Any]:
    translator, bpe = load_translator(folder)
    beam = BeamSettings(BEAM)
    return translate_all(translator, bpe, source, [None] * len(source), None, "de", beam, BATCH_TOKENS, SETTINGS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A translator as stage mmt leaves it, and sentences."""
    folder, corpus = tmp_path_factory.mktemp("translator"), Corpus()
    ours = Ours.transformer(steps=STEPS)
    for batch in corpus.train(800, STEPS):
        ours.step(batch)
    save_network(folder, ours.network, corpus.bpe)
    save_weights(ours.module.translator, folder / "weights.safetensors")
    (folder / "source.json").write_text(json.dumps(corpus.source))
    return folder


class Stopwatch:
    """Seconds spent in what is watched, by name."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seconds: Counter[str] = Counter()
        self.monkeypatch = monkeypatch

    def watch(self, owner: Any, function: str, name: str, before: Callable[..., None] = lambda *_: None) -> None:
        """Time a function of a class or module under a name; `before` is called with its arguments."""
        run = getattr(owner, function)

        def timed(*arguments: Any, **named: Any) -> Any:
            before(*arguments)
            start = time.perf_counter()
            found = run(*arguments, **named)
            self.seconds[name] += time.perf_counter() - start
            return found

        self.monkeypatch.setattr(owner, function, timed)


def rendered(request: pytest.FixtureRequest) -> tuple[Path, list[list[int]]]:
    """The small translator and its sentences."""
    folder = request.getfixturevalue("folder")
    return folder, json.loads((folder / "source.json").read_text())[:COUNT]


def overlap(_: pytest.FixtureRequest) -> tuple[Path, list[list[int]]]:
    """MT of the overlap, from English to German, and all English training captions."""
    if "BILDWORT_DATA" not in os.environ:
        pytest.skip("BILDWORT_DATA is not set")
    recipe, workspace = load_recipe("multi30k-flickr8k", []), Workspace()
    job = Graph(recipe, workspace).translators["mt-en-de"]
    if not workspace.done(job):
        pytest.skip("run `make stage-mmt RECIPE=multi30k-flickr8k` first")
    captions = read_captions(workspace.require(job.inputs["corpus"]) / "captions.parquet")
    texts = [one["text"] for one in captions if one["language"] == "en" and one["split"] == "train"]
    return (folder := workspace.require(job)), load_translator(folder)[1].encode_all(texts, "en")


@pytest.mark.parametrize("taken", [rendered, overlap])
def test_where_the_time_goes(
    taken: Callable[..., tuple[Path, list[list[int]]]], request, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    (folder, source), stopwatch = taken(request), Stopwatch(monkeypatch)
    rows: list[tuple[int, ...]] = []

    def look(_: Any, memory: Any, token: Any, __: Any) -> None:
        """The memory is of the sentences that are still searched, not of their hypotheses."""
        sizes = {len(memory.mask), *(len(kept) for part in memory.parts for kept in part)}
        assert sizes == {len(token)}
        rows.append(tuple(token.shape))

    stopwatch.watch(SentenceBatches, "__getitem__", "collating")
    stopwatch.watch(TransformerTranslator, "encode", "encoder")
    stopwatch.watch(TransformerTranslator, "step", "decoder", look)
    stopwatch.watch(modules.translators.beam, "_continue", "output matrix, softmax and best continuations")
    stopwatch.watch(modules.training.translation, "beam_search", "rest of the search")
    stopwatch.watch(JointBPE, "decode_tokens", "detokenising")
    stopwatch.watch(data.text.tokenisation, "detokenize", "detokenising")
    start = time.perf_counter()
    found = translated(folder, source)
    spent, seconds = time.perf_counter() - start, stopwatch.seconds
    seconds["rest of the search"] -= seconds["decoder"] + seconds["output matrix, softmax and best continuations"]
    seconds["loading, Lightning"] = spent - seconds.total()
    first = [index for index, (_, beam) in enumerate(rows) if beam == 1]
    steps = [rows[one:other] for one, other in zip(first, [*first[1:], None], strict=True)]
    worked = sum(count for count, _ in rows) / sum(batch[0][0] * len(batch) for batch in steps)
    count, tokens = len(source), sum(len(one[0].tokens.split()) for one in found) / len(source)
    with capsys.disabled():
        print(f"\n{count:,} sentences of {tokens:.0f} words, beam {BEAM}: {count / spent:.0f} a second; of the time "
              + ", ".join(f"{name} {100 * part / spent:.1f} %" for name, part in seconds.most_common())
              + f". Sentences that are done leave: {100 * worked:.0f} % of steps times sentences remain")  # fmt: skip
    assert all(a[0] >= b[0] for batch in steps for a, b in pairwise(batch))
    assert worked < 0.95
    assert seconds["rest of the search"] < 0.15 * spent


def test_memory_is_that_of_a_batch(folder: Path, capsys) -> None:
    def added(count: int) -> list[int]:
        """Bytes that so many sentences add to the peak, and the bytes of their translations."""
        command = [sys.executable, "-c", TRANSLATING, str(folder), str(count)]
        run = subprocess.run(
            command, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True
        )
        return [int(part) for part in run.stdout.split()]

    (few, text_of_few), (many, text_of_many) = added(FEW), added(MANY)
    with capsys.disabled():
        print(f"\nPeak memory beside the translator: {FEW:,} sentences add {few / MIB:.1f} MiB, {MANY:,} add "
              f"{many / MIB:.1f} MiB; their translations are {text_of_few / MIB:.2f} and {text_of_many / MIB:.2f} MiB "
              "of text")  # fmt: skip
    assert many - few < 4096 * (MANY - FEW)  # a sentence's lists, strings and numbers
