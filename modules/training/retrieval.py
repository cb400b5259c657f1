"""Training, validation and test of retrieval models."""

import logging
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.nn.modules.batchnorm import _BatchNorm
from torch.optim import Adam, Optimizer
from torch.optim.lr_scheduler import LinearLR, MultiStepLR

from modules.distributed import gather_rows, touch
from modules.errors import ModelError
from modules.layers.augmentation import drop_regions, drop_words
from modules.layers.recurrent import widen
from modules.layers.static import beside, is_static
from modules.losses.captions import between_captions
from modules.losses.pairs import Pairs
from modules.losses.registry import CONTRASTIVE, Distance, RankingLoss, negative_mask
from modules.losses.teaching import teaching_loss
from modules.pretrained.image_encoder import ImageEncoder
from modules.pretrained.pretrained_text import PretrainedWords, SentenceVectors
from modules.retrieval_models import build_model
from modules.retrieval_models.base import Batch, Encoding
from modules.training.collapse import CollapseWatch
from modules.training.gathering import first_rows, gather_encoding, in_chunks
from modules.training.ranked import RankedModule

_LOG = logging.getLogger(__name__)
_WATCHED = "watched"  # what the watch for a collapse sees of a step
_COLLAPSED = (
    "%s has collapsed: over epoch %d of %d its ranking loss stayed at %.4g, the value for equal scores of all pairs; "
    "what usually helps: a lower vse.learning_rate, a larger vse.batch_size%s"
)
_OF_HINGES = ", more vse.warmup_epochs, a larger vse.margin, or vse.loss=infonce"


