"""Training of MULE (Kim et al. 2020): pre-training of the universal embedding, then all losses together."""

from dataclasses import replace
from typing import Any

from torch import Tensor
from torch.nn import functional as F
from torch.optim import Optimizer

from modules.caption_losses import among_captions
from modules.pretrained import read_words
from modules.recurrent import widen
from modules.retrieval import Retrieval, gather_encoding
from modules.retrieval_models.base import Batch, Pairs, one_vector


class MuleTraining(Retrieval):
    """The losses of MULE's Eq. 1-4; the ranking loss of the recipe is that of neighbours too.

    The loss of neighbours is taken on u, the mean universal vector of a sentence, and on s, its joint vector. The
    classifier learns at its own weight, and only its reversed gradient is multiplied by λ2.
    """

    model: Any  # a `Mule`, whose file imports this one

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        """Return the losses by name; in pre-training `neighbours_universal` alone."""
        model, world = self.model, self.trainer.world_size
        mask, tokens, lengths = self.augmented(batch)
        words, lengths = read_words(model.words, tokens, lengths)
        if self.main_epoch < 0:
            universal = model.universal(words.detach(), lengths, batch["language"])
            no_images = one_vector(universal.new_zeros(len(batch["image_key"]), 1))
            pairs = self.gather(batch, no_images, one_vector(universal))
            return {"neighbours_universal": self._neighbours(pairs)}
        universal = model.universal(words, lengths, batch["language"])
        images = model.encode_images(widen(batch["regions"]), mask)
        pairs = self.gather(batch, images, model.encode_words(words, lengths, batch["language"]))
        of_universal = replace(pairs, captions=gather_encoding(one_vector(universal), world))
        losses = {"ranking": model.matching * self.ranking_loss(pairs)}
        if model.neighbours:
            losses["neighbours_universal"] = model.neighbours * self._neighbours(of_universal)
            losses["neighbours_joint"] = model.neighbours * self._neighbours(pairs)
        if model.classifier:
            losses["language"] = self._language(of_universal)
        return losses | model.auxiliary_losses(batch, pairs)

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
        return among_captions(unit, self.model.caption_similarity, self.loss_of_captions, self.model.same_language)

    def _language(self, pairs: Pairs) -> Tensor:
        """The cross-entropy of the language classifier on u (Eq. 2); its share of right answers is logged."""
        logits = self.model.name_languages(pairs.captions[0][:, 0])
        self.model.figures["language_accuracy"] = (logits.argmax(1) == pairs.languages).float().mean()
        loss: Tensor = self.model.classifier_weight * F.cross_entropy(logits, pairs.languages)
        return loss
