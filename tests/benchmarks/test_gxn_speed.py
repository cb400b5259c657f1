"""Time and memory of each update of GXN beside one by the ranking loss, and what a step with rewards consists of."""

import multiprocessing
import resource
from collections.abc import Callable
from multiprocessing.connection import Connection

import numpy as np
import pytest
import torch

from data.text.sentences import sentence_hash
from modules.layers.image_generator import PhaseConvolution
from modules.metrics.cider import CiderD
from modules.retrieval_models.base import Batch
from modules.training.gxn import GxnTraining
from tests.benchmarks.timing import BATCH, REGION_DIM, medians
from tests.modules.small import make_trainer

pytestmark = pytest.mark.benchmark
VOCABULARY, DIM, WIDTH, SIZE = 5000, 512, 32, 64


class References:
    """A DataModule with five captions of each image."""

    def references(self) -> dict[tuple[int, int], list[list[int]]]:
        rng = np.random.default_rng(0)
        return {(image, 0): [draw(rng) for _ in range(5)] for image in range(1000)}


def draw(rng: np.random.Generator) -> list[int]:
    """A caption whose words are distributed by Zipf's law."""
    return (2 + VOCABULARY ** rng.random(rng.integers(7, 16)) * 0.99).astype(int).clip(2, VOCABULARY - 1).tolist()


def make_training() -> GxnTraining:
    torch.manual_seed(0)
    arguments = {
        "region_dim": REGION_DIM, "vocabulary_size": VOCABULARY, "languages": ["en"], "dim": DIM, "word_dim": 300,
        "generate": ["i2t", "t2i"], "reinforce_epoch": 0, "picture_width": WIDTH, "picture_size": SIZE, "longest": 20,
    }  # fmt: skip
    module = GxnTraining("gxn", arguments, None, 0.05, None, 0, 2e-4, 9, 0.1, ["en"], ["en"])
    module.trainer = make_trainer(10)
    module.trainer.datamodule = References()
    module.on_fit_start()
    return module


def make_batch() -> Batch:
    rng = np.random.default_rng(1)
    captions = [draw(rng) for _ in range(BATCH)]
    width = max(map(len, captions))
    return {
        "regions": torch.randn(BATCH, 1, REGION_DIM), "region_mask": torch.ones(BATCH, 1).bool(),
        "tokens": torch.tensor([[*one, *[0] * (width - len(one))] for one in captions]),
        "lengths": torch.tensor([len(one) for one in captions]), "image_key": torch.arange(BATCH),
        "image_index": torch.arange(BATCH), "caption_key": torch.arange(BATCH),
        "language": torch.zeros(BATCH, dtype=torch.long), "type": torch.zeros(BATCH, dtype=torch.long),
        "sentence": torch.tensor([sentence_hash(str(one)) for one in captions]),
        "image_sentences": torch.empty(0, 2, dtype=torch.long),
        "pixels": torch.randint(0, 256, (BATCH, 3, SIZE, SIZE), dtype=torch.uint8),
    }  # fmt: skip


def added_memory(step: Callable[[], object]) -> float:
    """MB that a step adds at its highest, in a process of its own."""
    context = multiprocessing.get_context("fork")
    ours, its = context.Pipe()

    def measure(sender: Connection) -> None:
        torch.set_num_threads(1)  # the threads of OpenMP do not survive a fork: a step on several would wait for ever
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        step()
        sender.send((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)

    process = context.Process(target=measure, args=(its,))
    process.start()
    its.close()
    added: float = ours.recv()
    process.join()
    return added


def test_updates_and_the_parts_of_a_step_with_rewards(capsys) -> None:
    module, batch = make_training(), make_batch()
    vectors = module.model.scaled(torch.rand(BATCH, DIM))
    numbers = torch.cat([torch.rand(BATCH, 20), torch.full((BATCH, 20), -1.0)])

    def update(losses) -> None:
        module.zero_grad()
        torch.stack(list(losses(batch).values())).sum().backward()

    written = module.model.decoder.write(
        module.model.words, vectors.repeat(2, 1), batch["language"].repeat(2), numbers
    )  # fmt: skip

    def reward() -> None:
        tokens, lengths = written
        module._reward(batch, tokens, lengths)

    steps = {
        "captions with rewards": lambda: update(module._captioning_losses),
        "sampling and greedy": lambda: module.model.decoder.write(
            module.model.words, vectors.repeat(2, 1), batch["language"].repeat(2), numbers
        ),
        "CIDEr-D": reward,
        "discriminator": lambda: update(lambda batch: module._discriminator_loss(batch, module._imagined(batch))),
        "generator": lambda: update(lambda batch: module._generator_losses(module._imagined(batch))),
    }
    memory = {name: added_memory(step) for name, step in steps.items()}
    lines = [f"an update by the ranking loss: at most {added_memory(lambda: update(module.losses)):.0f} MB"]
    taken = {}
    for name, step in steps.items():
        step()
        taken[name], ranking = medians(step, lambda: update(module.losses), 5)
        lines.append(
            f"{name}: {1000 * taken[name]:.0f} ms, {taken[name] / ranking:.1f} times an update by the ranking loss; "
            f"at most {memory[name]:.0f} MB"
        )
    whole = taken["captions with rewards"]
    share = (taken["sampling and greedy"] + taken["CIDEr-D"]) / whole
    gan = taken["discriminator"] + taken["generator"]
    lines.append(f"sampling and CIDEr-D: {100 * share:.0f} % of the update; the GAN {100 * gan / (gan + whole):.0f} % "
                 "of both")  # fmt: skip
    with capsys.disabled():
        print("", *lines, sep="\n")
    assert isinstance(module._rewards[0], CiderD)
    assert share < 0.4


def test_phases_beside_the_enlarged_convolution(capsys) -> None:
    torch.manual_seed(0)
    layer, maps = PhaseConvolution(64, 32), torch.randn(64, 64, 16, 16)

    def plain() -> torch.Tensor:
        return torch.nn.functional.conv2d(
            torch.nn.functional.interpolate(maps, scale_factor=2, mode="nearest"), layer.weight, padding=1
        )

    phases, enlarged = medians(lambda: layer(maps).sum().backward(), lambda: plain().sum().backward(), 20)
    with capsys.disabled():
        print(f"\nphases: {enlarged / phases:.2f} times as fast as the enlarged convolution")
    assert phases < 1.2 * enlarged
