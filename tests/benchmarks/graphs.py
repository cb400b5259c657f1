"""No test: how long a GPU takes for training steps of models alone, without CUDA graphs, with them, in TensorFloat-32.

    python -m tests.benchmarks.graphs

Models are of full size, and inputs made up: what is left of a step when nothing but the model's code runs.
"""

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from data.text.tokenisation import BEGIN, END, PADDING
from modules.precision import tensor_float
from modules.training.graphs import StepGraphs
from modules.training.retrieval import Retrieval
from modules.training.translation import Translation
from tests.benchmarks.timing import BATCH, REGION_DIM, REGIONS, VOCABULARY, make_batch

DEVICE = "cuda"
STEPS, PROFILED, WARM = 40, 10, 5
DIM, EACH = 512, 5  # captions that an image has
Made = tuple[nn.Module, Callable[[dict[str, Tensor]], tuple[Tensor, dict[str, Tensor]]], dict[str, Tensor]]


def retrieval(name: str) -> Made:
    """A retrieval model, its step and a batch of 128 pairs."""
    arguments = {"region_dim": REGION_DIM, "vocabulary_size": VOCABULARY, "languages": ["en"], "dim": DIM}
    module = Retrieval(name, arguments, None, 0.2, [1.0], 0, 5e-4, 15, 0.1, ["en"], ["en"])
    module._trainer = SimpleNamespace(world_size=1, current_epoch=0, global_step=0)
    regions, tokens, lengths = make_batch()
    rows = torch.arange(BATCH)
    batch = {
        "regions": regions.half(), "region_mask": torch.ones(BATCH, REGIONS, dtype=torch.bool), "image_key": rows,
        "image_index": rows, "tokens": tokens, "lengths": lengths, "language": 0 * rows, "type": 0 * rows,
        "sentence": EACH * rows, "image_sentences": torch.stack([rows.repeat(EACH), torch.arange(EACH * BATCH)], 1),
    }  # fmt: skip
    return module, module.total_loss, batch


def translator(network: str, sentences: int, words: int, region_dim: int | None = None, **more: Any) -> Made:
    """A translator, its step and a batch of so many sentences of so many words."""
    sizes = {"embedding_dim": DIM, "hidden_dim": DIM, "dropout": 0.3, "padding": PADDING}
    arguments = {"network": network, "vocabulary_size": 10_000, "region_dim": region_dim, **sizes, **more}
    module = Translation(arguments, 1e-3, 1, 1, 0.1, BEGIN, END)
    tokens, lengths = torch.randint(4, 10_000, (sentences, words)), torch.full((sentences,), words)
    batch = {"source": tokens, "source_lengths": lengths, "target": tokens, "labels": tokens, "target_lengths": lengths}
    if region_dim is not None:
        batch["regions"] = torch.randn(sentences, REGIONS, region_dim).half()
    return module, module._loss_and_words, batch


def milliseconds(made: Made, graph: bool) -> tuple[float, float, float]:
    """Of a step, of its kernels alone, and how many kernels it has."""
    module, step, batch = made
    optimizer = torch.optim.Adam(module.parameters(), fused=True)
    graphs = StepGraphs(module)

    def one() -> None:
        """Forward, backward, clipping, Adam."""
        loss, _ = graphs(step, batch) if graph else step(dict(batch))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimizer.step()

    def seconds(count: int) -> float:
        """Of so many steps."""
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(count):
            one()
        torch.cuda.synchronize()
        return time.perf_counter() - began

    seconds(WARM)
    whole = seconds(STEPS) / STEPS
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        seconds(PROFILED)
    kernels = [event for event in profiler.key_averages() if event.self_device_time_total]
    spent = sum(event.self_device_time_total for event in kernels) / 1e3
    return 1000 * whole, spent / PROFILED, sum(event.count for event in kernels) / PROFILED


def main() -> None:
    """Time all, and print the table."""
    models = {
        f"SAN, {BATCH} pairs": retrieval("san"),
        "NMT, Bi-LSTM, 224 × 20 words": translator("bilstm", 224, 20),
        "MMT, Bi-LSTM, 224 × 16 words": translator("bilstm", 224, 16, REGION_DIM),
        "NMT, Transformer, 224 × 20 words": translator("transformer", 224, 20, layers=4, heads=4),
    }
    print(f"On {torch.cuda.get_device_name()}, milliseconds a step:\n")
    print("| | without | graph | graph, TensorFloat-32 | its kernels alone | kernels |\n|---|---|---|---|---|---|")
    for name, (module, step, batch) in models.items():
        made = module.train().to(DEVICE), step, {key: tensor.to(DEVICE) for key, tensor in batch.items()}
        plain, graph = (milliseconds(made, by_graph)[0] for by_graph in (False, True))
        with tensor_float(DEVICE):
            low, kernels, count = milliseconds(made, True)
        print(f"| {name} | {plain:.1f} | {graph:.1f} | {low:.1f} | {kernels:.1f} | {count:.0f} |", flush=True)


if __name__ == "__main__":
    main()
