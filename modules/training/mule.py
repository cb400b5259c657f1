"""Training of MULE (Kim et al. 2020): pre-training of the universal embedding, then all losses together."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.optim import Optimizer

from modules.layers.encoders import masked_mean, real_words
from modules.layers.recurrent import widen
from modules.losses.captions import among_captions
from modules.losses.pairs import Pairs
from modules.retrieval_models.base import Batch, Encoding, one_vector
from modules.search.scores import gram
from modules.training.retrieval import Retrieval


class MuleTraining(Retrieval):
    """The losses of MULE's Eq. 1-4; the ranking loss of the recipe is that of neighbours too.

    The loss of neighbours is taken on u, the mean universal vector of a sentence, and on s, its joint vector. The
    classifier learns at its own weight, and only its reversed gradient is multiplied by λ2.
    """

    model: Any  # a `Mule`, whose file imports this one

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        """Return the losses by name; in pre-training `neighbours_universal` alone."""
        model, languages = self.model, batch["language"]
        regions, mask = (batch["regions"], batch["region_mask"]) if self.main_epoch < 0 else self.seen(batch)
        mask, tokens, lengths = self.augmented(batch, mask)
        if self.main_epoch < 0:
            mean = model.mean_words(tokens, lengths).detach()
            return self.losses_of_pretraining(batch, widen(model.to_universal(mean, lengths, languages)))
        words, lengths = model.universal_words(tokens, lengths, languages)
        universal = masked_mean(words, real_words(words[..., 0], lengths))
        images = model.encode_images(regions, mask)
        return self.losses_of_training(batch, images, model.encode_universal(words, lengths), universal)

    def losses_of_pretraining(self, batch: Batch, universal: Tensor) -> dict[str, Tensor]:
        """Return `neighbours_universal` of the captions' u (C, U)."""
        no_images = one_vector(universal.new_zeros(len(batch["image_key"]), 1))
        return {"neighbours_universal": self._neighbours(self.gather(batch, no_images, one_vector(universal)))}

    def losses_of_training(
        self, batch: Batch, images: Encoding, captions: Encoding, universal: Tensor
    ) -> dict[str, Tensor]:
        """Return all losses of encoded images and captions, and the captions' u (C, U), by name."""
        model, (joint, mask) = self.model, captions
        both = self.gather(batch, images, (torch.cat([joint, universal[:, None]], -1), mask))
        parts = both.captions[0].split([joint.shape[-1], universal.shape[-1]], -1)
        pairs, of_universal = (replace(both, captions=(part, both.captions[1])) for part in parts)
        losses = {"ranking": model.matching * self.ranking_loss(pairs)}
        if model.neighbours:
            losses["neighbours_universal"] = model.neighbours * self._neighbours(of_universal)
            losses["neighbours_joint"] = model.neighbours * self._neighbours(pairs)
        if model.classifier:
            losses["language"] = self._language(of_universal)
        return self.with_auxiliary(losses, batch, pairs)

    def on_before_optimizer_step(self, optimizer: Optimizer) -> None:
        """In pre-training, leave what does not learn to the optimiser as if it had never been there."""
        if self.main_epoch < 0:
            for name, parameter in self.model.named_parameters():
                if not name.startswith("to_universal."):
                    parameter.grad = None

    def _neighbours(self, pairs: Pairs) -> Tensor:
        """Sentences of one image are neighbours, in one language or in two (Eq. 1)."""
        vectors, mask = pairs.captions
        unit = replace(pairs, captions=(F.normalize(vectors, dim=-1), mask))
        return among_captions(unit, _cosines, self.loss_of_captions, self.model.same_language)

    def _language(self, pairs: Pairs) -> Tensor:
        """The cross-entropy of the language classifier on u (Eq. 2); its share of right answers is logged."""
        logits = self.model.name_languages(pairs.captions[0][:, 0])
        self.model.figures["language_accuracy"] = (logits.argmax(1) == pairs.languages).float().mean()
        loss: Tensor = self.model.classifier_weight * F.cross_entropy(logits, pairs.languages)
        return loss


def _cosines(captions: Encoding, _: Encoding) -> Tensor:
    """The cosines of single unit vectors with each other: `among_captions` compares all captions with all."""
    return gram(captions[0][:, 0])
