"""A conditional GAN from caption vectors to small pictures, or to region features (GXN, Gu et al. 2018, section 3.4).

The networks are those of StackGAN's first stage (Zhang et al. 2017), with these differences from its PyTorch code: the
mean and the deviation of the condition are not cut at 0 by a ReLU, the deviation is given as log σ instead of log σ²,
and weights start as torch's layers do, not from N(0, 0.02²).
"""

import math
from itertools import pairwise
from typing import Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F

from modules.errors import ModelError
from modules.layers.batch_norm import GlobalBatchNorm
from modules.layers.recurrent import widen

Target = Literal["pixels", "regions"]
_SLOPE = 0.2  # of LeakyReLU below zero, as in StackGAN
_START = 4  # height and width of the first maps

NOISE = 100
"""Numbers of z, as in StackGAN."""
CONDITION = 128
"""Numbers of t_c, as in StackGAN."""


class ConditioningAugmentation(nn.Module):
    """A Gaussian around a compressed caption vector, from which the condition t_c is drawn (Zhang et al. 2017).

    Args:
        dim: size of a caption vector t_l.
        condition_dim: size of t_c.
    """

    def __init__(self, dim: int, condition_dim: int) -> None:
        super().__init__()
        self.layer = nn.Linear(dim, 2 * condition_dim)

    def forward(self, captions: Tensor) -> tuple[Tensor, Tensor]:
        """Return the mean and the logarithm of the standard deviation, each (C, condition_dim)."""
        mean, log_deviation = widen(self.layer(captions)).chunk(2, -1)
        return mean, log_deviation


def divergence_from_normal(mean: Tensor, log_deviation: Tensor) -> Tensor:
    """Return KL(N(μ, σ²) ‖ N(0, 1)) of each row (C, D), averaged over the D numbers (Eq. 12)."""
    return 0.5 * (mean.square() + (2 * log_deviation).exp() - 1 - 2 * log_deviation).mean(-1)


class PhaseConvolution(nn.Conv2d):
    """A 3×3 convolution of a picture that is first enlarged twice by nearest neighbours, without enlarging it.

    Each of the four output phases sees 2×2 input pixels, so it is a 2×2 convolution with sums of the 3×3 weights: 16
    products per input pixel instead of 36.

    Args:
        inputs: channels.
        outputs: channels.
    """

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs, 3, padding=1, bias=False)

    def forward(self, maps: Tensor) -> Tensor:
        """Return maps (B, outputs, 2H, 2W) of maps (B, inputs, H, W)."""
        first, second, third = self.weight.unbind(2)
        phases = []
        for top, rows in enumerate(((first, second + third), (first + second, third))):
            for left in range(2):
                columns = [_columns(row, left) for row in rows]
                padded = F.pad(maps, (1 - left, left, 1 - top, top))
                phases.append(F.conv2d(padded, torch.stack(columns, 2)))
        return F.pixel_shuffle(torch.stack(phases, 2).flatten(1, 2), 2)


def _columns(row: Tensor, left: int) -> Tensor:
    """Weights (O, I, 2) of a row (O, I, 3) in the phase of one column."""
    first, second, third = row.unbind(2)
    return torch.stack((first + second, third) if left else (first, second + third), 2)


class MapNorm(GlobalBatchNorm):
    """Batch normalisation of maps (B, C, H, W) by channel, with the statistics of all processes."""

    def forward(self, maps: Tensor) -> Tensor:
        """Normalise maps."""
        if not (self.training and dist.is_available() and dist.is_initialized()):
            if self.training:
                assert self.num_batches_tracked is not None
                self.num_batches_tracked += 1
            return F.batch_norm(
                widen(maps), self.running_mean, self.running_var, self.weight, self.bias, self.training,
                self.momentum or 0.0, self.eps,
            )  # fmt: skip
        rows: Tensor = super().forward(maps.permute(0, 2, 3, 1).flatten(0, 2))
        return rows.unflatten(0, (len(maps), *maps.shape[2:])).permute(0, 3, 1, 2)

    def _check_input_dim(self, input: Tensor) -> None:
        """Accept any shape; torch would accept rows alone."""


