"""Losses of a student against slow twins: pictures and sentences are no negatives of each other."""

import math
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from modules.losses.captions import between_captions
from modules.losses.pairs import Pairs
from modules.losses.registry import LOSSES, RankingLoss, negative_mask
from modules.losses.teaching import teaching_loss
from modules.training.retrieval import Retrieval

H = 5
LINKS = torch.tensor([0, 0, 1, 2, 3, 3, 4, 5])  # rows 0-2 are pictures, 3-5 the teacher's vectors of sentences
KINDS = torch.tensor([0, 1, 0, 0, 2, 3, 2, 3])  # types: two of pictures, two of sentences
TAUGHT = torch.tensor([False, False, True, True])
SENTENCES = torch.tensor([10, 11, 12, 13, 14, 15, 10, 14])  # 10 is a picture's and a taught one; rows 3 and 5 share 14


def vectors(seed: int, count: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, H, dtype=torch.float64, generator=generator).requires_grad_()


def pairs_of(images: Tensor, captions: Tensor) -> Pairs:
    masks = negative_mask(torch.arange(6), LINKS, SENTENCES)
    ones = torch.ones(8, 1, dtype=torch.bool)
    return Pairs((images[:, None], ones[:6]), (captions[:, None], ones), LINKS, *masks, KINDS, KINDS % 2, SENTENCES)


def slow_teaching(students: Tensor, teachers: Tensor, taught: Tensor) -> Tensor:
    terms = [
        1 - (student @ teacher) / (student @ student).sqrt() / (teacher @ teacher).sqrt()
        for student, teacher, chosen in zip(students, teachers, taught, strict=True) if chosen
    ]  # fmt: skip
    return sum(terms) / len(terms)


def slow_contrast(images: Tensor, captions: Tensor, chosen: list[int], scale: float) -> Tensor:
    """InfoNCE over the chosen captions and their images alone, pair by pair."""
    owned = {image: {int(SENTENCES[c]) for c in range(8) if LINKS[c] == image} for image in range(6)}
    rows = sorted({int(LINKS[c]) for c in chosen})
    terms = []
    for c in chosen:
        own = int(LINKS[c])
        right = scale * images[own] @ captions[c]
        others = [scale * images[own] @ captions[d] for d in chosen if int(SENTENCES[d]) not in owned[own]]
        rivals = [scale * images[row] @ captions[c] for row in rows if int(SENTENCES[c]) not in owned[row]]
        for wrong in (others, rivals):
            terms.append(torch.stack([right, *wrong]).exp().sum().log() - right)
    return sum(terms) / len(terms)


def same(fast: Tensor, slow: Tensor, *inputs: Tensor) -> None:
    torch.testing.assert_close(fast, slow)
    for ours, theirs in zip(
        torch.autograd.grad(fast, inputs, retain_graph=True), torch.autograd.grad(slow, inputs), strict=True
    ):
        assert theirs.abs().max() > 1e-4
        torch.testing.assert_close(ours, theirs)


def test_the_teaching_loss_is_the_mean_of_one_minus_the_cosine() -> None:
    students, teachers = vectors(0, 8), vectors(1, 8)
    taught = TAUGHT[KINDS]
    same(teaching_loss(students, teachers, taught), slow_teaching(students, teachers, taught), students, teachers)
    unit = [F.normalize(one, dim=-1) for one in (students, teachers)]
    squared = (unit[0] - unit[1]).square().sum(1)[taught].mean()  # of Reimers and Gurevych, of unit vectors
    torch.testing.assert_close(teaching_loss(*unit, taught), squared / 2)


def test_where_nothing_is_taught_there_is_no_loss_but_a_gradient() -> None:
    students = vectors(0, 3)
    loss = teaching_loss(students, vectors(1, 3), torch.zeros(3, dtype=torch.bool))
    loss.backward()
    assert loss == 0
    assert not students.grad.any()
    assert teaching_loss(students[:0], students[:0], torch.zeros(0, dtype=torch.bool)) == 0


def test_under_half_precision_it_is_in_float32() -> None:
    students, teachers, taught = vectors(0, 4).float(), vectors(1, 4).float(), torch.ones(4).bool()
    with torch.autocast("cpu", torch.bfloat16):
        rough = teaching_loss(students, teachers, taught)
    torch.testing.assert_close(rough, teaching_loss(students, teachers, taught))
    assert teaching_loss(students.bfloat16(), teachers, taught).dtype == torch.float32


def test_pairs_among_some_captions_are_those_of_them_alone() -> None:
    images, captions = vectors(0, 6), vectors(1, 8)
    pairs = pairs_of(images, captions)
    for chosen in (TAUGHT[KINDS], ~TAUGHT[KINDS]):
        own = pairs.among(chosen)
        rows = {int(row) for row in LINKS[chosen]}
        for kept, before in ((own.positives, pairs.positives), (own.negatives, pairs.negatives)):
            expected = [[bool(before[i, c] and chosen[c] and i in rows) for c in range(8)] for i in range(6)]
            assert kept.tolist() == expected
            assert kept.any()
        assert own.images[0] is pairs.images[0]
        assert torch.equal(own.types, KINDS)
    everything = pairs.among(torch.ones(8).bool())
    assert torch.equal(everything.positives, pairs.positives)
    assert torch.equal(everything.negatives, pairs.negatives)
    nothing = pairs.among(torch.zeros(8).bool())
    assert not nothing.positives.any()
    assert not nothing.negatives.any()


