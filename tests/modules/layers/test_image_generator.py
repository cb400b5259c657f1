"""The networks and losses that generate images, against float64 twins."""

import math

import pytest
import torch
from torch.nn import functional as F

from modules.errors import ModelError
from modules.layers.image_generator import (
    MapNorm,
    PhaseConvolution,
    PictureDiscriminator,
    PictureGenerator,
    RegionDiscriminator,
    RegionGenerator,
    discriminator_losses,
    divergence_from_normal,
    generator_losses,
)


def test_phases_are_the_enlarged_convolution_with_its_gradients() -> None:
    torch.manual_seed(0)
    layer = PhaseConvolution(3, 5).double()
    maps = torch.randn(2, 3, 4, 6, dtype=torch.float64, requires_grad=True)
    found = layer(maps)
    expected = F.conv2d(F.interpolate(maps, scale_factor=2, mode="nearest"), layer.weight, padding=1)
    torch.testing.assert_close(found, expected, atol=1e-13, rtol=0)
    weight = torch.randn_like(found)
    ours, theirs = (torch.autograd.grad((one * weight).sum(), [maps, layer.weight]) for one in (found, expected))
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, atol=1e-12, rtol=0)


def test_divergence_is_that_of_two_gaussians() -> None:
    torch.manual_seed(0)
    mean, log_deviation = torch.randn(2, 3, 7, dtype=torch.float64).unbind(0)
    one = torch.distributions.Normal(mean, log_deviation.exp())
    other = torch.distributions.Normal(torch.zeros_like(mean), torch.ones_like(mean))
    expected = torch.distributions.kl_divergence(one, other).mean(-1)
    torch.testing.assert_close(divergence_from_normal(mean, log_deviation), expected)
    assert not divergence_from_normal(torch.zeros(1, 4), torch.zeros(1, 4)).any()


def test_losses_are_the_logarithms_of_the_paper_with_their_gradients() -> None:
    torch.manual_seed(0)
    logits = [torch.randn(5, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    right, fake, wrong = (1 / (1 + (-one).exp()) for one in logits)
    expected = -(right.log() + 0.3 * (1 - fake).log() + 0.7 * (1 - wrong).log())
    found = discriminator_losses(*logits, 0.3, 0.7)
    torch.testing.assert_close(found, expected)
    pairs = [(found, expected, logits), (generator_losses(logits[1]), -fake.log(), logits[1:2])]
    for ours, theirs, inputs in pairs:
        torch.testing.assert_close(ours, theirs)
        gradients = (torch.autograd.grad(one.sum(), inputs, retain_graph=True) for one in (ours, theirs))
        for one, other in zip(*gradients, strict=True):
            torch.testing.assert_close(one, other)
    assert discriminator_losses(*(torch.tensor([x]) for x in (200.0, -200.0, -200.0))).item() < 1e-6
    assert math.isfinite(discriminator_losses(*(torch.tensor([x]) for x in (-200.0, 200.0, 200.0))).item())


def test_map_norm_is_torch_s_of_two_dimensions() -> None:
    torch.manual_seed(0)
    ours, theirs, maps = MapNorm(3), torch.nn.BatchNorm2d(3), torch.randn(4, 3, 5, 5)
    for _ in range(2):
        torch.testing.assert_close(ours(maps), theirs(maps))
    torch.testing.assert_close(ours.running_var, theirs.running_var)
    ours.eval(), theirs.eval()
    torch.testing.assert_close(ours(maps), theirs(maps))


@pytest.mark.parametrize("size", [8, 16, 64])
def test_pictures_have_their_size_and_are_judged_pair_by_pair(size: int) -> None:
    torch.manual_seed(0)
    generator, judge = PictureGenerator(6, 2, size).double().eval(), PictureDiscriminator(4, 2, size).double().eval()
    inputs, conditions = torch.randn(3, 6, dtype=torch.float64), torch.randn(3, 4, dtype=torch.float64)
    pictures = generator(inputs)
    assert pictures.shape == (3, 3, size, size)
    assert float(pictures.abs().max()) <= 1
    found = judge(judge.features(pictures), conditions)
    assert found.shape == (3,)
    alone = torch.cat([judge(judge.features(pictures[i : i + 1]), conditions[i : i + 1]) for i in range(3)])
    torch.testing.assert_close(found, alone)
    assert not torch.isclose(found, judge(judge.features(pictures), conditions.flip(0)))[[0, 2]].any()


def test_regions_are_generated_and_judged() -> None:
    torch.manual_seed(0)
    generator, judge = RegionGenerator(6, 8, 5).double().eval(), RegionDiscriminator(4, 8, 5).double().eval()
    regions = generator(torch.randn(3, 6, dtype=torch.float64))
    assert regions.shape == (3, 5)
    conditions = torch.randn(3, 4, dtype=torch.float64)
    found = judge(judge.features(regions), conditions)
    assert found.shape == (3,)
    assert not torch.isclose(found, judge(judge.features(regions), conditions.flip(0)))[[0, 2]].any()


@pytest.mark.parametrize("size", [4, 12, 63, 0, -8])
def test_another_size_is_refused(size: int) -> None:
    with pytest.raises(ModelError, match=f"picture_size is {size}; expected 8, 16, 32, 64"):
        PictureGenerator(6, 2, size)


@pytest.mark.whole
def test_a_gan_learns_which_condition_a_picture_belongs_to() -> None:
    """Two conditions, two plain colours: after some steps each condition draws its own colour."""
    torch.manual_seed(0)
    generator, judge = PictureGenerator(3, 4, 8), PictureDiscriminator(2, 4, 8)
    optimizers = [torch.optim.Adam(part.parameters(), 5e-3, (0.5, 0.999)) for part in (judge, generator)]
    real = torch.stack([torch.full((3, 8, 8), -0.7), torch.full((3, 8, 8), 0.7)])
    for _ in range(80):
        kinds = torch.arange(16) % 2
        conditions = F.one_hot(kinds, 2).float()
        for turn, optimizer in enumerate(optimizers):
            fake = generator(torch.cat([conditions, torch.randn(16, 1)], 1))
            features = judge.features(real[kinds] + 0.05 * torch.randn(16, 3, 8, 8))
            if turn == 0:
                false = judge(judge.features(fake.detach()), conditions)
                loss = discriminator_losses(
                    judge(features, conditions), false, judge(features, conditions.flip(1))
                ).mean()
            else:
                loss = generator_losses(judge(judge.features(fake), conditions)).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    pictures = generator(torch.cat([F.one_hot(torch.arange(16) % 2, 2).float(), torch.randn(16, 1)], 1))
    means = pictures.mean((1, 2, 3))
    assert float(means[::2].max()) < float(means[1::2].min())
