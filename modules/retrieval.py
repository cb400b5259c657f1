"""Training, validating and testing a retrieval model."""

from dataclasses import dataclass
from typing import Any

import torch
from pytorch_lightning.utilities.types import OptimizerLRSchedulerConfig
from torch import Tensor
from torch.nn import functional as F

from modules.distributed import gather_rows, sum_over_ranks, touch
from modules.losses import hard_negative_loss, negative_mask
from modules.metrics import RetrievalRanks
from modules.retrieval_models import build_model
from modules.retrieval_models.base import Batch, Encoding
from modules.search import RetrievalMetric, Similarity, exact_ranks, ranks_by_index
from modules.training import TrainedModule


@dataclass(frozen=True)
class Pairs:
    """A batch's encodings on all devices together, and what belongs together in it.

    Attributes:
        images: encodings of I images, each once.
        captions: encodings of C captions.
        positives: (I, C) bool, which caption belongs to which image.
        negatives: (I, C) bool, which may be pushed apart.
        types: (C,) language type of each caption.
    """

    images: Encoding
    captions: Encoding
    positives: Tensor
    negatives: Tensor
    types: Tensor


class Retrieval(TrainedModule):
    """Training by the multilingual hard-negative loss (mmt-retrieval, Eq. 9-10), best by validation rsum.

    A model that needs another update subclasses this, names the subclass as its `module`, and overrides
    `training_step` (and `configure_optimizers`) alone; `encode`, `gather` and `ranking_loss` are what it is made of.

    Args:
        model: the model's registered name.
        arguments: of the model, plain values.
        margin: α.
        type_weights: β of each language type by its place; None: equal.
        warmup_epochs: epochs with the mean of hinges before hardest negatives.
        learning_rate: Adam's.
        decay_epoch: after this epoch the rate is multiplied by `decay`.
        decay: see there.
        test_languages: languages validated and tested.
        select: languages whose rsum, summed, is logged as `val/rsum`.
    """

    def __init__(
        self, model: str, arguments: dict[str, Any], margin: float, type_weights: list[float] | None,
        warmup_epochs: int, learning_rate: float, decay_epoch: int, decay: float,
        test_languages: list[str], select: list[str],
    ) -> None:  # fmt: skip
        super().__init__()
        self.save_hyperparameters()
        self.model = build_model(model, **arguments)
        self.test_languages = test_languages
        self.metrics = {language: RetrievalMetric(self._similarity, self._rank) for language in test_languages}
        self.ranks: dict[str, RetrievalRanks] = {}

    def encode(self, batch: Batch) -> tuple[Encoding, Encoding]:
        """Images and captions of this device's part of a batch."""
        images = self.model.encode_images(batch["regions"].float(), batch["region_mask"])
        captions = self.model.encode_captions(batch["tokens"], batch["lengths"], batch["language"])
        return images, captions

    def gather(self, batch: Batch, images: Encoding, captions: Encoding) -> Pairs:
        """Join the parts of all devices, with gradients; an image that stands on several devices is kept once."""
        world = self.trainer.world_size
        keys, first = _first_rows(gather_rows(batch["image_key"], world))
        belongs = gather_rows(batch["image_key"][batch["image_index"]], world)
        sentences, types = (gather_rows(batch[name], world) for name in ("sentence", "type"))
        vectors, mask = _gather_encoding(images, world)
        positives, negatives = negative_mask(keys, torch.searchsorted(keys, belongs), sentences)
        return Pairs((vectors[first], mask[first]), _gather_encoding(captions, world), positives, negatives, types)

    def ranking_loss(self, pairs: Pairs) -> Tensor:
        """Eq. 9, or its warm-up in the first epochs."""
        weights = self.hparams["type_weights"]
        scores = self.model.similarity(pairs.images, pairs.captions)
        return hard_negative_loss(
            scores, pairs.positives, pairs.negatives, pairs.types, self.hparams["margin"],
            None if weights is None else torch.tensor(weights, device=scores.device),
            hardest=self.current_epoch >= self.hparams["warmup_epochs"],
        )  # fmt: skip

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        """The ranking loss and the model's auxiliary losses, by name."""
        images, captions = self.encode(batch)
        ranking = self.ranking_loss(self.gather(batch, images, captions))
        return {"ranking": ranking} | self.model.auxiliary_losses(batch, images, captions)

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor | None:
        """The sum of all losses."""
        losses = self.losses(batch)
        total = torch.stack(list(losses.values())).sum()
        if self.trainer.world_size > 1:
            total = total + touch(self.parameters())
        self.log_losses(total, losses, batch)
        return total

    def log_losses(self, total: Tensor, losses: dict[str, Tensor], batch: Batch) -> None:
        """Log the losses, and how many captions they are of on all devices together."""
        self.log("train/loss", total.detach(), prog_bar=True, batch_size=1)
        if len(losses) > 1:
            self.log_dict({f"train/{name}": loss.detach() for name, loss in losses.items()}, batch_size=1)
        self.log("train/captions", float(len(batch["type"])), reduce_fx="sum", sync_dist=True, batch_size=1)

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        """Take in encodings of images and human captions."""
        images, captions = self.encode(batch)
        keys = batch["image_key"]
        for language, metric in self.metrics.items():
            mine = batch["language"] == self.model.languages.index(language)  # none: its images are ranked all the same
            belongs = keys[batch["image_index"][mine]]
            metric.update(images, keys, (captions[0][mine], captions[1][mine]), batch["caption_key"][mine], belongs)

    def on_validation_epoch_end(self) -> None:
        """Log R@K of each language and direction, and the sum that selects the epoch."""
        scores = self._rank_all("val")
        self.log("val/rsum", sum(scores[language]["rsum"] for language in self.hparams["select"]), prog_bar=True)

    def test_step(self, batch: Batch, batch_idx: int) -> None:
        """Take in encodings, as in validation."""
        self.validation_step(batch, batch_idx)

    def on_test_epoch_end(self) -> None:
        """Log R@K and keep the ranks in `ranks`, by language."""
        tested = self._rank_all("test")
        self.ranks = {language: ranks for language in tested if (ranks := self.metrics[language].ranks) is not None}

    def configure_optimizers(self) -> OptimizerLRSchedulerConfig:
        """Adam, its rate lowered once."""
        optimizer = torch.optim.Adam(self.parameters(), lr=self.hparams["learning_rate"], fused=True)
        schedule = torch.optim.lr_scheduler.MultiStepLR(
            optimizer, [self.hparams["decay_epoch"]], gamma=self.hparams["decay"]
        )
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule}}

    def _rank_all(self, stage: str) -> dict[str, dict[str, float]]:
        found = {}
        for language, metric in self.metrics.items():
            captions = torch.tensor(sum(len(ids) for ids in metric.caption_image_ids), device=self.device)
            if sum_over_ranks(captions, self.trainer.world_size):  # none: a language that is tested but not validated
                found[language] = metric.compute()
                self.log_dict({f"{stage}/{language}/{name}": value for name, value in found[language].items()})
            metric.reset()
        return found

    def _similarity(self, images: Encoding, captions: Encoding) -> Tensor:
        return self.model.similarity(images, captions)

    def _rank(self, similarity: Similarity, images: Encoding, captions: Encoding, links: Tensor) -> RetrievalRanks:
        """FAISS for inner products of single vectors, exact blocks for everything else."""
        if self.model.score == "inner product":
            return ranks_by_index(images[0][:, 0].float(), captions[0][:, 0].float(), links)
        return exact_ranks(similarity, images, captions, links)


def _gather_encoding(encoding: Encoding, world_size: int) -> Encoding:
    """Encodings of all devices as one; shorter ones are padded to the longest on any device."""
    vectors, mask = encoding
    if world_size == 1:
        return encoding
    longest = torch.tensor([vectors.shape[1]], device=vectors.device)
    width = int(gather_rows(longest, world_size).max())
    vectors = F.pad(vectors, (0, 0, 0, width - vectors.shape[1]))
    mask = F.pad(mask, (0, width - mask.shape[1]))
    return gather_rows(vectors, world_size), gather_rows(mask.to(torch.uint8), world_size).bool()


def _first_rows(keys: Tensor) -> tuple[Tensor, Tensor]:
    """The distinct keys in ascending order, and the first row of each."""
    distinct, inverse = keys.unique(return_inverse=True)
    rows = torch.arange(len(keys), device=keys.device)
    return distinct, torch.full_like(distinct, len(keys)).scatter_reduce(0, inverse, rows, "amin")
