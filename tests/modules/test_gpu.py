"""On a GPU the same comes out as on the CPU: translators, search, retrieval models, the index."""

from pathlib import Path

import pytest
import torch

import modules.cross_entropy
import modules.scores
from modules.beam import BeamSettings
from modules.noisy_channel import Channel
from modules.rerankers import LogProbability, Reranker
from modules.training import BatchModule
from modules.translation import Translation
from modules.translators import translate
from tests.modules.cases import LANGUAGES, LENGTHS, N, make, make_batch, scores

on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU")
TRANSLATORS = [("bilstm", None), ("bilstm", 6), ("transformer", None), ("transformer", 6)]
RETRIEVAL = ["san", "dan", "scan-t2i-avg", "scan-i2t-lse", "vse++", "vse-inf", "pivot-sym", "pivot-asym"]
BEGIN, END, V = 1, 2, 40


def sentences(region_dim: int | None) -> dict[str, torch.Tensor]:
    """Four sentences with their translations, and regions if somebody looks."""
    generator = torch.Generator().manual_seed(0)
    lengths, targets = torch.tensor([5, 2, 7, 1]), torch.tensor([3, 6, 1, 4])
    source, target, labels = (torch.randint(3, V, (4, width), generator=generator) for width in (7, 6, 6))
    source, labels = (
        tokens * (torch.arange(tokens.shape[1]) < counts[:, None])
        for tokens, counts in ((source, lengths), (labels, targets))
    )
    batch = {"index": torch.arange(4), "source": source, "source_lengths": lengths, "target": target,
             "labels": labels, "target_lengths": targets}  # fmt: skip
    if region_dim is not None:
        batch["regions"] = torch.randn(4, 3, region_dim, dtype=torch.float64, generator=generator)
    return batch


def translation(network: str, region_dim: int | None, agreement: float = 0.0) -> Translation:
    torch.manual_seed(0)
    sizes = {"embedding_dim": 16, "hidden_dim": 12, "dropout": 0.0, "padding": 0}
    arguments = {"network": network, "vocabulary_size": V, "region_dim": region_dim, **sizes}
    return Translation(arguments, 1e-3, 1, 1, 0.1, BEGIN, END, agreement=agreement).double().train()


@pytest.mark.parametrize(("network", "region_dim"), TRANSLATORS)
@pytest.mark.parametrize(("smoothing", "agreement"), [(0.0, 0.0), (0.1, 0.0), (0.1, 5.0)])
@on_gpu
def test_translators_learn_the_same(network: str, region_dim: int | None, smoothing: float, agreement: float) -> None:
    found = []
    for device in ("cpu", "cuda"):
        module = translation(network, region_dim, agreement).to(device)
        batch = module.transfer_batch_to_device(sentences(region_dim), torch.device(device), 0)
        loss, words = module._cross_entropy(batch, smoothing)
        loss.backward()
        found.append((loss.cpu(), words.cpu(), {name: p.grad.cpu() for name, p in module.named_parameters()}))
    torch.testing.assert_close(found[1], found[0])


@pytest.mark.parametrize(("network", "region_dim"), TRANSLATORS)
@on_gpu
def test_translators_learn_alike_in_bfloat16_in_many_parts(network: str, region_dim: int | None, monkeypatch) -> None:
    monkeypatch.setattr(modules.cross_entropy, "PART_ON_GPU", 5 * V)
    found = []
    for device in ("cpu", "cuda"):
        module = translation(network, region_dim).float().to(device)
        batch = module.transfer_batch_to_device(sentences(region_dim), torch.device(device), 0)
        if region_dim is not None:
            batch["regions"] = batch["regions"].half()
        with torch.autocast(device, torch.bfloat16):
            loss, _ = module._cross_entropy(batch, 0.1)
        loss.backward()
        found.append((loss.cpu(), {name: p.grad.cpu() for name, p in module.named_parameters()}))
    torch.testing.assert_close(found[1][0], found[0][0], rtol=0.02, atol=0.0)
    largest = max(float(grad.abs().max()) for grad in found[0][1].values())
    torch.testing.assert_close(found[1][1], found[0][1], rtol=0.0, atol=0.05 * largest)


@on_gpu
def test_two_passes_agree_the_same() -> None:
    """Without dropout the passes of a translator are equal, and their discord is 0: here they are not."""
    found = []
    for device in ("cpu", "cuda"):
        torch.manual_seed(0)
        sizes = ((7, 12), (7, 12), (V, 12), (V,))
        inputs = [torch.randn(*size, dtype=torch.float64).to(device).requires_grad_() for size in sizes]
        loss = modules.cross_entropy.agreeing_cross_entropy(*inputs, torch.arange(7, device=device), 0.1, 5.0)
        loss.backward()
        found.append((loss.cpu(), [tensor.grad.cpu() for tensor in inputs]))
    torch.testing.assert_close(found[1], found[0])


