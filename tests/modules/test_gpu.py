"""On a GPU the same comes out as on the CPU: translators, search, retrieval models, the index.

Where torch sees no GPU, most of it runs on the stand-in of `tests/stand_in.py`: values, and which device has them.
"""

from pathlib import Path

import pytest
import torch

import modules.losses.cross_entropy
import modules.search.scores
from data.batches.retrieval import RetrievalData
from data.batches.slots import parse_group
from modules.layers.gru import both_ways
from modules.layers.image_generator import (
    PictureDiscriminator,
    PictureGenerator,
    RegionDiscriminator,
    RegionGenerator,
    discriminator_losses,
)
from modules.layers.recurrent import states_to_the_right
from modules.search.likelihood import likelihood_ranks
from modules.search.reranking import exact_lists
from modules.training.base import BatchModule
from modules.training.retrieval import Retrieval
from modules.training.translation import Translation
from modules.translators.beam import BeamSettings
from modules.translators.noisy_channel import Channel
from modules.translators.registry import translate
from modules.translators.rerankers import LogProbability, Reranker
from tests.modules.cases import LANGUAGES, LENGTHS, N, make, make_batch, scores
from tests.modules.layers import test_caption_decoder as decoding
from tests.modules.retrieval_models.test_gxn import PATHS, Pictures
from tests.modules.search import test_likelihood as likelihoods
from tests.modules.search import test_ranking as ranking
from tests.modules.small import Corpus, Diary, make_trainer
from tests.stand_in import on_gpu, on_stand_in, stand_in

TRANSLATORS = [("bilstm", None), ("bilstm", 6), ("transformer", None), ("transformer", 6)]
RETRIEVAL = [
    "san", "dan", "scan-t2i-avg", "scan-i2t-lse", "vse++", "oe", "vse-inf", "pivot-sym", "pivot-asym",
    "diverse-attention", "embn", "parallel-embn", "mule", "mlmme", "gxn",
]  # fmt: skip
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
def test_translators_learn_the_same(
    gpu: str, network: str, region_dim: int | None, smoothing: float, agreement: float
) -> None:
    found = []
    for device in ("cpu", gpu):
        module = translation(network, region_dim, agreement).to(device)
        batch = module.transfer_batch_to_device(sentences(region_dim), torch.device(device), 0)
        loss, words = module._cross_entropy(batch, smoothing)
        loss.backward()
        found.append((loss.cpu(), words.cpu(), {name: p.grad.cpu() for name, p in module.named_parameters()}))
    torch.testing.assert_close(found[1], found[0])


@pytest.mark.parametrize(("network", "region_dim"), TRANSLATORS)
@on_gpu
def test_translators_learn_alike_in_bfloat16_in_many_parts(network: str, region_dim: int | None, monkeypatch) -> None:
    monkeypatch.setattr(modules.losses.cross_entropy, "PART_ON_GPU", 5 * V)
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


def test_two_passes_agree_the_same(gpu: str) -> None:
    """Without dropout the passes of a translator are equal, and their discord is 0: here they are not."""
    found = []
    for device in ("cpu", gpu):
        torch.manual_seed(0)
        sizes = ((7, 12), (7, 12), (V, 12), (V,))
        inputs = [torch.randn(*size, dtype=torch.float64).to(device).requires_grad_() for size in sizes]
        loss = modules.losses.cross_entropy.agreeing_cross_entropy(*inputs, torch.arange(7, device=device), 0.1, 5.0)
        loss.backward()
        found.append((loss.cpu(), [tensor.grad.cpu() for tensor in inputs]))
    torch.testing.assert_close(found[1], found[0])


@pytest.mark.parametrize(("network", "region_dim"), TRANSLATORS)
def test_translators_say_the_same(gpu: str, network: str, region_dim: int | None) -> None:
    found = []
    for device in ("cpu", gpu):
        module = translation(network, region_dim).to(device).eval()
        batch = module.transfer_batch_to_device(sentences(region_dim), torch.device(device), 0)
        found.append(translate(module.translator, batch, BeamSettings(4), BEGIN, END))
    for ours, theirs in zip(*found, strict=True):
        assert [one.tokens for one in ours] == [one.tokens for one in theirs]
        torch.testing.assert_close([one.score for one in ours], [one.score for one in theirs])


