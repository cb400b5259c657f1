"""The form of a training step for GPUs: equal to the other one, and no value of a tensor leaves the device."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
)
from torch.nn.functional import pad

from modules.layers.pooling import GeneralisedPool
from modules.layers.static import is_static, static_shapes
from modules.losses.diversity import diversity, instances
from modules.losses.registry import LOSSES, RankingLoss, negative_mask
from modules.retrieval_models import model_class
from modules.training.retrieval import Retrieval
from modules.training.translation import Translation
from tests.modules.cases import ON_REGIONS
from tests.modules.test_gpu import TRANSLATORS, sentences, translation
from tests.modules.training import test_gradient_cache as cached
from tests.modules.training.test_gradient_cache import PLAIN
from tests.stand_in import on_gpu

D, V, L, LANGUAGES = 5, 15, 6, ["de", "en", "fr"]
# (image, sentence, language); image 3 comes twice, 1 and 4 share a sentence, nothing is French
VISITS = [(0, 100, 1), (0, 110, 0), (3, 101, 1), (3, 111, 0), (2, 102, 1), (2, 112, 0), (3, 103, 1), (1, 104, 0),
          (1, 105, 1), (4, 104, 0), (4, 115, 1)]  # fmt: skip
OPTIONS: dict[str, dict[str, Any]] = {"diverse-attention": {"heads": 2}, "mule": {"pretrain_epochs": 0}}
MORE: dict[str, dict[str, Any]] = {"mlmme": {"loss": "sum"}}


def batch_of(more: int = 0) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(1)
    images, sentences, languages = (torch.tensor(column) for column in zip(*VISITS, strict=True))
    keys, index = images.unique(return_inverse=True)
    lengths = torch.tensor([2, 6, 1, 4, 6, 3, 5, 2, 1, 2, 6])
    tokens = torch.randint(1, V, (len(VISITS), L), generator=generator)
    known = torch.tensor([[image, sentence] for image, sentence, _ in VISITS] + [[0, 102], [2, 199]])
    return {
        "regions": torch.randn(len(keys), 3, D, dtype=torch.float64, generator=generator),
        "region_mask": torch.ones(len(keys), 3, dtype=torch.bool), "image_key": keys, "image_index": index,
        "tokens": tokens * (torch.arange(L) < lengths[:, None]), "lengths": lengths, "language": languages,
        "type": languages, "sentence": sentences, "image_sentences": known, "caption_key": torch.arange(len(VISITS)),
    }  # fmt: skip


def module_of(name: str, **more: Any) -> Retrieval:
    torch.manual_seed(0)
    sizes = {"region_dim": D, "vocabulary_size": V, "languages": LANGUAGES, "dim": 6, "word_dim": 4}
    kind = model_class(name).module() or Retrieval
    settings = PLAIN | {"test_languages": ["en"], "taught_types": [False] * 3} | MORE.get(name, {}) | more
    module = kind(name, sizes | OPTIONS.get(name, {}), **settings)
    module._trainer = SimpleNamespace(world_size=1, current_epoch=0, global_step=7)
    return module.double().train()


def step(module: Retrieval, batch: dict[str, Tensor], static: bool) -> tuple[Tensor, dict[str, Tensor]]:
    module._draws = 0
    with static_shapes(static):
        total = torch.stack(list(module.losses(dict(batch)).values())).sum()
    module.zero_grad()
    total.backward()
    grads = {name: parameter.grad for name, parameter in module.named_parameters() if parameter.grad is not None}
    return total.detach(), grads


SETTINGS = [
    *((name, {}) for name in ON_REGIONS),
    *(("san", {"loss": loss}) for loss in LOSSES if loss != "random"),
    ("san", {"caption_loss": 0.5}), ("san", {"caption_loss": 0.5, "loss": "hardest-k"}),
    ("vse++", {"warmup_epochs": 2}), ("san", {"loss": "hardest-k", "warmup_epochs": 2}),
    ("san", {"type_weights": [0.2, 0.5, 0.3]}), ("mule", {"caption_loss": 0.0}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "more"), SETTINGS, ids=[f"{name}-{more}" for name, more in SETTINGS])
def test_both_forms_have_one_loss_and_one_gradient(name: str, more: dict[str, Any]) -> None:
    module, batch = module_of(name, **more), batch_of()
    (loss, grads), (static_loss, static_grads) = (step(module, batch, static) for static in (False, True))
    torch.testing.assert_close(static_loss, loss, rtol=1e-6, atol=1e-9)
    assert loss > 0
    for parameter in set(grads) | set(static_grads):
        zero = torch.zeros((), dtype=torch.float64)
        ours, theirs = static_grads.get(parameter, zero), grads.get(parameter, zero)
        torch.testing.assert_close(*torch.broadcast_tensors(ours, theirs), rtol=1e-6, atol=1e-9, msg=parameter)


def test_weight_decay_reaches_an_encoder_without_captions_in_both_forms() -> None:
    """And with several ranks: nothing is French, so its encoder has a gradient of zero, and not none."""
    module, batch = module_of("pivot-sym", weight_decay=0.001), batch_of()
    for static in (False, True):
        module.zero_grad()
        with static_shapes(static):
            module.total_loss(dict(batch))[0].backward()
        assert not [name for name, parameter in module.named_parameters() if parameter.grad is None]


@pytest.mark.parametrize(("name", "more"), SETTINGS, ids=[f"{name}-{more}" for name, more in SETTINGS])
def test_padding_to_few_shapes_changes_nothing(name: str, more: dict[str, Any]) -> None:
    module, batch = module_of(name, **more), batch_of()
    known = pad(batch["image_sentences"], (0, 0, 0, 7), value=-1)
    wide = batch | {"tokens": pad(batch["tokens"], (0, 5)), "image_sentences": known}
    found = [step(module, one, True) for one in (batch, wide)]
    torch.testing.assert_close(found[1], found[0])


DRAWN: list[tuple[str, dict[str, Any]]] = [
    ("san", {"drop_words": 0.3, "drop_regions": 0.3}), ("san", {"loss": "random"}), ("mlmme", {"loss": None}),
    ("mlmme", {"loss": "random", "caption_loss": 0.5}),
]  # fmt: skip
"""Settings whose loss draws examples: of two forms with different numbers of rows it draws different ones."""


@pytest.mark.parametrize(
    ("name", "more"), [*SETTINGS, *DRAWN], ids=[f"{name}-{more}" for name, more in [*SETTINGS, *DRAWN]]
)
def test_no_value_decides_a_shape_or_leaves_the_device(name: str, more: dict[str, Any]) -> None:
    """Fake tensors have no values: `item`, `nonzero` and `unique` fail on them."""
    assert fake_step(name, True, **more).shape == ()


def fake_step(name: str, static: bool, **more: Any) -> Tensor:
    module, batch = module_of(name, **more).float(), batch_of()
    batch["regions"] = batch["regions"].float()
    with FakeTensorMode() as mode:
        module._apply(lambda tensor: mode.from_tensor(tensor))
        return step(module, {key: mode.from_tensor(value) for key, value in batch.items()}, static)[0]


@pytest.mark.parametrize("name", ["scan-t2i-avg", "scan-i2t-lse"])
def test_scores_in_many_parts_read_no_value(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("modules.search.scores.PART", 250)
    assert fake_step(name, True).shape == ()
    module, batch = module_of(name), batch_of()
    torch.testing.assert_close(step(module, batch, True), step(module, batch, False))


@pytest.mark.parametrize("name", ["student", "dual-encoder"])
def test_models_that_are_taught_have_both_forms(name: str, tmp_path: Path) -> None:
    module, batch = cached.module_of(name, tmp_path, 0), cached.batch_of(name, cached.VISITS)
    found = [step(module, batch, static) for static in (False, True)]
    torch.testing.assert_close(found[1], found[0])
    module = module.float()
    batch = {key: value.float() if value.is_floating_point() else value for key, value in batch.items()}
    with FakeTensorMode() as mode:
        module._apply(lambda tensor: mode.from_tensor(tensor))
        loss, _ = step(module, {key: mode.from_tensor(value) for key, value in batch.items()}, static=True)
    assert loss.shape == ()


@pytest.mark.parametrize("name", ["san", "mule"])
def test_fake_tensors_do_fail_where_values_are_read(name: str) -> None:
    with pytest.raises((DynamicOutputShapeException, DataDependentOutputException, RuntimeError)):
        fake_step(name, static=False)


def test_the_form_is_that_of_the_device_or_as_it_is_said() -> None:
    assert not is_static(torch.zeros(1))
    with static_shapes():
        assert is_static(torch.zeros(1))
        with static_shapes(False):
            assert not is_static(torch.zeros(1))
        assert is_static(torch.zeros(1))


@pytest.mark.parametrize("seed", range(20))
def test_masks_and_losses_of_any_batch(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    images, captions = (int(torch.randint(1, 7, (), generator=generator)) for _ in range(2))
    keys = torch.randperm(9, generator=generator)[:images].sort().values
    links, hashes, types = (torch.randint(most, (captions,), generator=generator) for most in (images, 4, 3))
    known = torch.stack([keys[torch.randint(images, (5,), generator=generator)],
                         torch.randint(6, (5,), generator=generator)], dim=1)  # fmt: skip
    masks = negative_mask(keys, links, hashes, known)
    with static_shapes():
        static_masks = negative_mask(keys, links, hashes, known)
    for mask, static_mask in zip(masks, static_masks, strict=True):
        assert torch.equal(mask, static_mask)
    scores = torch.rand(images, captions, dtype=torch.float64, generator=generator, requires_grad=True)
    for kind in LOSSES:
        for warmup in (0, 1):
            loss_of, found = RankingLoss(kind, 0.3, [1.0, 1.0, 1.0], warmup, count=2).double(), []
            for static, own in ((False, None), (True, None), (True, links)):
                with static_shapes(static):
                    loss = loss_of(scores, *masks, types, links=own)
                found.append((loss, torch.autograd.grad(loss, scores)[0]))
            assert found[0][1].isfinite().all()
            torch.testing.assert_close(found[1], found[0])
            torch.testing.assert_close(found[2], found[0])


@pytest.mark.parametrize("known", [True, False])
def test_no_memory_of_all_triples_is_kept_for_the_gradient(known: bool) -> None:
    scores, kept = torch.rand(60, 60, requires_grad=True), []
    masks = torch.eye(60, dtype=torch.bool), ~torch.eye(60, dtype=torch.bool)
    with static_shapes(), torch.autograd.graph.saved_tensors_hooks(lambda one: kept.append(one.numel()) or one, id):
        RankingLoss("sum", 0.2)(scores, *masks, torch.zeros(60), links=torch.arange(60) if known else None)
    assert max(kept) <= 60 * 60


def test_instances_of_both_forms_have_one_diversity() -> None:
    torch.manual_seed(0)
    images, captions = torch.randn(3, 2, 4), torch.randn(6, 2, 4)
    links, languages = torch.tensor([0, 0, 1, 1, 1, 2]), torch.tensor([0, 1, 1, 1, 0, 2])
    found = []
    for static in (False, True):
        with static_shapes(static):
            found.append(diversity(*instances(images, captions, links, languages, torch.arange(6), 4)))
    torch.testing.assert_close(tuple(found[1]), tuple(found[0]))


def test_pooling_of_both_forms_is_equal() -> None:
    torch.manual_seed(0)
    pool, vectors = GeneralisedPool().double(), torch.randn(4, 7, 3, dtype=torch.float64)
    mask = torch.arange(7) < torch.tensor([1, 7, 3, 3])[:, None]
    with static_shapes():
        static = pool(vectors, mask)
    torch.testing.assert_close(static, pool(vectors, mask))


AGREEMENTS = [(network, region_dim, agreement) for network, region_dim in TRANSLATORS for agreement in (0.0, 5.0)]


def translator_step(module: Translation, batch: dict[str, Tensor], static: bool) -> tuple[Tensor, Tensor, dict]:
    with static_shapes(static):
        loss, words = module._cross_entropy(batch, 0.1)
    module.zero_grad()
    loss.backward()
    return loss.detach(), words, {name: parameter.grad for name, parameter in module.named_parameters()}


@pytest.mark.parametrize(("network", "region_dim", "agreement"), AGREEMENTS)
def test_translators_of_both_forms_learn_the_same(network: str, region_dim: int | None, agreement: float) -> None:
    module = translation(network, region_dim, agreement)
    found = [translator_step(module, sentences(region_dim), static) for static in (False, True)]
    assert found[0][1] == 14
    torch.testing.assert_close(found[1], found[0])


@pytest.mark.parametrize(("network", "region_dim", "agreement"), AGREEMENTS)
def test_sentences_without_a_word_teach_a_translator_nothing(
    network: str, region_dim: int | None, agreement: float
) -> None:
    module, batch = translation(network, region_dim, agreement), sentences(region_dim)
    more = {name: pad(value, (0, 3, 0, 2)) for name, value in batch.items() if name in ("source", "target", "labels")}
    more |= {name: pad(batch[name], (0, 2), value=1) for name in ("source_lengths", "target_lengths", "index")}
    more["source"][-2:, 0], more["target"][-2:, 0] = 2, 1
    if region_dim is not None:
        more["regions"] = pad(batch["regions"], (0, 0, 0, 0, 0, 2))
    found = [translator_step(module, one, True) for one in (batch, more)]
    torch.testing.assert_close(found[1], found[0])


@pytest.mark.parametrize(("network", "region_dim", "agreement"), AGREEMENTS)
def test_no_value_of_a_translator_leaves_the_device(network: str, region_dim: int | None, agreement: float) -> None:
    module, batch = translation(network, region_dim, agreement).float(), sentences(region_dim)
    if region_dim is not None:
        batch["regions"] = batch["regions"].float()
    with FakeTensorMode() as mode:
        module._apply(lambda tensor: mode.from_tensor(tensor))
        loss, _, _ = translator_step(module, {name: mode.from_tensor(value) for name, value in batch.items()}, True)
    assert loss.shape == ()


@pytest.mark.parametrize(("name", "more"), SETTINGS, ids=[f"{name}-{more}" for name, more in SETTINGS])
@on_gpu
def test_a_step_on_a_gpu_never_waits_for_it(name: str, more: dict[str, Any]) -> None:
    module, batch = module_of(name, **more).float().to("cuda"), batch_of()
    batch["regions"] = batch["regions"].float()
    batch = module.transfer_batch_to_device(batch, torch.device("cuda"), 0)
    step(module, batch, static=True)  # libraries begin
    torch.cuda.set_sync_debug_mode("error")
    try:
        step(module, batch, static=True)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize(("network", "region_dim", "agreement"), AGREEMENTS)
@on_gpu
def test_a_translator_s_step_on_a_gpu_never_waits_for_it(
    network: str, region_dim: int | None, agreement: float
) -> None:
    module = translation(network, region_dim, agreement).float().to("cuda")
    batch = module.transfer_batch_to_device(sentences(region_dim), torch.device("cuda"), 0)
    batch = {name: value.float() if value.is_floating_point() else value for name, value in batch.items()}
    translator_step(module, batch, static=True)
    torch.cuda.set_sync_debug_mode("error")
    try:
        translator_step(module, batch, static=True)
    finally:
        torch.cuda.set_sync_debug_mode("default")