class Retrieval(RankedModule):
    """Training with a ranking loss (mmt-retrieval, Eq. 9-10, unless the model or the recipe sets another one).

    For a model with another training step, subclass this, set the subclass as the model's `module`, and override only
    `training_step` (and `configure_optimizers`), using `encode`, `gather` and `ranking_loss`. One that overrides
    `losses` alone may be a CUDA graph on a GPU: it may read nothing that changes between steps but the batch, weights,
    buffers and whether the epoch is one of pre-training or warm-up, or the model says `has_graphs = False`.

    Args:
        model: the model's registered name.
        arguments: arguments of the model, plain values.
        loss: one of `modules.losses.registry.loss_names`; None: the model's default.
        margin: α of the loss.
        type_weights: β of each caption type; None: equal.
        warmup_epochs: epochs with the mean of hinges over all negatives, see `RankingLoss`.
        learning_rate: Adam's.
        decay_epoch: epoch after which the learning rate is multiplied by `decay`.
        decay: factor of the learning rate after `decay_epoch`.
        test_languages: languages of validation and test.
        select: languages whose sum of rsum is logged as `val/rsum`.
        drop_regions: share of regions dropped in training.
        drop_words: share of words dropped in training.
        pretrained_rate: learning rate of a pretrained text model, as a share of `learning_rate`; 0 freezes it.
        caption_loss: weight of the ranking loss between captions of an image in two languages; 0 leaves it out.
        weight_decay: Adam's, added to the gradient.
        negatives: K of the loss `hardest-k`.
        distance: what losses compare, `cosine` or `euclidean`; scores that are no inner product are taken as they are.
        decay_every: epochs from one decay of the learning rate to the next; 0: there is one.
        image_encoder_rate: as `pretrained_rate`, of an image encoder.
        cached_chunk: images, and captions, that are encoded together; their activations are not kept but computed again
            for the gradient, so that memory does not grow with the batch (GradCache, Gao et al. 2021); 0: all at once.
        taught_types: of each type of captions, whether they are sentences without pictures, whose "image" is a
            teacher's vector; None: there are none.
        teaching_contrast: weight of InfoNCE between such sentences and the teacher's vectors.
        warmup_steps: steps in which the learning rate rises to `learning_rate`; 0: it begins there.

    Attributes are those of a `RankedModule`.
    """

    def __init__(
        self, model: str, arguments: dict[str, Any], loss: str | None, margin: float,
        type_weights: list[float] | None, warmup_epochs: int, learning_rate: float, decay_epoch: int, decay: float,
        test_languages: list[str], select: list[str], drop_regions: float = 0.0, drop_words: float = 0.0,
        pretrained_rate: float = 0.0, caption_loss: float = 0.0, weight_decay: float = 0.0, negatives: int = 10,
        distance: Distance = "cosine", decay_every: int = 0, image_encoder_rate: float = 0.0,
        cached_chunk: int = 0, taught_types: Sequence[bool] | None = None, teaching_contrast: float = 0.1,
        warmup_steps: int = 0,
    ) -> None:  # fmt: skip
        super().__init__(build_model(model, **arguments), test_languages, select)
        self.save_hyperparameters()
        self._shares: dict[type, float] = {PretrainedWords: pretrained_rate, ImageEncoder: image_encoder_rate}
        for part in self.model.modules():
            if isinstance(part, PretrainedWords | ImageEncoder) and not self._shares[type(part)]:
                part.freeze()
        if self.model.score != "inner product":
            distance = "cosine"
        kind, of_both = loss or self.model.loss, (warmup_epochs, negatives, distance)
        if type_weights is None and taught_types is not None:
            type_weights = [1.0] * len(taught_types)
        self.loss = RankingLoss(kind, margin, type_weights, *of_both)
        self.caption_loss = RankingLoss(kind, margin, None, *of_both) if caption_loss else None
        taught = taught_types or [False]
        if all(taught):
            self.loss.requires_grad_(False)  # it is never asked: on several devices its gradient would be 0, not none
        self.contrast = RankingLoss("infonce", margin) if any(taught) and teaching_contrast else None
        if cached_chunk and any(isinstance(part, _BatchNorm) for part in self.model.modules()):
            raise ModelError(f"vse.cached_chunk is {cached_chunk}, but {model} normalises over the whole batch; set it "
                             "to 0")  # fmt: skip
        self.collapse, self._warned = CollapseWatch(2 if kind in CONTRASTIVE else 1), False
        self._draws = 0
        self._watched: Tensor | None = None

    def augmented(self, batch: Batch, mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the mask of regions, the tokens and the lengths of captions; in training some of them are dropped."""
        tokens, lengths = batch["tokens"], batch["lengths"]
        if self.training:
            mask = drop_regions(mask, self.hparams["drop_regions"])
            tokens, lengths = drop_words(tokens, lengths, self.hparams["drop_words"])
        return mask, tokens, lengths

    def encode(self, batch: Batch) -> tuple[Encoding, Encoding]:
        """Encode the images and captions of this device's part of a batch."""
        if (chunk := self.hparams["cached_chunk"]) and self.training and torch.is_grad_enabled():
            return self._encode_in_chunks(batch, chunk)
        regions, mask = self.seen(batch)
        mask, tokens, lengths = self.augmented(batch, mask)
        images = self.model.encode_images(regions, mask)
        return images, self.model.encode_captions(tokens, lengths, batch["language"])

    def _encode_in_chunks(self, batch: Batch, chunk: int) -> tuple[Encoding, Encoding]:
        """The same, a chunk at a time, by gradient checkpoints, which draw the same dropout again."""

        def images(regions: Tensor, mask: Tensor) -> Encoding:
            """Encodings of some images."""
            regions, mask = self.model.see(widen(regions), mask)
            return self.model.encode_images(regions, drop_regions(mask, self.hparams["drop_regions"]))

        tokens, lengths = drop_words(batch["tokens"], batch["lengths"], self.hparams["drop_words"])
        return (
            in_chunks(images, chunk, batch["regions"], batch["region_mask"]),
            in_chunks(self.model.encode_captions, chunk, tokens, lengths, batch["language"]),
        )

    def gather(self, batch: Batch, images: Encoding, captions: Encoding) -> Pairs:
        """Gather the encodings of all devices, with gradients; an image that is on several devices is kept once."""
        world = self.trainer.world_size
        keys = gather_rows(batch["image_key"], world)
        caption_image_keys = gather_rows(batch["image_key"][batch["image_index"]], world)
        names = ("type", "language", "sentence")
        types, languages, sentences = (gather_rows(batch[name], world) for name in names)
        all_images, all_captions = gather_encoding(images, world), gather_encoding(captions, world)
        known = gather_rows(batch["image_sentences"], world)
        if world == 1 and is_static(keys):  # a batch has each image once
            links = batch["image_index"]
        else:
            keys, chosen = first_rows(keys)
            links = torch.searchsorted(keys, caption_image_keys)
            all_images = (all_images[0][chosen], all_images[1][chosen])
        positives, negatives = negative_mask(keys, links, sentences, known)
        pairs = Pairs(all_images, all_captions, links, positives, negatives, types, languages, sentences)
        return pairs.in_order() if self.loss.kind == "random" else pairs  # which draws by place

    def ranking_loss(self, pairs: Pairs) -> Tensor:
        """Return the ranking loss of all pairs of the batch, or the sum of the losses of each language."""
        scores = self.model.similarity(pairs.images, pairs.captions)
        loss = self._loss_of(scores, pairs)
        if not self.loss.warms_up(self.main_epoch):
            with torch.no_grad():
                equal = self._loss_of(scores.mean().expand_as(scores), pairs)
                self._watched = CollapseWatch.seen(loss, equal, scores, pairs.positives, pairs.negatives)
        return loss

    def _loss_of(self, scores: Tensor, pairs: Pairs) -> Tensor:
        if not self.model.languages_apart:
            loss: Tensor = self.loss(
                scores, pairs.positives, pairs.negatives, pairs.types, self.main_epoch, self._draw(),
                pairs.caption_image,
            )  # fmt: skip
            return loss
        losses = []
        if is_static(scores):
            for language in range(len(self.model.languages)):
                sides = (side & (pairs.languages == language) for side in (pairs.positives, pairs.negatives))
                of_pairs = (pairs.types, self.main_epoch, self._draw(), pairs.caption_image)
                losses.append(self.loss(scores, *sides, *of_pairs))
            return torch.stack(losses).sum()
        for language in pairs.languages.unique():
            own = pairs.languages == language
            sides = (side[:, own] for side in (scores, pairs.positives, pairs.negatives))
            losses.append(self.loss(*sides, pairs.types[own], self.main_epoch, self._draw()))
        return torch.stack(losses).sum()

    def loss_of_captions(self, scores: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
        """The ranking loss of captions (N, M) and captions, with the masks of positive and of negative pairs."""
        loss_of: RankingLoss = self.caption_loss or self.loss
        loss: Tensor = loss_of(scores, positives, negatives, None, self.main_epoch, self._draw())
        return loss

    def _draw(self) -> tuple[int, int]:
        """What a random loss draws by: the step and how many losses it has had; equal on all processes."""
        self._draws += 1
        return (self.trainer.global_step, self._draws) if self.loss.kind == "random" else (0, 0)

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        """Return the ranking loss, the weighted loss between captions and the model's auxiliary losses, by name."""
        pairs = self.gather(batch, *self.encode(batch))
        losses = self.teaching_losses(pairs)
        if not losses:
            losses = {"ranking": self.ranking_loss(pairs)}
        if self.caption_loss is not None:
            own = pairs if (taught := self._taught(pairs)) is None else pairs.among(~taught)
            similarity, languages = self.model.caption_similarity, len(self.model.languages)
            term = between_captions(own, similarity, self.loss_of_captions, languages)
            losses["between_captions"] = self.hparams["caption_loss"] * term
        return self.with_auxiliary(losses, batch, pairs)

    def teaching_losses(self, pairs: Pairs) -> dict[str, Tensor]:
        """Return the losses of sentences without pictures, and the ranking loss of the others; none without a teacher.

        `teaching` and, with its weight, `teaching_contrast`; `ranking` if the training has captions of pictures too. No
        picture is a negative of a sentence, nor a sentence of a caption.
        """
        if (taught := self._taught(pairs)) is None:
            return {}
        losses = {} if all(self.hparams["taught_types"]) else {"ranking": self.ranking_loss(pairs.among(~taught))}
        targets = pairs.images[0][pairs.caption_image, 0]
        losses["teaching"] = teaching_loss(pairs.captions[0][:, 0], targets, taught)
        if self.contrast is not None:
            own = pairs.among(taught)
            scores = self.model.similarity(pairs.images, pairs.captions)
            term = self.contrast(scores, own.positives, own.negatives, None)
            losses["teaching_contrast"] = self.hparams["teaching_contrast"] * term
        return losses

    def _taught(self, pairs: Pairs) -> Tensor | None:
        """Which captions (C,) of a batch are sentences without pictures; None if none can be."""
        kinds = self.hparams["taught_types"]
        return beside(torch.tensor(kinds), pairs.types)[pairs.types] if kinds and any(kinds) else None

    def start_losses(self, start: Mapping[str, float]) -> None:
        """Let the scale and the bias of contrastive losses start as those of a pretrained network."""
        with torch.no_grad():
            for loss in (self.loss, self.caption_loss, self.contrast):
                for name, value in start.items():
                    if isinstance(parameter := getattr(loss, name, None), Parameter):
                        parameter.fill_(value)

    def finish(self) -> None:
        """Make the model with the best weights ready to be written."""
        scale = self.loss.bounded_scale().item() if hasattr(self.loss, "log_scale") else None
        self.model.finish(scale, self.loss.bias.item() if hasattr(self.loss, "bias") else None)

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor | None:
        """Return the sum of all losses."""
        total, losses = self.computed(self.total_loss, batch, self.main_epoch < 0, self.loss.warms_up(self.main_epoch))
        if (watched := losses.pop(_WATCHED, None)) is not None:
            self.collapse.add(watched)
        self.model.figures = {name: losses.pop(name) for name in self.model.figures}
        self.log_losses(total, losses, batch)
        return total

    @property
    def has_graphs(self) -> bool:
        """Not of steps that may read the host, run in chunks, have a pretrained network, or are overridden."""
        return type(self).training_step is Retrieval.training_step and self._has_graphs

    @property
    def _has_graphs(self) -> bool:
        """As `has_graphs`, of the step of this class."""
        kinds = PretrainedWords, SentenceVectors, ImageEncoder
        by_host = self.loss.by_host or any(isinstance(part, kinds) for part in self.model.modules())
        otherwise = by_host or self.hparams["cached_chunk"] or any(self.hparams["taught_types"] or ())
        return self.automatic_optimization and self.model.has_graphs and not otherwise

    def total_loss(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the sum of all losses, and each of them without its gradient, with what the model measured."""
        self._draws, self._watched = 0, None
        losses = self.losses(batch)
        total = self.with_all_parameters(torch.stack(list(losses.values())).sum())
        figures = {name: figure.detach() for name, figure in (losses | self.model.figures).items()}
        return total, figures if self._watched is None else figures | {_WATCHED: self._watched}

    def with_all_parameters(self, total: Tensor) -> Tensor:
        """Return a loss that reaches every parameter (`touch`): for ranks, and for weight decay, which skips others."""
        alone = self.trainer.world_size == 1 and not self.hparams["weight_decay"]
        return total if alone else total + touch(self.parameters())

    def log_losses(self, total: Tensor, losses: dict[str, Tensor], batch: Batch) -> None:
        """Log the losses, what the model measured, and the total number of captions on all devices."""
        self.latest = losses
        if not self.logs_step:
            return
        self.log("train/loss", total.detach(), prog_bar=True, batch_size=1)
        if len(losses) > 1:
            self.log_dict({f"train/{name}": loss.detach() for name, loss in losses.items()}, batch_size=1)
        if self.model.figures:
            self.log_dict({f"train/{name}": figure for name, figure in self.model.figures.items()}, batch_size=1)
        self.log("train/captions", float(len(batch["type"])), reduce_fx="sum", sync_dist=True, batch_size=1)

    def on_train_epoch_end(self) -> None:
        """Warn, once, of a model that gives all pairs the same score."""
        if (value := self.collapse.stays_at()) is not None and not self._warned:
            self._warned = True
            if self.trainer.is_global_zero:
                more = "" if self.loss.kind in CONTRASTIVE else _OF_HINGES
                place = self.current_epoch + 1, self.trainer.max_epochs
                _LOG.warning(_COLLAPSED, self.hparams["model"], *place, value, more)

    def configure_optimizers(self) -> Any:
        """Return Adam with a warm-up and a decay of the learning rate; pretrained parts have rates of their own."""
        optimizer = self.adam(list(self.parameters()))
        schedules: list[dict[str, Any]] = [{"scheduler": self.schedule(optimizer, self.model.pretrain_epochs)}]
        if steps := self.hparams["warmup_steps"]:
            rising = LinearLR(optimizer, start_factor=1 / steps, total_iters=steps - 1)
            schedules.append({"scheduler": rising, "interval": "step"})
        return [optimizer], schedules

    def adam(
        self, parameters: Sequence[Parameter], betas: tuple[float, float] = (0.9, 0.999),
        slower: Mapping[Parameter, float] = MappingProxyType({}),
    ) -> Adam:  # fmt: skip
        """Return Adam over some of the parameters.

        Args:
            parameters: which; those of frozen parts are left out.
            betas: of Adam.
            slower: parameters and their learning rate, as a share of what it would be; pretrained parts have shares of
                their own.
        """
        rate = self.hparams["learning_rate"]
        shares = {
            parameter: share for kind, share in self._shares.items()
            for part in self.modules() if type(part) is kind for parameter in part.parameters()
        }  # fmt: skip
        groups: dict[float, list[Parameter]] = {}
        for parameter in (each for each in parameters if each.requires_grad):
            if share := shares.get(parameter, 1.0):
                groups.setdefault(rate * share * slower.get(parameter, 1.0), []).append(parameter)
        ordered = [{"params": groups[group_rate], "lr": group_rate} for group_rate in sorted(groups, reverse=True)]
        return Adam(ordered, lr=rate, betas=betas, weight_decay=self.hparams["weight_decay"], fused=True)

    def schedule(self, optimizer: Optimizer, before: int) -> MultiStepLR:
        """Return the decay of an optimizer's learning rate, for a schedule that has `before` epochs of pre-training."""
        first, every = self.hparams["decay_epoch"] + before, self.hparams["decay_every"]
        epochs: Sequence[int] = [first]
        if every:
            last = (self.trainer.max_epochs or 0) - self.model.pretrain_epochs + before
            epochs = range(first, last or first, every)
        return MultiStepLR(optimizer, epochs, gamma=self.hparams["decay"])
