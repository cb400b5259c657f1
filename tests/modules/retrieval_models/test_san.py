"""SAN against Eq. 7 item by item in float64: a linear layer, nn.LSTM, two poolings, one cosine."""

import pytest
import torch
from torch.nn import functional as F

from modules.retrieval_models import build_model, model_class, option_names
from modules.retrieval_models.san import SAN

N, C, R, D, L, V, H = 3, 4, 5, 7, 6, 11, 8
LENGTHS = torch.tensor([2, 6, 1, 4])


@pytest.fixture
def model():
    torch.manual_seed(1)
    common = {"region_dim": D, "vocabulary_size": V, "languages": ["de", "en"]}
    return build_model("san", **common, dim=H, word_dim=5).double()


@pytest.fixture
def batch():
    torch.manual_seed(2)
    regions = torch.randn(N, R, D, dtype=torch.float64, requires_grad=True)
    mask = torch.arange(R) < torch.tensor([5, 2, 4])[:, None]
    tokens = torch.randint(1, V, (C, L)) * (torch.arange(L) < LENGTHS[:, None])
    return regions, mask, tokens


def scores(model, regions, mask, tokens):
    return model.similarity(
        model.encode_images(regions, mask), model.encode_captions(tokens, LENGTHS, torch.zeros(C, dtype=torch.long))
    )


def plain_pool(pool, vectors):
    context = torch.tanh(pool.of_context.weight @ pool.context + pool.of_context.bias)
    shares = torch.stack([context @ torch.tanh(pool.of_vectors.weight @ z + pool.of_vectors.bias) for z in vectors])
    shares = shares.exp() / shares.exp().sum()
    return sum(share * vector for share, vector in zip(shares, vectors, strict=True))


def plain_scores(model, regions, mask, tokens):
    """One image and one caption at a time, nothing padded."""
    rows = []
    for i in range(N):
        visible = [model.regions.weight @ region + model.regions.bias for region in regions[i][mask[i]]]
        image = plain_pool(model.pool_regions, visible)
        row = []
        for c, n in enumerate(LENGTHS.tolist()):
            states = model.captions.lstm.lstm(model.captions.words.weight[tokens[c, :n]][None])[0][0]
            caption = plain_pool(model.pool_words, list((states[:, :H] + states[:, H:]) / 2))
            row.append(image @ caption / (image.norm() * caption.norm()))
        rows.append(torch.stack(row))
    return torch.stack(rows)


def test_scores_and_gradients_equal_the_plain_form(model, batch):
    weight = torch.randn(N, C, dtype=torch.float64)
    results = []
    for form in (scores, plain_scores):
        value = form(model, *batch)
        inputs = (batch[0], *model.parameters())
        results.append((value, torch.autograd.grad((value * weight).sum(), inputs)))
    assert results[0][0].shape == (N, C)
    torch.testing.assert_close(results[0][0], results[1][0])
    names = ["regions", *dict(model.named_parameters())]
    for name, ours, theirs in zip(names, results[0][1], results[1][1], strict=True):
        assert theirs.abs().max() > 1e-9, name
        torch.testing.assert_close(ours, theirs, msg=lambda m, name=name: f"{name}: {m}")


def test_one_unit_vector_an_item(model, batch):
    regions, mask, tokens = batch
    for vectors, real in (
        model.encode_images(100 * regions, mask),
        model.encode_captions(tokens, LENGTHS, torch.zeros(C, dtype=torch.long)),
    ):
        assert vectors.shape[1:] == (1, H)
        assert real.shape == vectors.shape[:2]
        assert real.dtype == torch.bool
        assert real.all()
        torch.testing.assert_close(vectors.norm(dim=-1), torch.ones_like(vectors[..., 0]))
    assert model.score == "inner product"


def test_items_alone_are_the_items_in_a_batch(model, batch):
    regions, mask, tokens = batch
    images, _ = model.encode_images(regions, mask)
    captions, _ = model.encode_captions(tokens, LENGTHS, torch.zeros(C, dtype=torch.long))
    for i in range(N):
        alone = regions[i : i + 1, mask[i]]
        torch.testing.assert_close(model.encode_images(alone, mask[i : i + 1, mask[i]])[0][0], images[i])
    for c, n in enumerate(LENGTHS.tolist()):
        alone, _ = model.encode_captions(tokens[c : c + 1, :n], LENGTHS[c : c + 1], torch.zeros(1, dtype=torch.long))
        torch.testing.assert_close(alone[0], captions[c])


def test_regions_are_a_set_and_words_are_a_sequence(model, batch):
    regions, mask, tokens = batch
    order = torch.randperm(R)
    shuffled = model.encode_images(regions[:, order], mask[:, order])[0]
    torch.testing.assert_close(shuffled, model.encode_images(regions, mask)[0])
    language = torch.zeros(1, dtype=torch.long)
    whole = tokens[1:2], LENGTHS[1:2], language
    backward = tokens[1:2].flip(1), LENGTHS[1:2], language
    assert (model.encode_captions(*whole)[0] - model.encode_captions(*backward)[0]).abs().max() > 1e-5


def test_autocast_is_close(model, batch):
    regions, mask, tokens = batch
    model = model.float()
    exact = scores(model, regions.float(), mask, tokens)
    with torch.autocast("cpu", torch.bfloat16):
        vectors, _ = model.encode_images(regions.float(), mask)
        rough = scores(model, regions.float(), mask, tokens)
    assert (vectors.float().norm(dim=-1) - 1).abs().max() < 0.01
    assert (rough.float() - exact).abs().max() < 0.03


def test_word_vectors_are_taken_over(model, batch):
    vectors = torch.randn(V, 5, dtype=torch.float64)
    before = scores(model, *batch)
    model.set_word_vectors(vectors)
    assert torch.equal(model.captions.words.weight, vectors)
    assert model.captions.words.weight.requires_grad
    assert (scores(model, *batch) - before).abs().max() > 1e-4
    with pytest.raises(RuntimeError, match="size"):
        model.set_word_vectors(vectors[:, :4])


def test_similarity_is_a_cosine(model):
    images, captions = (F.normalize(torch.randn(n, 1, H, dtype=torch.float64), dim=-1) for n in (N, C))
    ours = model.similarity((images, images[..., 0].bool()), (captions, captions[..., 0].bool()))
    for i in range(N):
        torch.testing.assert_close(ours[i], F.cosine_similarity(images[i], captions[:, 0]))


def test_it_is_found_by_name_and_has_no_options_of_its_own():
    assert model_class("san") is SAN
    assert option_names(SAN) == set()
