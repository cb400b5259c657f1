"""Two processes are one: the loss and gradients of a batch split 4 + 3 equal those of the whole batch.

This file is its own worker: two processes run it as a script, once for all tests, and leave what they found.
"""

from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

import modules.training.gathering
import modules.training.retrieval
from modules.distributed import gather_objects, gather_rows, sum_over_ranks, touch
from modules.training.gxn import GxnTraining
from modules.training.mlmme import MlmmeTraining
from modules.training.mule import MuleTraining
from modules.training.retrieval import Retrieval
from modules.training.translation import Translation
from tests.modules.training import test_gradient_cache as cached
from tests.modules.two import both, two_processes

pytestmark = pytest.mark.whole

R, D, V, L = 2, 5, 12, 4
# (image, sentence, type and language): image 2 and image 0 on both ranks; 1 and 5 share a sentence; types uneven.
VISITS = [(0, 100, 0), (1, 101, 1), (2, 102, 0), (3, 103, 0), (2, 104, 1), (4, 101, 0), (0, 105, 1)]
PARTS = [VISITS[:4], VISITS[4:]]
ONE_LANGUAGE = [[visit for visit in VISITS if visit[2] == kind] for kind in range(2)]
MODELS = [
    "scan-t2i-avg", "scan-i2t-lse", "pivot-parallel-sym", "pivot-parallel-asym", "oe", "vse-inf", "dan",
    "diverse-attention",
]  # fmt: skip
AUXILIARY = {"parallel": {"parallel"}, "diverse": {"diversity", "between_captions"}}
PAIRED = [  # all captions of an image in one place: image 1 and 5 share a sentence
    (0, 100, 0), (0, 105, 1), (1, 101, 1), (1, 106, 0), (3, 103, 0), (3, 107, 1), (4, 101, 0), (4, 108, 1),
]  # fmt: skip
OWN_STEPS = {  # trainings of models' own, and random negatives: class, epoch, visits of the second rank and of both
    "mule, pre-training": (MuleTraining, 0, PAIRED[:6], PAIRED),
    "mule": (MuleTraining, 1, PAIRED[:6], PAIRED),
    "mule, random": (MuleTraining, 1, PAIRED[:6], PAIRED),
    "san, random": (Retrieval, 1, VISITS[:4], VISITS),
    "mlmme": (MlmmeTraining, 3, VISITS[:4], VISITS),
    "gxn": (GxnTraining, 1, VISITS[:4], VISITS),
    "gxn, captioning": (GxnTraining, 1, VISITS[:4], VISITS),
    "gxn, discriminator": (GxnTraining, 1, PAIRED[:6], PAIRED),
    "gxn, generator": (GxnTraining, 1, VISITS[:4], VISITS),
}
GXN_LOSSES = {
    "captioning": lambda module, batch: module._captioning_losses(batch),
    "discriminator": lambda module, batch: module._discriminator_loss(batch, module._imagined(batch)),
    "generator": lambda module, batch: module._generator_losses(module._imagined(batch)),
}
OPTIONS = {
    "mule": {"universal_dim": 7, "pretrain_epochs": 1, "anchor": 0.1, "classifier": 0.5}, "mlmme": {"beta": 0.25},
    "gxn": {"generate": ["i2t", "t2i"], "reinforce_epoch": 1, "picture_size": 8, "picture_width": 2, "longest": 3,
            "scheduled_sampling": 1.0},
}  # fmt: skip
HYPERPARAMETERS = {
    "loss": None, "margin": 0.5, "warmup_epochs": 1, "learning_rate": 0.01, "decay_epoch": 5, "decay": 0.1,
    "type_weights": [0.7, 0.3], "test_languages": ["en"], "select": ["en"],
}  # fmt: skip