@pytest.mark.parametrize("kind", [kind for kind in LOSSES if kind != "random"])
def test_the_loss_of_pictures_is_what_it_is_without_sentences(kind: str) -> None:
    """`random` draws by the places in the batch."""
    images, captions = vectors(0, 6), vectors(1, 8)
    loss, chosen = RankingLoss(kind, 0.3).double(), ~TAUGHT[KINDS]
    own = pairs_of(images, captions).among(chosen)
    fast = loss(images @ captions.t(), own.positives, own.negatives, KINDS)
    masks = negative_mask(torch.arange(3), LINKS[chosen], SENTENCES[chosen])
    slow = loss(images[:3] @ captions[chosen].t(), *masks, KINDS[chosen])
    same(fast, slow, images, captions)


@pytest.mark.parametrize("kind", [kind for kind in LOSSES if kind != "random"])
def test_the_loss_between_captions_of_pictures_is_what_it_is_without_sentences(kind: str) -> None:
    """One original in two languages, with no picture, is no pair of the loss between captions."""
    captions, loss, chosen = vectors(1, 8), RankingLoss(kind, 0.3).double(), ~TAUGHT[KINDS]
    own = pairs_of(vectors(0, 6), captions).among(chosen)
    masks = negative_mask(torch.arange(3), LINKS[chosen], SENTENCES[chosen])
    ones = torch.ones(4, 1, dtype=torch.bool)
    alone = Pairs(
        (captions[:3, None], ones[:3]), (captions[chosen][:, None], ones), LINKS[chosen], *masks, KINDS[chosen],
        KINDS[chosen] % 2, SENTENCES[chosen],
    )  # fmt: skip
    fast, slow = (
        between_captions(
            pairs, lambda one, other: one[0][:, 0] @ other[0][:, 0].t(),
            lambda scores, right, wrong: loss(scores, right, wrong, None), languages=2,
        ) for pairs in (own, alone)
    )  # fmt: skip
    same(fast, slow, captions)


def module_of(taught: list[bool] | None, contrast: float = 0.3) -> Retrieval:
    torch.manual_seed(0)
    arguments = {"region_dim": H, "vocabulary_size": 9, "languages": ["en", "de"], "dim": 4, "word_dim": 4}
    module = Retrieval(
        "student", arguments, "infonce", 0.2, None, 0, 0.01, 9, 0.1, ["en"], ["en"], taught_types=taught,
        teaching_contrast=contrast,
    ).double()  # fmt: skip
    module._trainer = SimpleNamespace(current_epoch=0, global_step=0)
    return module


def test_losses_of_a_mix_are_those_of_its_parts() -> None:
    module, images, captions = module_of(TAUGHT.tolist()), vectors(0, 6), vectors(1, 8)
    losses = module.teaching_losses(pairs_of(images, captions))
    assert list(losses) == ["ranking", "teaching", "teaching_contrast"]
    taught, scale = TAUGHT[KINDS], 1 / 0.07
    of_taught, of_pictures = ([c for c in range(8) if bool(taught[c]) is chosen] for chosen in (True, False))
    same(losses["ranking"], slow_contrast(images, captions, of_pictures, scale), images, captions)
    same(losses["teaching"], slow_teaching(captions, images[LINKS], taught), images, captions)
    same(losses["teaching_contrast"], 0.3 * slow_contrast(images, captions, of_taught, scale), images, captions)


def test_no_picture_is_a_negative_of_a_sentence_nor_a_sentence_of_a_caption() -> None:
    module, images, captions = module_of(TAUGHT.tolist()), vectors(0, 6), vectors(1, 8)
    losses = module.teaching_losses(pairs_of(images, captions))
    taught = TAUGHT[KINDS]
    for name, loss in losses.items():
        of_images, of_captions = torch.autograd.grad(loss, (images, captions), retain_graph=True)
        chosen = ~taught if name == "ranking" else taught
        assert of_captions[chosen].abs().amax(1).min() > 0
        assert not of_captions[~chosen].any()
        rows = torch.zeros(6, dtype=torch.bool).index_fill(0, LINKS[chosen], True)
        assert of_images[rows].abs().amax(1).min() > 0
        assert not of_images[~rows].any()


def test_without_sentences_there_are_no_such_losses_and_without_captions_no_ranking() -> None:
    images, captions = vectors(0, 6), vectors(1, 8)
    pairs = pairs_of(images, captions)
    for taught in (None, [False] * 4):
        module = module_of(taught)
        assert module.teaching_losses(pairs) == {}
        assert module.contrast is None
    assert list(module_of([True] * 4).teaching_losses(pairs)) == ["teaching", "teaching_contrast"]
    assert list(module_of([True] * 4, 0).teaching_losses(pairs)) == ["teaching"]


def test_no_sentence_is_a_negative_of_a_caption_in_another_language(monkeypatch) -> None:
    module, images, captions = module_of(TAUGHT.tolist()), vectors(0, 6), vectors(1, 8)
    module.caption_loss = RankingLoss("infonce", 0.2).double()
    module.hparams["caption_loss"] = 1.0
    monkeypatch.setattr(module, "encode", lambda _: ())
    monkeypatch.setattr(module, "gather", lambda _: pairs_of(images, captions))
    loss = module.losses({})["between_captions"]
    (moved,) = torch.autograd.grad(loss, captions)
    taught = TAUGHT[KINDS]
    assert not moved[taught].any()
    assert moved[~taught].any()


def test_a_loss_that_no_caption_asks_has_no_gradient_on_any_device() -> None:
    for taught, asked in ((None, True), ([False, True], True), ([True] * 4, False)):
        assert module_of(taught).loss.log_scale.requires_grad is asked


def test_the_contrast_starts_by_the_network_s_scale() -> None:
    module = module_of([True] * 4)
    assert module.contrast is not None
    assert module.contrast.log_scale.item() == pytest.approx(math.log(1 / 0.07))
    module.start_losses({"log_scale": 2.5, "bias": -3.0})
    assert (module.contrast.log_scale.item(), module.loss.log_scale.item()) == (2.5, 2.5)
