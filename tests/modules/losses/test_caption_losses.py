"""The ranking loss between captions of two languages, for any model and any loss."""

from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from modules.losses.captions import among_captions, between_captions
from modules.losses.pairs import Pairs
from modules.losses.registry import LOSSES, RankingLoss, negative_mask
from modules.search.scores import inner_product
from modules.training.retrieval import Retrieval
from tests.modules.cases import D, E, V
from tests.modules.small import Corpus, make_trainer

IMAGES = torch.tensor([0, 0, 1, 1, 2, 3, 3, 3, 2, 1])
SPOKEN = torch.tensor([0, 1, 0, 1, 1, 0, 1, 1, 0, 2])  # one caption of a third language
SENTENCES = torch.tensor([10, 20, 11, 21, 20, 10, 22, 23, 13, 30])  # images 0 and 2 share 20, 0 and 3 share 10
SOURCES = torch.tensor([0, 1, 0, 1, 1, 3, 1, 2, 0, 4])  # types; the captions' sources do not matter here
COUNT = len(IMAGES)


def make_module(name: str, caption_loss: float = 0.6, **settings) -> Retrieval:
    torch.manual_seed(1)
    arguments = {"region_dim": D, "vocabulary_size": V, "languages": ["a", "b", "c"], "dim": 8, "word_dim": E}
    plain = {"loss": None, "margin": 0.3, "type_weights": None, "warmup_epochs": 0, "learning_rate": 0.01,
             "decay_epoch": 9, "decay": 0.1, "test_languages": ["a"], "select": ["a"]}  # fmt: skip
    module = Retrieval(name, arguments, **plain | settings, caption_loss=caption_loss).double()
    module._trainer = SimpleNamespace(world_size=1, current_epoch=0, global_step=0)
    return module


def make_pairs(width: int = 1) -> Pairs:
    torch.manual_seed(0)
    images, captions = (
        torch.nn.functional.normalize(torch.randn(n, width, 8, dtype=torch.float64), dim=-1) for n in (4, COUNT)
    )
    masks = negative_mask(torch.arange(4), IMAGES, SENTENCES)
    real = [torch.ones(n, width, dtype=torch.bool) for n in (4, COUNT)]
    return Pairs(
        (images, real[0]), (captions.requires_grad_(), real[1]), IMAGES, *masks, SOURCES, SPOKEN, SENTENCES
    )  # fmt: skip


def owned(image: int) -> set[int]:
    return {int(sentence) for owner, sentence in zip(IMAGES, SENTENCES, strict=True) if owner == image}


def strange(a: int, b: int) -> bool:
    """Are two captions negatives of each other?"""
    shared = int(SENTENCES[a]) in owned(int(IMAGES[b])) or int(SENTENCES[b]) in owned(int(IMAGES[a]))
    return IMAGES[a] != IMAGES[b] and not shared


def slow_hardest(t: Tensor, margin: float) -> Tensor:
    """Both captions of a pair against the hardest negative of the other's language, over all pairs of languages."""
    loss, terms = 0 * t.sum(), 0
    for a in range(COUNT):
        for b in range(COUNT):
            if IMAGES[a] != IMAGES[b] or SPOKEN[a] >= SPOKEN[b]:
                continue
            for anchor, match in ((a, b), (b, a)):
                wrong = [t[anchor] @ t[c] for c in range(COUNT) if SPOKEN[c] == SPOKEN[match] and strange(anchor, c)]
                if wrong:
                    loss = loss + (margin - t[a] @ t[b] + max(wrong)).clamp(min=0)
                    terms += 1
    assert terms == 12  # anchors without a negative have none: those that match the only caption of the third language
    return loss


def test_hardest_negatives_between_captions_are_the_loop() -> None:
    module, pairs = make_module("san"), make_pairs()
    vectors = pairs.captions[0]
    slow = slow_hardest(vectors[:, 0], 0.3)
    fast = between_captions(pairs, module.model.caption_similarity, module.loss_of_captions, 3)
    assert slow > 0.1
    torch.testing.assert_close(fast, slow)
    torch.testing.assert_close(*(torch.autograd.grad(loss, vectors, retain_graph=True)[0] for loss in (fast, slow)))