def retrieval(world: int, epoch: int, model: str = "san") -> Retrieval:
    torch.manual_seed(0)
    arguments = {"region_dim": D, "vocabulary_size": V, "languages": ["en", "de"], "dim": 6, "word_dim": 4}
    caption_loss = 0.6 if model.startswith("diverse") else 0.0
    module = Retrieval(model, arguments, **HYPERPARAMETERS, caption_loss=caption_loss).double()
    module._trainer = SimpleNamespace(world_size=world, current_epoch=epoch, global_step=7)
    module.encode = lambda batch: (  # as in the class, but float64
        module.model.encode_images(batch["regions"], batch["region_mask"]),
        module.model.encode_captions(batch["tokens"], batch["lengths"], batch["language"]),
    )
    return module


def visits_batch(visits: list[tuple[int, int, int]]) -> dict[str, Tensor]:
    """A batch as data makes it: each image once, captions pointing to it; words are a function of the sentence."""
    generator = torch.Generator().manual_seed(1)
    regions = torch.randn(5, R, D, dtype=torch.float64, generator=generator)
    words = torch.randint(1, V, (10, L), generator=generator)
    images, sentences, types = (torch.tensor(column) for column in zip(*visits, strict=True))
    keys, index = images.unique(return_inverse=True)
    lengths = 1 + sentences % 3
    return {
        "regions": regions[keys], "region_mask": torch.ones(len(keys), R, dtype=torch.bool), "image_key": keys,
        "tokens": words[sentences - 100][:, : lengths.max()], "lengths": lengths, "image_index": index,
        "caption_key": sentences, "language": types, "type": types, "sentence": sentences,
        "image_sentences": torch.stack([images, sentences], 1),
        "pixels": (keys[:, None, None, None] * 40).expand(-1, 3, 8, 8),
    }  # fmt: skip


def translation(world: int) -> Translation:
    torch.manual_seed(0)
    network = {"vocabulary_size": V, "region_dim": D, "embedding_dim": 4, "hidden_dim": 3, "dropout": 0.0}
    module = Translation(network, 0.01, 1, 10, label_smoothing=0.1, begin=1, end=2).double()
    module._trainer = SimpleNamespace(world_size=world)
    module.log = lambda *_, **__: None
    return module


def sentences_batch(rows: slice) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(1)
    source, target = (torch.randint(3, V, (7, L), generator=generator) for _ in range(2))
    regions = torch.randn(7, R, D, dtype=torch.float64, generator=generator)
    lengths, targets = torch.tensor([4, 1, 2, 3, 2, 1, 4]), torch.tensor([1, 4, 2, 4, 1, 1, 2])
    return {
        "source": source[rows], "source_lengths": lengths[rows], "regions": regions[rows],
        "target": torch.cat([torch.ones(7, 1, dtype=torch.long), target], 1)[rows],
        "labels": torch.cat([target, torch.full((7, 1), 2)], 1)[rows], "target_lengths": targets[rows] + 1,
    }  # fmt: skip


