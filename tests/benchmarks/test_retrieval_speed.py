"""How fast retrieval models score and train, against the published form of the same, in turns, in one run.

`make benchmark` prints medians, their ratio and the size of both sides. Machines differ and drift: only ratios count.
"""

import statistics
import time
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from modules.losses import hard_negative_loss
from modules.retrieval_models import build_model
from modules.scores import cross_attention
from modules.search import exact_ranks, ranks_by_index

pytestmark = pytest.mark.benchmark
IMAGES, CAPTIONS, REGIONS, DIM, BATCH, VOCABULARY = 1000, 5000, 36, 512, 128, 8000
FEW = 50  # captions of SCAN, or it takes minutes


def medians(one: Callable[[], object], other: Callable[[], object], times: int) -> tuple[float, float]:
    """Seconds of two things that take turns."""
    spent: tuple[list[float], list[float]] = ([], [])
    for _ in range(times):
        for run, seconds in zip((one, other), spent, strict=True):
            start = time.perf_counter()
            run()
            seconds.append(time.perf_counter() - start)
    return statistics.median(spent[0]), statistics.median(spent[1])


def unit_sets(count: int, longest: int, shortest: int) -> tuple[Tensor, Tensor]:
    lengths = torch.randint(shortest, longest + 1, (count,))
    mask = torch.arange(longest) < lengths[:, None]
    return F.normalize(torch.randn(count, longest, DIM), dim=-1) * mask[..., None], mask


def published_t2i(images: Tensor, captions: tuple[Tensor, Tensor], lambda_softmax: float = 9.0) -> Tensor:
    """The published form of SCAN t2i-AVG: a loop over captions, each beside all images, with context vectors."""
    columns = []
    for words, real in zip(*captions, strict=True):
        query = words[real].expand(len(images), -1, -1)
        attention = F.leaky_relu(images @ query.transpose(1, 2), 0.1)
        attention = attention / (attention.square().sum(2, keepdim=True).sqrt() + 1e-8)
        attention = (attention.transpose(1, 2) * lambda_softmax).softmax(-1)
        columns.append(F.cosine_similarity(query, attention @ images, dim=-1).mean(1))
    return torch.stack(columns, 1)


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


