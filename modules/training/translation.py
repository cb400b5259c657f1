"""Training of translators: text-only pre-training (NMT) and fine-tuning on captions, as MT or with regions as MMT."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from pytorch_lightning.utilities.types import OptimizerLRSchedulerConfig
from torch import Tensor

from modules.distributed import gather_objects, sum_over_ranks
from modules.errors import ModelError
from modules.layers.static import is_static
from modules.losses.cross_entropy import agreeing_cross_entropy, smoothed_cross_entropy
from modules.metrics.translation import surface_bleu
from modules.training.base import BatchModule, TrainedModule
from modules.translators.beam import BeamSettings, Hypothesis
from modules.translators.registry import Batch, Search, Searched, build_translator, translate


class Translation(TrainedModule):
    """Maximum likelihood training of a translator (mmt-retrieval, Eq. 6), selected by validation BLEU.

    Args:
        network: arguments of `build_translator`, plain values.
        learning_rate: Adam's, times a linear warm-up over `warmup` steps and a cosine that falls to a twentieth at
            `steps`.
        warmup: see `learning_rate`.
        steps: total number of training steps.
        label_smoothing: share of probability spread over the vocabulary.
        begin: id of the begin-of-sentence token.
        end: id of the end-of-sentence token.
        agreement: α of R-Drop (`agreeing_cross_entropy`); 0 turns R-Drop off.

    Before validation, set `reference` (the human translation of each sentence index, as surface text) and `decode`
    (converts token ids to surface text). `bleu` is `surface_bleu()` by default. Validation raises ModelError when
    training has diverged.
    """

    def __init__(
        self, network: dict[str, Any], learning_rate: float, warmup: int, steps: int, label_smoothing: float,
        begin: int, end: int, agreement: float = 0.0,
    ) -> None:  # fmt: skip
        super().__init__()
        self.save_hyperparameters()
        self.translator = build_translator(**network)
        self.reference: Sequence[str] = ()
        self.decode: Callable[[list[int]], str] | None = None
        self.bleu = surface_bleu()
        self._validated: list[tuple[int, str]] = []

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """Return the mean smoothed cross-entropy over the target words of the batches of all ranks."""
        loss, figures = self.computed(self._loss_and_words, batch)
        world = self.trainer.world_size
        total = sum_over_ranks(figures["words"], world)
        mean = loss * world / total  # DDP averages gradients over ranks
        if self.logs_step:
            self.log("train/loss", mean.detach(), prog_bar=True, sync_dist=True)
            self.log("train/words", total)
        return mean

    @property
    def has_graphs(self) -> bool:
        """Not of pretrained networks."""
        return getattr(self.translator, "has_graphs", False)

    def _loss_and_words(self, batch: Batch) -> tuple[Tensor, Batch]:
        """The summed cross-entropy of training, and the number of words."""
        loss, words = self._cross_entropy(batch, self.hparams["label_smoothing"])
        return loss, {"words": words}

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        """Translate the batch, and log the cross-entropy of the human translations."""
        loss, words = self._cross_entropy(batch, 0.0)
        if not loss.isfinite():  # before a checkpoint is saved
            raise ModelError(
                f"training diverged: validation loss is {float(loss)} at step {self.global_step}; run it again with a "
                "lower learning_rate or a longer warmup (mmt.pretrain or mmt.finetune)"
            )
        self.log("val/loss", loss / words, batch_size=int(words), on_epoch=True, sync_dist=True)
        settings = BeamSettings(beam_size=1)
        hypotheses = translate(self.translator, batch, settings, self.hparams["begin"], self.hparams["end"])
        assert self.decode is not None
        for number, best in zip(batch["index"].tolist(), hypotheses, strict=True):
            self._validated.append((number, self.decode(best[0].tokens)))

    def on_validation_epoch_end(self) -> None:
        """Log validation BLEU (sacreBLEU, lower-cased) over all ranks' sentences."""
        translations = dict(gather_objects(self._validated, self.trainer.world_size))
        self._validated = []
        numbers = sorted(translations)
        score = self.bleu.corpus_score([translations[n] for n in numbers], [[self.reference[n] for n in numbers]]).score
        self.log("val/bleu", score, prog_bar=True, sync_dist=True)  # equal on all ranks; avoids a warning

    def configure_optimizers(self) -> OptimizerLRSchedulerConfig:
        """Return Adam with warm-up and cosine decay, updated every step."""
        optimizer = torch.optim.Adam(self.parameters(), lr=self.hparams["learning_rate"], fused=True)
        warmup, steps = self.hparams["warmup"], self.hparams["steps"]

        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: rate_factor(step, warmup, steps))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def _cross_entropy(self, batch: Batch, smoothing: float) -> tuple[Tensor, Tensor]:
        """Return the summed cross-entropy and the number of words in the sum."""
        alpha = self.hparams["agreement"] if self.training else 0.0
        if alpha:  # both passes as one batch of twice the size, with different dropout
            batch = {name: tensor.expand(2, *tensor.shape).flatten(0, 1) for name, tensor in batch.items()}
        states, where = self._read(batch)
        labels = batch["labels"].flatten()[where]
        words, bias = self.translator.words.weight, self.translator.output_bias
        counted = labels.ne(self.translator.words.padding_idx or 0) if is_static(labels) else None
        if alpha:
            in_order = where.argsort()  # the first pass's sentences come first
            (first, second), (labels, _) = states[in_order].chunk(2), labels[in_order].chunk(2)
            counted = None if counted is None else counted.chunk(2)[0]
            loss = agreeing_cross_entropy(first, second, words, bias, labels, smoothing, alpha, counted)
        else:
            loss = smoothed_cross_entropy(states, words, bias, labels, smoothing, counted)
        count = torch.tensor(float(len(labels))) if counted is None else counted.sum().float()
        return loss, count.to(loss.device)

    def _read(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the states of all target words, and their positions in the flattened batch."""
        memory: Any = self.translator.encode(batch["source"], batch["source_lengths"], batch.get("regions"))
        return self.translator.read(memory, batch["target"], batch["target_lengths"])


class Synthesis(BatchModule):
    """Caption synthesis: `predict_step` translates a batch; works on any number of devices.

    Args:
        translator: a trained translator.
        search: settings of beam search or sampling.
        begin: id of the begin-of-sentence token.
        end: id of the end-of-sentence token.
        n_best: number of hypotheses kept for each sentence, best first.
    """

    def __init__(self, translator: Searched, search: Search, begin: int, end: int, n_best: int = 1) -> None:
        super().__init__()
        self.translator, self.search, self.begin, self.end, self.n_best = translator, search, begin, end, n_best
        self.found: dict[int, list[Hypothesis]] = {}

    def predict_step(self, batch: Batch, batch_idx: int) -> None:
        """Add the translations of the batch's sentences to `found`, by sentence index."""
        translations = translate(self.translator, batch, self.search, self.begin, self.end)
        for number, best in zip(batch["index"].tolist(), translations, strict=True):
            self.found[number] = best[: self.n_best]


def rate_factor(step: int, warmup: int, steps: int) -> float:
    """Return the factor of the learning rate at a step: linear warm-up, and cosine decay to a twentieth at `steps`."""
    progress = min(1.0, step / max(1, steps))
    return min(1.0, (step + 1) / max(1, warmup)) * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * progress)))
