"""What the tests of all retrieval models have in common: a small batch, and checks against a plain twin."""

import torch
from torch import Tensor
from torch.nn import functional as F

from modules.losses.registry import RankingLoss, negative_mask
from modules.retrieval_models import RetrievalModel, build_model, model_class
from modules.retrieval_models.base import MODELS
from modules.retrieval_models.pivot import PivotAsymmetric
from modules.retrieval_models.vse import OrderEmbeddings

N, C, R, D, L, V, H, E = 3, 4, 5, 7, 6, 11, 8, 5
LENGTHS = torch.tensor([2, 6, 1, 4])
LANGUAGES = torch.tensor([1, 0, 1, 1])  # places in ["de", "en"]

model_class("san")  # all files of the folder are read
ON_REGIONS = sorted(name for name, kind in MODELS.items() if not name.startswith("test-") and not kind.given_vectors)
"""Models that read regions of images, or their pixels; the others read vectors of another model."""


def make(name: str, **options) -> RetrievalModel:
    torch.manual_seed(1)
    common = {"region_dim": D, "vocabulary_size": V, "languages": ["de", "en"], "dim": H, "word_dim": E}
    return build_model(name, **common, **options).double()


def make_batch() -> tuple[Tensor, Tensor, Tensor]:
    """Regions (N, R, D), their mask, and tokens (C, L); some of each are padding."""
    torch.manual_seed(2)
    regions = torch.randn(N, R, D, dtype=torch.float64, requires_grad=True)
    mask = torch.arange(R) < torch.tensor([5, 2, 4])[:, None]
    return regions, mask, torch.randint(1, V, (C, L)) * (torch.arange(L) < LENGTHS[:, None])


def scores(model: RetrievalModel, regions: Tensor, mask: Tensor, tokens: Tensor) -> Tensor:
    return model.similarity(model.encode_images(regions, mask), model.encode_captions(tokens, LENGTHS, LANGUAGES))


def plain_scores(model: RetrievalModel, image, caption, score, batch) -> Tensor:
    """One image and one caption at a time, nothing padded; the three functions are a model's formula."""
    regions, mask, tokens = batch
    images = [image(model, regions[i][mask[i]]) for i in range(N)]
    captions = [caption(model, tokens[c, :n], int(LANGUAGES[c])) for c, n in enumerate(LENGTHS.tolist())]
    return torch.stack([torch.stack([score(model, v, t) for t in captions]) for v in images])


def mean_image(model: RetrievalModel, regions: Tensor) -> Tensor:
    """The mean of the regions, mapped and of length 1: an image of VSE, VSE++, OE and PIVOT."""
    vector = model.image.weight @ (sum(regions) / len(regions)) + model.image.bias
    return vector / vector.norm()


def one_vector_score(model: RetrievalModel, v: Tensor, t: Tensor) -> Tensor:
    """Order violation of two vectors, or their inner product."""
    if isinstance(model, OrderEmbeddings | PivotAsymmetric):
        return -sum(max(a.abs() - b.abs(), 0 * a) ** 2 for a, b in zip(t, v, strict=True))
    return sum(a * b for a, b in zip(t, v, strict=True))


def check_same(model: RetrievalModel, plain, batch) -> None:
    """Values, and gradients of the regions and of every parameter."""
    weight = torch.randn(N, C, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    results = []
    for value in (scores(model, *batch), plain):
        assert value.shape == (N, C)
        inputs = (batch[0], *model.parameters())
        results.append((value, torch.autograd.grad((value * weight).sum(), inputs)))
    torch.testing.assert_close(results[0][0], results[1][0])
    names = ["regions", *dict(model.named_parameters())]
    for name, ours, theirs in zip(names, results[0][1], results[1][1], strict=True):
        assert theirs.abs().max() > 1e-9, name
        torch.testing.assert_close(ours, theirs, msg=lambda m, name=name: f"{name}: {m}")


def check_order_and_padding(model: RetrievalModel) -> None:
    """Regions are a set; images and captions have the scores that they have alone, wherever they stand."""
    regions, mask, tokens = make_batch()
    together = scores(model, regions, mask, tokens)
    order, images, captions = torch.randperm(R), torch.randperm(N), torch.randperm(C)
    torch.testing.assert_close(scores(model, regions[:, order], mask[:, order], tokens), together)
    spoken = model.encode_captions(tokens[captions], LENGTHS[captions], LANGUAGES[captions])
    shuffled = model.similarity(model.encode_images(regions[images], mask[images]), spoken)
    torch.testing.assert_close(shuffled, together[images][:, captions])
    other = regions.detach().clone()
    other[~mask] = 1e3
    torch.testing.assert_close(scores(model, other, mask, tokens), together)
    torch.testing.assert_close(scores(model, regions, mask, F.pad(tokens, (0, 3))), together)
    for i in range(N):
        image = model.encode_images(regions[i : i + 1, mask[i]], mask[i : i + 1, mask[i]])
        for c, n in enumerate(LENGTHS.tolist()):
            one = model.encode_captions(tokens[c : c + 1, :n], LENGTHS[c : c + 1], LANGUAGES[c : c + 1])
            torch.testing.assert_close(model.similarity(image, one), together[i : i + 1, c : c + 1])


def check_unit_norm(model: RetrievalModel) -> None:
    regions, mask, tokens = make_batch()
    images, captions = model.encode_images(100 * regions, mask), model.encode_captions(tokens, LENGTHS, LANGUAGES)
    for vectors, real in (images, captions):
        assert real.shape == vectors.shape[:2]
        assert real.dtype == torch.bool
        torch.testing.assert_close(vectors.norm(dim=-1)[real], torch.ones_like(vectors[..., 0])[real])


def check_learns(model: RetrievalModel, margin: float = 0.2) -> None:
    """Steps on one batch in float32 lower the loss by more than a fifth, and every parameter moves."""
    regions, mask, tokens = make_batch()
    model, regions = model.float(), regions.detach().float()
    links = torch.tensor([0, 1, 2, 0])
    masks = negative_mask(torch.arange(N), links, torch.arange(C))
    loss_of, start = RankingLoss(model.loss, margin), [parameter.clone() for parameter in model.parameters()]
    optimizer, losses = torch.optim.Adam(model.parameters(), lr=0.01), []
    for _ in range(10):
        loss = loss_of(scores(model, regions, mask, tokens), *masks, torch.zeros(C, dtype=torch.long))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.8 * losses[0]
    for (name, parameter), before in zip(model.named_parameters(), start, strict=True):
        assert not torch.equal(parameter, before), name


def check_autocast(model: RetrievalModel, close: float = 0.05) -> None:
    regions, mask, tokens = make_batch()
    model, regions = model.float(), regions.detach().float()
    exact = scores(model, regions, mask, tokens)
    with torch.autocast("cpu", torch.bfloat16):
        rough = scores(model, regions, mask, tokens)
    assert rough.dtype == torch.float32  # else hardest negatives tie
    assert (rough - exact).abs().max() < close


def plain_states(network, words: Tensor) -> list[Tensor]:
    """Both directions of nn.LSTM or nn.GRU over the word vectors (n, E) of one caption, averaged."""
    states = network(words[None])[0][0]
    return list((states[:, :H] + states[:, H:]) / 2)