class PictureGenerator(nn.Module):
    """Pictures of a condition and noise: a linear layer to 4×4 maps, then enlargements with convolutions; tanh.

    Args:
        input_dim: size of condition and noise together.
        width: channels before the last layer, doubled for each enlargement before it (StackGAN: 96, 8 · GF_DIM / 16).
        size: height and width of a picture, 4 times a power of 2.

    Raises:
        ModelError: the size is another.
    """

    def __init__(self, input_dim: int, width: int, size: int) -> None:
        super().__init__()
        steps = _enlargements(size)
        channels = [width * 2**step for step in range(steps, -1, -1)]
        self.first = nn.Linear(input_dim, channels[0] * _START**2, bias=False)
        self.norm = GlobalBatchNorm(channels[0] * _START**2)
        self.maps = nn.Sequential()
        for inputs, outputs in pairwise(channels):
            self.maps.extend([PhaseConvolution(inputs, outputs), MapNorm(outputs), nn.ReLU()])
        self.last = nn.Conv2d(channels[-1], 3, 3, padding=1, bias=False)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return pictures (C, 3, size, size) in −1…1 of inputs (C, input_dim)."""
        maps = self.norm(self.first(inputs)).relu().unflatten(1, (-1, _START, _START))
        return torch.tanh(widen(self.last(self.maps(maps))))


class PictureDiscriminator(nn.Module):
    """Whether pictures are real and of a caption: convolutions to 4×4 maps, which are joined with the condition.

    Args:
        condition_dim: size of the condition.
        width: channels of the first maps, doubled with each halving of the size (StackGAN: 96, DF_DIM).
        size: height and width of a picture, 4 times a power of 2.
    """

    def __init__(self, condition_dim: int, width: int, size: int) -> None:
        super().__init__()
        self.maps = nn.Sequential(nn.Conv2d(3, width, 4, 2, 1, bias=False), nn.LeakyReLU(_SLOPE))
        channels = width
        for _ in range(_enlargements(size) - 1):
            convolution = nn.Conv2d(channels, 2 * channels, 4, 2, 1, bias=False)
            self.maps.extend([convolution, MapNorm(2 * channels), nn.LeakyReLU(_SLOPE)])
            channels *= 2
        joined = nn.Conv2d(channels + condition_dim, channels, 3, padding=1, bias=False)
        self.joined = nn.Sequential(joined, MapNorm(channels), nn.LeakyReLU(_SLOPE), nn.Conv2d(channels, 1, _START))

    def features(self, pictures: Tensor) -> Tensor:
        """Return maps (I, C, 4, 4) of pictures (I, 3, size, size) in −1…1."""
        maps: Tensor = self.maps(pictures)
        return maps

    def forward(self, features: Tensor, condition: Tensor) -> Tensor:
        """Return logits (C,) of `features` and conditions (C, condition_dim), pair by pair."""
        spread = condition[..., None, None].expand(-1, -1, _START, _START)
        return widen(self.joined(torch.cat([features, spread.to(features.dtype)], 1))).flatten()


class RegionGenerator(nn.Module):
    """The mean region of a condition and noise, for corpora without pictures: three linear layers.

    Args:
        input_dim: size of condition and noise together.
        width: size of the hidden layers.
        region_dim: D.
    """

    def __init__(self, input_dim: int, width: int, region_dim: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(input_dim, width, bias=False), GlobalBatchNorm(width), nn.ReLU(),
            nn.Linear(width, width, bias=False), GlobalBatchNorm(width), nn.ReLU(), nn.Linear(width, region_dim),
        )  # fmt: skip

    def forward(self, inputs: Tensor) -> Tensor:
        """Return mean regions (C, D) of inputs (C, input_dim)."""
        return widen(self.layers(inputs))


class RegionDiscriminator(nn.Module):
    """Whether mean regions are real and of a caption.

    Args:
        condition_dim: size of the condition.
        width: size of the hidden layers.
        region_dim: D.
    """

    def __init__(self, condition_dim: int, width: int, region_dim: int) -> None:
        super().__init__()
        self.of_regions = nn.Sequential(nn.Linear(region_dim, width), nn.LeakyReLU(_SLOPE))
        joined = nn.Linear(width + condition_dim, width, bias=False)
        self.joined = nn.Sequential(joined, GlobalBatchNorm(width), nn.LeakyReLU(_SLOPE), nn.Linear(width, 1))

    def features(self, regions: Tensor) -> Tensor:
        """Return hidden vectors (I, width) of mean regions (I, D)."""
        vectors: Tensor = self.of_regions(regions)
        return vectors

    def forward(self, features: Tensor, condition: Tensor) -> Tensor:
        """Return logits (C,) of `features` and conditions (C, condition_dim), pair by pair."""
        return widen(self.joined(torch.cat([features, condition.to(features.dtype)], 1))).flatten()


def discriminator_losses(
    right: Tensor, fake: Tensor, wrong: Tensor, fake_weight: float = 0.5, wrong_weight: float = 0.5
) -> Tensor:
    """Return −L_D of Eq. 11 for each caption (C,): the discriminator learns to maximise L_D.

    Args:
        right: logits (C,) of real images with their captions.
        fake: of generated images with their captions.
        wrong: of real images with captions of other images.
        fake_weight: β_f.
        wrong_weight: β_w.
    """
    return F.softplus(-right) + fake_weight * F.softplus(fake) + wrong_weight * F.softplus(wrong)


def generator_losses(fake: Tensor) -> Tensor:
    """Return −log D(fake) (C,) of logits: Eq. 12 in the form that does not saturate (Goodfellow et al. 2014)."""
    return F.softplus(-fake)


def _enlargements(size: int) -> int:
    """How often 4 is doubled to get a size; ModelError if it is never reached."""
    steps = round(math.log2(size / _START)) if size > 0 else 0
    if steps < 1 or _START * 2**steps != size:
        raise ModelError(f"picture_size is {size}; expected 8, 16, 32, 64 or another multiple of 4 by a power of 2")
    return steps
