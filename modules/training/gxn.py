"""Training of GXN (Gu et al. 2018, Algorithm 1): each loss is an update of its own, with an optimizer of its own."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import Parameter

from modules.distributed import gather_rows, sum_over_ranks
from modules.draws import draws
from modules.layers.caption_decoder import END, UNKNOWN
from modules.layers.encoders import masked_mean
from modules.layers.image_generator import (
    CONDITION,
    NOISE,
    discriminator_losses,
    divergence_from_normal,
    generator_losses,
)
from modules.losses.self_critical import advantages, mixed_losses, policy_losses, share_of_rewards
from modules.metrics.cider import CiderD
from modules.retrieval_models.base import Batch
from modules.training.base import batches_of
from modules.training.retrieval import Retrieval

Imagined = tuple[Tensor, Tensor, Tensor]
"""Images, μ and log σ of captions, as `Gxn.imagine` returns them."""
_WORDS, _SAMPLES, _CONDITION, _NOISE = range(4)  # purposes of random numbers
_NO_WORD = -1
_ADVERSARIAL = (0.5, 0.999)  # Adam's betas for a GAN, as in StackGAN
_LEARNS = {
    "ranking": ("words", "image_encoder", "images", "states", "captions"),
    "captioning": ("words", "image_encoder", "images.grounded", "decoder"),
    "discriminator": ("discriminator",),
    "generator": ("words", "states.grounded", "captions.grounded", "condition", "generator"),
}


class WithReferences(Protocol):
    """A DataModule that knows the training captions of each image."""

    def references(self) -> Mapping[tuple[int, int], Sequence[Sequence[int]]]:
        """Return `image_key` and language → captions as token numbers."""


class GxnTraining(Retrieval):
    """Algorithm 1: updates by the captions of images and by ranking, then by discriminator, generator and ranking.

    Without a path that generates, it is the plain training. Each loss has its own Adam, whose moments are of that loss
    alone; a parameter that a loss does not reach is left as it is. Captions, and pictures, are of each caption of this
    device; losses are averaged over the captions of all devices.
    """

    model: Any  # a `Gxn`, whose file imports this one

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.automatic_optimization = not self.model.generate
        self._rewards: dict[int, CiderD] = {}
        self._rows: dict[tuple[int, int], int] = {}

    @property
    def has_graphs(self) -> bool:
        """Of the plain training."""
        return self._has_graphs

    def on_fit_start(self) -> None:
        """Prepare the reward: CIDEr-D against the training captions of each image."""
        if self.model.reinforce_epoch is None or "i2t" not in self.model.generate:
            return
        data: WithReferences = self.trainer.datamodule  # type: ignore[attr-defined]
        references = data.references()
        for language in {language for _, language in references}:  # words are common or rare in one language
            own = {image: captions for (image, of), captions in references.items() if of == language}
            self._rows |= {(image, language): row for row, image in enumerate(own)}
            self._rewards[language] = CiderD(list(own.values()), end=END)

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor | None:
        """Update by each loss in turn."""
        if self.automatic_optimization:
            return super().training_step(batch, batch_idx)
        self._draws = 0
        all_losses: dict[str, Tensor] = {}
        for name, losses in self._updates(batch):
            self._update(name, losses)
            if self._watched is not None:  # a ranking loss was among them
                self.collapse.add(self._watched)
                self._watched = None
            all_losses |= {loss: value.detach() for loss, value in losses.items()}
        if self.trainer.is_last_batch and self.main_epoch >= 0:
            for schedule in self.lr_schedulers():  # type: ignore[union-attr]
                schedule.step()
        total = torch.stack(list(all_losses.values())).sum()
        self.log_losses(total, all_losses, batch)
        return total

    def _updates(self, batch: Batch) -> Iterator[tuple[str, dict[str, Tensor]]]:
        """The optimizer and the losses of each update, computed when it is their turn."""
        if "i2t" in self.model.generate and self.main_epoch >= 0:
            yield "captioning", self._captioning_losses(batch)
            yield "ranking", self.losses(batch)
        if "t2i" in self.model.generate:
            imagined = self._imagined(batch)
            yield "discriminator", self._discriminator_loss(batch, imagined)
            yield "generator", self._generator_losses(imagined)
            if self.main_epoch >= 0:
                yield "ranking", self.losses(batch)

    def _update(self, name: str, losses: Mapping[str, Tensor]) -> None:
        """Take a step of one optimizer, of its own parameters alone."""
        optimizer = self._optimizers()[name]
        total = self.with_all_parameters(torch.stack(list(losses.values())).sum())
        self.zero_grad(set_to_none=True)
        with torch.autocast(self.device.type, enabled=False):  # else what forward protects is rounded on the way back
            self.manual_backward(total)
        own = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        if self.clip:
            torch.nn.utils.clip_grad_norm_(own, self.clip)
        optimizer.step()

    def _optimizers(self) -> dict[str, Any]:
        return dict(zip(self._names(), self.optimizers(), strict=True))

    def _names(self) -> list[str]:
        """The losses that have an optimizer."""
        names = ["ranking"]
        names += ["captioning"] if "i2t" in self.model.generate else []
        return names + (["discriminator", "generator"] if "t2i" in self.model.generate else [])

    def _captioning_losses(self, batch: Batch) -> dict[str, Tensor]:
        """The loss of the decoder (Eq. 4, and Eq. 7 from `reinforce_epoch` on), over all captions of the batch."""
        model, words = self.model, self.model.words
        regions, mask = self.seen(batch)
        mask, _, _ = self.augmented(batch, mask)
        images = model.grounded_images(regions, mask)
        vectors = model.scaled(images)[batch["image_index"]]
        if model.shuffled:
            vectors = vectors.roll(len(vectors) // 2, 0)
        tokens, lengths, languages = batch["tokens"], batch["lengths"], batch["language"]
        share = model.scheduled_sampling * self.main_epoch / max(1, self._epochs - 1)
        fed = None
        if share:
            numbers = draws(batch["caption_key"], self._seed, 2 * tokens.shape[1], "uniform", _WORDS)
            fed = model.decoder.mixed_words(words, vectors, tokens, languages, share, numbers)
        losses = model.decoder.surprise(words, vectors, tokens, lengths, languages, fed)
        model.figures["cross_entropy"] = self._mean(losses.detach() / (lengths.to(losses) + 1))
        start = model.reinforce_epoch
        if start is not None and self.main_epoch >= start:
            gamma = share_of_rewards(model.gamma, self.main_epoch - start, self._epochs - start)
            losses = mixed_losses(losses, self._policy_losses(batch, vectors), gamma)
        return {"captioning": self._mean(losses)}

    def _policy_losses(self, batch: Batch, vectors: Tensor) -> Tensor:
        """The loss of sampled captions (Eq. 6), its mean over the samples of each caption (C,)."""
        model, count, longest = self.model, self.model.samples, self.model.longest
        greedy = model.baseline == "greedy"
        keys, languages = batch["caption_key"], batch["language"]
        numbers = draws(keys, self._seed, count * longest, "uniform", _SAMPLES).unflatten(1, (count, longest))
        if greedy:
            numbers = torch.cat([numbers, torch.full_like(numbers[:, :1], -1.0)], 1)
        several = numbers.shape[1]
        tokens, lengths = model.decoder.write(
            model.words, vectors.repeat_interleave(several, 0), languages.repeat_interleave(several),
            numbers.flatten(0, 1),
        )  # fmt: skip
        rewards = self._reward(batch, tokens, lengths).unflatten(0, (-1, several))
        chosen = torch.arange(len(tokens)).unflatten(0, (-1, several))[:, :count].flatten()
        advantage = advantages(rewards[:, :count], rewards[:, count] if greedy else None)
        model.figures["reward"] = self._mean(rewards[:, :count].mean(1))
        surprise = model.decoder.surprise(
            model.words, vectors.repeat_interleave(count, 0), tokens[chosen], lengths[chosen],
            languages.repeat_interleave(count), ended=lengths[chosen] < longest, drop=False,
        )  # fmt: skip
        return policy_losses(surprise, advantage.flatten()).unflatten(0, (-1, count)).mean(1)

    def _reward(self, batch: Batch, tokens: Tensor, lengths: Tensor) -> Tensor:
        """CIDEr-D (N,) of captions, N / C for each of the batch, against the image's captions in its language.

        A word that the vocabulary lacks is like no word of a reference.
        """
        several = len(tokens) // len(batch["language"])
        languages = batch["language"].repeat_interleave(several)
        images = batch["image_key"][batch["image_index"]].repeat_interleave(several).tolist()
        known = tokens.masked_fill(tokens == UNKNOWN, _NO_WORD).tolist()
        written = [row[:length] for row, length in zip(known, lengths.tolist(), strict=True)]
        ended = [length < self.model.longest for length in lengths.tolist()]
        reward = torch.zeros(len(tokens))
        for language, rewards in self._rewards.items():
            own = (languages == language).nonzero()[:, 0].tolist()
            scores = rewards.score(
                [written[number] for number in own], [self._rows[images[number], language] for number in own],
                ended=[ended[number] for number in own],
            )  # fmt: skip
            reward[own] = torch.as_tensor(scores, dtype=reward.dtype)
        return reward.to(tokens.device)

    def _imagined(self, batch: Batch) -> Imagined:
        """The images of the batch's captions, once for both losses of a step, with the gradient of the generator."""
        captions = self.model.grounded_captions(batch["tokens"], batch["lengths"])
        condition_noise, noise = (
            draws(batch["caption_key"], self._seed, count, "normal", purpose)
            for count, purpose in ((CONDITION, _CONDITION), (NOISE, _NOISE))
        )
        imagined: Imagined = self.model.imagine(captions, condition_noise, noise)
        return imagined

    def _discriminator_loss(self, batch: Batch, imagined: Imagined) -> dict[str, Tensor]:
        """The loss of the discriminator (Eq. 11); nothing but the discriminator gets a gradient of it."""
        model, (fake, mean, _) = self.model, (part.detach() for part in imagined)
        wrong, has_wrong = self._captions_of_others(batch, mean)
        real = self._real(batch)
        features, own = model.discriminator.features(real), batch["image_index"]
        judge = model.discriminator
        losses = discriminator_losses(
            judge(features[own], mean), judge(judge.features(fake), mean), judge(features[own], wrong),
            model.fake_weight, model.wrong_weight * has_wrong,
        )  # fmt: skip
        return {"discriminator": self._mean(losses)}

    def _generator_losses(self, imagined: Imagined) -> dict[str, Tensor]:
        """The losses of the generator (Eq. 12), which reach t_l."""
        model, (fake, mean, log_deviation) = self.model, imagined
        judge = model.discriminator
        judge.requires_grad_(False)  # its own gradient is not needed, and is half of the work
        adversarial = generator_losses(judge(judge.features(fake), mean.detach()))
        judge.requires_grad_(True)
        smoothness = model.smoothing * divergence_from_normal(mean, log_deviation)
        return {"generator": self._mean(adversarial), "smoothness": self._mean(smoothness)}

    def _real(self, batch: Batch) -> Tensor:
        """What the generator imitates: pictures in −1…1, or mean regions."""
        if self.model.target == "regions":
            with torch.no_grad():
                return masked_mean(*self.seen(batch))
        return batch["pixels"].to(self.dtype) / 127.5 - 1

    def _captions_of_others(self, batch: Batch, conditions: Tensor) -> tuple[Tensor, Tensor]:
        """For each caption the condition of the next one, in the order of sentences, that is not of its image.

        And whether there is one (C,): where all captions of the batch are of one image, there is none.
        """
        empty = (conditions[:, None], torch.ones_like(conditions[:, :1]).bool())
        no_images = torch.zeros(len(batch["image_key"]), 1, 1, device=conditions.device)
        pairs = self.gather(batch, (no_images, no_images[..., 0] == 0), empty)
        order = pairs.sentences.argsort(stable=True)
        keys = gather_rows(batch["image_key"], self.trainer.world_size).unique()
        row = torch.searchsorted(keys, batch["image_key"][batch["image_index"]])
        negatives = pairs.negatives[row][:, order]  # (C, all captions)
        place = torch.searchsorted(pairs.sentences[order], batch["sentence"])
        turn = (place[:, None] + torch.arange(len(order), device=order.device)) % len(order)
        first = negatives.gather(1, turn).long().argmax(1)  # 0, the caption itself, where there is none
        chosen = order[turn.gather(1, first[:, None])[:, 0]]
        return pairs.captions[0][chosen, 0], negatives.any(1)

    def _mean(self, losses: Tensor) -> Tensor:
        """The mean over the captions of all devices; DDP's average of its gradients is the gradient of the mean."""
        world = self.trainer.world_size
        total, count = sum_over_ranks(torch.stack([losses.detach().sum(), losses.new_tensor(len(losses))]), world)
        own = losses.sum() * world / count
        return own + (total / count - own).detach()

    @property
    def _seed(self) -> tuple[int, int]:
        """What random numbers are drawn by beside the caption: the seed of this epoch, and the number of the batch."""
        return torch.initial_seed() - self.trainer.global_rank, batches_of(self.trainer)

    @property
    def _epochs(self) -> int:
        """The number of epochs after pre-training."""
        return (self.trainer.max_epochs or 1) - self.model.pretrain_epochs

    def configure_optimizers(self) -> Any:
        """Return an Adam for each loss, over what learns from it, each with one decay of the learning rate.

        Adam does not see how large a loss is. So what weighs a loss that generates against the ranking loss is not a
        factor but `generation_rate`, of what both train. `picture_rate` is of what `t2i` alone trains.
        """
        if self.automatic_optimization:
            return super().configure_optimizers()
        drawing = [*self._trained("discriminator"), *self._trained("generator")]
        slower = dict.fromkeys(drawing, self.model.picture_rate)
        slower |= dict.fromkeys(self._trained("ranking"), self.model.generation_rate)
        optimizers = []
        for name in self._names():
            betas = _ADVERSARIAL if name in ("discriminator", "generator") else (0.9, 0.999)
            optimizers.append(self.adam(self._trained(name), betas, {} if name == "ranking" else slower))
        return optimizers, [self.schedule(optimizer, 0) for optimizer in optimizers]

    def _trained(self, name: str) -> list[Parameter]:
        """The parameters that learn from a loss."""
        prefixes = tuple(f"model.{part}." for part in _LEARNS[name])
        prefixes += ("loss.", "caption_loss.") if name == "ranking" else ()
        return [parameter for place, parameter in self.named_parameters() if place.startswith(prefixes)]