def loss_and_gradients(module: torch.nn.Module, loss: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    module.zero_grad()
    loss.backward()
    return loss.detach(), {name: parameter.grad.clone() for name, parameter in module.named_parameters()}


def retrieval_results(visits: list, world: int, epoch: int, model: str = "san") -> tuple[Tensor, dict[str, Tensor]]:
    """The sum of all losses, with the zero that reaches all parameters, as in `training_step`."""
    module = retrieval(world, epoch, model)
    losses = module.losses(visits_batch(visits))
    assert set(losses) == {"ranking"}.union(*(own for part, own in AUXILIARY.items() if part in model))
    return loss_and_gradients(module, torch.stack(list(losses.values())).sum() + touch(module.parameters()))


def results_of_own_steps(case: str, visits: list, world: int) -> tuple[Tensor, dict[str, Tensor], dict[str, Tensor]]:
    """The sum of all losses of a model with a training of its own, its gradients, and what it measured."""
    kind, epoch, *_ = OWN_STEPS[case]
    name = case.partition(",")[0]
    torch.manual_seed(0)
    sizes = {"region_dim": D, "vocabulary_size": V, "languages": ["en", "de"], "dim": 6, "word_dim": 4}
    more = {"type_weights": None, "margin": 2.0, "loss": "random" if case.endswith("random") else None}
    module = kind(name, sizes | OPTIONS.get(name, {}), **HYPERPARAMETERS | more).double()
    data = SimpleNamespace(references=lambda: {(image, kind): [[2, 3], [4]] for image, _, kind in VISITS})
    module._trainer = SimpleNamespace(
        world_size=world, current_epoch=epoch, global_step=7, max_epochs=3, datamodule=data,
        fit_loop=SimpleNamespace(total_batch_idx=7), global_rank=0,
    )  # fmt: skip
    module.on_fit_start()
    batch, of_case = visits_batch(visits), GXN_LOSSES.get(case.rpartition(", ")[2])
    losses = module.losses(batch) if of_case is None else of_case(module, batch)
    total = torch.stack(list(losses.values())).sum() + touch(module.parameters())
    return *loss_and_gradients(module, total), module.model.figures


def translation_results(rows: slice, world: int) -> tuple[Tensor, dict[str, Tensor]]:
    module = translation(world)
    with mock.patch.object(Translation, "logs_step", False):
        return loss_and_gradients(module, module.training_step(sentences_batch(rows), 0))


def in_chunks(model: str, folder: Path, world: int = 1, rank: int = 0) -> tuple[Tensor, dict[str, Tensor]]:
    """The whole batch in one process; on two each has a part, of which it encodes two rows at a time."""
    parts = [cached.VISITS] if world == 1 else [cached.VISITS[:5], cached.VISITS[5:]]
    return cached.results(cached.module_of(model, folder, 2 * (world - 1), world), parts[rank])


def work(rank: int, folder: Path) -> None:
    """What each of the two processes does."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    found = {}
    for epoch in (0, 1):
        found[f"epoch {epoch}"] = retrieval_results(PARTS[rank], 2, epoch)
    for model in MODELS:
        found[model] = retrieval_results(PARTS[rank], 2, 1, model)
    for case, (*_, second, everything) in OWN_STEPS.items():  # captions in another order than in one process
        found[case] = results_of_own_steps(case, (everything[len(second) :], second)[rank], 2)
    found["a language a rank"] = retrieval_results(ONE_LANGUAGE[rank], 2, 1, "pivot-parallel-sym")
    alone = {"gather_rows": lambda rows, world: rows}
    of_training, of_vectors = modules.training.retrieval, modules.training.gathering
    with mock.patch.multiple(of_training, **alone), mock.patch.multiple(of_vectors, **alone):
        found["not gathered"] = retrieval_results(PARTS[rank], 2, 1)
    found["in chunks"] = {model: in_chunks(model, folder, 2, rank) for model in cached.MODELS}
    found["translation"] = translation_results((slice(0, 4), slice(4, 7))[rank], 2)
    rows = torch.arange(6.0).view(3, 2)[: 3 - 2 * rank] + 10 * rank  # three rows here, one there
    rows.requires_grad_()
    together = gather_rows(rows, 2)
    (together * torch.arange(1.0, 5.0)[:, None] * (1 + rank)).sum().backward()
    found["rows"], found["rows gradient"] = together.detach(), rows.grad
    found["no rows"] = gather_rows(torch.ones(2 * rank, 3), 2)
    found["keys"] = gather_rows(torch.tensor([2**62 + rank] * (1 + rank)), 2)
    found["objects"] = gather_objects([("a", rank)] * (1 + rank), 2)
    value = torch.tensor([1.0, 10.0 * rank], requires_grad=True)
    found["sum"], found["own value"] = sum_over_ranks(value, 2), value.detach()
    vectors = torch.full((2, 3 - rank, 2), 1.0 + rank)
    mask = torch.tensor([[True, True, False], [True, False, False]])[:, : 3 - rank]
    found["sets"] = modules.training.gathering.gather_encoding((vectors, mask), 2)
    module = retrieval(2, 1)
    batch = visits_batch(PARTS[rank])
    pairs = module.gather(batch, *module.encode(batch))
    found["pairs"] = (pairs.images[0].detach(), pairs.positives, pairs.negatives, pairs.types)
    torch.save(found, folder / f"{rank}.pt")
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def found(tmp_path_factory) -> list[dict]:
    folder = tmp_path_factory.mktemp("ranks")
    in_chunks("dual-encoder", folder)  # leaves its network there
    return two_processes(__file__, folder)


def averaged(found: list[dict], name: str) -> dict[str, Tensor]:
    """What DDP makes of the ranks' gradients."""
    return {key: (found[0][name][1][key] + found[1][name][1][key]) / 2 for key in found[0][name][1]}


def largest_difference(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> float:
    assert ours.keys() == theirs.keys()
    return max(float((ours[name] - theirs[name]).abs().max()) for name in ours)


@pytest.mark.parametrize("epoch", [0, 1], ids=["mean of hinges", "hardest negatives"])
def test_retrieval_on_two_ranks_is_retrieval_on_one(found, epoch: int) -> None:
    loss, gradients = retrieval_results(VISITS, 1, epoch)
    assert loss > 0.1
    for rank in range(2):
        torch.testing.assert_close(found[rank][f"epoch {epoch}"][0], loss, atol=1e-5, rtol=0)
    assert all(gradient.abs().max() > 1e-4 for gradient in gradients.values())
    assert largest_difference(averaged(found, f"epoch {epoch}"), gradients) < 1e-5


@pytest.mark.parametrize("model", MODELS)
def test_every_kind_of_model_on_two_ranks_is_that_on_one(found, model: str) -> None:
    loss, gradients = retrieval_results(VISITS, 1, 1, model)
    assert loss > 0.1
    for rank in range(2):
        torch.testing.assert_close(found[rank][model][0], loss, atol=1e-9, rtol=0)
    assert all(gradient.abs().max() > 1e-6 for gradient in gradients.values())
    assert largest_difference(averaged(found, model), gradients) < 1e-9


@pytest.mark.parametrize("case", OWN_STEPS)
def test_models_with_a_training_of_their_own_on_two_ranks_are_those_on_one(found, case: str) -> None:
    loss, gradients, figures = results_of_own_steps(case, OWN_STEPS[case][-1], 1)
    assert loss > 0.1
    assert case != "gxn, captioning" or {*figures} == {"cross_entropy", "reward"}
    for rank in range(2):
        torch.testing.assert_close(found[rank][case][0], loss, atol=1e-9, rtol=0)
        torch.testing.assert_close(found[rank][case][2], figures, atol=1e-6, rtol=0)
    assert largest_difference(averaged(found, case), gradients) < 1e-9
    assert "," in case or case == "gxn" or all(gradient.abs().max() > 1e-9 for gradient in gradients.values())


def test_a_rank_without_a_language_has_the_same_loss_and_gradients(found) -> None:
    visits = [visit for part in ONE_LANGUAGE for visit in part]
    loss, gradients = retrieval_results(visits, 1, 1, "pivot-parallel-sym")
    for rank in range(2):
        torch.testing.assert_close(found[rank]["a language a rank"][0], loss, atol=1e-9, rtol=0)
        mine = found[rank]["a language a rank"][1]
        assert not any(mine[name].any() for name in mine if f".{('de', 'en')[rank]}." in name)
    assert largest_difference(averaged(found, "a language a rank"), gradients) < 1e-9


@pytest.mark.parametrize("model", cached.MODELS)
def test_a_batch_in_chunks_on_two_ranks_is_the_whole_one_on_one(found, model: str, tmp_path: Path) -> None:
    loss, gradients = in_chunks(model, tmp_path)
    for rank in range(2):
        torch.testing.assert_close(found[rank]["in chunks"][model][0], loss, atol=1e-9, rtol=0)
    ours = [found[rank]["in chunks"][model][1] for rank in range(2)]
    cached.check_equal({name: (ours[0][name] + ours[1][name]) / 2 for name in gradients}, gradients, 1e-9)


def test_without_the_gather_it_is_not(found) -> None:
    loss, gradients = retrieval_results(VISITS, 1, 1)
    assert all((found[rank]["not gathered"][0] - loss).abs() > 1e-2 for rank in range(2))
    assert largest_difference(averaged(found, "not gathered"), gradients) > 1e-2


def test_an_image_on_both_ranks_is_one_image(found) -> None:
    module = retrieval(1, 1)
    batch = visits_batch(VISITS)
    pairs = module.gather(batch, *module.encode(batch))
    for rank in range(2):
        images, positives, negatives, types = found[rank]["pairs"]
        torch.testing.assert_close(images, pairs.images[0].detach())
        assert images.shape[0] == 5
        assert torch.equal(positives, pairs.positives)
        assert torch.equal(negatives, pairs.negatives)
        assert torch.equal(types, torch.tensor([kind for _, _, kind in VISITS]))
    by_hand = torch.tensor([[image == key for image, _, _ in VISITS] for key in range(5)])
    assert torch.equal(pairs.positives, by_hand)
    assert not pairs.negatives[1, 5]  # the same sentence on another image
    assert not pairs.negatives[4, 1]
    assert pairs.negatives.sum() == 5 * 7 - 7 - 2


def test_translation_on_two_ranks_is_translation_on_one(found) -> None:
    loss, gradients = translation_results(slice(0, 7), 1)
    mean = (found[0]["translation"][0] + found[1]["translation"][0]) / 2
    torch.testing.assert_close(mean, loss, atol=1e-5, rtol=0)
    assert all(gradient.abs().max() > 1e-5 for gradient in gradients.values())
    assert largest_difference(averaged(found, "translation"), gradients) < 1e-5
    apart = [translation_results(rows, 1)[0] for rows in (slice(0, 4), slice(4, 7))]
    assert (sum(apart) / 2 - loss).abs() > 1e-4  # the mean of the ranks' means is something else


def test_uneven_rows_are_gathered_with_their_gradient(found) -> None:
    expected = torch.tensor([[0.0, 1], [2, 3], [4, 5], [10, 11]])
    for rank in range(2):
        assert torch.equal(found[rank]["rows"], expected)
        assert torch.equal(found[rank]["no rows"], torch.ones(2, 3))
        assert found[rank]["keys"].tolist() == [2**62, 2**62 + 1, 2**62 + 1]
    # Each row's weight is its place; the ranks' losses weigh 1 and 2, and are summed.
    assert torch.equal(found[0]["rows gradient"], torch.tensor([[3.0, 3], [6, 6], [9, 9]]))
    assert torch.equal(found[1]["rows gradient"], torch.tensor([[12.0, 12]]))


def test_sets_of_other_sizes_are_padded_to_the_longest_on_any_rank(found) -> None:
    for rank in range(2):
        vectors, mask = found[rank]["sets"]
        assert vectors.shape == (4, 3, 2)
        assert mask.tolist() == [[True, True, False], [True, False, False]] * 2
        assert vectors[:, 0, 0].tolist() == [1, 1, 2, 2]
        assert (vectors[2:, 2] == 0).all()


def test_objects_and_sums(found) -> None:
    for rank in range(2):
        assert found[rank]["objects"] == [("a", 0), ("a", 1), ("a", 1)]
        assert found[rank]["sum"].tolist() == [2, 10]
        assert not found[rank]["sum"].requires_grad
        assert found[rank]["own value"].tolist() == [1, 10 * rank]


def test_one_process_gives_back_what_it_was_given() -> None:
    rows = torch.randn(3, 2, requires_grad=True)
    assert gather_rows(rows, 1) is rows
    assert sum_over_ranks(rows, 1) is rows
    assert gather_objects(("a", "b"), 1) == ["a", "b"]


if __name__ == "__main__":
    both(work)