@pytest.mark.parametrize("weight", [None, 0.0, 0.5])
def test_neighbours_in_one_language_compete_and_weigh_apart(weight: float | None) -> None:
    pairs = make_pairs()
    scores = pairs.captions[0][:, 0] @ pairs.captions[0][:, 0].t()
    slow = 0 * scores.sum()
    for a in range(COUNT):
        for b in (b for b in range(COUNT) if b != a and IMAGES[a] == IMAGES[b]):
            alike = SPOKEN[a] == SPOKEN[b]
            for c in (c for c in range(COUNT) if strange(a, c)):
                if weight is None or (SPOKEN[a] == SPOKEN[c]) == alike:
                    share = weight if weight is not None and alike else 1
                    slow = slow + share * (0.3 - scores[a, b] + scores[a, c]).clamp(min=0)
    loss, dot = make_module("san", loss="sum").loss_of_captions, lambda one, other: one[0][:, 0] @ other[0][:, 0].t()
    fast = among_captions(pairs, dot, loss, weight)
    assert slow > 0.1
    torch.testing.assert_close(fast, slow)


MODELS = ["san", "oe", "scan-t2i-avg", "diverse-attention"]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("kind", LOSSES)
def test_every_model_takes_it_with_every_loss(corpus: Corpus, model: str, kind: str) -> None:
    groups = [[slot for group in corpus.data().groups for slot in group]]
    batch = next(iter(corpus.data(groups=[tuple(groups[0])]).train_dataloader()))
    without, with_it = (corpus.module(model, loss=kind, caption_loss=weight) for weight in (0.0, 0.6))
    for module in (without, with_it):
        module._trainer = SimpleNamespace(world_size=1, current_epoch=0, global_step=0)
        module._draw = lambda: (0, 0)  # a loss that draws draws the same each time
    assert "between_captions" not in without.losses(batch)
    losses = with_it.losses(batch)
    assert losses["between_captions"] > 1e-3
    pairs = with_it.gather(batch, *with_it.encode(batch))
    term = between_captions(pairs, with_it.model.caption_similarity, with_it.loss_of_captions, 3)
    torch.testing.assert_close(losses["between_captions"], 0.6 * term)
    torch.testing.assert_close(losses["ranking"], without.losses(batch)["ranking"])
    losses["between_captions"].backward()
    trained = {name for name, weight in with_it.named_parameters() if weight.grad is not None and weight.grad.any()}
    assert any("words" in name or "captions" in name for name in trained)
    assert not any("regions" in name or "image" in name for name in trained)


def test_order_violations_compare_captions_by_cosine() -> None:
    one, other = (pairs.captions for pairs in (make_pairs(), make_pairs()))
    found = make_module("oe").model.caption_similarity(one, other)
    torch.testing.assert_close(found, inner_product(one[0][:, 0], other[0][:, 0]))


def test_sets_are_compared_by_their_own_score() -> None:
    model, pairs = make_module("scan-t2i-avg").model, make_pairs(width=3)
    torch.testing.assert_close(
        model.caption_similarity(pairs.captions, pairs.captions), model.similarity(pairs.captions, pairs.captions)
    )


def test_weights_of_types_and_sources_of_captions_do_not_matter() -> None:
    pairs = make_pairs()
    plain, weighed = make_module("san"), make_module("san", type_weights=[0.0, 1.0, 1.0, 1.0, 1.0])
    found = [between_captions(pairs, one.model.caption_similarity, one.loss_of_captions, 3) for one in (plain, weighed)]
    assert found[0] > 0
    assert torch.equal(*found)


def test_captions_of_one_language_add_nothing() -> None:
    pairs = make_pairs()
    alone = Pairs(**(vars(pairs) | {"languages": torch.zeros_like(SPOKEN)}))
    loss = between_captions(alone, lambda one, other: one[0][:, 0] @ other[0][:, 0].t(), RankingLoss("sum", 0.2), 3)
    loss.backward()
    assert loss == 0
    assert not pairs.captions[0].grad.any()


def test_a_learned_scale_is_its_own_and_is_trained() -> None:
    module = make_module("san", loss="infonce")
    assert "caption_loss.log_scale" in dict(module.named_parameters())
    assert not any("caption_loss" in name for name in dict(make_module("san", 0.0, loss="infonce").named_parameters()))


def test_weight_decay_shrinks_what_no_loss_moves(corpus: Corpus) -> None:
    kept, shrunk = corpus.module("vse++", weight_decay=0.0), corpus.module("vse++", weight_decay=0.1)
    start = kept.model.image.weight.detach().clone()
    for module in (kept, shrunk):
        module.ranking_loss = lambda pairs: 0 * pairs.images[0].sum()
        make_trainer(1, limit_val_batches=0).fit(module, corpus.data())
    assert torch.equal(kept.model.image.weight, start)
    assert (shrunk.model.image.weight.abs() < start.abs()).float().mean() > 0.9  # Adam's steps may pass 0
