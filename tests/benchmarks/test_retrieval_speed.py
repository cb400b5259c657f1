"""How fast retrieval models score, against the published form of the same, in turns, in one run.

`make benchmark` prints medians, their ratio and the size of both sides. Machines differ and drift: only ratios count.
"""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from modules.retrieval_models import build_model
from modules.search.encodings import Encodings
from modules.search.ranking import exact_ranks, ranks_by_index
from modules.search.scores import cross_attention, order_violation
from tests.benchmarks.published import published_t2i
from tests.benchmarks.timing import BATCH, REGION_DIM, REGIONS, VOCABULARY, make_batch, medians

pytestmark = pytest.mark.benchmark
IMAGES, CAPTIONS, DIM = 1000, 5000, 512
FEW = 50  # captions of SCAN, or it takes minutes


def unit_sets(count: int, longest: int, shortest: int) -> tuple[Tensor, Tensor]:
    lengths = torch.randint(shortest, longest + 1, (count,))
    mask = torch.arange(longest) < lengths[:, None]
    return F.normalize(torch.randn(count, longest, DIM), dim=-1) * mask[..., None], mask


def test_scan_scores_without_a_loop(capsys) -> None:
    torch.manual_seed(0)
    images, captions = unit_sets(IMAGES, REGIONS, REGIONS), unit_sets(FEW, 25, 7)

    def fast() -> Tensor:
        return cross_attention(captions, images, 9.0).t()

    def loop() -> Tensor:
        return published_t2i(images[0], captions)

    with torch.no_grad():
        torch.testing.assert_close(fast(), loop(), atol=1e-5, rtol=0)
        ours, theirs = medians(fast, loop, 3)
    with capsys.disabled():
        print(f"\nSCAN t2i-AVG, {IMAGES} images x {REGIONS} regions, {FEW} captions of 7 to 25 words, "
              f"{DIM} numbers: loop {theirs:.2f} s, ours {ours:.2f} s, {theirs / ours:.1f} times as fast")  # fmt: skip
    assert theirs > 3 * ours


def test_order_violation_by_blocks(capsys) -> None:
    torch.manual_seed(0)
    images, captions = (F.normalize(torch.rand(BATCH, 2 * DIM), dim=-1).requires_grad_() for _ in range(2))
    weights = torch.rand(BATCH, BATCH)

    def fast() -> Tensor:
        return order_violation(captions, images)

    def broadcast() -> Tensor:
        return -(captions[:, None] - images[None]).clamp(min=0).pow(2).sum(2)

    def gradients(scores: Tensor) -> tuple[Tensor, ...]:
        return torch.autograd.grad((scores * weights).sum(), (images, captions))

    torch.testing.assert_close(fast(), broadcast())
    for ours, theirs in zip(gradients(fast()), gradients(broadcast()), strict=True):
        torch.testing.assert_close(ours, theirs)
    once, twice = medians(lambda: gradients(fast()), lambda: gradients(broadcast()), 7)
    with capsys.disabled():
        print(f"\norder violation, {BATCH} x {BATCH} pairs of {2 * DIM} numbers, with gradients: broadcast "
              f"{twice * 1000:.0f} ms, ours {once * 1000:.0f} ms, {twice / once:.1f} times as fast")  # fmt: skip
    assert twice > 1.5 * once


@pytest.mark.parametrize("name", ["san", "dan", "scan-t2i-avg"])
def test_encode_score_rank(name: str, capsys) -> None:
    torch.manual_seed(0)
    count = CAPTIONS // FEW if name.startswith("scan") else 1
    arguments = {"region_dim": REGION_DIM, "vocabulary_size": VOCABULARY, "dim": DIM, "word_dim": 300}
    model = build_model(name, languages=["en"], **arguments)
    (regions, tokens, lengths), mask = make_batch(), torch.ones(BATCH, REGIONS).bool()
    with torch.no_grad():
        encode = medians(
            lambda: model.encode_images(regions, mask),
            lambda: model.encode_captions(tokens, lengths, torch.zeros(BATCH, dtype=torch.long)), 3,
        )  # fmt: skip
        one = model.encode_images(regions, mask)
        said = model.encode_captions(tokens, lengths, torch.zeros(BATCH, dtype=torch.long))
        images = tuple(side.repeat(8, *[1] * (side.dim() - 1))[:IMAGES] for side in one)
        captions = tuple(side.repeat(40, *[1] * (side.dim() - 1))[: CAPTIONS // count] for side in said)
        links, whole = torch.arange(len(captions[0])) % IMAGES, [Encodings.of(side) for side in (images, captions)]
        if model.score == "inner product":
            rank = lambda: ranks_by_index(images[0][:, 0], captions[0][:, 0], links)  # noqa: E731
        else:
            rank = lambda: exact_ranks(model.similarity, *whole, links)  # noqa: E731
        score, ranked = medians(lambda: model.similarity(images, captions), rank, 1 if count > 1 else 3)
    with capsys.disabled():
        print(f"\n{name}, {DIM} numbers: encode {BATCH} images {encode[0]:.3f} s, {BATCH} captions {encode[1]:.3f} s; "
              f"{IMAGES} x {CAPTIONS // count}: score {score:.4f} s, rank {ranked:.3f} s "
              f"(of {CAPTIONS} captions: {score * count:.4f}, {ranked * count:.3f} s)")  # fmt: skip
    assert score > 0