@pytest.mark.parametrize("name", ["san", "dan", "scan-t2i-avg"])
def test_encode_score_rank(name: str, capsys) -> None:
    torch.manual_seed(0)
    count = CAPTIONS // FEW if name.startswith("scan") else 1
    model = build_model(name, region_dim=2048, vocabulary_size=VOCABULARY, languages=["en"], dim=DIM, word_dim=300)
    regions, mask = torch.randn(BATCH, REGIONS, 2048), torch.ones(BATCH, REGIONS).bool()
    lengths = torch.randint(7, 26, (BATCH,))
    tokens = torch.randint(2, VOCABULARY, (BATCH, 25)) * (torch.arange(25) < lengths[:, None])
    with torch.no_grad():
        encode = medians(
            lambda: model.encode_images(regions, mask),
            lambda: model.encode_captions(tokens, lengths, torch.zeros(BATCH, dtype=torch.long)), 3,
        )  # fmt: skip
        one = model.encode_images(regions, mask)
        said = model.encode_captions(tokens, lengths, torch.zeros(BATCH, dtype=torch.long))
        images = tuple(side.repeat(8, *[1] * (side.dim() - 1))[:IMAGES] for side in one)
        captions = tuple(side.repeat(40, *[1] * (side.dim() - 1))[: CAPTIONS // count] for side in said)
        links = torch.arange(len(captions[0])) % IMAGES
        if model.score == "inner product":
            rank = lambda: ranks_by_index(images[0][:, 0], captions[0][:, 0], links)  # noqa: E731
        else:
            rank = lambda: exact_ranks(model.similarity, images, captions, links)  # noqa: E731
        score, ranked = medians(lambda: model.similarity(images, captions), rank, 1 if count > 1 else 3)
    with capsys.disabled():
        print(f"\n{name}, {DIM} numbers: encode {BATCH} images {encode[0]:.3f} s, {BATCH} captions {encode[1]:.3f} s; "
              f"{IMAGES} x {CAPTIONS // count}: score {score:.4f} s, rank {ranked:.3f} s "
              f"(of {CAPTIONS} captions: {score * count:.4f}, {ranked * count:.3f} s)")  # fmt: skip
    assert score > 0


class PublishedSAN(nn.Module):
    """SAN's step as VSE++ and SCAN write it: float32, `nn.LSTM` on packed captions, the loss by the diagonal."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.regions, self.words = nn.Linear(2048, dim), nn.Embedding(VOCABULARY, 300)
        self.lstm = nn.LSTM(300, dim, batch_first=True, bidirectional=True)
        self.pools = nn.ModuleList([nn.Linear(dim, dim) for _ in range(4)])
        self.contexts = nn.Parameter(torch.randn(2, dim))

    def forward(self, regions: Tensor, tokens: Tensor, lengths: Tensor) -> Tensor:
        packed = nn.utils.rnn.pack_padded_sequence(self.words(tokens), lengths, batch_first=True, enforce_sorted=False)
        states = nn.utils.rnn.pad_packed_sequence(self.lstm(packed)[0], batch_first=True)[0]
        ahead, back = states.chunk(2, -1)
        items = (self.regions(regions), (ahead + back) / 2)
        vectors = []
        for number, one in enumerate(items):
            context = torch.tanh(self.pools[2 * number](self.contexts[number]))
            shares = (torch.tanh(self.pools[2 * number + 1](one)) @ context).softmax(1)
            vectors.append(F.normalize((shares[..., None] * one).sum(1), dim=-1))
        scores = vectors[0] @ vectors[1].t()
        diagonal = scores.diag()[:, None]
        own = torch.eye(len(scores)).bool()
        costs = ((0.2 + scores - side).clamp(min=0).masked_fill(own, 0) for side in (diagonal, diagonal.t()))
        by_caption, by_image = costs
        return by_caption.max(1)[0].sum() + by_image.max(0)[0].sum()


def test_a_step_of_san(capsys) -> None:
    torch.manual_seed(0)
    dim = 512
    arguments = {"region_dim": 2048, "vocabulary_size": VOCABULARY, "languages": ["en"], "dim": dim, "word_dim": 300}
    ours, theirs = build_model("san", **arguments), PublishedSAN(dim)
    regions, mask = torch.randn(BATCH, REGIONS, 2048), torch.ones(BATCH, REGIONS).bool()
    lengths = torch.randint(7, 26, (BATCH,))
    tokens = torch.randint(2, VOCABULARY, (BATCH, 25)) * (torch.arange(25) < lengths[:, None])
    zeros, own = torch.zeros(BATCH, dtype=torch.long), torch.eye(BATCH).bool()
    fused = torch.optim.Adam(ours.parameters(), lr=1e-4, fused=True)
    plain = torch.optim.Adam(theirs.parameters(), lr=1e-4)

    def step() -> None:
        with torch.autocast("cpu", torch.bfloat16):
            images, captions = ours.encode_images(regions, mask), ours.encode_captions(tokens, lengths, zeros)
            loss = hard_negative_loss(ours.similarity(images, captions), own, ~own, zeros)
        fused.zero_grad()
        loss.backward()
        fused.step()

    def published() -> None:
        loss = theirs(regions, tokens, lengths)
        plain.zero_grad()
        loss.backward()
        plain.step()

    step(), published()
    fast, slow = medians(step, published, 5)
    sizes = [sum(parameter.numel() for parameter in model.parameters()) / 1e6 for model in (ours, theirs)]
    with capsys.disabled():
        print(f"\nA step of SAN, {BATCH} pairs, {dim} numbers: published form {slow:.3f} s ({sizes[1]:.1f} M weights,"
              f" float32), ours {fast:.3f} s ({sizes[0]:.1f} M, bf16), {slow / fast:.1f} times as fast")  # fmt: skip
    assert slow > fast
