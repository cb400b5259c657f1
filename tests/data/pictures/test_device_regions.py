"""Regions on the device of the training: the batches are those that hold them."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor

from data.batches.retrieval import RetrievalData
from data.batches.slots import parse_group
from data.batches.translation import Sentences, TranslationData
from data.pictures.device_regions import DeviceRegions
from data.pictures.regions import RegionStore, write_regions
from tests.modules.small import Corpus


@pytest.fixture
def store(tmp_path: Path) -> RegionStore:
    rng, ids = np.random.default_rng(0), [f"{number}.jpg" for number in range(5)]
    write_regions(tmp_path, ids, ((rng.normal(size=(3, 4)), np.zeros((3, 4))) for _ in ids))
    return RegionStore(tmp_path)


def moved(data: RetrievalData | TranslationData, batch: dict[str, Tensor]) -> dict[str, Tensor]:
    return data.on_after_batch_transfer(batch, 0)


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    assert one.keys() == other.keys()
    for name, tensor in one.items():
        assert torch.equal(tensor, other[name]), name
        assert tensor.dtype == other[name].dtype, name


def test_rows_are_taken_and_none_is_zero(store: RegionStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("data.pictures.device_regions._BLOCK", 2)
    regions = DeviceRegions(store, "device", None)
    rows = np.array([3, -1, 0, 3])
    taken = regions.of_rows(torch.from_numpy(rows))
    assert taken.dtype == torch.float16
    np.testing.assert_array_equal(taken.numpy(), store.take(rows))


def test_a_gpu_has_them_where_half_of_what_is_free_for_the_process_holds_them(store: RegionStore, monkeypatch) -> None:
    trainer = SimpleNamespace(strategy=SimpleNamespace(root_device=torch.device("cuda")))
    copied = []
    monkeypatch.setattr("data.pictures.device_regions._copied", lambda regions, device: copied.append(device))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _: 30)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda _: 10)
    size = 2 * store.regions.nbytes
    for free, total, expected in ((size - 20, 10**12, 1), (size - 21, 10**12, 0), (size, 2 * size, 0),
                                  (size, 2 * size + 20, 1)):  # fmt: skip
        copied.clear()
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _, both=(free, total): both)
        monkeypatch.setattr(torch.cuda, "get_per_process_memory_fraction", lambda _: 0.5)
        DeviceRegions(store, "auto", trainer)
        assert len(copied) == expected
    assert DeviceRegions(store, "host", None).table is None
    assert DeviceRegions(store, "auto", None).table is None
    store.regions = SimpleNamespace(shape=(5, 3, 4))  # made from other arrays
    assert DeviceRegions(store, "device", None).table is None


def test_retrieval_batches_are_the_same(tmp_path: Path) -> None:
    corpus = Corpus(tmp_path)
    groups = [parse_group("en/human"), parse_group("de/human")]
    held_out = {"val": ["en"], "test": ["de"]}
    host, device = (
        RetrievalData(corpus.captions, corpus.store, corpus.words, groups, ["de", "en"], held_out, 8, place=place)
        for place in ("host", "device")
    )
    for load in ("train_dataloader", "val_dataloader", "test_dataloader"):
        batches = list(getattr(device, load)())
        assert not any("regions" in batch for batch in batches)
        for batch, expected in zip(batches, getattr(host, load)(), strict=True):
            same(moved(device, batch), moved(host, expected))


def test_translators_batches_are_the_same(store: RegionStore) -> None:
    images = ["1.jpg", None, "4.jpg", "0.jpg"]
    sentences = Sentences([[5, 6], [7], [8, 9, 5], [6]], [[5], [6, 7], [8], [9, 9]], images)
    host, device = (TranslationData(sentences, sentences, store, 12, 3, 0, place=place) for place in ("host", "device"))
    for batch, expected in zip(device.train_dataloader(), host.train_dataloader(), strict=True):
        assert "regions" not in batch
        same(moved(device, batch), moved(host, expected))
    text = TranslationData(sentences, sentences, None, 12, 3, 0, place="device")
    assert all("regions" not in moved(text, batch) for batch in text.train_dataloader())
