"""GXN: look, imagine and match (Gu et al. 2018)."""

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from modules.draws import draws
from modules.errors import ModelError, require_weights
from modules.layers.caption_decoder import CaptionDecoder
from modules.layers.encoders import LastState, masked_mean
from modules.layers.gru import both_ways
from modules.layers.image_generator import (
    CONDITION,
    NOISE,
    ConditioningAugmentation,
    PictureDiscriminator,
    PictureGenerator,
    RegionDiscriminator,
    RegionGenerator,
    Target,
)
from modules.layers.recurrent import widen
from modules.layers.static import beside
from modules.pretrained.pretrained_text import read_words
from modules.retrieval_models.base import GREEDY, Encoding, RetrievalModel, one_vector, register
from modules.retrieval_models.by_order import ByOrder
from modules.translators.beam import BeamSettings

Branch = Literal["abstract", "grounded"]
Generation = Literal["i2t", "t2i"]
Baseline = Literal["greedy", "others"]


@register("gxn")
class Gxn(ByOrder, RetrievalModel):
    """Two branches, abstract and grounded, whose order scores are averaged; grounded vectors also generate.

    Each branch has a text encoder, a bidirectional GRU (abstract) or a GRU (grounded), and linear maps of its last
    states and of the mean region to the joint space. Vectors are absolute values of unit vectors. The score of Eq. 3,
    λ s(t_h, v_h) + (1 − λ) s(t_l, v_l), is one order score of the vectors [√λ · h, √(1 − λ) · l].

    With the path `i2t` a decoder writes the captions of v_l, with `t2i` a generator draws the image of t_l.

    Args:
        branches: `abstract`, `grounded` or both.
        mixing: λ.
        generate: paths, `i2t`, `t2i` or both; each needs the grounded branch.
        state_dim: size of the GRUs' states, the decoder's too; None: H.
        generation_rate: learning rate of the losses that generate, as a share of that of the ranking loss, of the parts
            that both train; 0: they train only decoder, generator and discriminator.
        reinforce_epoch: epoch from which captions are also learned by reward (Eq. 7); None: never (`xe`).
        gamma: γ of the first and of the last epoch with rewards.
        baseline: r_b of a reward: that of the `greedy` caption, or the mean of the `others` that are sampled.
        samples: captions sampled of each vector; `others` needs at least 2.
        scheduled_sampling: share of words that the decoder draws itself in the last epoch, from 0 in the first one.
        longest: words of a written caption, at most.
        shuffled: the decoder learns captions of other images: a control, which has no grounding.
        target: what `t2i` generates: `pixels`, or mean `regions` for a corpus without pictures.
        picture_size: height and width of pictures.
        picture_width: channels of the generator's last maps (StackGAN: 96) and of the discriminator's first ones (96).
        picture_epochs: epochs of pre-training in which only `t2i` learns.
        picture_rate: learning rate of generator and discriminator, as a share of that of the ranking loss.
        fake_weight: β_f.
        wrong_weight: β_w.
        smoothing: β_s.
        common: see `RetrievalModel`; dropout is also of the decoder's states.

    Raises:
        ModelError: an option has another value, or options do not fit.
    """

    loss = "sum"

    def __init__(
        self, branches: Sequence[Branch] = ("abstract", "grounded"), mixing: float = 0.5,
        generate: Sequence[Generation] = (), generation_rate: float = 1.0, state_dim: int | None = None,
        reinforce_epoch: int | None = None, gamma: Sequence[float] = (0.05, 0.95),
        baseline: Baseline = "greedy", samples: int = 1, scheduled_sampling: float = 0.25,
        longest: int = 30, shuffled: bool = False,
        target: Target = "pixels", picture_size: int = 64, picture_width: int = 32, picture_epochs: int = 0,
        picture_rate: float = 1.0, fake_weight: float = 0.5, wrong_weight: float = 0.5, smoothing: float = 2.0,
        **common: Any,
    ) -> None:  # fmt: skip
        super().__init__(**common)
        require_weights(
            fake_weight=fake_weight, wrong_weight=wrong_weight, smoothing=smoothing, generation_rate=generation_rate
        )
        _require_options(branches, mixing, generate, baseline, samples, target)
        _require_numbers(
            longest, gamma, scheduled_sampling, picture_epochs, picture_width, picture_rate, reinforce_epoch
        )
        self.branches, self.generate = tuple(branches), tuple(generate)
        self.writes = self.writes_with(generate=generate)
        self.draws = self.draws_with(generate=generate, target=target)
        self.weights: dict[str, float] = (
            {"abstract": mixing, "grounded": 1 - mixing} if len(self.branches) == 2 else {branches[0]: 1.0}
        )
        self.reinforce_epoch, self.gamma, self.baseline, self.samples = reinforce_epoch, gamma, baseline, samples
        self.scheduled_sampling, self.longest, self.target, self.picture_size = (
            scheduled_sampling, longest, target, picture_size,
        )  # fmt: skip
        self.shuffled, self.generation_rate, self.picture_rate = shuffled, generation_rate, picture_rate
        self.fake_weight, self.wrong_weight, self.smoothing = fake_weight, wrong_weight, smoothing
        self.pretrain_epochs = picture_epochs if "t2i" in self.generate else 0
        state_dim = state_dim or self.dim
        self.words = self.make_words()
        word_dim = self.words.embedding_dim
        self.images = nn.ModuleDict({name: nn.Linear(self.region_dim, self.dim) for name in self.branches})
        self.states, self.captions = nn.ModuleDict(), nn.ModuleDict()
        if "abstract" in self.branches:
            self.states["abstract"] = _BothWays(word_dim, state_dim)
            self.captions["abstract"] = nn.Linear(2 * state_dim, self.dim)
        if "grounded" in self.branches:
            self.states["grounded"] = LastState(nn.Identity(), word_dim, state_dim, 0.0)
            self.captions["grounded"] = nn.Linear(state_dim, self.dim)
        if self.writes:
            if not isinstance(self.words, nn.Embedding):
                raise ModelError("generate i2t: a decoder needs word vectors; leave vse.pretrained out")
            sizes = (self.vocabulary_size, word_dim, len(self.languages), self.dim, state_dim)
            self.decoder = CaptionDecoder(*sizes, self.dropout)
        if "t2i" in self.generate:
            self._add_generator(picture_width)

    def _add_generator(self, width: int) -> None:
        """Make the networks of the path from text to images."""
        self.condition = ConditioningAugmentation(self.dim, CONDITION)
        inputs = CONDITION + NOISE
        if self.target == "pixels":
            self.generator: nn.Module = PictureGenerator(inputs, width, self.picture_size)
            self.discriminator: nn.Module = PictureDiscriminator(CONDITION, width, self.picture_size)
        else:
            self.generator = RegionGenerator(inputs, 8 * width, self.region_dim)
            self.discriminator = RegionDiscriminator(CONDITION, 8 * width, self.region_dim)

    @classmethod
    def module(cls) -> type:
        """Return `GxnTraining`."""
        from modules.training.gxn import GxnTraining

        return GxnTraining

    @classmethod
    def pixels_with(cls, **options: Any) -> int | None:
        """Return the size of the pictures that a model with these options learns from; None: it needs none."""
        return int(options.get("picture_size", 64)) if cls.draws_with(**options) else None

    @classmethod
    def writes_with(cls, **options: Any) -> bool:
        """Return whether a model with these options has a decoder."""
        return "i2t" in options.get("generate", ())

    @classmethod
    def draws_with(cls, **options: Any) -> bool:
        """Return whether a model with these options has a generator of pictures."""
        return "t2i" in options.get("generate", ()) and options.get("target", "pixels") == "pixels"

    @classmethod
    def branches_with(cls, **options: Any) -> tuple[str, ...]:
        """Return its branches."""
        return tuple(options.get("branches", ("abstract", "grounded")))

    def encode_images(self, regions: Tensor, mask: Tensor) -> Encoding:
        """Encode images as single vectors of both branches."""
        mean = masked_mean(regions, mask)
        return one_vector(self._joined({name: self._image(mean, name) for name in self.branches}))

    def encode_captions(self, tokens: Tensor, lengths: Tensor, languages: Tensor) -> Encoding:
        """Encode captions as single vectors of both branches."""
        words, lengths = self._read(tokens, lengths)
        return one_vector(self._joined({name: self._caption(words, lengths, name) for name in self.branches}))

    def of_branch(self, encoding: Encoding, branch: str) -> Encoding:
        """Return the vectors of one branch, weighted as in the joined ones: their scores add up to the whole score."""
        if branch not in self.branches:
            return super().of_branch(encoding, branch)
        place = self.dim * self.branches.index(branch)
        return encoding[0][..., place : place + self.dim], encoding[1]

    def grounded_images(self, regions: Tensor, mask: Tensor) -> Tensor:
        """Return v_l (I, H) of images, non-negative unit vectors."""
        return self._image(masked_mean(regions, mask), "grounded")

    def grounded_captions(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """Return t_l (C, H) of captions, non-negative unit vectors."""
        return self._caption(*self._read(tokens, lengths), "grounded")

    def write_captions(
        self, regions: Tensor, mask: Tensor, languages: Tensor, settings: BeamSettings = GREEDY
    ) -> list[list[int]]:
        """Return a caption of each image, of at most `longest` words."""
        if not self.writes:
            return super().write_captions(regions, mask, languages, settings)
        with torch.no_grad():
            vectors = self.scaled(self.grounded_images(regions, mask))
        return self.decoder.search(self.words, vectors, languages, settings, self.longest)

    def caption_likelihoods(
        self, regions: Tensor, mask: Tensor, image_index: Tensor, tokens: Tensor, lengths: Tensor, languages: Tensor
    ) -> Tensor:
        """Return log p(caption | image) by the decoder."""
        if not self.writes:
            return super().caption_likelihoods(regions, mask, image_index, tokens, lengths, languages)
        vectors = self.scaled(self.grounded_images(regions, mask))[image_index]
        return -self.decoder.surprise(self.words, vectors, tokens, lengths, languages)

    def draw_images(self, tokens: Tensor, lengths: Tensor, languages: Tensor, seed: int) -> Tensor:
        """Return pictures of captions."""
        if not self.draws:
            return super().draw_images(tokens, lengths, languages, seed)
        rows = torch.arange(len(tokens))
        sizes = (CONDITION, NOISE)
        noise = [draws(rows, (seed,), n, "normal", purpose).to(tokens.device) for purpose, n in enumerate(sizes)]
        with torch.no_grad():
            pictures: Tensor = self.imagine(self.grounded_captions(tokens, lengths), noise[0], noise[1])[0]
        return pictures

    def scaled(self, vectors: Tensor) -> Tensor:
        """Return unit vectors (N, H) times √H, so that their numbers are about 1: the input of what generates."""
        return vectors * self.dim**0.5

    def imagine(self, captions: Tensor, condition_noise: Tensor, noise: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Generate the images of captions.

        Args:
            captions: t_l (C, H).
            condition_noise: (C, 128) standard normal, from which t_c = μ + σ · noise is made.
            noise: z (C, 100).

        Returns:
            pictures (C, 3, S, S) in −1…1 or mean regions (C, D); μ and log σ, each (C, 128).
        """
        mean, log_deviation = self.condition(self.scaled(captions))
        condition = mean + log_deviation.exp() * condition_noise
        return self.generator(torch.cat([condition, noise], 1)), mean, log_deviation

    def _read(self, tokens: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        words, lengths = read_words(self.words, tokens, lengths)
        return F.dropout(words, self.dropout, self.training), lengths

    def _image(self, mean: Tensor, branch: str) -> Tensor:
        vectors = F.dropout(self.images[branch](mean), self.dropout, self.training)
        return F.normalize(widen(vectors), dim=-1).abs()

    def _caption(self, words: Tensor, lengths: Tensor, branch: str) -> Tensor:
        return F.normalize(widen(self.captions[branch](self.states[branch](words, lengths))), dim=-1).abs()

    def _joined(self, vectors: dict[str, Tensor]) -> Tensor:
        return torch.cat([self.weights[name] ** 0.5 * vector for name, vector in vectors.items()], -1)


class _BothWays(nn.Module):
    """The last states of a bidirectional GRU over word vectors, both directions."""

    def __init__(self, word_dim: int, dim: int) -> None:
        super().__init__()
        self.gru = nn.GRU(word_dim, dim, batch_first=True, bidirectional=True)

    def forward(self, words: Tensor, lengths: Tensor) -> Tensor:
        """Return (B, 2H) of word vectors (B, L, E) and lengths (B,)."""
        onward, back = both_ways(self.gru, words, lengths)
        last = beside(lengths, words) - 1
        return torch.cat([onward[torch.arange(len(words), device=words.device), last], back[:, 0]], -1)


def _require_options(
    branches: Sequence[str], mixing: float, generate: Sequence[str], baseline: str, samples: int, target: str
) -> None:
    """Refuse values that are unknown or do not fit."""
    if not branches or set(branches) - {"abstract", "grounded"} or len(set(branches)) < len(branches):
        raise ModelError(f"branches {list(branches)}: expected abstract, grounded or both")
    if not 0 < mixing < 1:
        raise ModelError(f"mixing is {mixing}; expected more than 0 and less than 1; name one branch to use it alone")
    if isinstance(generate, str) or set(generate) - {"i2t", "t2i"}:
        raise ModelError(f"generate {generate!r}: expected a list of i2t (image to text), t2i (text to image) or both")
    if generate and "grounded" not in branches:
        raise ModelError(f"generate {list(generate)}: what generates is the grounded branch; add it to branches")
    if target not in ("pixels", "regions"):
        raise ModelError(f"target {target!r}: expected pixels or regions")
    if baseline not in ("greedy", "others") or samples < (2 if baseline == "others" else 1):
        raise ModelError(
            f"baseline {baseline!r} with {samples} samples: expected greedy with 1 or more, or others with 2 or more"
        )


def _require_numbers(
    longest: int, gamma: Sequence[float], scheduled_sampling: float, picture_epochs: int, picture_width: int,
    picture_rate: float, reinforce_epoch: int | None,
) -> None:  # fmt: skip
    """Refuse numbers out of range."""
    if longest < 1 or picture_width < 1:
        raise ModelError(f"longest is {longest}, picture_width {picture_width}; expected 1 or more of each")
    if len(gamma) != 2 or not all(0 <= share <= 1 for share in gamma):
        raise ModelError(f"gamma is {list(gamma)}; expected two shares from 0 to 1, of the first and of the last epoch")
    if not 0 < picture_rate < float("inf"):
        raise ModelError(f"picture_rate is {picture_rate}; expected more than 0")
    if not 0 <= scheduled_sampling <= 1:
        raise ModelError(f"scheduled_sampling is {scheduled_sampling}; expected a share from 0 to 1")
    if picture_epochs < 0 or (reinforce_epoch or 0) < 0:
        raise ModelError(
            f"picture_epochs is {picture_epochs}, reinforce_epoch {reinforce_epoch}; expected 0 or more of each"
        )