@pytest.mark.parametrize(("network", "region_dim"), TRANSLATORS)
@on_gpu
def test_translators_say_the_same(network: str, region_dim: int | None) -> None:
    found = []
    for device in ("cpu", "cuda"):
        module = translation(network, region_dim).to(device).eval()
        batch = module.transfer_batch_to_device(sentences(region_dim), torch.device(device), 0)
        found.append(translate(module.translator, batch, BeamSettings(4), BEGIN, END))
    for ours, theirs in zip(*found, strict=True):
        assert [one.tokens for one in ours] == [one.tokens for one in theirs]
        torch.testing.assert_close([one.score for one in ours], [one.score for one in theirs])


@pytest.mark.parametrize(("network", "region_dim"), TRANSLATORS)
@on_gpu
def test_a_channel_reranks_the_same(network: str, region_dim: int | None) -> None:
    found = []
    for device in ("cpu", "cuda"):
        module, back = translation(network, region_dim), translation(network, None).translator
        features = {"logp": LogProbability(), "channel": Channel(back, list, list, BEGIN, END)}
        both = Reranker(module.translator, features, {"logp": 1.0, "channel": 0.5}, 4).to(device).eval()
        batch = module.transfer_batch_to_device(sentences(region_dim), torch.device(device), 0)
        found.append(translate(both, batch, BeamSettings(2), BEGIN, END))
    for ours, theirs in zip(*found, strict=True):
        assert [one.tokens for one in ours] == [one.tokens for one in theirs]
        torch.testing.assert_close([one.score for one in ours], [one.score for one in theirs])


@pytest.mark.parametrize("name", RETRIEVAL)
@on_gpu
def test_retrieval_models_score_and_learn_the_same(name: str) -> None:
    found = []
    for device in ("cpu", "cuda"):
        model = make(name).to(device)
        regions, mask, tokens = (tensor.detach().to(device) for tensor in make_batch())
        images = model.encode_images(regions, mask)
        value = model.similarity(images, model.encode_captions(tokens, LENGTHS, LANGUAGES.to(device)))
        value.square().sum().backward()
        found.append((value.detach().cpu(), {name: p.grad.cpu() for name, p in model.named_parameters()}))
    torch.testing.assert_close(found[1], found[0])
    assert found[0][0].shape == (N, len(LENGTHS))
    torch.testing.assert_close(found[0][0], scores(make(name), *make_batch()).detach())


@pytest.mark.parametrize("name", RETRIEVAL)
@on_gpu
def test_retrieval_models_score_alike_in_bfloat16_in_many_parts(name: str, monkeypatch) -> None:
    monkeypatch.setattr(modules.scores, "PART_ON_GPU", 500)
    found = []
    for device in ("cpu", "cuda"):
        model = make(name).float().to(device)
        regions, mask, tokens = (tensor.detach().to(device) for tensor in make_batch())
        with torch.autocast(device, torch.bfloat16):
            images = model.encode_images(regions.float(), mask)
            found.append(model.similarity(images, model.encode_captions(tokens, LENGTHS, LANGUAGES.to(device))).cpu())
    assert found[1].dtype == torch.float32
    torch.testing.assert_close(found[1], found[0], rtol=0.0, atol=0.1)


@on_gpu
def test_a_flat_index_on_the_gpu_finds_what_the_cpu_s_finds(tmp_path: Path) -> None:
    faiss = pytest.importorskip("faiss")
    from modules.index import VectorIndex

    if not faiss.get_num_gpus():
        pytest.skip("this FAISS is for the CPU")
    generator = torch.Generator().manual_seed(0)
    gallery, queries = torch.randn(5000, 64, generator=generator), torch.randn(300, 64, generator=generator)
    plain, index = VectorIndex(gallery, gpu=-1), VectorIndex(gallery.cuda())
    assert index._on_gpu
    assert not plain._on_gpu
    for k in (1, 10, 2048, 5000):
        best, rows = plain.search(queries, min(k, 2048))
        again, found = index.search(queries.cuda(), k)
        torch.testing.assert_close(again, best, rtol=1e-4, atol=1e-4)
        assert (found == rows).float().mean() > 0.999  # sums of another order may exchange neighbours
    index.save(tmp_path, "a model")
    for gpu in (None, -1):
        read = VectorIndex.load(tmp_path, "a model", gpu)
        assert torch.equal(read.vectors(), gallery)
        assert torch.equal(read.search(queries, 1)[1], plain.search(queries, 1)[1])


def test_lengths_stay_on_the_cpu() -> None:
    batch = sentences(6)
    moved = BatchModule().transfer_batch_to_device(batch, torch.device("meta"), 0)
    assert set(moved) == set(batch)
    stayed = {name for name, tensor in moved.items() if tensor.device.type == "cpu"}
    assert stayed == {"source_lengths", "target_lengths"}
