"""How fast retrieval models train, against the published form of the same step, in turns, in one run."""

import pytest
import torch
from torch import Tensor, nn

from modules.losses.triplet import hard_negative_loss
from modules.retrieval_models import build_model
from tests.benchmarks.published import PublishedSAN, PublishedSCAN, max_violation
from tests.benchmarks.timing import BATCH, BF16, PRECISION, REGION_DIM, REGIONS, VOCABULARY, make_batch, medians

pytestmark = pytest.mark.benchmark
ZEROS, OWN = torch.zeros(BATCH, dtype=torch.long), torch.eye(BATCH).bool()


def our_scores(model: nn.Module, regions: Tensor, tokens: Tensor, lengths: Tensor) -> Tensor:
    mask = torch.ones(BATCH, REGIONS).bool()
    return model.similarity(model.encode_images(regions, mask), model.encode_captions(tokens, lengths, ZEROS))


def our_loss(scores: Tensor) -> Tensor:
    return hard_negative_loss(scores, OWN, ~OWN, ZEROS)


def check_same(ours: nn.Module, theirs: PublishedSCAN, batch: tuple[Tensor, ...]) -> None:
    """With the same weights and in float32: the same scores and loss, and the same gradients of both."""
    theirs.take_weights(ours)
    scores = our_scores(ours, *batch), theirs(*batch)
    losses = our_loss(scores[0]), max_violation(scores[1])
    assert losses[1] > 0
    torch.testing.assert_close(losses[0], losses[1], rtol=1e-4, atol=0)
    torch.testing.assert_close(*scores, rtol=0, atol=1e-5)
    by_scores = [torch.autograd.grad(*pair, retain_graph=True)[0] for pair in zip(losses, scores, strict=True)]
    torch.testing.assert_close(*by_scores, rtol=0, atol=1e-5)
    by_regions = [
        torch.autograd.grad(loss, model.regions.weight)[0]
        for loss, model in zip(losses, (ours, theirs), strict=True)
    ]  # fmt: skip
    torch.testing.assert_close(*by_regions, rtol=0, atol=1e-4 * by_regions[1].abs().max().item())


@pytest.mark.parametrize(
    ("name", "kind", "dim", "times", "least"),
    [
        ("san", PublishedSAN, 512, 5, 1),
        ("scan-t2i-avg", PublishedSCAN, 512, 3, 5),
        ("scan-t2i-avg", PublishedSCAN, 1024, 2, 5),
    ],
)
def test_a_training_step(name: str, kind: type[PublishedSCAN], dim: int, times: int, least: float, capsys) -> None:
    torch.manual_seed(0)
    arguments = {"region_dim": REGION_DIM, "vocabulary_size": VOCABULARY, "dim": dim, "word_dim": 300}
    ours, theirs, batch = build_model(name, languages=["en"], **arguments), kind(dim), make_batch()
    check_same(ours, theirs, batch)
    fused = torch.optim.Adam(ours.parameters(), lr=1e-4, fused=True)
    plain = torch.optim.Adam(theirs.parameters(), lr=1e-4)

    def step() -> None:
        with torch.autocast("cpu", torch.bfloat16, enabled=BF16):
            loss = our_loss(our_scores(ours, *batch))
        fused.zero_grad()
        loss.backward()
        fused.step()

    def published() -> None:
        loss = max_violation(theirs(*batch))
        plain.zero_grad()
        loss.backward()
        plain.step()

    step(), published()
    fast, slow = medians(step, published, times)
    sizes = [sum(parameter.numel() for parameter in model.parameters()) / 1e6 for model in (ours, theirs)]
    with capsys.disabled():
        print(f"\nA step of {name}, {BATCH} pairs, {dim} numbers: published form {slow:.2f} s ({sizes[1]:.1f} M "
              f"weights, float32), ours {fast:.2f} s ({sizes[0]:.1f} M, {PRECISION}), "
              f"{slow / fast:.1f} times as fast")  # fmt: skip
    assert slow > least * fast
