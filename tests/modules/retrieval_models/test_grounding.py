"""Grounding of every registered model against words and regions that are really taken away; attention of its heads."""

import pytest
import torch
from torch.nn import functional as F

from modules.retrieval_models import RetrievalModel, model_class
from modules.search.grounding import ground
from tests.modules.cases import ON_REGIONS, R, make, make_batch

model_class("san")  # all files of the folder are read
NAMES = ON_REGIONS
HEADS = {"san": 1, "dan": 2, "diverse-attention": 3}
ENGLISH = torch.tensor([1])
SENTENCE = torch.tensor([4, 7, 9])


def score(model: RetrievalModel, regions: torch.Tensor, tokens: torch.Tensor) -> float:
    image = model.encode_images(regions[None], torch.ones(1, len(regions), dtype=torch.bool))
    return model.similarity(image, model.encode_captions(tokens[None], torch.tensor([len(tokens)]), ENGLISH)).item()


@pytest.mark.parametrize("name", NAMES)
def test_effects_are_those_of_words_and_regions_that_are_not_there(name: str) -> None:
    """One pair at a time, nothing masked and nothing padded; what is padding has no part."""
    model, regions = make(name).eval(), make_batch()[0][0].detach()
    mask = torch.tensor([True, False, True, True, False])
    tokens = torch.stack([SENTENCE, *(F.pad(torch.cat([SENTENCE[:w], SENTENCE[w + 1 :]]), (0, 1)) for w in range(3))])
    lengths = torch.tensor([3, 2, 2, 2])
    found = ground(model, regions, mask, model.encode_captions(tokens, lengths, ENGLISH.expand(4)))
    whole = regions[mask]
    for w in range(3):
        rest = torch.cat([SENTENCE[:w], SENTENCE[w + 1 :]])
        effect = score(model, whole, SENTENCE) - score(model, whole, rest)
        assert found.effects[w].item() == pytest.approx(effect, abs=1e-9)
        lost = []
        for r in range(3):
            other = torch.cat([whole[:r], whole[r + 1 :]])
            lost.append(effect - (score(model, other, SENTENCE) - score(model, other, rest)))
        assert found.regions[w, mask].tolist() == pytest.approx(lost, abs=1e-9)
    assert found.regions.shape == (3, R)
    assert not found.regions[:, ~mask].any()
    assert found.regions.any()


@pytest.mark.parametrize("name", NAMES)
def test_the_only_region_has_no_part(name: str) -> None:
    model, regions = make(name).eval(), make_batch()[0][0].detach()
    captions = model.encode_captions(SENTENCE[:2, None], torch.ones(2, dtype=torch.long), ENGLISH.expand(2))
    found = ground(model, regions, torch.arange(R) == 3, captions)
    assert found.effects.isfinite().all()
    assert not found.regions.any()


@pytest.mark.parametrize("name", NAMES)
def test_heads_share_their_attention_among_real_regions(name: str) -> None:
    regions, mask, _ = make_batch()
    weights = make(name).region_weights(regions, mask)
    if name not in HEADS:
        assert weights is None
        return
    assert weights.shape == (len(regions), HEADS[name], R)
    assert not weights.masked_select(~mask[:, None]).any()
    torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]))
    assert weights[0].std() > 0


@pytest.mark.parametrize("name", ["san", "diverse-attention"])
def test_the_encoding_is_the_regions_by_the_attention_of_the_heads(name: str) -> None:
    model, (regions, mask, _) = make(name), make_batch()
    vectors = model.regions(regions) if name == "san" else torch.tanh(model.regions(regions))
    pooled = (model.region_weights(regions, mask) @ vectors).flatten(1)
    torch.testing.assert_close(model.encode_images(regions, mask)[0][:, 0], F.normalize(pooled, dim=-1))


def test_steps_of_dan_are_its_heads() -> None:
    model, (regions, mask, _) = make("dan"), make_batch()
    weights = model.region_weights(regions, mask)
    outputs = [project(one) for project, one in zip(model.project[1:], (weights @ regions).unbind(1), strict=True)]
    first = model.project[0]((regions * mask[..., None]).sum(1) / mask.sum(1, keepdim=True))
    expected = F.normalize(torch.tanh(torch.cat([first, *outputs], dim=-1)), dim=-1)
    torch.testing.assert_close(model.encode_images(regions, mask)[0][:, 0], expected)
    assert make("dan", steps=0).region_weights(regions, mask) is None