@pytest.mark.parametrize(("network", "region_dim"), TRANSLATORS)
def test_a_channel_reranks_the_same(gpu: str, network: str, region_dim: int | None) -> None:
    found = []
    for device in ("cpu", gpu):
        module, back = translation(network, region_dim), translation(network, None).translator
        features = {"logp": LogProbability(), "channel": Channel(back, list, list, BEGIN, END)}
        both = Reranker(module.translator, features, {"logp": 1.0, "channel": 0.5}, 4).to(device).eval()
        batch = module.transfer_batch_to_device(sentences(region_dim), torch.device(device), 0)
        found.append(translate(both, batch, BeamSettings(2), BEGIN, END))
    for ours, theirs in zip(*found, strict=True):
        assert [one.tokens for one in ours] == [one.tokens for one in theirs]
        torch.testing.assert_close([one.score for one in ours], [one.score for one in theirs])


@pytest.mark.parametrize("name", RETRIEVAL)
def test_retrieval_models_score_and_learn_the_same(gpu: str, name: str) -> None:
    found = []
    for device in ("cpu", gpu):
        model = make(name).to(device)
        regions, mask, tokens = (tensor.detach().to(device) for tensor in make_batch())
        images = model.encode_images(regions, mask)
        value = model.similarity(images, model.encode_captions(tokens, LENGTHS, LANGUAGES.to(device)))
        value.square().sum().backward()
        gradients = {name: p.grad.cpu() for name, p in model.named_parameters() if p.grad is not None}
        found.append((value.detach().cpu(), gradients))
    torch.testing.assert_close(found[1], found[0])
    assert found[0][0].shape == (N, len(LENGTHS))
    torch.testing.assert_close(found[0][0], scores(make(name), *make_batch()).detach())


@pytest.mark.parametrize("name", RETRIEVAL)
@on_gpu
def test_retrieval_models_score_alike_in_bfloat16_in_many_parts(name: str, monkeypatch) -> None:
    monkeypatch.setattr(modules.search.scores, "PART_ON_GPU", 500)
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
def test_recurrent_networks_are_not_run_in_float16() -> None:
    gru = torch.nn.GRU(4, 6, batch_first=True, bidirectional=True).cuda()
    words = torch.randn(3, 5, 4, device="cuda")
    with torch.autocast("cuda", torch.bfloat16):
        states = torch.cat(both_ways(gru, words, torch.tensor([5, 2, 3])), -1)
    assert states.dtype == torch.float32
    torch.testing.assert_close(states, torch.cat(both_ways(gru, words, torch.tensor([5, 2, 3])), -1))


def test_a_decoder_learns_and_writes_the_same(gpu: str) -> None:
    found, written = [], []
    for device in ("cpu", gpu):
        decoder, words, vectors = (part.to(device) for part in decoding.make())
        tokens, languages = decoding.TOKENS.to(device), decoding.LANGUAGES.to(device)
        loss = decoder.surprise(words, vectors, tokens, decoding.LENGTHS, languages)
        gradients = torch.autograd.grad(loss.square().sum(), [words.weight, *decoder.parameters()])
        found.append((loss.detach().cpu(), [gradient.cpu() for gradient in gradients]))
        numbers = torch.rand(3, 6, generator=torch.Generator().manual_seed(0)).to(device)
        numbers[0] = -1  # greedily
        texts, lengths = decoder.write(words, vectors, languages, numbers)
        mixed = decoder.mixed_words(words, vectors, tokens, languages, 0.5, numbers)
        best = decoder.search(words, vectors, languages, BeamSettings(3), 6)
        written.append((texts.tolist(), lengths.tolist(), mixed.tolist(), best))
    torch.testing.assert_close(found[1], found[0])
    assert written[1] == written[0]


@pytest.mark.parametrize("target", ["pixels", "regions"])
def test_a_gan_learns_the_same(gpu: str, target: str) -> None:
    found = []
    for device in ("cpu", gpu):
        torch.manual_seed(0)
        pair = (PictureGenerator(9, 4, 8), PictureDiscriminator(6, 4, 8)) if target == "pixels" else (
            RegionGenerator(9, 4, 7), RegionDiscriminator(6, 4, 7))  # fmt: skip
        noise, condition = torch.randn(5, 9).double().to(device), torch.randn(5, 6).double().to(device)
        generator, judge = (part.double().to(device) for part in pair)
        fake = generator(noise)
        real = torch.rand(fake.shape, generator=torch.Generator().manual_seed(1)).double().to(device)
        logits = [judge(judge.features(images), condition) for images in (real, fake)]
        losses = discriminator_losses(*logits, judge(judge.features(real), condition.roll(1, 0)), 0.5, 0.5)
        losses.sum().backward()
        gradients = {name: p.grad.cpu() for part in pair for name, p in part.named_parameters()}
        found.append((losses.detach().cpu(), gradients))
    torch.testing.assert_close(found[1], found[0])


