"""Validation and test of retrieval models."""

from collections.abc import Sequence

import torch
from torch import Tensor

from modules.distributed import gather_objects, sum_over_ranks
from modules.errors import ModelError
from modules.layers.recurrent import widen
from modules.losses.pairs import Pairs
from modules.metrics.retrieval import RetrievalRanks, retrieval_scores
from modules.retrieval_models.base import Batch, RetrievalModel
from modules.search.encoded_test import EncodedTest, GatheredTest
from modules.search.encodings import Encoding
from modules.training.base import TrainedModule
from modules.training.encoding_checks import check_model


class RankedModule(TrainedModule):
    """A retrieval model whose validation and test rank images and captions.

    Args:
        model: the model.
        test_languages: languages of validation and test.
        select: languages whose sum of rsum is logged as `val/rsum`.

    Attributes:
        ranks: ranks of the last validation or test, by language, with images and captions in ascending order of keys.
        latest: the losses of the last training step by name.
    """

    def __init__(self, model: RetrievalModel, test_languages: Sequence[str], select: Sequence[str] = ()) -> None:
        super().__init__()
        self.model, self.test_languages, self._select = model, test_languages, select
        self.metrics = {language: GatheredTest(self._similarity, model.score) for language in test_languages}
        self.ranks: dict[str, RetrievalRanks] = {}
        self._checked, self.latest = False, dict[str, Tensor]()

    def seen(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the regions (I, R, D) of a batch's images and their mask; a frozen image encoder sees a batch once."""
        if "seen" in batch:
            return batch["seen"], batch["seen_mask"]
        encoder = self.model.image_encoder
        regions, mask = self.model.see(widen(batch["regions"]), batch["region_mask"])
        if encoder is not None and not encoder.is_trained:
            batch |= {"seen": regions, "seen_mask": mask}
        return regions, mask

    def encode(self, batch: Batch) -> tuple[Encoding, Encoding]:
        """Encode the images and captions of this device's part of a batch."""
        images = self.model.encode_images(*self.seen(batch))
        return images, self.model.encode_captions(batch["tokens"], batch["lengths"], batch["language"])

    @property
    def selects(self) -> str:
        """The name of the logged figure whose highest value is of the best epoch."""
        return "val/selection" if self.model.pretrain_epochs else "val/rsum"

    @property
    def main_epoch(self) -> int:
        """The number of epochs since the end of the model's pre-training, from 0; below 0 in pre-training."""
        return self.current_epoch - self.model.pretrain_epochs

    def with_auxiliary(self, losses: dict[str, Tensor], batch: Batch, pairs: Pairs) -> dict[str, Tensor]:
        """Return losses of a step by name, and the model's auxiliary ones.

        Raises:
            ModelError: one of these has the name of another loss, or is no scalar.
        """
        further = self.model.auxiliary_losses(batch, pairs)
        if not isinstance(further, dict):
            raise ModelError(f"{type(self.model).__name__}.auxiliary_losses returns {type(further).__name__}; expected "
                             "losses by name, {} for none")  # fmt: skip
        for name, loss in further.items():
            if name in losses or not isinstance(loss, Tensor) or loss.dim():
                what = "the name of another loss" if name in losses else "expected a tensor of one number"
                raise ModelError(f"{type(self.model).__name__}.auxiliary_losses: {name!r}: {what}")
        return losses | further

    def on_train_batch_start(self, batch: Batch, batch_idx: int) -> None:
        """Check the model by the first batch: `check_model`; what one process finds ends all of them."""
        if self._checked:
            return
        self._checked, found = True, list[str]()
        try:
            check_model(self.model, batch)
        except ModelError as error:
            found.append(str(error))
        if found := gather_objects(found, self.trainer.world_size):
            raise ModelError(found[0])

    def on_validation_start(self) -> None:
        """Name a loss of the last step that is not finite; ModelError."""
        if wrong := [name for name, loss in self.latest.items() if not bool(loss.isfinite())]:
            raise ModelError(
                f"{type(self.model).__name__}: the loss {wrong[0]!r} is not finite at the end of epoch "
                f"{self.current_epoch + 1}; lower vse.learning_rate, or look for a division or a logarithm in it"
            )

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        """Add encodings of images and human captions to the metric of each language."""
        images, captions = self.encode(batch)
        keys = batch["image_key"]
        for language, metric in self.metrics.items():
            own = batch["language"] == self.model.languages.index(language)  # if none, images are still in the gallery
            own_images = keys[batch["image_index"][own]]
            metric.update(images, keys, (captions[0][own], captions[1][own]), batch["caption_key"][own], own_images)

    def on_validation_epoch_end(self) -> None:
        """Log R@K of each language and task, and `val/rsum`, which selects the best epoch.

        With pre-training `selects` is another figure: no epoch of pre-training is to be chosen, whatever its rsum is.
        There it is the number of epochs to the end of pre-training, below 0, so that the last one is the best so far.
        """
        scores = self._rank_all("val")
        rsum = sum(scores[language]["rsum"] for language in self._select)
        self.log("val/rsum", rsum, prog_bar=True)
        if self.selects != "val/rsum":
            self.log(self.selects, rsum if self.main_epoch >= 0 else float(self.main_epoch))

    def test_step(self, batch: Batch, batch_idx: int) -> None:
        """Add encodings to the metrics, as in validation, but in float32, as a trained model is used later."""
        with torch.autocast(self.device.type, enabled=False):
            self.validation_step(batch, batch_idx)

    def on_test_epoch_end(self) -> None:
        """Log R@K; store the ranks by language in `ranks`."""
        self._rank_all("test")

    def gathered(self) -> dict[str, EncodedTest]:
        """Return what steps on all devices have encoded, by language, and forget it; none where it has no captions."""
        found = {}
        for language, metric in self.metrics.items():
            captions = torch.tensor(sum(len(ids) for ids in metric.caption_image_ids), device=self.device)
            if sum_over_ranks(captions, self.trainer.world_size):  # zero if validation lacks the language
                found[language] = metric.compute()
            metric.reset()
        return found

    def _rank_all(self, stage: str) -> dict[str, dict[str, float]]:
        self.ranks = {language: test.ranks() for language, test in self.gathered().items()}
        scores = {language: retrieval_scores(ranks) for language, ranks in self.ranks.items()}
        for language, figures in scores.items():
            self.log_dict({f"{stage}/{language}/{name}": value for name, value in figures.items()})
        return scores

    def _similarity(self, images: Encoding, captions: Encoding) -> Tensor:
        return self.model.similarity(images, captions)


class EncodedModule(RankedModule):
    """A trained model whose validation and test leave what they would rank.

    Attributes:
        encoded: the test of each language.
    """

    encoded: dict[str, EncodedTest]

    def on_validation_epoch_end(self) -> None:
        """Keep what was encoded."""
        self.encoded = self.gathered()

    on_test_epoch_end = on_validation_epoch_end
