"""How fast diverse attention pools and keeps heads apart, against loops over heads, instances and pairs, in turns."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from modules.layers.encoders import HeadsPool
from modules.losses.diversity import diversity, instances
from modules.losses.pairs import Pairs
from modules.losses.triplet import hard_negative_loss
from modules.retrieval_models import RetrievalModel, build_model
from tests.benchmarks.timing import BATCH, BF16, PRECISION, REGION_DIM, REGIONS, VOCABULARY, make_batch, medians

pytestmark = pytest.mark.benchmark
DIM, HEADS, WORDS, MARGIN = 512, 3, 25, 0.1
LINKS, OWN = torch.arange(BATCH).repeat(2), torch.eye(BATCH).bool().repeat(1, 2)
SPOKEN, SENTENCES = torch.arange(2).repeat_interleave(BATCH), torch.arange(2 * BATCH)


def loop_over_heads(pool: HeadsPool, vectors: Tensor, mask: Tensor) -> Tensor:
    """Eq. 1-2, a head at a time."""
    heads = []
    for head, matrix in enumerate(pool.of_vectors.weight.split(DIM)):
        context = torch.tanh(pool.of_contexts[head] @ pool.contexts[head])
        scores = torch.tanh(vectors @ matrix.t()) @ context
        shares = scores.masked_fill(~mask, -torch.inf).softmax(1)
        heads.append((shares[..., None] * vectors).sum(1))
    return torch.stack(heads, 1)


def loop_over_pairs(modalities: list[Tensor]) -> Tensor:
    """Eq. 5-6, an instance and a pair of heads at a time."""
    terms = []
    for place, one in enumerate(modalities):
        for other in modalities[place:]:
            for p in range(BATCH):
                for k in range(HEADS):
                    for r in range(HEADS):
                        if r != k:
                            cosine = F.cosine_similarity(one[p, k], other[p, r], dim=0)
                            terms.append((cosine - MARGIN).clamp(min=0))
    return torch.stack(terms).sum()


def triplets(images: Tensor, captions: list[Tensor]) -> Tensor:
    """Eq. 3-4, each language with hardest negatives."""
    v, own = F.normalize(images.flatten(1), dim=-1), OWN[:, :BATCH]
    types = torch.zeros(BATCH, dtype=torch.long)
    return sum(
        hard_negative_loss(v @ F.normalize(one.flatten(1), dim=-1).t(), own, ~own, types) for one in captions
    )  # fmt: skip


def test_pooling_and_losses(capsys) -> None:
    torch.manual_seed(0)
    pools = [HeadsPool(DIM, HEADS) for _ in range(3)]
    sets = [torch.randn(BATCH, count, DIM) for count in (REGIONS, WORDS, WORDS)]
    masks = [torch.ones(BATCH, REGIONS).bool(), *(torch.arange(WORDS) < torch.randint(7, 26, (BATCH, 1)) for _ in "ab")]
    weights = [parameter for pool in pools for parameter in pool.parameters()]

    def fast(bf16: bool = BF16) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            images, *captions = (pool(*side) for pool, *side in zip(pools, sets, masks, strict=True))
        joined = instances(images, torch.cat(captions), LINKS, SPOKEN, SENTENCES, 2)
        return triplets(images, captions) + diversity(*joined, MARGIN).loss

    def loop() -> Tensor:
        images, *captions = (loop_over_heads(pool, *side) for pool, *side in zip(pools, sets, masks, strict=True))
        return triplets(images, captions) + loop_over_pairs([images, *captions])

    def step(form) -> None:
        torch.autograd.grad(form(), weights)

    ours, theirs = fast(bf16=False), loop()
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=0)
    for mine, other in zip(torch.autograd.grad(ours, weights), torch.autograd.grad(theirs, weights), strict=True):
        torch.testing.assert_close(mine, other, rtol=0, atol=1e-5 * max(1.0, other.abs().max().item()))
    quick, slow = medians(lambda: step(fast), lambda: step(loop), 3)
    with torch.no_grad():
        pooled, looped = medians(
            lambda: [pool(*side) for pool, *side in zip(pools, sets, masks, strict=True)],
            lambda: [loop_over_heads(pool, *side) for pool, *side in zip(pools, sets, masks, strict=True)], 5,
        )  # fmt: skip
    with capsys.disabled():
        print(f"\nPooling and losses of diverse attention, forward and backward, {BATCH} images x {REGIONS} regions "
              f"and {2 * BATCH} captions, {DIM} numbers, {HEADS} heads: loops {slow:.2f} s (float32), ours "
              f"{quick:.2f} s ({PRECISION}), {slow / quick:.1f} times as fast; pooling alone, forward, float32 both: "
              f"{looped / pooled:.2f} times")  # fmt: skip
    assert slow > 3 * quick


def test_a_training_step_beside_san(capsys) -> None:
    torch.manual_seed(0)
    common = {"region_dim": REGION_DIM, "vocabulary_size": VOCABULARY, "dim": DIM, "word_dim": 300}
    models = [build_model(name, languages=["en", "de"], **common) for name in ("diverse-attention", "san")]
    regions, *captions = make_batch()
    tokens, lengths = (torch.cat([one, one]) for one in captions)  # an English and a German caption of each image
    mask, neither = torch.ones(BATCH, REGIONS).bool(), torch.zeros(2 * BATCH, dtype=torch.long)

    def step(model: RetrievalModel, optimizer: torch.optim.Optimizer) -> None:
        with torch.autocast("cpu", torch.bfloat16, enabled=BF16):
            pairs = Pairs(
                model.encode_images(regions, mask), model.encode_captions(tokens, lengths, SPOKEN), LINKS, OWN, ~OWN,
                neither, SPOKEN, SENTENCES,
            )  # fmt: skip
            loss = hard_negative_loss(model.similarity(pairs.images, pairs.captions), OWN, ~OWN, neither)
            loss = loss + sum(model.auxiliary_losses({}, pairs).values())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 2.0)
        optimizer.step()

    optimizers = [torch.optim.Adam(model.parameters(), lr=1e-4, fused=True) for model in models]
    runs = [lambda pair=pair: step(*pair) for pair in zip(models, optimizers, strict=True)]
    runs[0](), runs[1]()
    ours, san = medians(*runs, 5)
    sizes = [sum(parameter.numel() for parameter in model.parameters()) / 1e6 for model in models]
    with capsys.disabled():
        print(f"\nA step of diverse-attention, {BATCH} images with {2 * BATCH} captions, {HEADS} heads, {DIM} numbers: "
              f"{ours:.2f} s ({sizes[0]:.1f} M weights), of SAN {san:.2f} s ({sizes[1]:.1f} M), both {PRECISION}: "
              f"{ours / san:.2f} times")  # fmt: skip
    assert ours < 3 * san