TRAINED = {name: (name, {}, {}) for name in RETRIEVAL} | {
    f"gxn {name}": ("gxn", options, {"margin": 0.05}) for name, options in PATHS.items()
}


def trained_of(corpus: Corpus, name: str) -> tuple[Retrieval, RetrievalData]:
    model, options, settings = TRAINED[name]
    module = corpus.module(model, options=options, **settings)
    data = corpus.data(groups=[parse_group("en/human + de/human")])
    data._batches["train"].pictures = Pictures()
    return module, data


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
@pytest.mark.parametrize("name", TRAINED)
@on_gpu
def test_every_model_trains_and_is_tested(corpus: Corpus, name: str, precision: str) -> None:
    (module, data), diary = trained_of(corpus, name), Diary()
    epochs = 8 + module.model.pretrain_epochs
    trainer = make_trainer(epochs, diary, accelerator="gpu", precision=precision, check_val_every_n_epoch=epochs)
    trainer.fit(module, data)
    assert module.device.type == "cpu"  # where Lightning leaves it
    assert diary.logged[-1]["val/rsum"] > 2 * 6 * 25, diary.logged[-1]
    trainer.test(module, data, verbose=False)


@pytest.mark.parametrize("name", TRAINED)
def test_every_model_trains_on_the_stand_in_and_finds_there_what_it_finds_on_the_cpu(corpus: Corpus, name: str) -> None:
    module, data = trained_of(corpus, name)
    with stand_in():
        trainer = make_trainer(1 + module.model.pretrain_epochs, limit_val_batches=0, **on_stand_in())
        trainer.fit(module, data)
        (there,) = trainer.test(module, data, verbose=False)
    (here,) = make_trainer(1).test(module, data, verbose=False)
    assert here == pytest.approx(there)


def test_a_decoder_reranks_the_same(gpu: str) -> None:
    found = []
    for device in ("cpu", gpu):
        regions, words, _ = ranking.sets(4, 4, 6)
        sides = [tuple(one.to(device) for one in side) for side in (regions, words)]
        first = exact_lists(ranking.best_word_and_region, *ranking.whole(*sides), likelihoods.LINKS, 3)
        likelihood = likelihoods.likelihood(likelihoods.model().to(device))
        found.append((first, likelihood_ranks(likelihood, first, torch.tensor([2, 0, 5, 6]), torch.tensor([1, 3]))))
    (expected, by_cpu), (first, by_gpu) = found
    assert torch.equal(first.images.cpu(), expected.images)
    assert torch.equal(first.captions.cpu(), expected.captions)
    ranking.assert_same(by_gpu, by_cpu)


@on_gpu
def test_a_flat_index_on_the_gpu_finds_what_the_cpu_s_finds(tmp_path: Path) -> None:
    faiss = pytest.importorskip("faiss")
    from modules.search.index import VectorIndex

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


def test_tensors_of_two_devices_do_not_meet(gpu: str) -> None:
    here, there = torch.arange(3.0), torch.arange(3.0, device=gpu)
    rows = torch.tensor([0, 2], device=gpu)
    for wrong in (lambda: here + there, lambda: torch.cat([there, here]), lambda: here[rows], lambda: there.numpy(),
                  lambda: here.index_select(0, rows), lambda: torch.where(there > 1, here, there)):  # fmt: skip
        with pytest.raises((RuntimeError, TypeError)):
            wrong()
    assert (there + torch.tensor(1)).tolist() == [1, 2, 3]  # single numbers may
    assert there[rows.cpu()].cpu().numpy().tolist() == [0, 2]
    assert torch.equal(here.copy_(there * 2), torch.tensor([0.0, 2.0, 4.0]))


def test_lengths_stay_on_the_cpu() -> None:
    batch = sentences(6)
    moved = BatchModule().transfer_batch_to_device(batch, torch.device("meta"), 0)
    assert set(moved) == set(batch)
    stayed = {name for name, tensor in moved.items() if tensor.device.type == "cpu"}
    assert stayed == {"source_lengths", "target_lengths"}


@on_gpu
def test_very_many_rows_of_an_lstm_are_those_of_a_few() -> None:
    """As many as the threads of a batch of short captions have in search."""
    lstm = torch.nn.LSTM(8, 8, batch_first=True).cuda()
    words, real = torch.randn(150_000, 5, 8, device="cuda"), torch.ones(150_000, 5, dtype=torch.bool, device="cuda")
    states, hidden, cell = states_to_the_right(lstm, words, real)
    for some in (slice(0, 9), slice(149_991, 150_000)):
        expected = states_to_the_right(lstm, words[some], real[some])
        torch.testing.assert_close((states[some], hidden[some], cell[some]), expected, rtol=1e-3, atol=1e-4)
