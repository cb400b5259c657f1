"""Dual encoders: what gradient caching saves and costs, and whether cached image vectors are read faster than used."""

from pathlib import Path

import numpy as np
import psutil
import pytest
import torch
from torch import Tensor

from data.batches.retrieval import RetrievalData
from data.batches.slots import parse_group
from data.captions.table import Caption, table_of
from data.pictures.pixels import VectorStore
from modules.pretrained.dual_network import dual_network_arguments
from modules.pretrained.new_network import write_network
from modules.training.gathering import in_chunks
from modules.training.retrieval import Retrieval
from tests.benchmarks.timing import medians

pytestmark = pytest.mark.benchmark
WORDS = [f"word{number}" for number in range(400)]
WIDTH, LAYERS, CAPTIONS, BATCH, CHUNK = 256, 4, 145_000, 512, 64


@pytest.fixture(scope="module")
def module(tmp_path_factory) -> Retrieval:
    """A text tower that is trained on image vectors."""
    folder = tmp_path_factory.mktemp("network") / "clip"
    write_network(folder, WORDS, 32, 8, WIDTH, LAYERS, 1000, 1)
    network = dual_network_arguments(str(folder)) | {"towers": "text"}
    arguments = {"region_dim": WIDTH, "vocabulary_size": 1001, "languages": ["en"], "network": network}
    module = Retrieval(
        "dual-encoder", arguments, None, 0.2, None, 0, 1e-4, 9, 0.1, ["en"], ["en"], cached_chunk=0
    )  # fmt: skip
    module.start_losses(module.model.start(str(folder)))
    return module.train()


def saved(run) -> int:
    """Bytes that autograd keeps for the gradient while something is computed."""
    kept: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        run()
    return sum(kept.values())


def test_gradient_caching(module: Retrieval, capsys) -> None:
    tokens = torch.randint(3, 300, (BATCH, 20))
    lengths, languages = torch.full((BATCH,), 20), torch.zeros(BATCH, dtype=torch.long)
    weights = torch.randn(BATCH, WIDTH)

    def whole() -> Tensor:
        return (module.model.encode_captions(tokens, lengths, languages)[0][:, 0] * weights).sum()

    def chunked() -> Tensor:
        encoded = in_chunks(module.model.encode_captions, CHUNK, tokens, lengths, languages)
        return (encoded[0][:, 0] * weights).sum()

    whole_bytes, chunked_bytes = saved(whole), saved(chunked)
    plain, cached = medians(lambda: whole().backward(), lambda: chunked().backward(), 3)
    with capsys.disabled():
        print(f"\ngradient caching, {BATCH} captions by {CHUNK}: {chunked_bytes / whole_bytes:.3f} of the memory kept "
              f"({whole_bytes / 1e6:.0f} MB), {cached / plain:.2f} times the time")  # fmt: skip
    assert chunked_bytes < whole_bytes / 4
    assert cached < 2 * plain


def test_an_epoch_at_cached_image_vectors(module: Retrieval, tmp_path: Path, capsys) -> None:
    """145,000 captions of 29,000 images: gathering all batches of an epoch, beside steps of a small text tower."""
    rng, images = np.random.default_rng(0), CAPTIONS // 5
    np.save(tmp_path / VectorStore.array, rng.normal(size=(images, WIDTH)).astype(np.float32))
    (tmp_path / "ids.txt").write_text("".join(f"{number}\n" for number in range(images)))
    texts = [" ".join(rng.choice(WORDS, 12)) for _ in range(CAPTIONS)]
    table = table_of(Caption(str(number // 5), str(number), "en", text, "train") for number, text in enumerate(texts))
    place = {word: number + 3 for number, word in enumerate(WORDS)}
    data = RetrievalData(
        table, VectorStore(tmp_path), lambda text, language: [place[word] for word in text.split()],
        [parse_group("en/human")], ["en"], {}, BATCH,
    )  # fmt: skip
    batches, memory = iter(data.train_dataloader()), []
    some = [next(batches) for _ in range(6)]

    def step() -> None:
        module.model.zero_grad()
        images, captions = module.encode(some[0])
        (images[0][some[0]["image_index"], 0] * captions[0][:, 0]).sum().backward()

    gathered, stepped = medians(lambda: next(batches), step, 5)
    for _ in batches:
        memory.append(psutil.Process().memory_info().rss)
    with capsys.disabled():
        print(f"\nan epoch of {CAPTIONS:,} captions: a batch of {BATCH} is gathered in {gathered / stepped:.3f} of a "
              f"step's time; memory: {(memory[-1] - memory[0]) / 1e6:+.0f} MB in {len(memory)} batches")  # fmt: skip
    assert gathered < stepped / 4
    assert memory[-1] - memory[0] < 200e6
